"""Versions of one kernel for sizes of different magnitudes: which there are, which one a call takes, and that all are right."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.codegen.objects import host
from polyc.ir.expr import Size, int_const
from polyc.ir.versions import NEVER, cheapest, take_version
from polyc.machine import X86_64_V4
from polyc.scheduler.size_classes import SizeClasses, find_size_classes

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
CONV = """def conv(float(N,C,H,W) X, float(K,C,3,3) F) -> (Y) {
  Y(n,k,h,w) +=! pad(X(n, c, h + r - 1, w + s - 1), 0.0) * F(k,c,r,s) where h in 0:H, w in 0:W }"""


@pytest.fixture(autouse=True)
def whole_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which versions are worth it depends on the machine: where each load is a cycle, one tile serves small and large sizes."""
    machine = replace(host.host_target(), fma_per_cycle=2, loads_per_cycle=2)
    monkeypatch.setattr(host, "host_target", lambda: machine)


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def lowered(source: str, *shapes: tuple[int, ...], **options: object):
    return polyc.compile(source, dynamic=True, **options).lower(*[("f32", shape) for shape in shapes])


class _Found(BaseException):
    """What `find_size_classes` gives, on the way out of the compiler."""


def find(source: str, *shapes: tuple[int, ...], **options: object) -> SizeClasses:
    """The versions that a kernel has, before any of them is scheduled."""

    def stop(*arguments: Any) -> None:
        raise _Found(find_size_classes(*arguments))

    with pytest.MonkeyPatch.context() as patch, pytest.raises(_Found) as caught:
        patch.setattr("polyc.driver.stages.find_size_classes", stop)
        lowered(source, *shapes, **options)
    (found,) = caught.value.args
    assert isinstance(found, SizeClasses)
    return found


def test_a_kernel_first_called_with_small_sizes_has_a_version_for_large_ones():
    found = lowered(MM, (16, 16), (16, 16), target="x86-64-v4")
    versions = (found, *found.others)
    assert len(versions) == 2
    small, large = (take_version(found.costs, dict.fromkeys("MNK", n)) for n in (16, 500))
    assert small != large
    assert versions[small].ranges.typical["N"] < 100 < versions[large].ranges.typical["N"]
    tiles = {n: versions[n].choices["S0"].way.tile for n in (small, large)}
    assert np.prod(list(tiles[small].values())) < np.prod(list(tiles[large].values()))


def test_a_kernel_first_called_with_large_sizes_needs_no_second_version():
    found = lowered(MM, (500, 500), (500, 500))
    assert found.others == () and found.costs == ()


def test_the_choice_is_a_remark():
    found = lowered(MM, (16, 16), (16, 16), target="x86-64-v4")
    message, *each = [r.message for r in found.remarks if r.pass_name == "sizes"]
    assert message.startswith("2 versions, for sizes about ") and "M=16/K=16/N=16" in message
    assert len(each) == 2 and all("M" in cost and "N" in cost and "K" in cost for cost in each)


def test_equal_requests_give_equal_code():
    a, b = (lowered(MM, (16, 16), (16, 16)) for _ in range(2))
    assert a.llvm_ir == b.llvm_ir


def test_all_versions_compute_the_same():
    for source, first, operands in (
        (MM, ((16, 16), (16, 16)), lambda m, k, n: (draw(m, k), draw(k, n))),
        (CONV, ((1, 4, 8, 8), (4, 4, 3, 3)), lambda n, c, h: (draw(1, c, h, h + n), draw(n, c, 3, 3))),
    ):
        found = lowered(source, *first)
        kernel, costs, seen = found.compile(), found.costs, set()
        for sizes in (
            (1, 1, 1),
            (3, 20, 5),
            (16, 16, 16),
            (33, 7, 200),
            (200, 40, 31),
            (130, 33, 130),
            (0, 5, 7),
            (9, 0, 300),
            (20, 130, 5),
            (64, 64, 10),
        ):
            arrays = operands(*sizes)
            seen.add(take_version(costs, op_sizes(source, arrays)))
            np.testing.assert_allclose(kernel(*arrays), wanted(source, arrays), rtol=1e-3, atol=1e-3)
        # Without AVX-512 one tile serves small and large matrices.
        is_one = source is MM and not host.host_target().has_masks and not costs
        assert is_one or (seen == set(range(len(costs))) and len(seen) > 1)


def op_sizes(source: str, arrays: tuple[np.ndarray, ...]) -> dict[str, int]:
    a, b = arrays
    if source is MM:
        return {"M": a.shape[0], "K": a.shape[1], "N": b.shape[1]}
    return dict(zip(("N", "C", "H", "W"), a.shape, strict=True)) | {"K": b.shape[0]}


def wanted(source: str, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    a, b = arrays
    if source is MM:
        return a @ b
    n, c, h, w = a.shape
    padded = np.zeros((n, c, h + 2, w + 2), np.float32)
    padded[:, :, 1:-1, 1:-1] = a
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwrs,kcrs->nkhw", windows, b, optimize=True)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
def test_versions_for_narrower_machines(target):
    op = polyc.compile(MM, dynamic=True, target=target)
    for m, k, n in ((16, 16, 16), (0, 3, 4), (300, 40, 300), (5, 0, 7), (1, 300, 65), (65, 1, 9)):
        a, b = draw(m, k), draw(k, n)
        np.testing.assert_allclose(op(a, b), a @ b, rtol=1e-3, atol=1e-3)


def test_bound_inputs_keep_their_layout_in_every_version():
    weight = draw(96, 80)
    layer = polyc.compile(MM, dynamic="M").bind(B=weight)
    for m in (1, 2, 300, 17, 0):
        np.testing.assert_allclose(layer(draw(m, 96)), draw(m, 96) @ weight, rtol=1e-3, atol=1e-3)
    assert len([r for r in layer.remarks if ": kernel " in r.message]) == 1


def test_programs_without_contractions_have_one_version():
    source = "def f(float(N,D) X) -> (Y) { M(n) max=! X(n,d)  Y(n,d) = exp(X(n,d) - M(n)) }"
    assert lowered(source, (4, 8)).others == ()


def test_versions_come_from_the_disk_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYC_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("POLYC_CACHE", raising=False)
    for _ in range(2):
        op = polyc.compile(CONV, dynamic=True)
        for n, c, h in ((4, 4, 8), (30, 30, 60)):
            arrays = draw(1, c, h, h), draw(n, c, 3, 3)
            np.testing.assert_allclose(op(*arrays), wanted(CONV, arrays), rtol=1e-3, atol=1e-3)
        assert any(r.pass_name == "sizes" for r in op.remarks)


@pytest.mark.parametrize(
    ("costs", "number"), [((5,), 0), ((5, 3), 1), ((3, 3), 0), ((7, 2, 4), 1), ((7, 4, 2), 2), ((7, 7, 7), 0), ((8, 7, 7), 1)]
)
def test_a_call_takes_the_first_of_the_cheapest_versions(costs: tuple[int, ...], number: int) -> None:
    assert take_version([int_const(c) for c in costs], {}) == number
    assert take_version([Size(f"S{n}") for n in range(len(costs))], {f"S{n}": c for n, c in enumerate(costs)}) == number


def test_versions_that_cannot_run_are_not_taken() -> None:
    assert take_version([NEVER, int_const(1 << 60)], {}) == 1
    assert cheapest([Size("M")]) == int_const(0)


@pytest.mark.parametrize("first", [(0, 0, 0), (1, 1, 1), (5, 0, 700)])
def test_first_sizes_of_zero_and_one(first):
    op = polyc.compile(MM, dynamic=True)
    for m, k, n in (first, (40, 30, 20), (300, 10, 300)):
        np.testing.assert_allclose(op(draw(m, k), draw(k, n)), draw(m, k) @ draw(k, n), rtol=1e-3, atol=1e-3)
    assert len([r for r in op.remarks if ": kernel " in r.message]) == 1


def test_stores_of_missing_rows_never_go_beyond_the_array():
    # Masked off, they raise no fault, but take a hundred times as long where no page is.
    text = lowered(MM, (300, 300), (300, 300), target="x86-64-v4").llvm_ir
    (spare,) = set(re.findall(r"(%slot\d+) = alloca \[1024 x i8\]", text))
    chosen = set(re.findall(rf"(%v\d+) = select i1 %v\d+, ptr %v\d+, ptr {spare}", text))
    stored = re.findall(r"call void @llvm\.masked\.store\.\S+\(<\d+ x float> [^,]+, ptr (%v\d+),", text)
    # Two rows of four vectors: rows are missing in the last tile of rows alone.
    assert sum(pointer in chosen for pointer in stored) == 2 * 4
    assert chosen <= set(stored)


def test_few_results_need_no_version_of_their_own_beside_one_for_many() -> None:
    """16 results ran in tiles of 64 at half of the speed, and two versions of the filtered form were made for them."""
    source = "def f(float(N,H,W,C) I, float(3,3,C,K) F) -> (O) { O(n,h,w,k) +=! I(n,h+r,w+s,c) * F(r,s,c,k) }"
    found = find(source, (2, 454, 472, 3), (3, 3, 3, 64), target="x86-64-v4")
    assert sorted(v.form for v in found.versions) == [0, 1]
    for c, form in ((3, 0), (32, 1)):
        taken = take_version(found.costs, {"N": 1, "C": c, "H": 330, "W": 480, "K": 16})
        assert found.versions[taken].form == form


def test_a_program_with_two_forms_has_a_version_of_each() -> None:
    source = "def f(float(N,C,H,W) I, float(K,C,3,3) F) -> (O) { O(n,k,h,w) +=! I(n,c,h+r,w+s) * F(k,c,r,s) }"
    found = find(source, (1, 64, 258, 258), (64, 64, 3, 3), target="x86-64-v4")
    assert {v.form for v in found.versions} == {0, 1}


@pytest.mark.parametrize(("first", "per_cycle"), [((3, 226), 1), ((3, 226), 2), ((64, 58), 2), ((256, 30), 1)])
def test_few_channels_are_summed_as_written_and_many_filtered_whatever_came_first(
    first: tuple[int, int], per_cycle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = replace(X86_64_V4, fma_per_cycle=per_cycle, loads_per_cycle=per_cycle)
    monkeypatch.setattr(host, "host_target", lambda: machine)
    source = "def f(float(N,C,H,W) I, float(K,C,3,3) F) -> (O) { O(n,k,h,w) +=! I(n,c,h+r,w+s) * F(k,c,r,s) }"
    channels, side = first
    found = find(source, (1, channels, side, side), (64, channels, 3, 3))
    for c, form in ((3, 0), (128, 1)):
        taken = take_version(found.costs, {"N": 1, "C": c, "H": 514, "W": 514, "K": 64})
        assert found.versions[taken].form == form


def test_three_channels_read_images_in_place_whatever_came_first() -> None:
    """Where the first image had 128 channels, vectors lay along 16 results for any sizes: 0.53 of the specialised speed."""
    source = "def f(float(N,C,H,W) I, float(K,C,3,3) F) -> (O) { O(n,k,h,w) +=! I(n,c,h+r,w+s) * F(k,c,r,s) }"
    found = lowered(source, (1, 128, 300, 300), (64, 128, 3, 3), target="x86-64-v3")
    taken = take_version(found.size_classes.costs, {"N": 1, "C": 3, "H": 450, "W": 470, "K": 64})
    way = (found, *found.others)[taken].choices["S0"].way
    assert way.vector == "w" and not way.packs_vector


def test_a_first_call_with_many_channels_of_small_images_leaves_no_filter_for_large_ones_in_passes_over_all() -> None:
    """Transformed filters for 287 channels are read once for all rows of 14x14, so that large images went through memory in
    parts: 0.32 to 0.5 of the specialised speed."""
    source = "def f(float(N,C,H,W) I, float(K,C,3,3) F) -> (O) { O(n,k,h,w) +=! I(n,c,h+r,w+s) * F(k,c,r,s) }"
    found = find(source, (1, 256, 14, 14), (256, 256, 3, 3), target="x86-64-v3")
    taken = take_version(found.costs, {"N": 1, "C": 32, "H": 340, "W": 340, "K": 32})
    assert found.versions[taken].form == 1 and found.versions[taken].typical["C"] < 256


@pytest.mark.parametrize("pad", [0, 1])
def test_a_first_call_with_few_channels_leaves_no_version_for_long_and_narrow_images(pad: int) -> None:
    """16 results of 2x64 images of 300x260 took 1.5 times as long in tiles for 14 columns of 719 rows."""
    image, where = ("I(n,c,h+r,w+s)", "") if not pad else ("pad(I(n,c,h+r-1,w+s-1),0.0)", " where h in 0:H, w in 0:W")
    source = f"def f(float(N,C,H,W) I, float(K,C,3,3) F) -> (O) {{ O(n,k,h,w) +=! {image} * F(k,c,r,s){where} }}"
    found = find(source, (1, 3, 226, 226), (32, 3, 3, 3), target="x86-64-v4")
    typical = [v.typical for v in found.versions]
    assert all(sizes["H"] == sizes["W"] for sizes in typical) and {sizes["N"] for sizes in typical} == {1}
    chosen = found.versions[take_version(found.costs, {"N": 2, "C": 64, "H": 300, "W": 260, "K": 16})]
    assert chosen.form == 1 and (chosen.typical["H"], chosen.typical["K"]) == (60, 64)


def test_a_first_call_with_two_images_leaves_no_tile_of_two_images() -> None:
    """One image of 16 channels and 454x454 ran at 0.38 of the specialised speed in tiles that were half empty."""
    source = "def f(float(N,C,H,W) I, float(K,C,3,3) F) -> (O) { O(n,k,h,w) +=! I(n,c,h+r,w+s) * F(k,c,r,s) }"
    found = lowered(source, (2, 3, 454, 472), (64, 3, 3, 3), target="x86-64-v4")
    tiles = [choice.way.tile for version in (found, *found.others) for choice in version.choices.values()]
    assert len(tiles) > 1 and not any("n" in tile for tile in tiles)


WINDOWS = "def f(float(N,C,H,W) I, float(K,C,R,S) F) -> (O) { O(n,k,h,w) +=! I(n,c,h+r,w+s) * F(k,c,r,s) }"


def correlate(images: np.ndarray, taps: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(images, taps.shape[2:], axis=(2, 3))
    return np.einsum("nchwrs,kcrs->nkhw", windows, taps, optimize=True)


@pytest.mark.parametrize(("window", "form"), [(1, 0), (3, 1)])
def test_a_version_for_the_first_windows_is_taken_for_these_alone(window: int, form: int) -> None:
    first = (1, 64, 56, 56), (64, 64, window, window)
    found = find(WINDOWS, *first)
    (known,) = [n for n, v in enumerate(found.versions) if v.known]
    assert found.versions[known].known == {"R": window, "S": window} and found.versions[known].form == form
    for r, s, n in itertools.product((1, 2, 3, 5), (1, 2, 3, 5), (3, 14, 60, 700)):
        taken = found.versions[take_version(found.costs, {"N": 1, "C": n, "H": n, "W": n, "K": n, "R": r, "S": s})]
        assert all({"R": r, "S": s}[name] == value for name, value in taken.known.items())


def test_windows_of_one_element_leave_images_that_run_as_one_row() -> None:
    found = lowered(WINDOWS, (1, 64, 56, 56), (64, 64, 1, 1))
    folded = [version for version in (found, *found.others) if version.nest.folds]
    assert [(fold.first, fold.second) for fold in folded[0].nest.folds] == [("H", "W")]
    assert found.nest.folds == ()


@pytest.mark.parametrize(("window", "target"), [(3, None), (1, "x86-64-v2")])
def test_windows_may_change_after_the_first_call(window: int, target: str | None) -> None:
    op = polyc.compile(WINDOWS, dynamic=True, **({} if target is None else {"target": target}))
    op(draw(1, 32, 40, 40), draw(32, 32, window, window))
    for n, c, h, w, k, r, s in (
        (1, 40, 30, 31, 33, 1, 1),
        (2, 3, 17, 40, 5, 3, 3),
        (1, 35, 17, 40, 32, 3, 3),
        (1, 7, 9, 11, 20, 1, 3),
        (1, 7, 9, 11, 20, 5, 2),
        (1, 33, 1, 1, 7, 1, 1),
        (1, 33, 3, 3, 7, 3, 3),
        (0, 4, 8, 8, 4, 1, 1),
    ):
        images, taps = draw(n, c, h, w), draw(k, c, r, s)
        np.testing.assert_allclose(op(images, taps), correlate(images, taps), rtol=1e-3, atol=1e-3)
        if target is not None:
            continue
        apart = draw(n, c, h, 2 * w)[..., ::2]  # rows with gaps in memory
        np.testing.assert_allclose(op(apart, taps), correlate(apart, taps), rtol=1e-3, atol=1e-3)
        part = draw(n, c, h, w + 3)[..., :w]
        np.testing.assert_allclose(op(part, taps), correlate(part, taps), rtol=1e-3, atol=1e-3)


def test_sums_over_taps_alone_have_a_version_that_unrolls_the_first_windows() -> None:
    source = "def f(float(N,C,H,W) I, float(C,R,S) F) -> (O) { O(n,c,h,w) +=! I(n,c,h+r,w+s) * F(c,r,s) }"
    found = lowered(source, (1, 64, 58, 58), (64, 3, 3))
    assert {"R": 3, "S": 3} in [v.known for v in found.size_classes.versions]
    op = found.compile()
    for n, c, h, w, r, s in (
        (1, 64, 58, 58, 3, 3),
        (2, 5, 9, 40, 3, 3),
        (1, 7, 20, 33, 5, 2),
        (3, 4, 3, 3, 3, 3),
        (1, 3, 7, 9, 1, 1),
    ):
        images, taps = draw(n, c, h, w), draw(c, r, s)
        windows = np.lib.stride_tricks.sliding_window_view(images, (r, s), axis=(2, 3))
        np.testing.assert_allclose(op(images, taps), np.einsum("nchwrs,crs->nchw", windows, taps), rtol=1e-3, atol=1e-3)


def test_loops_over_a_few_taps_inside_of_channels_are_no_reason_for_a_version() -> None:
    source = "def f(float(N,C,H,W) I, float(K,C,R,S) F) -> (O) { O(n,k,h,w) +=! I(n,c,2*h+r,2*w+s) * F(k,c,r,s) }"
    found = find(source, (1, 64, 58, 58), (64, 64, 3, 3))
    assert not any(version.known for version in found.versions)


@pytest.mark.parametrize("target", [None, "x86-64-v2"])
def test_sums_that_are_the_same_along_an_index_of_the_result_have_versions(target: str | None) -> None:
    text = """def f(float(N, K) A, float(N) y) -> (Y) {
      x(k) = fmax(fmin(y(k), 2.0), -2.0)
      T(i, j) +=! A(k, i) * x(k) where j in 0:N
      Y(i) max=! T(i, j) * y(j)
    }"""
    f = polyc.compile(text, dynamic=True, **({} if target is None else {"target": target}))
    for n, k in ((40, 20), (3, 7), (0, 2), (130, 65)):
        A, y = draw(n, k), draw(n)
        products = (A.T @ np.clip(y, -2, 2))[:, None] * y
        np.testing.assert_allclose(f(A, y), products.max(axis=1, initial=-np.inf), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("per_cycle", [1, 2])
def test_large_images_in_steps_of_two_are_not_left_to_tiles_of_a_few_columns(
    per_cycle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles of six rows and two columns touch as many lines at each step as they have rows: 3.5 times as slow as 13 columns."""
    machine = replace(X86_64_V4, fma_per_cycle=per_cycle, loads_per_cycle=per_cycle)
    monkeypatch.setattr(host, "host_target", lambda: machine)
    source = "def f(float(N,C,H,W) I, float(K,C,R,S) F) -> (O) { O(n,k,h,w) +=! I(n,c,2*h+r,2*w+s) * F(k,c,r,s) }"
    found = lowered(source, (1, 64, 257, 257), (64, 64, 3, 3))
    taken = take_version(found.costs, {"N": 1, "C": 3, "H": 449, "W": 449, "K": 32, "R": 3, "S": 3})
    assert "h" not in (found, *found.others)[taken].choices["S0"].way.tile


@pytest.mark.parametrize("first", [((2, 3, 454, 472), (64, 3, 3, 3)), ((1, 3, 300, 300), (16, 3, 3, 3))])
def test_each_version_is_made_for_sizes_at_which_calls_take_it(first: tuple[tuple[int, ...], ...]) -> None:
    found = lowered(CONV, *first, target="x86-64-v3")
    assert found.others
    for number, version in enumerate((found, *found.others)):
        assert take_version(found.costs, version.ranges.typical) == number


def test_programs_whose_arrays_are_all_too_long_have_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyc.scheduler.size_classes.MOST_ELEMENTS", 0)
    a, b = draw(16, 16), draw(16, 16)
    np.testing.assert_allclose(polyc.compile(MM, dynamic=True)(a, b), a @ b, rtol=1e-4, atol=1e-4)
