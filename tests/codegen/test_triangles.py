"""Sums over tiles that the border of a triangle cuts: whole tiles, rows one by one, and the values of before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import polyc
from polyc.codegen.nests.triangles import split_triangles
from polyc.ir.expr import Call, Const, Expr, Index, Read, int_const
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops import If, Loop, Node, Store, Update
from polyc.ir.types import F32
from tests.ir.nests import argument, loop, nest_of

C1, C2, I, J, K = (Index(n) for n in ("c1", "c2", "i", "j", "k"))
SIZE = 24


def call(op: str, *args: Expr | int) -> Call:
    return Call(op, tuple(int_const(a) if isinstance(a, int) else a for a in args))


def product(k: Expr = K) -> Update:
    row, column = call("add", C1, I), call("add", C2, J)
    return Update("S", (row, column), "add", Call("mul", (Read("A", (row, k)), Read("B", (k, column)))))


def tiles(*body: Node) -> Loop:
    return loop("c1", int_const(SIZE), loop("c2", int_const(SIZE), *body, step=8), step=4)


def zero(rows: Expr, columns: Expr) -> Node:
    store = Store("S", (call("add", C1, I), call("add", C2, J)), Const(0.0, F32), "init_S")
    return loop("i", rows, loop("j", columns, store, kind="vector", lanes=4, max_trip=8), kind="unroll", max_trip=4)


def below(lower: Expr, upper: Expr, *, kind: str = "serial") -> Node:
    """Rows from `lower`, columns up to `upper`, summed over k."""
    columns = loop("j", upper, product(), kind="vector", lanes=4, max_trip=8)
    options: dict = {"lower": lower, "tile": 4} if kind == "serial" else {"kind": kind, "max_trip": 4}
    return loop("k", int_const(SIZE), loop("i", int_const(4), columns, **options))


def after_the_diagonal() -> Node:
    """Columns from the diagonal on."""
    start = call("max", call("sub", call("add", C1, I), C2), 0)
    columns = loop("j", int_const(8), product(), lower=start, kind="vector", lanes=4, tile=8)
    return loop("k", int_const(SIZE), loop("i", int_const(4), columns, kind="unroll", max_trip=4))


def sum_up_to_the_row() -> Node:
    """k up to the row: the rows of a tile run from k on."""
    columns = loop("j", int_const(8), product(), kind="vector", lanes=4, max_trip=8)
    rows = loop("i", int_const(4), columns, lower=call("max", call("sub", K, C1), 0), tile=4)
    return loop("k", call("min", call("add", C1, 4), SIZE), rows)


def sum_from_the_row() -> Node:
    columns = loop("j", int_const(8), product(), kind="vector", lanes=4, max_trip=8)
    rows = loop("i", call("min", call("add", call("sub", K, C1), 1), 4), columns, kind="unroll", max_trip=4)
    return loop("k", int_const(SIZE), rows, lower=C1)


WIDTH = call("min", call("add", call("sub", call("add", C1, I), C2), 1), 8)
FIRST = call("max", call("sub", C2, C1), 0)
NESTS = {
    "below the diagonal": below(FIRST, WIDTH),
    "all rows, some empty": below(FIRST, WIDTH, kind="unroll"),
    "from the diagonal on": after_the_diagonal(),
    "sum up to the row": sum_up_to_the_row(),
    "sum from the row on": sum_from_the_row(),
}


def run(body: tuple[Node, ...]) -> np.ndarray:
    shape = (int_const(SIZE), int_const(SIZE))
    buffers = tuple(argument(name, shape, p) for p, name in enumerate("ABS"))
    rng = np.random.default_rng(1)
    data = [rng.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in buffers]
    strides = {f"{b.name}.stride{d}": (4 * SIZE, 4)[d] for b in buffers for d in range(2)}
    interpret_loops(nest_of(body, buffers), data, strides)
    return data[2]


def loops(node: Node) -> Iterator[Loop]:
    match node:
        case If():
            for n in node.body + node.orelse:
                yield from loops(n)
        case Loop():
            yield node
            for n in node.body:
                yield from loops(n)


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.parametrize("with_zero", [False, True])
def test_nests_are_split_and_keep_their_values(name, with_zero):
    initial = (zero(int_const(4), int_const(8)),) if with_zero else ()
    before = (tiles(*initial, NESTS[name]),)
    after = split_triangles(before)
    assert any(n.kind == "unroll" and isinstance(n.upper, Const) and n.tile is None for n in loops(after[0]) if n.var == "i")
    assert after != before
    assert np.array_equal(run(before), run(after))


def test_a_box_stays_as_it_is():
    before = (tiles(below(int_const(0), int_const(8), kind="unroll")),)
    assert split_triangles(before) == before


def test_a_sum_that_reads_what_it_writes_stays_as_it_is():
    value = Call("mul", (Read("S", (K, J)), Read("B", (K, J))))
    update = Update("S", (call("add", C1, I), call("add", C2, J)), "add", value)
    columns = loop("j", WIDTH, update, kind="vector", lanes=4, max_trip=8)
    before = (tiles(loop("k", int_const(SIZE), loop("i", int_const(4), columns, lower=FIRST, tile=4))),)
    assert split_triangles(before) == before


def test_a_result_that_shares_memory_keeps_its_order():
    before = (tiles(NESTS["below the diagonal"]),)
    assert split_triangles(before, frozenset(("S", "A"))) == before


PROGRAMS = {
    "lower": ("T(m,n) +=! A(m,k)*B(k,n) where n <= m", lambda a, b: np.tril(a @ b)),
    "strictly upper": ("T(m,n) +=! A(m,k)*B(k,n) where n > m", lambda a, b: np.triu(a @ b, 1)),
    "lower triangular factor": ("T(m,n) +=! A(m,k)*B(k,n) where k <= m", lambda a, b: np.tril(a) @ b),
    "upper triangular factor": ("T(m,n) +=! A(m,k)*B(k,n) where k >= m", lambda a, b: np.triu(a) @ b),
    "triangle on the right": ("T(m,n) +=! A(m,k)*B(k,n) where k > n", lambda a, b: a @ np.tril(b, -1)),
    "band": (
        "T(m,n) +=! A(m,k)*B(k,n) where m <= n + 9, n <= m + 20",
        lambda a, b: np.tril(np.triu(a @ b, -9), 20),
    ),
    "two triangles": ("T(m,n) +=! A(m,k)*B(k,n) where k <= m, n <= k", lambda a, b: np.tril(a) @ np.tril(b)),
    "trapezoid": (
        "T(m,n) +=! A(m,k)*B(k,n) where m + n < 90",
        lambda a, b: (a @ b) * (np.add.outer(range(len(a)), range(b.shape[1])) < 90),
    ),
}


@pytest.mark.pairs
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("n", [1, 70])
@pytest.mark.parametrize("target", ["host", "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_products_over_triangles(name, n, target, dynamic):
    statement, oracle = PROGRAMS[name]
    op = polyc.compile(f"def f(float(N,N) A, float(N,N) B) -> (T) {{ {statement} }}", target=target, dynamic=dynamic)
    rng = np.random.default_rng(n)
    a, b = (rng.standard_normal((n, n)).astype(np.float32) for _ in range(2))
    np.testing.assert_allclose(op(a, b), oracle(a.astype(float), b.astype(float)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [1, 65, 131])
def test_causal_attention_over_a_triangle(n):
    op = polyc.compile(
        """def attention(float(B,M,D) Q, float(B,N,D) K, float(B,N,D) V) -> (Y) {
            S(b,m,n) +=! Q(b,m,d) * K(b,n,d) where n <= m
            X(b,m) max=! S(b,m,n) where n <= m
            E(b,m,n) = n <= m ? exp(S(b,m,n) - X(b,m)) : 0.0
            Z(b,m) +=! E(b,m,n) where n <= m
            W(b,m,d) +=! E(b,m,n) * V(b,n,d) where n <= m
            Y(b,m,d) = W(b,m,d) / Z(b,m)
        }"""
    )
    rng = np.random.default_rng(n)
    q, k, v = (rng.standard_normal((3, n, 32)).astype(np.float32) for _ in range(3))
    scores = np.where(np.tri(n, dtype=bool), q.astype(float) @ k.transpose(0, 2, 1), -np.inf)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    np.testing.assert_allclose(op(q, k, v), weights / weights.sum(2, keepdims=True) @ v, rtol=1e-4, atol=1e-4)
