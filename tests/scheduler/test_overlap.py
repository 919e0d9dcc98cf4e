"""Overlapping tiles: what becomes of statements, and when they are left alone."""

from __future__ import annotations

import re

import numpy as np
import pytest

from polyc.codegen.objects.host import host_target
from polyc.diagnostics import Remark
from polyc.machine import X86_64_V2, X86_64_V3, X86_64_V4, Machine, select_model
from polyc.poly.rows import format_rows
from polyc.scheduler.rewriting.overlap.costs import Model
from polyc.scheduler.rewriting.overlap.overlap import overlap_tiles
from tests.property.pipeline import small_thresholds
from tests.scheduler.support import check_nest, infer, lower, read, statements

CHAIN = "def f(float(N) X) -> (O) { A(i) = exp(X(i) + X(i+1))  O(i) = A(i) - A(i+2) }"
BLUR = """def f(float(H,W) X) -> (O) {
  R(y,x) = X(y,x) + 4.0 * X(y,x+1) + 6.0 * X(y,x+2) + X(y,x+3)
  O(y,x) = R(y,x) + 4.0 * R(y+1,x) + 6.0 * R(y+2,x) + R(y+3,x) }"""

CORNERS = """def f(float(H,W) X) -> (O) {
  U(y,x) = X(y,x+2) - X(y,x) + 2.0 * (X(y+1,x+2) - X(y+1,x)) + X(y+2,x+2) - X(y+2,x)
  V(y,x) = X(y+2,x) - X(y,x) + 2.0 * (X(y+2,x+1) - X(y,x+1)) + X(y+2,x+2) - X(y,x+2)
  A(y,x) +=! U(y+r,x+s) * U(y+r,x+s) where r in 0:3, s in 0:3
  B(y,x) +=! V(y+r,x+s) * V(y+r,x+s) where r in 0:3, s in 0:3
  C(y,x) +=! U(y+r,x+s) * V(y+r,x+s) where r in 0:3, s in 0:3
  O(y,x) = A(y,x) * B(y,x) - C(y,x) * C(y,x) }"""


def overlap(text: str, **sizes: int) -> tuple[list[str], list[Remark]]:
    program, ranges = infer(read(text), **sizes)
    new, _, remarks = overlap_tiles(program, ranges, X86_64_V4)
    return statements(new), remarks


def test_before_and_after() -> None:
    with small_thresholds():
        lines, _ = overlap(CHAIN, N=40)
    assert lines == [
        "S0(i.tile, i.in): A.tile[i.tile, i.in] = exp(X[i.in + 5 * i.tile] + X[i.in + 5 * i.tile + 1])",
        "S1(i.tile, i.in): O[i.in + 5 * i.tile] = A.tile[i.tile, i.in] - A.tile[i.tile, i.in + 2]",
    ]


def test_boxes_are_found_from_few_runs_of_subscripts_however_many_reads_a_window_has() -> None:
    window = " + ".join(f"R(y+{r},x+{s})" for r in (1, 2, 3) for s in (1, 2, 3))
    padded = " + ".join(f"pad(R(y-{r},x), clamp)" for r in (1, 2))
    model = Model(*infer(read(BLUR.replace("O(y,x) =", f"O(y,x) = {window} + {padded} +"))), X86_64_V4)
    assert [len(along) for along in model.accesses["S1"]["R"]] == [2, 2]


def test_what_fits_a_cache_is_stored_whole() -> None:
    assert overlap(BLUR, H=200, W=200)[1] == []
    (remark,) = overlap(BLUR, H=3000, W=3000)[1]
    assert remark.kind == "passed" and remark.message.startswith("R in tiles of y ")


@pytest.mark.parametrize(
    ("value", "apart", "is_tiled"),
    [
        ("X(y,x)", 16, True),  # half of it again
        ("exp(sin(exp(sin(cos(X(y,x))))))", 4, True),
        ("exp(sin(exp(sin(cos(X(y,x))))))", 16, False),  # too dear to compute half of it again
        ("X(y,x)", 64, False),  # rows as far apart as tiles are high
    ],
)
def test_what_is_too_dear_to_compute_again_is_stored_whole(value: str, apart: int, is_tiled: bool) -> None:
    text = f"def f(float(H,W) X) -> (O) {{ R(y,x) = {value} + X(y,x+1)  O(y,x) = R(y,x) + R(y+{apart},x) }}"
    lines, remarks = overlap(text, H=3000, W=3000)
    assert [r.kind for r in remarks] == ["passed"] * is_tiled
    assert ("R.tile" in " ".join(lines)) is is_tiled


def test_products_are_not_computed_again_for_tiles_of_their_results_by_heads() -> None:
    text = """def f(float(S,K) X, float(K,J) W, float(J) b) -> (O) {
      P(s,j) +=! X(s,k) * W(k,j)
      O(h,d,s) = P(s,h*64+d) + b(h*64+d) where h in 0:J/64, d in 0:64 }"""
    assert overlap(text, S=128, K=768, J=768)[1] == []
    assert (
        overlap(text, S=128, K=512, J=512)[1] == []
    )  # none again in tiles of whole heads, but little is saved beside the products


def test_what_others_read_is_stored_whole() -> None:
    text = BLUR.replace("-> (O)", "-> (O, R)")
    assert overlap(text, H=3000, W=3000)[1] == []


@pytest.mark.parametrize("target", [X86_64_V2, X86_64_V3, X86_64_V4], ids=lambda t: t.name)
def test_tiles_of_short_rows_are_not_larger_than_the_first_level_cache(target: Machine) -> None:
    lowered = lower(CORNERS, {"H": 4100, "W": 4100}, target=target)
    (tile,) = (
        [int(n) for n in found.groups()]
        for r in lowered.remarks
        if r.pass_name == "overlap" and (found := re.search(r"x (\d+), (\d+) bytes", r.message))
    )
    columns, size = tile
    assert size < target.l1 or columns >= 128


def test_wrapped_borders_are_far() -> None:
    text = """def f(float(H,W) X) -> (O) {{
      R(y,x) = exp(X(y,x))
      O(y,x) = pad(R(y-1,x), {0}) - pad(R(y+1,x), {0}) where y in 0:H, x in 0:W }}"""
    assert overlap(text.format("wrap"), H=3000, W=3000)[1] == []
    assert len(overlap(text.format("clamp"), H=3000, W=3000)[1]) == 1


def test_a_row_that_passes_columns_on_is_not_shared() -> None:
    sizes = {"H": 100, "W": 90}
    lowered = lower(BLUR, sizes)
    assert format_rows(lowered.rows, lowered.scop) == "[P:y, P:x] S0 ; [P:y, P:x] S1"
    check_nest(lowered, sizes)


@pytest.mark.parametrize(("p", "q", "sizes"), [(2, 1, (19, 23)), (3, 2, (20, 31)), (1, 2, (21, 40))])
def test_resizing_in_both_directions_goes_by_tiles(p: int, q: int, sizes: tuple[int, int]) -> None:
    """Rows by quotients of their number: a tile needs as many of them as any other one does."""
    text = f"""def f(float(H,W) X) -> (O) {{
      R(y,x) +=! X(y, x*{q}/{p}+t) where t in 0:3, x in 0:(W-3)*{p}/{q}
      O(y,x) +=! R(y*{q}/{p}+t, x) where t in 0:3, y in 0:(H-3)*{p}/{q} }}"""
    with small_thresholds():
        lowered = lower(text, dict(zip("HW", sizes, strict=True)))
    assert any(r.pass_name == "overlap" and r.kind == "passed" for r in lowered.remarks)
    check_nest(lowered, dict(zip("HW", sizes, strict=True)))


def test_numbers_of_tiles_are_no_rows_of_register_tiles() -> None:
    """Sums of a tile shared what they broadcast with those of the next tiles: as many buffers were alive."""
    text = """def f(float(H,W) X, float(K) w) -> (O) {
      R(y,x) +=! w(k) * X(y+k,x) where k in 0:5
      O(y,x) +=! w(k) * R(y,x+k) where k in 0:5 }"""
    with small_thresholds():
        lowered = lower(text, {"H": 20, "W": 60, "K": 5})
    tiles = {n: s.moduli for n, s in lowered.storage.items() if n.endswith(".tile")}
    assert tiles and all(m is not None and m[0] == m[1] == 1 for m in tiles.values())


CHOSEN = """def f(float(H,W,8) G, int32(H,W) k) -> (O) {
  D(y,x,z) = exp(G(y,x,z))
  I(y,x) = D(y,x,k(y,x)) + D(y+1,x,k(y,x))
  O(y,x) = I(y,x) - I(y+2,x) }"""


def test_a_subscript_that_data_gives_is_checked_in_tiles_as_the_user_wrote_it() -> None:
    with small_thresholds():
        lowered = lower(CHOSEN, {"H": 19, "W": 17}, target=select_model(host_target(), "x86-64-v2"))
    assert any(r.pass_name == "overlap" and r.kind == "passed" for r in lowered.remarks)
    kernel, rng = lowered.compile(), np.random.default_rng(1)
    given, planes = rng.random((19, 17, 8), np.float32), rng.integers(0, 8, (19, 17), np.int32)
    d, (y, x) = np.exp(given), np.mgrid[:18, :17]
    i = d[y, x, planes[:18]] + d[y + 1, x, planes[:18]]
    np.testing.assert_allclose(kernel(given, planes), i[:-2] - i[2:], rtol=1e-5, atol=1e-5)
    planes[7, 16] = 8
    with pytest.raises(IndexError, match="subscript 8 of dimension 2 of D is outside 0 <= subscript < 8"):
        kernel(given, planes)


def test_a_picture_is_made_in_tiles_of_its_pyramid_where_that_saves_more_than_it_loses() -> None:
    """What resamples was stored whole in front of each temporary: all levels of all planes, for a picture of their sums."""
    text = """def f(float(8,H,W) X, int32(3) d) -> (O) {
      C(k,y,x) = exp(X(k,y,x))
      D(k,y,x) = C(k,2*y,x) + pad(C(k,2*y+1,x), clamp) where y in 0:(H+1)/2
      U(k,y,x) = C(k,y,x) + D(k,y/2,x) where y in 0:H
      S(y,x) +=! sqrt(U(k,y,x))
      T(y,x) = exp(S(y,x))
      O(y,x) +=! pad(T(y+d(i),x), clamp) where y in 0:H }"""
    program, ranges = infer(read(text), H=1536, W=2560)
    (remark,) = (r for r in overlap_tiles(program, ranges, X86_64_V4)[2] if r.statement == "S4")
    assert remark.kind == "passed" and remark.message.startswith("S, U, D in tiles of y ")


def test_tiles_along_which_the_same_part_of_a_large_array_is_read_are_innermost() -> None:
    """All of X came from memory for each of the planes."""
    text = """def f(float(H,W) X, float b) -> (D) {
      G(k,y,x) = exp(b * X(y,x) - float(k)) where k in 0:8
      D(k,y,x) = G(k,2*y,x) + G(k,2*y+1,x) + pad(G(k,2*y+2,x), clamp) where y in 0:H/2 }"""
    lines, _ = overlap(text, H=3072, W=4096)
    assert re.match(r"S1\(y.tile, (x.tile, )?k.tile, ", lines[-1]), lines
    with small_thresholds():
        check_nest(lower(text, {"H": 22, "W": 19}), {"H": 22, "W": 19})


def test_planes_that_data_chooses_at_clamped_rows_are_made_in_tiles() -> None:
    """A place between two ends was no box, so that all planes of all rows were stored."""
    text = """def f(float(8,H,W) D, int32(H,W) k) -> (O) {
      R(k,y,x) = 0.75 * D(k,y,x/2) + 0.25 * D(k,y,min(max(x/2 - 1 + 2 * (x % 2), 0), W - 1)) where x in 0:2*W
      O(y,x) = 0.75 * R(min(max(k(y/2,x/2), 0), 7), y/2, x)
          + 0.25 * R(min(max(k(y/2,x/2), 0), 7), min(max(y/2 - 1 + 2 * (y % 2), 0), H - 1), x) where y in 0:2*H }"""
    lines, _ = overlap(text, H=768, W=1280)
    assert "R.tile" in lines[-1]
    with small_thresholds():
        for h, w in ((1, 1), (7, 9)):
            check_nest(lower(text, {"H": h, "W": w}), {"H": h, "W": w})
