"""Filters of three taps by fewer products: which sums, in which forms; sizes, borders and special values."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import polyc
from polyc.ir.versions import take_version
from polyc.machine import X86_64_V3, X86_64_V4, Machine
from polyc.poly.ranges import assume_sizes
from polyc.poly.rows import Band, Leaf, Node, Sequence, statements_of
from polyc.scheduler.rewriting.rules import minimal_filtering, tap_windows
from polyc.scheduler.rewriting.rules.minimal_filtering import filter_minimally, has_symbolic_filter
from tests.oracle.programs import agree, draw
from tests.scheduler.support import check, check_nest, infer, lower, read, statements

HEAD = "def f(float(C,H,W) D, float(K,C,3,3) F, float(K) b, float(K,H,W) Z) -> (O) { "
PADDED = HEAD + "O(k,h,w) +=! pad(D(c,h+r-1,w+s-1), 0.0) * F(k,c,r,s) where h in 0:H, w in 0:W }"
INSIDE = HEAD + "O(k,h,w) +=! D(c,h+r,w+s) * F(k,c,r,s) }"
SUM = "T(k,h,w) +=! pad(D(c,h+r-1,w+s-1), 0.0) * F(k,c,r,s) where h in 0:H, w in 0:W "

PROGRAMS = {
    "padded": PADDED,
    "inside": INSIDE,
    "taps first": HEAD + "O(k,h,w) +=! F(k,c,r,s) * D(c,h+r,w+s) }",
    "one dimension": "def f(float(C,H) D, float(K,C,3) F) -> (O) { O(k,h) +=! D(c,h+r) * F(k,c,r) }",
    "one dimension of two": HEAD + "O(k,h,w) +=! D(c,h+r,w) * F(k,c,r,0) }",
    "mirrored": HEAD + "O(k,h,w) +=! pad(D(c,h-r+1,w-s+1), 0.0) * F(k,c,r,s) where h in 0:H, w in 0:W }",
    "mirrored taps": HEAD + "O(k,h,w) +=! D(c,h+r,w+s) * F(k,c,2-r,2-s) where r in 0:3, s in 0:3 }",
    "from another place": HEAD + "O(k,h,w) +=! D(c,h+r-1,w+s-1) * F(k,c,r,s) }",
    "batch": "def f(float(N,C,H,W) D, float(K,C,3,3) F) -> (O) "
    "{ O(n,k,h,w) +=! pad(D(n,c,h+r-1,w+s-1), 0.0) * F(k,c,r,s) where h in 0:H, w in 0:W }",
    "channels last": "def f(float(N,H,W,C) D, float(3,3,C,K) F) -> (O) "
    "{ O(n,h,w,k) +=! pad(D(n,h+r-1,w+s-1,c), 0.0) * F(r,s,c,k) where h in 0:H, w in 0:W }",
    "groups": "def f(float(G,C,H,W) D, float(G,K,C,3,3) F) -> (O) "
    "{ O(g,k,h,w) +=! pad(D(g,c,h+r-1,w+s-1), 0.0) * F(g,k,c,r,s) where h in 0:H, w in 0:W }",
    "accumulated": HEAD + "O(k,h,w) = b(k) where h in 0:H-2, w in 0:W-2\n O(k,h,w) += D(c,h+r,w+s) * F(k,c,r,s) }",
    "in place": HEAD + "O(k,h,w) += D(c,h+r,w+s) * F(k,c,r,s) }",
    "relu": HEAD + SUM + "O(k,h,w) = fmax(T(k,h,w) + b(k) + Z(k,h,w), 0.0) }",
    "transposed after": HEAD + SUM + "O(w,k,h) = T(k,h,w) * b(k) }",
    "read twice": HEAD + SUM + "m(k) max=! T(k,h,w)\n O(k,h,w) = T(k,h,w) - m(k) }",
    "read beside": HEAD + SUM + "O(k,h,w) = T(k,h,w) + pad(T(k,h-1,w), 0.0) where h in 0:H }",
    "twice": "def f(float(C,H,W) D, float(C,C,3,3) F) -> (O) { "
    "T(k,h,w) +=! pad(D(c,h+r-1,w+s-1), 0.0) * F(k,c,r,s) where h in 0:H, w in 0:W\n"
    "U(k,h,w) = fmax(T(k,h,w), 0.0)\n"
    "O(k,h,w) +=! pad(U(c,h+r-1,w+s-1), 0.0) * F(k,c,r,s) where h in 0:H, w in 0:W }",
    "double": PADDED.replace("float", "double"),
    "bytes": INSIDE.replace("float(C,H,W)", "int8(C,H,W)").replace("D(c,h+r,w+s)", "float(D(c,h+r,w+s))"),
    "halves": INSIDE.replace("float", "float16").replace(
        "D(c,h+r,w+s) * F(k,c,r,s)", "float(D(c,h+r,w+s)) * float(F(k,c,r,s))"
    ),
}

OTHERS = {
    "steps of two": HEAD + "O(k,h,w) +=! D(c,2*h+r,2*w+s) * F(k,c,r,s) }",
    "dilated": HEAD + "O(k,h,w) +=! D(c,h+2*r,w+2*s) * F(k,c,r,s) }",
    "five taps": "def f(float(C,H) D, float(K,C,5) F) -> (O) { O(k,h) +=! D(c,h+r) * F(k,c,r) }",
    "one channel": "def f(float(H) D, float(K,3) F) -> (O) { O(k,h) +=! D(h+r) * F(k,r) }",
    "for each channel": "def f(float(C,H,W) D, float(C,3,3) F) -> (O) { O(c,h,w) +=! D(c,h+r,w+s) * F(c,r,s) }",
    "taps that move": "def f(float(C,H) D, float(H,C,3) F) -> (O) { O(h) +=! D(c,h+r) * F(h,c,r) where h in 0:H-2 }",
    "a diagonal": "def f(float(C,H,H) D, float(K,C,3) F) -> (O) { O(k,h) +=! D(c,h+r,h+r) * F(k,c,r) where r in 0:3 }",
    "a maximum": HEAD + "O(k,h,w) max=! D(c,h+r,w+s) * F(k,c,r,s) }",
    "a triangle": HEAD + "O(k,h,w) +=! D(c,h+r,w+s) * F(k,c,r,s) where r <= s }",
    "a literal": HEAD + "O(k,h) +=! D(c,h,w) * 2.0 * F(k,0,0,0) where c in 0:3 }",
    "a literal alone": "def f(float(H,W) D) -> (O) { O(h) +=! D(h,w) * 2.0 }",
    "nothing read": "def f(float(H,W) D) -> (O) { O(h) +=! float(w) * D(h,w) }",
    "a sum": HEAD + "O(k,h,w) +=! D(c,h+r,w+s) + F(k,c,r,s) }",
    "integers": INSIDE.replace("float", "int32"),
}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule whatever it is estimated to cost."""
    monkeypatch.setattr(tap_windows, "MINIMUM_PRODUCTS", 0)
    monkeypatch.setattr(minimal_filtering, "MARGIN", float("inf"))


def _passed(lowered: polyc.driver.Lowered) -> int:
    return sum(r.pass_name == "minimal-filtering" and r.kind == "passed" for r in lowered.remarks)


def _sizes(name: str, h: int, w: int) -> dict[str, int]:
    program = read(PROGRAMS[name])
    known = {"C": 3, "K": 2, "H": h, "W": w, "N": 2, "G": 2}
    return {n: known[n] for n in program.sizes}


def _check_fixed(name: str, sizes: dict[str, int]) -> polyc.driver.Lowered:
    """For these sizes alone: nothing is filtered for any."""
    lowered = lower(PROGRAMS[name], sizes)
    check_nest(lowered, sizes)
    return lowered


def test_transforms_are_exact():
    rng = np.random.default_rng(3)
    d, g = ([Fraction(int(x)) for x in rng.integers(-99, 99, n)] for n in (4, 3))

    def times(matrix: minimal_filtering.Matrix, vector: list[Fraction]) -> list[Fraction]:
        return [sum((a * x for a, x in zip(row, vector, strict=True)), start=Fraction(0)) for row in matrix]

    products = [a * b for a, b in zip(times(minimal_filtering.FILTER, g), times(minimal_filtering.DATA, d), strict=True)]
    assert times(minimal_filtering.RESULT, products) == [sum(d[i + k] * g[k] for k in range(3)) for i in range(2)]


def test_before_and_after(always: None):
    program, ranges = infer(read(PROGRAMS["one dimension"]), C=5, H=8, K=7)
    new, _, remarks = filter_minimally(program, ranges, X86_64_V4)
    assert statements(new) == [
        "S0_taps_0(c, k): O.taps[0, c, k] = F[k, c, 0]",
        "S0_taps_1(c, k): O.taps[1, c, k] = 0.5 * (F[k, c, 0] + F[k, c, 1] + F[k, c, 2])",
        "S0_taps_2(c, k): O.taps[2, c, k] = 0.5 * (F[k, c, 0] + F[k, c, 2] - F[k, c, 1])",
        "S0_taps_3(c, k): O.taps[3, c, k] = F[k, c, 2]",
        "S0_tiles_0(c, h.tile): O.tiles[0, c, h.tile] = D[c, 2 * h.tile] - D[c, 2 * h.tile + 2]",
        "S0_tiles_1(c, h.tile): O.tiles[1, c, h.tile] = D[c, 2 * h.tile + 1] + D[c, 2 * h.tile + 2]",
        "S0_tiles_2(c, h.tile): O.tiles[2, c, h.tile] = D[c, 2 * h.tile + 2] - D[c, 2 * h.tile + 1]",
        "S0_tiles_3(c, h.tile): O.tiles[3, c, h.tile] = D[c, 2 * h.tile + 3] - D[c, 2 * h.tile + 1]",
        "S0_products(r.point, k, h.tile, c): O.products[r.point, k, h.tile] += "
        "O.tiles[r.point, c, h.tile] * O.taps[r.point, c, k] init 0.0",
        "S0_0(k, h.tile): O[k, 2 * h.tile] = O.products[0, k, h.tile] + O.products[1, k, h.tile] + O.products[2, k, h.tile]",
        "S0_1(k, h.tile): O[k, 2 * h.tile + 1] = "
        "O.products[1, k, h.tile] + O.products[3, k, h.tile] - O.products[2, k, h.tile]",
    ]
    assert [r.pass_name for r in remarks] == ["minimal-filtering"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_form(always: None, name: str):
    for h, w in ((5, 6), (8, 7)) if name in ("padded", "inside", "one dimension") else ((5, 6),):
        assert _passed(_check_fixed(name, _sizes(name, h, w))) == (2 if name == "twice" else 1)


@pytest.mark.parametrize(
    ("name", "h", "w", "n"),
    [
        ("padded", 1, 1, 0),
        ("padded", 2, 1, 1),
        ("padded", 2, 2, 1),
        ("relu", 1, 3, 1),
        ("inside", 3, 3, 0),
        ("inside", 3, 4, 1),
    ],
)
def test_least_sizes(always: None, name: str, h: int, w: int, n: int):
    assert _passed(_check_fixed(name, _sizes(name, h, w))) == n


@pytest.mark.parametrize("name", OTHERS)
def test_what_stays(always: None, name: str):
    sizes = {n: 4 if n == "K" else 9 for n in read(OTHERS[name]).sizes}
    program, ranges = infer(read(OTHERS[name]), **sizes)
    assert filter_minimally(program, ranges, X86_64_V4) == (program, ranges, [])


def test_two_dimensions_of_unknown_size_one_after_the_other(always: None):
    program, ranges = infer(read(INSIDE), C=5, K=7)
    ranges = assume_sizes(ranges, program.defined_sizes, {"H": 8, "W": 6})
    new = statements(filter_minimally(program, ranges, X86_64_V4, symbolic=True)[0])
    new = [text for text in new if "_tiles" in text or "_rows" in text]
    assert new[:2] == [
        "S0_rows_0(c, h.tile, w.element): O.rows[0, c, h.tile, w.element] = "
        "pad(D[c, 2 * h.tile, w.element], 0.0) - pad(D[c, 2 * h.tile + 2, w.element], 0.0)",
        "S0_rows_1(c, h.tile, w.element): O.rows[1, c, h.tile, w.element] = "
        "pad(D[c, 2 * h.tile + 1, w.element], 0.0) + pad(D[c, 2 * h.tile + 2, w.element], 0.0)",
    ]
    assert new[4] == (
        "S0_tiles_0(r.point, c, h.tile, w.tile): O.tiles[r.point, 0, c, h.tile, w.tile] = "
        "O.rows[r.point, c, h.tile, 2 * w.tile] - O.rows[r.point, c, h.tile, 2 * w.tile + 2]"
    )
    assert len(new) == 8


def test_sizes_of_which_nothing_is_known_stay(always: None):
    program, ranges = infer(read(PADDED), C=3, K=4)
    assert filter_minimally(program, ranges, X86_64_V4, symbolic=True)[2] == []


@pytest.mark.parametrize("known", ["", "CK", "HW", "CKH", "CHW"])
def test_sums_of_symbolic_size_are_filtered_where_that_is_asked_for(always: None, known: str):
    sizes = {"C": 3, "K": 4, "H": 1, "W": 5}
    program, ranges = infer(read(PADDED), **{n: sizes[n] for n in known})
    ranges = assume_sizes(ranges, program.defined_sizes, sizes)
    assert has_symbolic_filter(program, ranges)
    assert filter_minimally(program, ranges, X86_64_V4)[2] == []
    assert [r.kind for r in filter_minimally(program, ranges, X86_64_V4, symbolic=True)[2]] == ["passed"]


def test_one_kernel_filters_minimally_where_that_pays():
    lowered = polyc.compile(PROGRAMS["one dimension"], dynamic=True).lower(("f32", (256, 300)), ("f32", (256, 256, 3)))
    filtered = {any(s.name.endswith("_products") for s in v.scop.statements) for v in (lowered, *lowered.others)}
    assert filtered == {True, False}
    kernel, rng, seen = lowered.compile(), np.random.default_rng(0), set()
    for c, k, h in (
        (256, 256, 300),
        (100, 90, 401),
        (256, 256, 5),
        (200, 65, 30),
        (3, 5, 7),
        (130, 17, 3),
        (7, 300, 20),
        (0, 9, 8),
        (9, 0, 7),
    ):
        d, f = (rng.standard_normal(shape).astype(np.float32) for shape in ((c, h), (k, c, 3)))
        wanted = sum(f[:, :, r] @ d[:, r : r + h - 2] for r in range(3))
        np.testing.assert_allclose(kernel(d, f), wanted, rtol=1e-3, atol=1e-3)
        seen.add(take_version(lowered.costs, {"C": c, "K": k, "H": h}))
    assert seen == set(range(len(lowered.costs)))


def test_results_that_are_applied_are_not_stored(always: None):
    program, ranges = infer(read(PROGRAMS["relu"]), C=3, K=4, H=8, W=8)
    new, _, _ = filter_minimally(program, ranges, X86_64_V4)
    assert {s.target for s in new.statements} == {"T.taps", "T.tiles", "T.products", "O"}


def test_switches(always: None):
    for options in ({"disable": "minimal-filtering"}, {"reassociate": False}):
        assert _passed(check(PADDED, _sizes("padded", 5, 5), **options)) == 0


@pytest.mark.parametrize(
    ("name", "h", "w"),
    [("padded", 1, 1), ("padded", 19, 33), ("relu", 5, 8), ("batch", 5, 8), ("groups", 5, 8), ("double", 19, 33)],
)
def test_compiled(always: None, name: str, h: int, w: int):
    op, sizes = polyc.compile(PROGRAMS[name]), _sizes(name, h, w) | {"K": 17}
    sizes["C"] = 19
    agree(op, draw(op, sizes), sizes)


def test_bound_filters_are_transformed_once(always: None):
    op, sizes = polyc.compile(PROGRAMS["relu"]), {"C": 5, "K": 18, "H": 9, "W": 11}
    d, f, b, z = draw(op, sizes)
    bound = op.bind(F=f)
    lowered = bound.lower(d, b, z)
    assert any(r.message == "T.taps is computed once" for r in lowered.remarks)
    assert "T.taps" not in {s.target for s in lowered.scop.statements}
    np.testing.assert_allclose(bound(d, b, z), op(d, f, b, z), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_stay_in_their_windows(always: None, special: float):
    sizes = {"C": 2, "K": 3, "H": 12, "W": 11}
    op = polyc.compile(PADDED)
    d, f, b, z = draw(op, sizes)
    for at in ((1, 4, 5), (0, 11, 10), (1, 0, 0), (0, 7, 8)):
        changed = d.copy()
        changed[at] = special
        with np.errstate(all="ignore"):
            found, plain = op(changed, f, b, z), op(d, f, b, z)
        touched = np.zeros_like(found, bool)
        touched[:, max(0, at[1] - 1) : at[1] + 2, max(0, at[2] - 1) : at[2] + 2] = True
        assert not np.isfinite(found[touched]).any()
        np.testing.assert_array_equal(found[~touched], plain[~touched])


def test_it_is_used_where_it_is_estimated_to_pay():
    def remark(channels: int, filters: int, side: int) -> str:
        program, ranges = infer(read(PADDED), C=channels, K=filters, H=side, W=side)
        (found,) = filter_minimally(program, ranges, X86_64_V4, {"F"})[2]
        return found.kind

    assert remark(128, 128, 28) == "passed"
    assert remark(3, 64, 112) == "missed"


@pytest.mark.parametrize("target", [X86_64_V3, X86_64_V4], ids=lambda t: t.name)
def test_few_channels_over_large_images_are_filtered(target: Machine):
    """Parts of one row of tiles stay in a cache: over the whole image they would be more than twice what is read as written."""
    program, ranges = infer(read(PADDED), C=32, K=32, H=257, W=301)
    (found,) = filter_minimally(program, ranges, target)[2]
    assert found.kind == "passed"


def test_narrow_vectors_of_which_two_are_added_in_a_cycle_transform_as_fast_as_wide_ones():
    program, ranges = infer(read(PADDED), C=32, K=16, H=402, W=402)
    (found,) = filter_minimally(program, ranges, X86_64_V3)[2]
    assert found.kind == "passed"


def test_of_three_windows_the_last_two_are_filtered(always: None):
    volume = "def f(float(C,D,H,W) X, float(K,C,3,3,3) F) -> (O) { O(k,d,h,w) +=! X(c,d+q,h+r,w+s) * F(k,c,q,r,s) }"
    (remark,) = filter_minimally(*infer(read(volume), C=2, K=2, D=5, H=8, W=9), X86_64_V4)[2]
    assert "along h and w in tiles" in remark.message
    check(volume, {"C": 2, "K": 2, "D": 5, "H": 8, "W": 9})


def test_errors_stay_those_of_a_sum():
    op = polyc.compile(PADDED)
    rng = np.random.default_rng(0)
    d, f = rng.standard_normal((128, 28, 28), "f"), rng.standard_normal((128, 128, 3, 3), "f")
    b, z = np.zeros(128, "f"), np.zeros((128, 28, 28), "f")
    bound = op.bind(F=f)
    assert _passed(bound.lower(d, b, z)) == 1
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(d.astype("d"), ((0, 0), (1, 1), (1, 1))), (3, 3), (1, 2))
    exact = np.einsum("chwrs,kcrs->khw", windows, f.astype("d"), optimize=True)
    spread = np.sqrt(np.mean(exact**2))
    assert abs(bound(d, b, z) - exact).max() < 1e-5 * spread


def test_points_share_the_loops_of_a_transformation(always: None):
    found = _innermost(check(PROGRAMS["relu"], _sizes("relu", 8, 8)).rows)
    assert [names for names in found if len(names) == 16 and all("_tiles_" in n for n in names)]
    assert ["S0_0_0", "S0_0_1", "S0_1_0", "S0_1_1"] in found


def _innermost(node: Node) -> list[list[str]]:
    """The statements of each innermost band."""
    match node:
        case Leaf():
            return []
        case Sequence():
            return [names for child in node.children for names in _innermost(child)]
        case Band():
            return _innermost(node.child) or [list(statements_of(node))]
