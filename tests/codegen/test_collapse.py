"""Two parallel loops become one: the same iterations, shared out among threads whatever the sizes of a call."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyc
from polyc.codegen.nests.collapse import collapse_parallel
from polyc.ir.expr import Call, Expr, Index, Size, evaluate, int_const
from polyc.ir.loops import If, Loop, Node, Store

STORE = Store("Y", (Index("i"), Index("j")), int_const(1), "S0")


def loop(var: str, lower: Expr, upper: Expr, step: int, *body: Node, kind: str = "parallel") -> Loop:
    return Loop(var, lower, upper, step, kind, body)  # type: ignore[arg-type]


def iterations(node: Node, values: dict[str, int]) -> list[tuple[int, ...]]:
    if isinstance(node, Store):
        return [tuple(evaluate(e, values) for e in node.subscripts)]
    assert isinstance(node, Loop)
    found = range(evaluate(node.lower, values), evaluate(node.upper, values), node.step)
    return [place for v in found for n in node.body for place in iterations(n, {**values, node.var: v})]


@pytest.mark.parametrize(("low", "step_i", "step_j"), [(0, 1, 1), (2, 1, 1), (0, 3, 1), (-3, 2, 5)])
def test_iterations_are_the_same_in_the_same_order(low: int, step_i: int, step_j: int) -> None:
    inner = loop("j", int_const(low), Size("M"), step_j, STORE)
    outer = loop("i", int_const(low), Size("N"), step_i, inner)
    found = collapse_parallel(outer)
    assert found.kind == "parallel" and isinstance(found.body[0], Loop) and found.body[0].kind == "serial"
    for n in range(8):
        for m in range(8):
            assert iterations(found, {"N": n, "M": m}) == iterations(outer, {"N": n, "M": m})


def test_loops_that_do_not_make_a_rectangle_are_shared_by_the_outer_one() -> None:
    serial = loop("j", int_const(0), Index("i"), 1, STORE, kind="serial")
    for body in (
        (loop("j", int_const(0), Index("i"), 1, STORE),),
        (STORE, loop("j", int_const(0), Index("i"), 1, STORE)),
        (If(Call("gt", (Index("i"), int_const(2))), (loop("j", int_const(0), Index("i"), 1, STORE),)),),
    ):
        found = collapse_parallel(loop("i", int_const(0), Size("N"), 1, *body))
        last = found.body[-1]
        assert found.var == "i" and found.kind == "parallel"
        assert last == serial or (isinstance(last, If) and last.body == (serial,))


NORM = """def norm(float(B, G, L) X) -> (Y) {
  S(b, g) +=! X(b, g, l)
  Y(b, g, l) = X(b, g, l) - S(b, g) / L
}"""


def test_one_element_of_a_batch_of_any_size_is_work_for_all_threads() -> None:
    norm = polyc.compile(NORM, dynamic=True)
    rng = np.random.default_rng(1)
    text = norm.lower(rng.standard_normal((8, 6, 4096), dtype=np.float32)).as_text("loops")
    assert " for (c0_c1 = 0; c0_c1 < B * G; c0_c1++)" in text and "parallel" in text
    before = polyc.get_num_threads()
    try:
        for shape in ((8, 6, 4096), (1, 6, 5000), (1, 1, 70_000), (3, 5, 4000), (0, 6, 4096), (4, 0, 4096), (2, 3, 0)):
            x = rng.standard_normal(shape, dtype=np.float32)
            expected = x - x.sum(axis=2, keepdims=True, dtype=np.float64) / max(1, shape[2])
            found = []
            for threads in (1, 2, 3):
                polyc.set_num_threads(threads)
                found.append(norm(x))
                np.testing.assert_allclose(found[-1], expected, atol=1e-5)
            assert all(np.array_equal(found[0], y) for y in found)
    finally:
        polyc.set_num_threads(before)


def test_short_iterations_are_not_worth_finding_out_where_they_are() -> None:
    x = np.zeros((512, 64, 16), np.float32)
    text = polyc.compile("def f(float(B, G, L) X, float(G) Z) -> (Y) { Y(b, g, l) = X(b, g, l) * Z(g) }", dynamic=True).lower(
        x, x[0, :, 0]
    )
    assert re.search(r"parallel(\(.*?\))? for \(c0 = ", text.as_text("loops"))
