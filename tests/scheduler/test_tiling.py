"""Motions of accesses, vector indices, register tiles and the loops that a plan makes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polyc.code_limits import FULL_ROW, FUNCTION_WORK, UNKNOWN_EXTENT
from polyc.machine import X86_64_V2, X86_64_V3, X86_64_V4
from polyc.poly.extraction import extract_scop
from polyc.poly.scop import Scop, ScopStatement
from polyc.poly.tree import Plan, PlanLeaf, PlanLoop, PlanSequence
from polyc.scheduler.accesses import access_motions, index_trips, operation_weight, statement_work, vector_itemsize
from polyc.scheduler.tiling import choose_register_tile, choose_vector_index, vector_cost
from tests.scheduler.support import check, infer, lower, read


def scop_of(text: str, **sizes: int) -> Scop:
    return extract_scop(*infer(read(text), **sizes))


def first(text: str, **sizes: int) -> ScopStatement:
    return scop_of(text, **sizes).statements[0]


MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SIZES = {"M": 128, "N": 256, "K": 64}


# --- accesses --------------------------------------------------------------------------------------------------------


def motions(text: str, **sizes: int) -> dict[str, dict[str, str]]:
    s = first(text, **sizes)
    return {m.tensor: {i: m.motion(i) for i in s.indices} for m in access_motions(s)}


def test_how_addresses_move():
    found = motions(MATMUL)
    assert found["C"] == {"m": "strided", "n": "unit", "k": "invariant"}
    assert found["A"] == {"m": "strided", "n": "invariant", "k": "unit"}
    assert found["B"] == {"m": "invariant", "n": "unit", "k": "strided"}


def test_diagonals_steps_and_reverses():
    assert motions("def f(float(N,N) X) -> (O) { O(i) = X(i,i) }")["X"]["i"] == "strided"
    assert motions("def f(float(N) X) -> (O) { O(i) = X(5*i) where i in 0:2 }", N=9)["X"]["i"] == "strided"
    assert motions("def f(float(N) X) -> (O) { O(i) = X(2*i) where i in 0:4 }", N=9)["X"]["i"] == "unit"  # whole vectors
    assert motions("def f(float(N) X) -> (O) { O(i) = X(N-1-i) where i in 0:N }")["X"]["i"] == "unit"
    assert motions("def f(float(N) X, float(K) W) -> (O) { O(i) +=! X(i+k) * W(k) }")["X"] == {"i": "unit", "k": "unit"}


def test_components_of_points_are_worth_vectors_where_rows_are_read_whole():
    cross = """def f(double(N,3) A, double(N,3) B) -> (C) {
      C(n,0) = A(n,1) * B(n,2) - A(n,2) * B(n,1)
      C(n,1) = A(n,2) * B(n,0) - A(n,0) * B(n,2)
      C(n,2) = A(n,0) * B(n,1) - A(n,1) * B(n,0) }"""
    scop = scop_of(cross, N=100)
    candidate = {s.name: "n" for s in scop.statements}
    assert choose_vector_index(list(scop.statements), [candidate], 8, True, scop.tensors) == 0
    assert choose_vector_index(list(scop.statements), [candidate], 8, True) is None


def test_data_dependent_places_are_strided():
    assert motions("def f(float(N) X, int32(M) I) -> (O) { O(i) = X(I(i)) }")["X"]["i"] == "strided"


def test_integers_that_wrap_move_in_no_known_way():
    text = "def f(float(256) X, float(N) Y) -> (O) { O(i) = X(uint8(i)) + Y(i) where i in 0:N }"
    assert motions(text)["X"]["i"] == "strided"
    check(text, {"N": 600})


def test_estimates():
    s = first(MATMUL, M=4)
    assert index_trips(s) == {"m": 4, "n": UNKNOWN_EXTENT, "k": UNKNOWN_EXTENT}
    assert statement_work(s) == 4 * UNKNOWN_EXTENT**2 * 2
    assert operation_weight(first("def f(float(N) X) -> (O) { O(i) = exp(X(i)) + 1.0 }").value) == FUNCTION_WORK + 1
    mixed = scop_of("def f(float(N) X, double(N) Y) -> (O) { O(i) = X(i) * Y(i) }")
    assert vector_itemsize(mixed, list(mixed.statements)) == 8


# --- vectors and tiles -----------------------------------------------------------------------------------------------


def test_costs_count_useless_lanes():
    s = first("def f(float(N) X) -> (O) { O(i) = X(i) }", N=17)
    m = access_motions(s)
    assert vector_cost(m, "i", 16, 16, 1) == 2.5
    assert vector_cost(m, "i", 17, 16, 1) == pytest.approx(2.5 * 32 / 17)
    assert vector_cost(m, "i", 0, 16, 1) == 2.5


@pytest.mark.parametrize(
    ("text", "sizes", "vector"),
    [
        (MATMUL, SIZES, "n"),
        ("def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }", SIZES, "k"),
        ("def f(float(M,N) X) -> (O) { O(j) +=! X(i,j) }", {"M": 64, "N": 64}, "j"),
        ("def f(float(M,N) X) -> (O) { O(i) +=! X(i,j) }", {"M": 64, "N": 64}, "j"),
    ],
)
def test_the_vector_runs_along_memory(text, sizes, vector):
    s = first(text, **sizes)
    chosen = choose_vector_index([s], [{s.name: i} for i in s.indices], 8, True)
    assert chosen is not None and s.indices[chosen] == vector


def test_reductions_are_vectors_only_where_their_order_is_free():
    s = first("def f(float(N) X) -> (s) { s +=! X(i) }", N=1000)
    assert choose_vector_index([s], [{"S0": "i"}], 8, True) == 0
    assert choose_vector_index([s], [{"S0": "i"}], 8, False) is None


def test_statements_must_share_the_candidate():
    scop = scop_of("def f(float(N) X) -> (A, B) { A(i) = X(i)  B(i) = A(i) * 2.0 }", N=100)
    both = list(scop.statements)
    assert choose_vector_index(both, [{"S0": "i"}, {"S0": "i", "S1": "i"}], 8, True) == 1
    assert choose_vector_index(both, [{"S0": "i"}], 8, True) is None


@pytest.mark.parametrize("target", [X86_64_V2, X86_64_V3, X86_64_V4], ids=lambda t: t.name)
def test_register_tiles_fit_the_registers(target):
    lanes = target.lanes(4)
    tile = choose_register_tile(first(MATMUL, **SIZES), target, lanes, True)
    vectors = tile.sizes["n"] // lanes
    assert tile.vector == "n" and tile.sizes["n"] % lanes == 0
    assert tile.sizes["m"] * vectors + vectors + 1 <= target.n_registers


def test_row_tiles_are_balanced():
    rows = {
        m: choose_register_tile(first(MATMUL, **(SIZES | {"M": m})), X86_64_V4, 16, True).sizes["m"] for m in (6, 7, 8, 12, 13)
    }
    assert rows == {6: 6, 7: 4, 8: 4, 12: 6, 13: 5}


def test_reductions_that_share_nothing_take_whole_rows_of_memory():
    s = first("def f(float(A,B,C) X) -> (Y) { Y(a,c) max=! X(a,b,c) }", A=32, B=1000, C=64)
    for target in (X86_64_V3, X86_64_V4):
        assert choose_register_tile(s, target, target.lanes(4), True).sizes == {"c": 64}


@pytest.mark.parametrize("n", [0, 1])
def test_extents_without_a_tile(n):
    for name in "MNK":
        tile = choose_register_tile(first(MATMUL, **(SIZES | {name: n})), X86_64_V4, 16, True)
        assert all(size >= 1 for size in tile.sizes.values())


def test_rows_that_stream_are_added_in_memory_order():
    text = "def f(float(M,N) X) -> (O) { O(j) +=! X(i,j) }"
    tile = choose_register_tile(first(text, M=1000, N=4000), X86_64_V4, 16, True)
    assert tile.streamed == {"i": 8} and 0 < tile.sizes["j"] < 4000
    for sizes in ({"M": 9, "N": 300}, {"M": 8, "N": 1025}, {"M": 17, "N": 130}):
        check(text, sizes)


FEW_ROWS = "def f(float(M,K) X, float(K,N) W) -> (O) { O(m,n) +=! X(m,k) * W(k,n) }"


@pytest.mark.parametrize("target, rows, steps", [(X86_64_V3, 2, 4), (X86_64_V4, 2, 8)], ids=["v3", "v4"])
def test_a_large_operand_is_read_once_in_the_order_of_memory_for_few_rows(target, rows, steps):
    tile = choose_register_tile(first(FEW_ROWS, M=8, K=30000, N=2000), target, target.lanes(4), True)
    assert (tile.vector, tile.streamed, tile.sharing, tile.sizes["m"]) == ("n", {"k": steps}, {"m": rows}, 8)
    lowered = lower(FEW_ROWS, {"M": 8, "K": 30000, "N": 2000}, target=target)
    found = [(x.part, x.size) for x in loops(lowered.plan) if "S0_part" in x.rows][-5:]
    assert found == [("tile", steps), ("tile", rows), ("point", 2000), ("point", rows), ("point", steps)]
    assert not any("packed" in b.name for b in lowered.nest.buffers)
    for sizes in ({"M": 64, "K": 30000, "N": 2000}, {"M": 8, "K": 100, "N": 2000}, {"M": 8, "K": 256, "N": 256}):
        assert not choose_register_tile(first(FEW_ROWS, **sizes), target, target.lanes(4), True).sharing
    for other in (FEW_ROWS.replace("O(m,n)", "O(n,m)"), FEW_ROWS.replace("O(m,n) +=! X(m,k)", "O(b,m,n) +=! X(m,k) * c(b)")):
        s = first(other.replace("float(M,K) X", "float(M,K) X, float(3) c"), M=8, K=30000, N=2000)
        assert not choose_register_tile(s, target, target.lanes(4), True).sharing  # results across, or several passes


@pytest.mark.parametrize("target", [X86_64_V3, X86_64_V4], ids=["v3", "v4"])
def test_results_of_few_rows_beside_a_large_operand(target):
    small = replace(target, l1=1 << 10, l2=1 << 12, l3=1 << 14)
    for m in (3, 8):
        lowered = check(FEW_ROWS, {"M": m, "K": 131, "N": 270}, target=small)
        assert not any("packed" in b.name for b in lowered.nest.buffers)


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [768, 3072, 4000, 5000, 50257])
def test_chunks_of_streamed_columns_feed_every_core_alike(cores, n):
    text = "def f(float(M,N) X, float(M) a) -> (O) { O(j) +=! X(i,j) * a(i) }"
    size = choose_register_tile(first(text, M=1000, N=n), replace(X86_64_V4, cores=cores), 16, True).sizes["j"]
    chunks = -(-n // size)
    assert size <= 512 * 16 and (size == 128 or -(-chunks // cores) * cores * size < 1.35 * n)


# --- plans -----------------------------------------------------------------------------------------------------------


def loops(plan: Plan) -> list[PlanLoop]:
    match plan:
        case PlanLeaf():
            return []
        case PlanSequence():
            return [x for child in plan.children for x in loops(child)]
        case PlanLoop():
            return [plan, *loops(plan.child)]


def test_transposes_are_cut_into_tiles_long_along_the_store():
    lowered = lower("def f(float(M,N) X) -> (O) { O(j,i) = X(i,j) * 2.0 }", {"M": 100, "N": 130})
    tiles = [x for x in loops(lowered.plan) if x.part == "tile"]
    assert sorted(x.size for x in tiles) == [32, 100]
    shared = lower("def f(float(M,N) X, float(N,M) Z) -> (O) { O(j,i) = X(i,j) * X(i,j) + Z(j,i) }", {"M": 600, "N": 700})
    assert sorted(x.size for x in loops(shared.plan) if x.part == "tile") == [64, 256]
    two = lower("def f(float(M,N) X) -> (O, P) { O(j,i) = X(i,j) * 2.0  P(j,i) = X(i,j) + 1.0 }", {"M": 600, "N": 700})
    assert sorted(x.size for x in loops(two.plan) if x.part == "tile") == [2 * FULL_ROW, 8 * FULL_ROW]
    for sizes in ({"M": 1, "N": 130}, {"M": 31, "N": 33}, {"M": 0, "N": 4}):
        check("def f(float(M,N) X) -> (O) { O(j,i) = X(i,j) * 2.0 }", sizes)


def test_rows_that_stream_take_vectors_that_straddle_fewer_lines():
    """Rows of arrays that start 16 bytes off a line: 2048 columns took 223 us with whole registers, 161 with halves."""
    text = "def f(float(M,N) X, float(M) a) -> (O) { O(j) +=! X(i,j) * a(i) }"
    found = loops(lower(text, {"M": 2048, "N": 2048}).plan)
    assert found[-1].mark is not None and found[-1].mark.kind == "unroll"
    assert found[-2].mark is not None and (found[-2].mark.kind, found[-2].mark.lanes) == ("vector", 8)


def test_every_tile_has_its_points():
    for text, sizes in ((MATMUL, SIZES), ("def f(float(M,N) X) -> (O) { O(j,i) = X(i,j) * 2.0 }", {"M": 100, "N": 130})):
        found = loops(lower(text, sizes).plan)
        for tile in (x for x in found if x.part == "tile" and x.mark is None and not x.period):
            inner = [x.size for x in found if x.rows.keys() & tile.rows.keys() and x.part == "point"]
            assert tile.size in inner or any(x.period == tile.size for x in found)


FEW_CHANNELS = "def f(float(C,H,W) I, float(K,C,3,3) F) -> (O) { O(k,h,w) +=! I(c,h+r,w+s) * F(k,c,r,s) }"


def tile_loops(text: str, sizes: dict[str, int]) -> list[tuple[str, int]]:
    """Indices of the result along which tiles and blocks of them follow each other, outermost first, and their sizes."""
    found = lower(text, sizes)
    names = found.scop.statement("S0").indices
    tiles = [x for x in loops(found.plan) if x.part == "tile" and x.size > 1]
    return [(names[i], x.size) for x in tiles for i in [x.rows["S0"].unit_index()] if i is not None]


def test_tiles_of_long_results_follow_each_other_along_memory():
    """3x3 windows over 3 channels of 226x226, 64 results: 1.6 ms; 2.1 ms with tiles of all results side by side."""
    *_, (first, _), (last, _) = tile_loops(FEW_CHANNELS, {"C": 3, "H": 226, "W": 226, "K": 64})
    assert (first, last) == ("k", "w")
    *_, (first, _), (last, _) = tile_loops(FEW_CHANNELS, {"C": 3, "H": 18, "W": 226, "K": 16})
    assert (first, last) == ("w", "k")  # the second-level cache holds the result


@pytest.mark.parametrize("level", [X86_64_V2, X86_64_V3, X86_64_V4], ids=lambda t: t.name)
def test_machines_with_small_caches_cut_blocks(level):
    tiny = replace(level, l1=1 << 10, l2=1 << 12, l3=1 << 14)
    turned = "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
    for text, sizes in ((MATMUL, {"M": 25, "N": 70, "K": 40}), (turned, {"M": 130, "N": 33, "K": 9})):
        check(text, sizes, target=tiny)


@pytest.mark.parametrize("classes", [4, 8, 12])
def test_a_sum_below_loops_that_others_sum_over_keeps_its_tile(classes: int):
    """A softmax of few classes: the maximum sums over the loop of them, the product does not; its vectors were gathered."""
    text = """def f(float(M,K) A, float(N,K) W) -> (O) {
      T(m,n) +=! A(m,k) * W(n,k)
      X(m) max=! T(m,n)
      E(m,n) = exp(T(m,n) - X(m))
      Z(m) +=! E(m,n)
      O(m,n) = E(m,n) / Z(m) }"""
    lowered = check(text, {"M": 27, "N": classes, "K": 57})
    (line,) = {x.strip() for x in lowered.as_text("loops").splitlines() if "registers T" in x}
    assert line.startswith("vector") and "57" in line


@pytest.mark.parametrize("rows", [20, 22])
def test_tiles_inside_of_tiles_divide_them(rows: int):
    """Rows of the second layer's tile were cut in fours for the first: eleven of them began at other places in each tile."""
    text = """def f(float(M,K) A, float(N,K) W, float(P,N) U) -> (O) {
      T(m,n) +=! A(m,k) * W(n,k)
      G(m,n) = fmax(T(m,n), 0.0)
      O(m,p) +=! G(m,n) * U(p,n) }"""
    loops = check(text, {"M": rows, "K": 140, "N": 74, "P": 154}).as_text("loops")
    assert "//" not in loops.replace("  //", "")


@pytest.mark.parametrize(("n", "lanes"), [(20_000, 16), (4_000_000, 8)])
def test_neighbours_fill_wide_vectors_where_everything_stays_in_caches(n: int, lanes: int):
    text = "def f(float(N) X) -> (Y) { Y(i) = X(i) + X(i+2) - 2.0 * X(i+1) }"
    assert f"vector(lanes {lanes} " in lower(text, {"N": n}, target=X86_64_V4).as_text("loops")
    assert "vector(lanes 8 " in lower("def f(float(N) X) -> (Y) { Y(i) = X(i) * 2.0 }", {"N": n}, target=X86_64_V4).as_text(
        "loops"
    )


def test_short_sums_are_streamed_in_equal_parts() -> None:
    """Of twelve taps four were left, which ran with the tests of borders that the first eight had got rid of."""
    text = "def f(float(K,W) X, float(K) u) -> (Y) { Y(x) +=! u(k) * X(k,x) }"
    for taps, rows in ((12, 6), (16, 8), (20, 5), (11, 8), (100, 8)):
        (s,) = lower(text, {"K": taps, "W": 2000}).scop.statements
        assert list(choose_register_tile(s, X86_64_V4, 16, True).streamed.values()) == [rows]
