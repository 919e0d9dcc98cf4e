"""Versions of a nest: full tiles with constant trip counts, interiors without tests, and the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyc
from polyc.codegen.nests.parts import Tiling
from polyc.codegen.nests.tiles import split_partial_tiles
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Read, Select, Size, int_const, lt, minimum, walk
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops import If, InitialValue, Loop, LoopNest, Node, Store, Update
from polyc.ir.types import F32, I64, U8
from polyc.ir.walk import walk_nodes
from tests.ir.nests import argument, loop, nest_of

I, J, K, N = Index("i"), Index("j"), Index("k"), Size("N")
ZERO = Const(0.0, F32)


def call(op: str, *args: Expr | int) -> Call:
    return Call(op, tuple(int_const(a) if isinstance(a, int) else a for a in args))


def expanded(var: str, upper: Expr, trip: int, *body: Node, kind: str = "unroll") -> Loop:
    return loop(var, upper, *body, kind=kind, max_trip=trip)


def rest_of(tile: Index, size: int) -> Expr:
    """``min(size, N - tile)``."""
    return call("min", size, call("sub", N, tile))


def tile_loop(*body: Node, size: int = 4) -> Loop:
    return loop("t", N, *body, step=size)


def selects(node: object) -> int:
    """Selections in all values below `node`."""
    match node:
        case Store() | Update():
            return sum(isinstance(e, Select) for e in walk(node.value))
        case If():
            return sum(map(selects, node.body + node.orelse))
        case Loop():
            return sum(map(selects, node.body))
    return 0


def agrees(
    body: tuple[Node, ...],
    n: int,
    extents: dict[str, int | tuple[int, ...]],
    tied: frozenset[str] = frozenset(),
    has_masks: bool = True,
    in_flight: int = 1,
) -> tuple[Node, ...]:
    """Split `body`, run both nests on the same arrays and compare all bytes."""
    names = list(extents)
    shapes = {name: e if isinstance(e, tuple) else (e,) for name, e in extents.items()}
    buffers = tuple(argument(name, tuple(map(int_const, shapes[name])), p) for p, name in enumerate(names))
    new = split_partial_tiles(body, Tiling(tied, has_masks=has_masks, in_flight=in_flight))
    results = []
    for version in (body, new):
        rng = np.random.default_rng(1)
        data = [rng.standard_normal(shapes[name]).astype(np.float32) for name in names]
        nest: LoopNest = nest_of(version, buffers, ("N",))
        assert interpret_loops(nest, data, {"N": n}) == []
        results.append(b"".join(d.tobytes() for d in data))
    assert results[0] == results[1]
    return new


T = Index("t")


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 8, 11])
def test_full_tiles_have_constant_trips(n):
    place = call("add", T, I)
    body = (tile_loop(expanded("i", rest_of(T, 4), 4, Store("O", (place,), Read("X", (place,))))),)
    (outer,) = agrees(body, n, {"X": 16, "O": 16})
    (choice,) = outer.body
    assert choice.condition == call("ge", call("sub", N, T), 4)
    assert choice.body[0].upper == int_const(4) and choice.orelse == body[0].body


def test_constant_trips_stay_one_version():
    body = (expanded("i", int_const(4), 4, Store("O", (I,), Read("X", (I,)))),)
    assert agrees(body, 4, {"X": 4, "O": 4}) == body


def test_a_bound_of_the_same_nest_is_no_condition_outside():
    inner = expanded("i", call("min", 4, call("sub", 6, J)), 4, Store("O", (call("add", I, J),), Read("X", (I,))))
    body = (loop("j", int_const(6), inner),)
    (result,) = agrees(body, 4, {"X": 4, "O": 10})
    assert isinstance(result, Loop) and isinstance(result.body[0], If)


def test_a_parallel_loop_stays_outside():
    place = call("add", T, I)
    inner = expanded("i", rest_of(T, 4), 4, Store("O", (place,), Read("X", (place,))))
    body = (loop("p", int_const(2), tile_loop(inner), kind="parallel"),)
    (result,) = agrees(body, 7, {"X": 8, "O": 8})
    assert result.kind == "parallel" and isinstance(result.body[0].body[0], If)


def guarded(test: Expr, place: Expr) -> Store:
    return Store("O", (place,), Select(test, Read("X", (place,)), ZERO))


@pytest.mark.parametrize("n", [0, 3, 8, 13])
def test_the_interior_has_no_tests(n):
    place = call("add", T, I)
    both = call("and", call("ge", place, 2), call("lt", place, call("sub", N, 2)))
    body = (tile_loop(expanded("i", rest_of(T, 4), 4, guarded(both, place))),)
    (outer,) = agrees(body, n, {"X": 16, "O": 16})
    (choice,) = outer.body
    assert selects(choice.body[0]) == 0 and selects(choice.orelse[0]) == 1


def test_a_test_of_data_stays():
    place = call("add", T, I)
    body = (tile_loop(expanded("i", rest_of(T, 4), 4, guarded(call("lt", Read("X", (place,)), ZERO), place))),)
    (outer,) = agrees(body, 9, {"X": 16, "O": 16})
    assert selects(outer.body[0]) == 2


def test_loops_side_by_side_that_share_a_name_each_give_a_condition():
    # Both loops are called i; what holds in the short one need not hold in the long one.
    test = call("lt", call("add", T, I), call("sub", N, 2))
    place = call("add", T, I)
    long = expanded("i", int_const(4), 4, guarded(test, place))
    short = expanded("i", int_const(1), 1, Store("P", (place,), Select(test, Read("X", (place,)), ZERO)))
    for pair in ((long, short), (short, long)):
        body = (tile_loop(loop("k", int_const(1), *pair)),)
        agrees(body, 8, {"X": 16, "O": 16, "P": 16})


def test_a_test_around_statements_stays_where_it_is_known_for_fewer_rows_of_a_neighbour():
    i = Index("i")
    inside = lt(i, Size("P"))
    chosen = Store("H", (i,), Select(inside, Read("X", (i,)), int_const(0)))
    kept = If(inside, (Store("Y", (i,), Read("H", (i,))),))
    rows = [
        Loop("i", int_const(0), minimum(n, Size("N")), 1, "unroll", (node,), max_trip=n)
        for n, node in ((6, chosen), (16, kept))
    ]
    (split,) = split_partial_tiles(tuple(rows), Tiling(frozenset("H")))
    assert isinstance(split, If)
    assert kept in list(walk_nodes(split.body))


def test_what_one_loop_leaves_open_stays_in_all():
    # In the first nest the test moves with i alone; in the second also with what it reads: never the same for all points.
    test = call("lt", call("add", T, I), call("sub", N, 1))
    place = call("add", T, I)
    decided = expanded("i", int_const(4), 4, guarded(test, place))
    narrow = Cast(Cast(place, U8), I64)
    wraps = expanded("i", int_const(4), 4, guarded(call("and", test, call("lt", narrow, 3)), place))
    agrees((tile_loop(loop("k", int_const(1), decided, wraps)),), 9, {"X": 16, "O": 16})


def test_inner_bounds_that_grow_with_an_outer_loop_of_the_nest():
    # k runs to j, j to 4: the hardest point of t + k < N - 1 is k = 3, not k = 0.
    test = call("lt", call("add", T, K), call("sub", N, 1))
    store = guarded(test, call("add", call("mul", J, 16), call("add", T, K)))
    point = expanded("i", int_const(1), 1, store)
    body = (tile_loop(loop("j", int_const(4), loop("k", call("add", J, 1), point))),)
    agrees(body, 8, {"X": 80, "O": 80})


def test_lower_bounds_that_grow_with_an_outer_loop_of_the_nest():
    # k starts at j: the hardest point of t + k >= 2 is k = j = 0.
    test = call("ge", call("add", T, K), 2)
    store = guarded(test, call("add", call("mul", J, 16), call("add", T, K)))
    point = expanded("i", int_const(1), 1, store)
    body = (tile_loop(loop("j", int_const(4), loop("k", int_const(4), point, lower=J))),)
    agrees(body, 8, {"X": 80, "O": 80})


def test_a_narrow_integer_that_wraps_is_not_monotone():
    place = call("add", T, I)
    test = call("lt", Cast(Cast(place, U8), I64), 5)
    body = (tile_loop(expanded("i", int_const(260), 260, guarded(test, place)), size=260),)
    agrees(body, 260, {"X": 600, "O": 600})


def test_initial_values_become_full_with_their_loop():
    place = call("add", T, I)
    start = expanded("i", rest_of(T, 4), 4, Store("O", (place,), ZERO, "init_S"))
    update = Update("O", (place,), "add", Read("X", (place,)), "S")
    held = loop(
        "k",
        int_const(3),
        expanded("i", rest_of(T, 4), 4, update),
        registers=("O",),
        initial=(InitialValue("O", ZERO, (start,)),),
    )
    (outer,) = agrees((tile_loop(held),), 10, {"X": 16, "O": 16})
    full = outer.body[0].body[0]
    assert full.initial[0].nest[0].upper == int_const(4) and full.body[0].upper == int_const(4)


def test_neighbours_tied_by_registers_are_versioned_together():
    # The second nest of the pair runs further than the first: its own condition counts too, whichever comes first.
    test = call("lt", call("add", T, I), call("sub", N, 2))
    place = call("add", T, I)
    short = expanded("i", int_const(1), 1, Store("P", (place,), Select(test, Read("X", (place,)), ZERO)))
    long = expanded("i", int_const(4), 4, Store("O", (place,), Select(test, Read("P", (place,)), ZERO)))
    for pair in ((short, long), (long, short)):
        body = (tile_loop(*pair),)
        (outer,) = agrees(body, 8, {"X": 16, "O": 16, "P": 16}, frozenset({"P"}))
        (choice,) = outer.body
        assert len(choice.body) == 2 and choice.orelse == pair
        assert not any(map(selects, choice.body))
        assert {str(e) for e in walk(choice.condition) if isinstance(e, Call) and e.op == "lt"} >= {
            str(call("lt", call("add", T, 3), call("sub", N, 2)))
        }


def rows_and_lanes() -> Loop:
    """A tile of four rows by sixteen lanes of a matrix with rows of N elements, both ends open."""
    target = call("add", call("mul", call("add", Index("t"), I), N), call("add", Index("u"), J))
    store = Store("Y", (target,), Read("X", (target,)))
    lanes = expanded("j", rest_of(Index("u"), 16), 16, store, kind="vector")
    rows = expanded("i", rest_of(Index("t"), 4), 4, lanes)
    return loop("t", N, loop("u", N, loop("k", int_const(2), rows), step=16), step=4)


def test_full_rows_of_partial_lanes_have_no_predicates():
    for n in (0, 1, 3, 4, 5, 15, 16, 17, 20, 33):
        (outer,) = agrees((rows_and_lanes(),), n, {"X": 1200, "Y": 1200})
    (branch,) = outer.body[0].body  # type: ignore[union-attr]
    (second,) = branch.orelse  # type: ignore[union-attr]
    assert isinstance(branch, If) and isinstance(second, If)
    uppers = {}
    for name, part in (("full", branch.body), ("rows", second.body), ("rest", second.orelse)):
        (serial,) = part
        uppers[name] = tuple(isinstance(u, Const) for u in (serial.body[0].upper, serial.body[0].body[0].upper))  # type: ignore[union-attr]
    assert uppers == {"full": (True, True), "rows": (True, False), "rest": (False, False)}


def product(
    *, rows: int = 7, lanes: int = 16, in_place: bool = False, target: tuple[Expr, ...] | None = None, shared: bool = False
) -> Loop:
    """Tiles of `rows` rows by sixteen columns of a square matrix, in vectors of `lanes`, summed over three steps; with `shared`
    all rows read the same vectors."""
    place = (call("add", Index("t"), I), call("add", Index("u"), J))
    update = Update("Y", target or place, "add", Read("X", (Index("k"), place[1]) if shared else place), "S")
    tile = rest_of(Index("t"), rows)

    def points(node: Node) -> Loop:
        inner = loop("j", rest_of(Index("u"), 16), node, kind="vector", max_trip=16, lanes=lanes)
        return expanded("i", tile, rows, inner)

    initial = () if in_place else (InitialValue("Y", ZERO, (points(Store("Y", place, ZERO)),)),)
    summed = loop("k", int_const(3), points(update), registers=("Y",), initial=initial)
    return loop("t", N, loop("u", N, summed, step=16), step=rows)


def part_loops(node: object, name: str = "ir") -> list[Loop]:
    match node:
        case If():
            return [found for n in node.body + node.orelse for found in part_loops(n, name)]
        case Loop():
            own = [node] if node.var == name else []
            return own + [found for n in node.body for found in part_loops(n, name)]
    return []


@pytest.mark.parametrize("in_place", [False, True], ids=["from zero", "in place"])
def test_the_last_rows_run_in_parts(in_place):
    for n in (0, 1, 2, 3, 4, 6, 7, 8, 11, 13, 16, 20):
        (outer,) = agrees((product(in_place=in_place),), n, {"X": (30, 30), "Y": (30, 30)})
    (rows,) = part_loops(outer)
    (summed,) = rows.body
    assert rows.step == 3 and summed.registers == ("Y",) and summed.body[0].max_trip == 3


def test_parts_of_rows_hold_as_many_sums_as_run_at_once():
    """Four of six rows of a product ran two by two, each as long as four would, and read all of the other operand twice."""
    for n in (0, 1, 2, 3, 4, 5, 8, 11):
        (outer,) = agrees((product(rows=7, shared=True),), n, {"X": (30, 30), "Y": (30, 30)}, in_flight=4)
    (rows,) = part_loops(outer)
    assert rows.step == 4
    assert not part_loops(agrees((product(rows=7, shared=True),), 3, {"X": (30, 30), "Y": (30, 30)}, in_flight=8)[0])


def test_rows_that_read_vectors_of_their_own_stay_in_small_parts():
    """Windows of 3x3 over each channel read two rows more than there were: 3 channels took 1.04 times as long."""
    (outer,) = agrees((product(rows=7),), 8, {"X": (30, 30), "Y": (30, 30)}, in_flight=4)
    assert part_loops(outer)[0].step == 3


def test_the_last_rows_run_in_parts_where_loops_stand_around_the_sum():
    """Filters with fewer products computed all rows of their last tiles, and tested each: 32 results took 1.35 times as
    long."""

    tiles = product(in_place=True)
    (columns,) = tiles.body
    nest = replace(tiles, body=(replace(columns, body=(loop("v", int_const(2), *columns.body),)),))
    for n in (0, 1, 6, 7, 8, 11, 20):
        (outer,) = agrees((nest,), n, {"X": (30, 30), "Y": (30, 30)})
    (rows,) = part_loops(outer)
    assert rows.step == 3


def test_rows_that_meet_stay_together():
    column = call("add", Index("u"), J)
    shared = (column, int_const(0))
    diagonal = (call("add", call("add", Index("t"), I), K), column)
    # One element for all rows; elements that several steps of several rows add to; what may be the same memory as an input.
    for target in (shared, diagonal):
        (outer,) = agrees((product(in_place=True, target=target),), 20, {"X": (30, 30), "Y": (30, 30)})
        assert not part_loops(outer)
    (outer,) = split_partial_tiles((product(),), Tiling(shared=frozenset("Y")))
    assert not part_loops(outer)


@pytest.mark.parametrize("in_place", [False, True], ids=["from zero", "in place"])
def test_the_last_lanes_run_in_parts(in_place):
    for n in (0, 1, 7, 8, 9, 15, 16, 17, 24, 28):
        (outer,) = agrees((product(in_place=in_place, lanes=4),), n, {"X": (30, 30), "Y": (30, 30)})
    (lanes,) = part_loops(outer, "jr")
    (choice,) = lanes.body
    for summed, most in zip((*choice.body, *choice.orelse), (4, 8), strict=True):
        rows = summed.body[0]
        assert rows.upper == int_const(7) and rows.body[0].max_trip == most
    assert lanes.step == 8


def test_what_one_vector_has_room_for_is_computed_by_one():
    """16 results in tiles of four vectors were computed by two."""
    (outer,) = agrees((product(lanes=2),), 20, {"X": (30, 30), "Y": (30, 30)})
    for n in range(20):
        agrees((product(lanes=2),), n, {"X": (30, 30), "Y": (30, 30)})
    (lanes,) = part_loops(outer, "jr")

    def narrowest(nodes):
        (node,) = nodes
        return narrowest(node.body) if isinstance(node, If) else node

    (rows,) = narrowest(lanes.body).body
    assert lanes.step == 8 and rows.body[0].max_trip == 2


def test_lanes_whose_masks_are_vectors_run_in_parts_without_where_they_are_whole():
    """Twelve accumulators and three masks are more than sixteen registers."""
    for n in (0, 1, 4, 8, 9, 15, 16, 20, 28):
        (outer,) = agrees((product(lanes=4),), n, {"X": (30, 30), "Y": (30, 30)}, has_masks=False)
        (few,) = agrees((product(lanes=8),), n, {"X": (30, 30), "Y": (30, 30)}, has_masks=False)
    (lanes,) = part_loops(outer, "jr")
    (choice,) = lanes.body
    uppers = [summed.body[0].body[0].upper for summed in (*choice.body, *choice.orelse)]
    assert uppers[0] == int_const(8) and uppers[1] != int_const(8)
    assert not part_loops(few, "jr")


def test_few_rows_and_their_lanes_run_in_parts():
    for n in (0, 1, 2, 3, 8, 9, 16, 19, 29):
        (outer,) = agrees((product(rows=2, lanes=4),), n, {"X": (30, 30), "Y": (30, 30)})
    (rows,) = part_loops(outer)
    (lanes,) = rows.body
    assert rows.step == 1 and isinstance(lanes, Loop) and lanes.var == "jr" and lanes.step == 8


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("dynamic", [True, False])
def test_sums_in_parts_of_tiles_wrap_around_as_those_of_whole_tiles(target: str, dynamic: bool):
    """``2 * x / 2`` was `x` in the last rows of a tile, whatever had been lost above."""
    text = "def f(int64(M,K) A, int64(K,N) B) -> (Y) { Y(i,j) +=! 2 * (A(i,k) * B(k,j)) / 2 }"
    operator = polyc.compile(text, dynamic=dynamic, target=target)
    rng = np.random.default_rng(0)
    for m, k, n in ((13, 5, 77), (64, 20, 50), (7, 9, 33)):
        a, b = rng.integers(-(1 << 62), 1 << 62, (m, k)), rng.integers(-(1 << 62), 1 << 62, (k, n))
        with np.errstate(over="ignore"):
            expected = sum((2 * (a[:, q, None] * b[q])) // 2 for q in range(k))
        np.testing.assert_array_equal(operator(a, b), expected)
