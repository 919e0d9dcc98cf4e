"""The board of gradients: what its references, worked out by hand, say of small inputs, against what polyc derives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc
from benchmarks.gradients import GROUPS, ROWS
from benchmarks.worker import largest_error
from benchmarks.workload import as_tuple
from benchmarks.workloads import BOARD, WORKLOADS
from polyc.diagnostics import UnsupportedError
from polyc.gradients import vjp
from polyc.ir.interpret import interpret

ATTENTION = dict.fromkeys("XYZ", (2, 1, 5, 64))
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "linear_gelu": {"X": (5, 7), "W": (6, 7), "B": (6,)},
    "mlp3": {"X": (4, 5), "W1": (6, 5), "B1": (6,), "W2": (3, 6), "B2": (3,), "W3": (2, 3), "B3": (2,), "T": (4, 2)},
    "conv3x3": {"X": (2, 3, 5, 6), "F": (4, 3, 3, 3)},
    "conv3x3_strided": {"X": (2, 3, 7, 8), "F": (4, 3, 3, 3)},
    "depthwise": {"X": (2, 3, 5, 6), "F": (3, 3, 3)},
    "layernorm": {"X": (4, 6), "G": (6,), "B": (6,)},
    "cross_entropy": {"X": (4, 6)},
    "attention_s128": ATTENTION,
    "attention_s2048": ATTENTION,
    "embedding_bag": {"T": (6, 3)},
    "lstm": {"X": (4, 2, 3), "W": (4, 5, 3), "R": (4, 5, 5), "bias": (4, 5), "h0": (2, 5), "c0": (2, 5)},
    "cumsum": {"X": (3, 7)},
    "wave": {"P": (5, 6), "Q": (5, 6)},
    "blur": {"X": (6, 7)},
}
INDICES: dict[str, dict[str, np.ndarray]] = {
    "cross_entropy": {"label": np.array([5, 0, 2, 2])},
    "embedding_bag": {"I": np.array([[0, 5, 5], [2, 0, 2]], np.int32)},
}


def run(program: Any, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return interpret(program, arrays, {}, float_as=np.float64)


@pytest.mark.parametrize("name", ROWS)
def test_references_are_the_gradients_that_polyc_derives(name: str) -> None:
    row, rng = ROWS[name], np.random.default_rng(5)
    arrays = {n: 0.3 * rng.standard_normal(shape) for n, shape in SHAPES[name].items()} | INDICES.get(name, {})
    program = polyc.compile(row.source).program
    values = run(program, arrays)
    if row.has_value:
        given = {n: np.ones_like(v) for n, v in values.items()}
    else:
        given = {n: rng.standard_normal(v.shape) for n, v in values.items()}
    cotangents = {f"d_{n}": c for n, c in given.items()}
    exact = as_tuple(row.exact(**arrays) if row.has_value else row.exact(**arrays, **cotangents))
    try:
        gradient = vjp(program, row.wrt)
    except UnsupportedError as error:
        pytest.skip(error.code)
    found = list(run(gradient, arrays | cotangents).values())
    if row.has_value:
        found = [*values.values(), *found]
    assert largest_error(found, [np.asarray(e) for e in exact]) <= 1e-6


def test_gradients_are_asked_for_by_their_group() -> None:
    assert not set(BOARD) & set(GROUPS["gradients"])
    for name, row in ROWS.items():
        workload = WORKLOADS[f"gradient_{name}"]
        signature = workload.signature()
        assert set(row.wrt) <= set(signature) and set(SHAPES[name]) <= set(signature)
        assert {"torch", "jax"} <= set(workload.peers)
        # As many cotangents as results, unless the value of a loss is asked for.
        assert sum(n.startswith("d_") for n in signature) == (0 if row.has_value else len(row.results))
