# ruff: noqa: F821, UP037
"""Users' monoids over chunked axes: tuples of partial results in a tree."""

from __future__ import annotations

import random

import numpy as np
import pytest

import polyc
from polyc.ir.interpret import interpret
from tests.blocks.differential import chunk, compare, interpreted

da = pytest.importorskip("dask.array")


@polyc.monoid(identity=(1.0, 0.0))
def product(a, b):
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


@polyc.monoid(identity=(0.0, 0.0, 0.0))
def moments(a, b):
    n = a[0] + b[0]
    d = b[1] - a[1]
    m = max(n, 1.0)
    return n, a[1] + d * b[0] / m, a[2] + b[2] + d * d * a[0] * b[0] / m


@polyc.op
def complex_product(X: "f64[N, M]", Y: "f64[N, M]"):
    p[i], q[i] = product(X[i, j], Y[i, j])
    return p, q


@polyc.op
def one_component(X: "f64[N, M]", Y: "f64[N, M]"):
    p[i], q[i] = product(X[i, j], Y[i, j])
    z[i] = q[i] * 2.0 + X[i, 0]
    return z


@polyc.op
def standardize(X: "f64[N, M]"):
    n[j], m[j], v[j] = moments(1.0, X[i, j], 0.0)
    z[i, j] = (X[i, j] - m[j]) / sqrt(v[j] / n[j])
    return z


@pytest.mark.parametrize("operator", [complex_product, one_component, standardize], ids=lambda op: op.name)
def test_tuples_of_any_chunks_are_those_of_whole_arrays(operator: polyc.Operator) -> None:
    rng = np.random.default_rng(3)
    arrays = {f.name: rng.random((7, 9)) for f in operator.formals}
    made = interpret(operator.program, arrays)
    expected = tuple(made[r.name] for r in operator.program.returns)
    for seed in (1, 4):
        with interpreted():
            results = operator(**chunk(random.Random(seed), arrays))
        compare(results, expected if len(expected) > 1 else expected[0], 1e-12, 1e-12)


def test_compiled_parts_of_tuples() -> None:
    x = np.random.default_rng(0).random((40, 3))
    compare(standardize(da.from_array(x, chunks=(3, 3))), (x - x.mean(0)) / x.std(0), 1e-10, 1e-10)


def test_parts_of_a_tuple_are_combined_by_its_monoid_alone() -> None:
    x = da.zeros((12, 3), chunks=(4, 3), dtype=np.float64)
    assert [s.combines for s in standardize.blocks(x, dry_run=True).stages] == ["moments", None]
