"""The comparison of kernels for any sizes with specialised ones; no time is asserted."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import dynamic


@pytest.mark.parametrize("name", dynamic.FAMILIES)
def test_sizes_are_the_same_at_every_run_and_within_bounds(name: str) -> None:
    family = dynamic.FAMILIES[name]
    sizes = dynamic.draw_sizes(family, 30)
    assert sizes == dynamic.draw_sizes(family, 30) and len(set(sizes)) > 20
    for shapes in sizes:
        assert family.products(shapes) <= dynamic.MOST_PRODUCTS
        assert max(map(dynamic.n_elements, shapes)) <= dynamic.MOST_ELEMENTS
        assert max(shapes[0]) >= dynamic.SMALLEST


def test_one_kernel_takes_turns_with_specialised_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic, "SECONDS", 0.0)
    told: list[dynamic.Shapes] = []
    result = dynamic.measure(dynamic.FAMILIES["softmax"], 2, lambda shapes, own, other: told.append(shapes))
    assert result.n_kernels == 1 and result.error < 1e-6
    assert told == result.sizes and len(result.shares) == 2 and min(result.shares) > 0


def test_the_command_prints_a_row_for_each_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic, "SECONDS", 0.0)
    monkeypatch.setenv("POLYC_CACHE", "1")  # restored behind the command, which changes it
    done = CliRunner().invoke(dynamic.main, ["softmax", "--sizes", "1", "--each"])
    assert done.exit_code == 0, done.output
    assert "1453x1217" in done.output and "compiled in" in done.output
    assert CliRunner().invoke(dynamic.main, ["conv4x4"]).exit_code == 2


@pytest.mark.parametrize(
    ("found", "exact", "expected"),
    [
        ([1.0, np.inf, np.nan], [1.0, np.inf, np.nan], 0.0),
        ([np.nan, 2.0], [1.0, 2.0], np.inf),
        ([1.0, np.inf], [1.0, -np.inf], np.inf),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([], [], 0.0),
    ],
)
def test_results_that_are_no_numbers_are_compared(found: list[float], exact: list[float], expected: float) -> None:
    assert dynamic._difference(np.array(found), np.array(exact)) == expected
