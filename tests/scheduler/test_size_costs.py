"""What a contraction costs at any sizes: the expression that calls evaluate, beside the model that chooses register tiles."""

from __future__ import annotations

import numpy as np
import pytest

from polyc.driver import stages
from polyc.ir.expr import evaluate
from polyc.ir.versions import take_version
from polyc.machine import X86_64_V3, X86_64_V4, Machine
from polyc.scheduler import size_classes
from polyc.scheduler.amounts import UNIT
from polyc.scheduler.contractions.choice import estimate, estimate_cycles
from polyc.scheduler.contractions.contraction import measure
from polyc.scheduler.size_costs import CostModel, Form
from tests.scheduler.test_size_classes import CONV, MM, lowered

NT = "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
TN = "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }"
CHANNELS_LAST = "def f(float(N,H,W,C) X, float(K,C) F) -> (Y) { Y(n,h,w,k) +=! X(n,h,w,c) * F(k,c) }"


def forms_of(source: str, shapes: tuple[tuple[int, ...], ...], target: Machine, monkeypatch: pytest.MonkeyPatch) -> list[Form]:
    """The forms among which versions of a program are chosen."""
    found: list[Form] = []

    def keep(forms: list[Form], *rest: object) -> None:
        found.extend(forms)

    monkeypatch.setattr(stages, "find_size_classes", keep)
    lowered(source, *shapes, target=target.name)
    return found


@pytest.mark.each
@pytest.mark.parametrize("target", [X86_64_V4, X86_64_V3], ids=lambda t: t.name)
@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (MM, ((300, 300), (300, 300))),
        (NT, ((300, 300), (300, 300))),
        (TN, ((300, 300), (300, 300))),
        (CONV, ((1, 64, 58, 58), (64, 64, 3, 3))),
        (CHANNELS_LAST, ((1, 58, 58, 64), (64, 64))),
    ],
    ids=("nn", "nt", "tn", "windows", "channels last"),
)
def test_the_cost_at_a_call_is_that_of_the_model(
    source: str, shapes: tuple[tuple[int, ...], ...], target: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each formula, at sizes drawn over magnitudes, up to rounding of its constants; and so the version that a call takes."""
    form = forms_of(source, shapes, target, monkeypatch)[0]
    model = CostModel(form, target, (), size_classes._contractions(form.scop, target), False)
    names = [n for n in form.scop.program.sizes if n not in dict(form.scop.program.defined_sizes)]
    rng = np.random.default_rng(len(source))
    drawn = [{n: int(2 ** rng.uniform(0, 11)) for n in names} for _ in range(25)]
    drawn += [dict.fromkeys(names, n) for n in (1, 16, 512, 1024)]
    made = [found for found in map(model.at, drawn[:5])]
    chosen = [(found, model.choose(found)) for found in made]
    costs = [model.cost(*pair) for pair in chosen]
    for sizes in drawn:
        (c,) = model.at(sizes)
        assert c is not None
        wanted = [estimate(found[0], measure(c), choices[0], target) for found, choices in chosen if found[0] is not None]
        assert [evaluate(cost, sizes) / UNIT for cost in costs] == pytest.approx(wanted, rel=5e-3)
        assert wanted[take_version(costs, sizes)] <= 1.005 * min(wanted)


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
