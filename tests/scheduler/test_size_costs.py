"""What a contraction costs at any sizes: the expression that calls evaluate, beside the model that chooses register tiles."""

from __future__ import annotations

import numpy as np
import pytest

from polyc.driver import stages
from polyc.ir.expr import Call, Const, Expr, Size, evaluate, int_const
from polyc.ir.versions import evaluate_arrays, sizes_as_arrays
from polyc.scheduler import size_classes
from polyc.scheduler.contractions.choice import estimate_cycles
from polyc.scheduler.contractions.size_algebra import UNIT, ceil_div, if_at_most, product, total
from polyc.scheduler.size_costs import CostModel, Form
from polyc.target import X86_64_V3, X86_64_V4, Target
from tests.scheduler.test_size_classes import CONV, MM, lowered

M, N = Size("M"), Size("N")

SIZES = [(30, 20, 40), (250, 300, 130), (257, 1000, 509), (1453, 1217, 609), (8, 700, 1500), (1023, 2048, 77)]


def forms_of(source: str, shapes: tuple[tuple[int, ...], ...], target: Target, monkeypatch: pytest.MonkeyPatch) -> list[Form]:
    """The forms among which versions of a program are chosen."""
    found: list[Form] = []

    def keep(forms: list[Form], *rest: object) -> None:
        found.extend(forms)

    monkeypatch.setattr(stages, "find_size_classes", keep)
    lowered(source, *shapes, target=target.name)
    return found


@pytest.mark.parametrize("target", [X86_64_V4, X86_64_V3], ids=lambda t: t.name)
@pytest.mark.parametrize("chosen_for", SIZES[1:])
def test_the_cost_at_a_call_is_that_of_the_model(
    target: Target, chosen_for: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (form,) = forms_of(MM, ((300, 300), (300, 300)), target, monkeypatch)
    model = CostModel(form, target, (), size_classes._contractions(form.scop, target), False)
    found = model.at(dict(zip("MKN", chosen_for, strict=True)))
    choices = model.choose(found)
    cost = model.cost(found, choices)
    for sizes in (dict(zip("MKN", values, strict=True)) for values in SIZES):
        (c,) = model.at(sizes)
        assert c is not None
        wanted = estimate_cycles(c, choices[0], target)
        assert evaluate(cost, sizes) / UNIT == pytest.approx(wanted, rel=0.1)


def test_versions_of_a_convolution_rank_as_in_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 to 256 channels took tiles of six rows and two columns, as steps that touch many lines cost the same as others."""
    forms = forms_of(CONV, ((1, 64, 58, 58), (64, 64, 3, 3)), X86_64_V4, monkeypatch)
    model = CostModel(forms[0], X86_64_V4, (), size_classes._contractions(forms[0].scop, X86_64_V4), False)
    names = ("N", "C", "H", "W", "K")
    made = [
        model.at(dict(zip(names, v, strict=True))) for v in ((1, 3, 14, 14, 64), (1, 64, 300, 300, 16), (1, 256, 28, 28, 256))
    ]
    chosen = [(found, model.choose(found)) for found in made]
    costs = [model.cost(*pair) for pair in chosen]
    for sizes in (
        dict(zip(names, v, strict=True)) for v in ((1, 3, 226, 226, 32), (2, 64, 300, 260, 16), (1, 128, 30, 30, 256))
    ):
        (c,) = model.at(sizes)
        assert c is not None
        wanted = [estimate_cycles(c, choices[0], X86_64_V4) for _, choices in chosen]
        taken = min(range(3), key=lambda n: evaluate(costs[n], sizes))
        assert wanted[taken] <= 1.05 * min(wanted)


def test_arrays_of_sizes_have_the_cost_of_each() -> None:
    cost: Expr = if_at_most(product([M, N]), int_const(40), total([M, ceil_div(N, 3)]), Call("mod", (N, int_const(7))))
    samples = [{"M": m, "N": n} for m in (0, 1, 5, 9) for n in (0, 3, 8, 20)]
    wanted = [evaluate(cost, sizes) for sizes in samples]
    np.testing.assert_array_equal(evaluate_arrays(cost, sizes_as_arrays(samples, ())), wanted)
    values = sizes_as_arrays(samples, (("P", product([M, N])),))
    np.testing.assert_array_equal(values["P"], [s["M"] * s["N"] for s in samples])


def test_sums_and_products_take_constants_together() -> None:
    assert total([product([M, int_const(3)]), N, product([int_const(4), M]), int_const(5), int_const(-5)]) == total(
        [product([M, int_const(7)]), N]
    )
    assert product([M, int_const(0), N]) == int_const(0) and total([]) == int_const(0)
    assert product([product([M, int_const(3)]), int_const(5)]) == Call("mul", (M, Const(15)))
    assert ceil_div(int_const(10), 4) == int_const(3) and ceil_div(M, 1) == M
