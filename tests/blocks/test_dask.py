"""Operators on dask arrays against the same operators on whole arrays."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from click.testing import CliRunner

import polyc
from polyc.api import block_tasks
from polyc.cli import main
from polyc.diagnostics import ArgumentError, PolycError, UnsupportedError
from polyc.ir.interpret import interpret
from tests.blocks.differential import chunk, compare, interpreted
from tests.property.mixed import make_arrays, make_program

da = pytest.importorskip("dask.array")

STENCIL = "y(i, j) = pad(x(i - 2, j), {m}) + pad(x(i + 1, j - 1), {m}) * 0.5 + x(i, j) where i in 0:N, j in 0:M"
KINDS: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "pointwise": ("def f(float(N, M) x) -> (y) { y(i, j) = x(i, j) * 2.0 + float(i - j) / float(N) }", ((13, 9),)),
    **{
        f"stencil-{m}": (f"def f(float(N, M) x) -> (y) {{ {STENCIL.format(m=m)} }}", ((13, 9),))
        for m in ("0.5", "clamp", "wrap", "reflect", "symmetric")
    },
    "valid-window": ("def f(float(N) x, float(K) w) -> (y) { y(i) +=! x(i + k) * w(k) }", ((23,), (5,))),
    "negative-indices": ("def f(float(N) x) -> (y) { y(i) = x(i + 5) + x(i + 2) }", ((23,),)),
    "three-axes": ("def f(float(N, M, K) x) -> (s) { s(j) +=! x(i, j, k) * float(i + k) }", ((5, 6, 7),)),
    "transposed-convolution": ("def f(float(N) x, float(K) w) -> (y) { y(2 * i + k) +=! x(i) * w(k) }", ((9,), (4,))),
    "histogram": (
        "def f(float(N) x) -> (h) { k(i) = int32(x(i) * 4.0)  h(b) = 0 where b in 0:4  h(k(i)) += 1 where i in 0:N }",
        ((29,),),
    ),
    "norm": (
        "def f(float(N, M) x) -> (y, s) { s() +=! x(i, j) * x(i, j)  y(i, j) = x(i, j) / sqrt(s()) }",
        ((9, 7),),
    ),
    "fixed-element": ("def f(float(N) x) -> (s) { s = x(N - 1) - x(0) }", ((9,),)),
    "strided": ("def f(float(N) x) -> (y) { y(i) = x(2 * i) + x(2 * i + 3) }", ((31,),)),
    "dilated": ("def f(float(N) x) -> (y) { y(i) +=! x(i + 3 * k) where k in 0:3 }", ((31,),)),
    "upsampling": ("def f(float(N) x) -> (y) { y(i) = x(i / 2) + x((i + 1) / 3) where i in 0:2 * N - 2 }", ((13,),)),
    "interleaved": ("def f(float(N) x) -> (y) { y(2 * i) = x(i)  y(2 * i + 1) = x(i) * 0.5 }", ((13,),)),
    "triangle": ("def f(float(N, N) a) -> (y) { y(i) +=! a(i, j) where j <= i }", ((12, 12),)),
    "strict-triangle": ("def f(float(N, N) a) -> (y) { y(i, j) = i < j ? a(i, j) : a(j, i) * 0.5 }", ((12, 12),)),
    "transposed": ("def f(float(N, M) a) -> (y) { y(j, i) = a(i, j) }", ((13, 9),)),
    "reversed": ("def f(float(N) x) -> (y) { y(i) = x(N - 1 - i) where i in 0:N }", ((13,),)),
    "broadcast": ("def f(float(N) x, float(M) w) -> (y) { y(i, j) = x(i) * w(j) }", ((13,), (9,))),
    "product": ("def f(float(N, K) a, float(K, M) b) -> (y) { y(i, j) +=! a(i, k) * b(k, j) }", ((7, 11), (11, 6))),
    "softmax": (
        "def f(float(N, M) x) -> (y) { m(i) max=! x(i, j)  s(i) +=! exp(x(i, j) - m(i))"
        "  y(i, j) = exp(x(i, j) - m(i)) / s(i) }",
        ((7, 11),),
    ),
    "argmax": ("def f(float(N, M) x) -> (p) { p(i) argmax=! x(i, j) }", ((7, 11),)),
    "chain": (
        "def f(float(N) x) -> (z) { t(i) = x(i) + x(i + 1)  u(i) = pad(t(i - 1), clamp) + t(i) where i in 0:N - 1"
        "  z(i) = u(2 * i) * 0.5 }",
        ((24,),),
    ),
    "two-results": ("def f(float(N) x) -> (y, z) { y(i) = x(i) * 2.0  z(i) = y(i) + x(i) }", ((13,),)),
    "results-of-two-shapes": ("def f(float(N, M) x) -> (y, s) { y(i, j) = x(i, j) * 2.0  s(i) +=! y(i, j) }", ((13, 9),)),
    "scan": (
        "def f(float(N, M) x) -> (y) { y(0, j) = x(0, j)  y(i, j) = y(i - 1, j) * 0.5 + x(i, j) where i in 1:N }",
        ((9, 13),),
    ),
    "time-loop": (
        "def f(float(N, M) x) -> (y) { s(0, i, j) = x(i, j)  s(t, i, j) = s(t - 1, i, j) * 0.5 + pad(s(t - 1, i, j - 1), clamp)"
        " where t in 1:4, i in 0:N, j in 0:M  y(i, j) = s(3, i, j) }",
        ((9, 7),),
    ),
    "gather": ("def f(float(N, M) x) -> (y) { y(i, j) = x((i * i) % 5, j) where i in 0:N }", ((9, 7),)),
    "square-of-extents": ("def f(float(N, M) x) -> (y) { y(i, j) = x(i, j) / float(N * M) }", ((9, 7),)),
    "half": ("def f(float16(N, M) x) -> (y) { y(i) +=! x(i, j) }", ((9, 7),)),
}

OUTWARDS = """def f(float(N, M) x) -> (y) {
  y(1, j) = x(1, j)  y(i, j) = y(i + 1, j) * 0.5 + x(i, j) where i in 0:1
  y(i, j) = y(i - 1, j) * 0.5 + x(i, j) where i in 2:N
}"""


def make_inputs(operator: polyc.Operator, shapes: tuple[tuple[int, ...], ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {f.name: rng.random(s).astype(f.dtype.numpy) for f, s in zip(operator.formals, shapes, strict=True)}


@pytest.mark.parametrize("kind", KINDS)
def test_any_chunks_give_what_whole_arrays_give(kind: str) -> None:
    text, shapes = KINDS[kind]
    operator = polyc.compile(text)
    arrays = make_inputs(operator, shapes)
    made = interpret(operator.program, arrays)
    expected = tuple(made[r.name] for r in operator.program.returns)
    source = random.Random(kind)
    for _ in range(4):
        with interpreted():
            results = operator(**chunk(source, arrays))
        compare(results, expected if len(expected) > 1 else expected[0], 1e-5, 1e-6)


@pytest.mark.parametrize("kind", ["stencil-clamp", "product", "softmax", "chain", "two-results"])
def test_compiled_blocks_have_the_bits_of_whole_arrays(kind: str) -> None:
    text, shapes = KINDS[kind]
    operator = polyc.compile(text)
    arrays = make_inputs(operator, shapes)
    rows = {n: da.from_array(a, chunks=(4, *(-1,) * (a.ndim - 1)) if n != "b" else a.shape) for n, a in arrays.items()}
    results = operator(**rows)
    compare(results, operator(**arrays), 1e-6 if kind in ("product", "softmax") else 0.0)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_blocks_for_each_instruction_set(target: str) -> None:
    operator = polyc.compile(KINDS["chain"][0], target=target)
    x = np.random.default_rng(0).random(97, np.float32)
    try:
        expected = operator(x)
    except UnsupportedError:
        pytest.skip("this machine lacks these instructions")
    compare(operator(da.from_array(x, chunks=33)), expected)


@pytest.mark.parametrize("first", range(0, 20, 5))
def test_random_programs_on_random_chunks(first: int) -> None:
    for seed in range(first, first + 5):
        source = random.Random(seed)
        text = make_program(source, 3)
        arrays = make_arrays(seed, source.choice([1, 2, 5, 7, 11]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", polyc.PolycWarning)
            operator = polyc.compile(text, "f")
        try:
            made = interpret(operator.program, arrays)
        except PolycError:
            continue
        expected = tuple(made[r.name] for r in operator.program.returns)
        with interpreted():
            results = operator(**chunk(source, arrays))
        compare(results, expected if len(expected) > 1 else expected[0], 1e-3, 2e-5)


def test_empty_arrays() -> None:
    operator = polyc.compile(KINDS["product"][0])
    a, b = np.ones((3, 0), np.float32), np.ones((0, 4), np.float32)
    compare(operator(da.from_array(a), da.from_array(b)), np.zeros((3, 4), np.float32))
    x = np.ones((0, 4), np.float32)
    compare(polyc.compile(KINDS["pointwise"][0])(da.from_array(x)), x)


def test_chunks_follow_from_those_of_inputs() -> None:
    x = da.zeros((20, 12), chunks=((8, 8, 4), (5, 7)), dtype=np.float32)
    with interpreted():
        assert polyc.compile(KINDS["pointwise"][0])(x).chunks == x.chunks
        assert polyc.compile(KINDS["transposed"][0])(x).chunks == x.chunks[::-1]
        strided = polyc.compile("def f(float(N, M) x) -> (y) { y(i, j) = x(2 * i, j) where i in 0:10 }")(x)
        assert strided.chunks == ((4, 4, 2), (5, 7))
        assert polyc.compile(KINDS["scan"][0])(x).chunks == x.chunks
        assert polyc.compile(OUTWARDS)(x).chunks == ((20,), (5, 7))


def test_names_depend_on_what_is_computed_alone() -> None:
    text = KINDS["pointwise"][0]
    x = da.zeros((20, 12), chunks=5, dtype=np.float32)
    with interpreted():
        assert polyc.compile(text)(x).name == polyc.compile(text)(x).name
        assert polyc.compile(text)(x).name != polyc.compile(text.replace("2.0", "3.0"))(x).name
        assert polyc.compile(text)(x).name != polyc.compile(text)(x + 1).name


def test_a_block_reads_its_region_alone() -> None:
    touched: list[tuple[int, ...]] = []

    def load(block_info: dict) -> np.ndarray:
        place = block_info[None]["chunk-location"]
        touched.append(place)
        return np.full(block_info[None]["chunk-shape"], float(place[0]), np.float32)

    x = da.map_blocks(load, chunks=((4,) * 6, (9,)), dtype=np.float32)
    with interpreted():
        y = polyc.compile(KINDS["stencil-clamp"][0])(x)
    touched.clear()
    y[8:12].compute(scheduler="synchronous")  # rows 6 to 12: of the chunks 1 to 3
    assert {place[0] for place in touched} == {1, 2, 3}


def test_partial_results_do_not_depend_on_the_number_of_workers() -> None:
    x = np.random.default_rng(0).standard_normal((6, 500)).astype(np.float32)
    total = polyc.compile("def f(float(N, M) x) -> (s) { s(i) +=! x(i, j) * x(i, j) }")(da.from_array(x, chunks=(2, 17)))
    one = total.compute(scheduler="synchronous")
    np.testing.assert_array_equal(one, total.compute(scheduler="threads", num_workers=3))
    np.testing.assert_allclose(one, (x.astype(np.float64) ** 2).sum(1), rtol=1e-6)
    widths = [len(graph) for graph in (total.__dask_graph__(),)]
    assert widths[0] > 3 * 30 + 3 * 4  # 30 parts of each row, by eights


@pytest.mark.parametrize(
    ("kind", "combined"),
    [("histogram", ["add", None]), ("argmax", ["max, min"]), ("product", ["add"]), ("valid-window", [None])],
)
def test_reductions_over_chunks_are_cut_and_windows_are_not(kind: str, combined: list[str | None]) -> None:
    operator = polyc.compile(KINDS[kind][0])
    arrays = {n: da.from_array(a, chunks=3) for n, a in make_inputs(operator, KINDS[kind][1]).items()}
    assert [stage.combines for stage in operator.blocks(**arrays, dry_run=True).stages] == combined


@pytest.mark.parametrize("source", ["(v(), p(), q()) argmax=! x(i, j)", "(v(j), p(j)) argmin=! x(i, j)"])
def test_what_an_extremum_selects_is_found_in_its_pass(source: str) -> None:
    names = ", ".join(n for n in "vpq" if f"{n}(" in source)
    operator = polyc.compile(f"def f(float(N, M) x) -> ({names}) {{ {source} }}")
    for seed in range(6):  # few values, so that the best one stands in several blocks
        x = np.random.default_rng(seed).integers(0, 5, (7, 13)).astype(np.float32)
        if seed > 3:
            x[[2, 6], [11, 3]] = np.nan
        made = interpret(operator.program, {"x": x})
        with interpreted():
            compare(operator(da.from_array(x, chunks=(3, 4))), tuple(made[n] for n in names.split(", ")))
    (parts, *_) = operator.blocks(da.from_array(x, chunks=(3, 4)), dry_run=True).stages
    assert len(parts.combines.split(", ")) == len(names.split(", "))


@pytest.mark.parametrize(
    "source",
    [
        "m() max=! x(i)  s() +=! x(i) == m() ? w(i) : 0.0",
        "m() max=! x(i)  s() min=! x(i) == m() ? w(i) : 7.0",  # 7 is no identity
        "m() max=! x(i)  s() max=! w(i) == m() ? x(i) : 0.0 - 1.0 / 0.0",
        "m() max=! x(i)  s() min=! x(i) == m() ? w(i) + m() : 1.0 / 0.0",
        "m() max=! x(i)  s() min=! x(i) == m() ? w(i) : 1.0 / 0.0 where i in 0:N - 3",
        "m() max=! x(i)  n() max=! x(i) == m() ? w(i) : 0.0 - 1.0 / 0.0  s() +=! w(i) == n() ? x(i) : 0.0",
    ],
)
def test_what_only_looks_like_a_selection_is_right(source: str) -> None:
    operator = polyc.compile(f"def f(float(N) x, float(N) w) -> (s) {{ {source} }}")
    for seed in range(4):
        x, w = np.random.default_rng(seed).integers(0, 4, (2, 17)).astype(np.float32)
        made = interpret(operator.program, {"x": x, "w": w})
        with interpreted():
            compare(operator(da.from_array(x, chunks=5), da.from_array(w, chunks=5)), made["s"], 1e-6)


def test_sums_in_the_order_of_the_source_are_not_cut() -> None:
    operator = polyc.compile("def f(float(N) x) -> (s) { s() +=! x(i) }", reassociate=False)
    x = da.zeros(100, chunks=10, dtype=np.float32)
    assert [stage.combines for stage in operator.blocks(x, dry_run=True).stages] == [None]
    text = "def f(float(N, M) x) -> (s) { m(i) max=! x(i, j)  s(i) +=! exp(x(i, j) - m(i)) }"
    stages = (
        polyc.compile(text, reassociate=False).blocks(da.ones((5, 8), chunks=(5, 4), dtype=np.float32), dry_run=True).stages
    )
    assert [stage.combines for stage in stages] == ["max", None]


@pytest.mark.parametrize(
    ("value", "n_kinds"),
    [("x(i, j) * 2.0", 1), ("x(i, j) + float(i)", 4), ("j > 2 ? x(i, j) : 0.0", 2), ("x(i, j) + x(i + 1, j)", 1)],
)
def test_blocks_have_other_numbers_only_where_values_depend_on_their_places(value: str, n_kinds: int) -> None:
    operator = polyc.compile(f"def f(float(N, M) x) -> (y) {{ y(i, j) = {value} }}")
    x = np.random.default_rng(0).random((9, 8), np.float32)
    x = x[: 8 + ("i + 1" in value)]
    chunked = da.from_array(x, chunks=((2, 2, 2, len(x) - 6), (2, 2, 2, 2)))
    with interpreted():
        y = operator.blocks(chunked, chunks=(2, 4))
    compare(y, interpret(operator.program, {"x": x})["y"])
    tasks = [t for v in y.dask.to_dict().values() for t in walk_arguments(v) if isinstance(t, block_tasks.Task)]
    assert len(tasks) == 8
    assert len({t.sizes for t in tasks}) == n_kinds


def walk_arguments(task: Any) -> Iterator[Any]:
    """What a task of a graph is made of, as dask writes it in any version."""
    for argument in getattr(task, "args", task if isinstance(task, tuple) else ()):
        yield getattr(argument, "value", argument)


def test_a_range_that_another_tensor_gives_is_kept() -> None:
    operator = polyc.compile(
        "def f(float(N) x) -> (y, t) { t(i, j) = x(i) * x(j)  y(i) = 2.0 * x(i) where exists t(i + 1, 0) }"
    )
    x = np.arange(9, dtype=np.float32)
    with interpreted():
        compare(operator(da.from_array(x, chunks=4)), (2 * x[:-1], x[:, None] * x))


def test_chunks_without_elements_change_nothing() -> None:
    operator = polyc.compile("def f(float(N) x) -> (v, s) { v(i) = 2.0 * x(i)  s() +=! x(i) }")
    x = np.arange(9, dtype=np.float32)
    with interpreted():
        for given, chunks in ((x, (4, 0, 5)), (x[:0], (0, 0))):
            compare(operator(da.from_array(given, chunks=(chunks,))), (2 * given, given.sum()))


@pytest.mark.parametrize("chunks", [((6,), (1, 2, 2)), ((4, 2), (1,) * 5)])
def test_elements_that_no_term_reaches_are_zero(chunks: tuple[tuple[int, ...], ...]) -> None:
    text = "def f(float(N, M) x, float(P) q) -> (float(N, P) y) { y(i, j + k) +=! x(i, j) where i in 1:N - 1, k in 0:2 }"
    x, q = np.random.default_rng(0).random((6, 5), np.float32), np.zeros(7, np.float32)
    operator = polyc.compile(text)
    with interpreted():
        compare(operator(da.from_array(x, chunks=chunks), q), interpret(operator.program, {"x": x, "q": q})["y"])


def test_masks_are_not_lost() -> None:
    x = da.ma.masked_equal(da.arange(20, chunks=6, dtype=np.float32), 3)
    with pytest.raises(PolycError, match="mask"):
        polyc.compile("def f(float(N) x) -> (y) { y(i) = x(i) * 2.0 }")(x).compute(scheduler="synchronous")


def test_axis_that_a_recurrence_needs_whole_is_refused_by_name() -> None:
    operator = polyc.compile(OUTWARDS)
    x = da.zeros((12, 8), chunks=4, dtype=np.float32)
    with pytest.raises(UnsupportedError, match="y cannot be cut along dimension 0: each step of a recurrence") as caught:
        operator.blocks(x, chunks=(4, 4))
    assert caught.value.code == "unsupported-block-axis"
    with interpreted():
        assert operator.blocks(x, chunks=(-1, 2)).chunks == ((12,), (2,) * 4)


def test_what_has_no_blocks_is_refused() -> None:
    x = da.zeros((12, 8), chunks=4, dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", polyc.PolycWarning)
        accumulating = polyc.compile("def f(float(N, M) x) -> (s) { s(i) += x(i, j) }")
    with pytest.raises(UnsupportedError, match="accumulated"):
        accumulating(x)
    with pytest.raises(ArgumentError, match="does not fit y"):
        polyc.compile(KINDS["pointwise"][0]).blocks(x, chunks=((3, 3), (8,)))
    with pytest.raises(PolycError, match="out="):
        polyc.compile(KINDS["pointwise"][0])(x, out=np.zeros((12, 8), np.float32))
    with pytest.raises(ArgumentError, match="compute_chunk_sizes"):
        polyc.compile(KINDS["pointwise"][0])(x[x[:, 0] > 0])
    with pytest.raises(PolycError, match="expected type float32"):
        polyc.compile(KINDS["pointwise"][0])(x.astype(np.float64))


def test_numbers_bound_inputs_and_gradients() -> None:
    smooth = polyc.compile(
        "def f(float(N) x, float(K) w, int64 n, float scale) -> (y)"
        " { y(i) = scale * (x(i) + x(i + n)) * w(0) where i in 0:N - n }"
    )
    rng = np.random.default_rng(1)
    x, w = rng.random(20).astype(np.float32), rng.random(2).astype(np.float32)
    chunked = da.from_array(x, chunks=6)
    compare(smooth.bind(w=w)(chunked, 3, 0.5), smooth(x, w, 3, 0.5))
    derivative = polyc.vjp(polyc.compile("def f(float(N) x) -> (y) { y(i) = x(i) * x(i + 1) }"))
    seed = rng.random(19).astype(np.float32)
    whole, parts = derivative(x, seed), derivative(chunked, da.from_array(seed, chunks=5))
    compare(parts, whole)


def test_workers_take_kernels_from_the_disk_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYC_CACHE", "1")
    monkeypatch.setenv("POLYC_CACHE_DIR", str(tmp_path))
    x = np.random.default_rng(0).random(300, np.float32)
    operator = polyc.compile(KINDS["strided"][0])
    expected = operator(x)
    sent = pickle.dumps(operator(da.from_array(x, chunks=((110, 140, 50),))))
    with patch("polyc.driver.lower", side_effect=AssertionError("compiled again")):
        compare(pickle.loads(sent), expected)


def test_polyc_is_imported_without_dask() -> None:
    code = "import sys, polyc, polyc.api.operator; assert 'dask' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_would_run_is_known_before() -> None:
    x = da.zeros((400, 300), chunks=(100, 300), dtype=np.float32)
    operator = polyc.compile(KINDS["stencil-clamp"][0])
    report = operator.blocks(x, dry_run=True)
    (stage,) = report.stages
    assert (stage.n_tasks, stage.n_kernels) == (4, 2)
    assert stage.read == 4 * 300 * (101 + 103 + 103 + 102)
    assert stage.written == 4 * 400 * 300
    assert report.held == 4 * 300 * (2 * 103 + 100)
    assert "y: 4 tasks, 2 kernels, 479KiB read, 468KiB written, at most 358KiB held" in str(report)
    parts = polyc.compile(KINDS["softmax"][0]).blocks(x.rechunk((100, 100)), dry_run=True)
    assert [s.combines for s in parts.stages] == ["max, add", None]


def test_explanation_says_what_is_read_and_why_an_axis_is_one_chunk() -> None:
    x = da.zeros((12, 8), chunks=4, dtype=np.float32)
    assert "cannot" not in polyc.compile(KINDS["scan"][0]).blocks(x, dry_run=True).explain()
    text = polyc.compile(OUTWARDS).blocks(x, dry_run=True).explain()
    assert "y cannot be cut along dimension 0: each step of a recurrence needs more of the one before" in text
    assert "2 read x[0 : N, first1 : count1 + first1]" in text
    assert "greatest memory, by threads: 1 " in text


def test_command_line_explains_chunks_without_data(tmp_path: Path) -> None:
    (tmp_path / "op.tc").write_text(KINDS["stencil-clamp"][0])
    arguments = ["explain", str(tmp_path / "op.tc"), "--size", "N=20000,M=20000"]
    done = CliRunner().invoke(main, [*arguments, "--chunk", "x=1000,20000"])
    assert done.exit_code == 0, done.output
    assert "y: 20 tasks, 2 kernels" in done.output
    assert "18 read x[first0 - 2 : count0 + first0 + 1, 0 : M]" in done.output
    assert CliRunner().invoke(main, [*arguments, "--chunk", "x=1000"]).exit_code == 2
    assert CliRunner().invoke(main, [*arguments, "--chunk", "w=1000"]).exit_code == 2
    assert CliRunner().invoke(main, [*arguments[:2], "--chunk", "x=1000,20000"]).exit_code == 2


def test_einsum_of_dask_arrays_is_lazy() -> None:
    a, b = np.random.default_rng(0).random((2, 9, 9), np.float32)
    x, y = da.from_array(a, chunks=4), da.from_array(b, chunks=5)
    with interpreted():
        for result in (polyc.einsum("ij,jk", x, y), polyc.einsum("ij,jk->ik", x, b), polyc.einsum(x, [0, 1], y, [1, 2])):
            compare(result, a @ b, 1e-6)
        assert polyc.einsum("ij,jk", x, y, dtype="float64").dtype == np.float64
        compare(polyc.einsum("ij->", x), np.asarray(a.sum()), 1e-6)
    with pytest.raises(PolycError, match="out="):
        polyc.einsum("ij,jk", x, y, out=np.zeros((9, 9), np.float32))


def test_all_borders_of_a_picture_have_one_kernel() -> None:
    x = np.random.default_rng(0).random((22, 19), np.float32)
    operator = polyc.compile(
        "def f(float(N, M) x) -> (z) { y(i, j) = pad(x(i - 2, j + 1), clamp) - x(i, j) where i in 0:N, j in 0:M"
        "  z(i, j) = pad(y(i + 1, j - 1), reflect) + y(i, j) where i in 0:N, j in 0:M }"
    )
    chunked = da.from_array(x, chunks=(5, 6))
    report = operator.blocks(chunked, dry_run=True)
    assert (report.stages[0].n_tasks, report.stages[0].n_kernels, len(report.stages[0].classes)) == (20, 2, 9)
    compare(operator(chunked), operator(x))


def test_a_worker_that_lacks_the_instructions_of_a_chosen_target_says_so(tmp_path: Path) -> None:
    graph = tmp_path / "graph"
    operator = polyc.compile(KINDS["pointwise"][0], target="x86-64-v3")
    try:
        made = operator(da.from_array(np.ones((4, 3), np.float32), chunks=2))
    except UnsupportedError:
        pytest.skip("this machine lacks these instructions itself")
    graph.write_bytes(pickle.dumps(made))
    program = f"""
import pickle, polyc
made = pickle.load(open({str(graph)!r}, "rb"))
try:
    made.compute(scheduler="synchronous")
except polyc.UnsupportedError as error:
    print(pickle.loads(pickle.dumps(error)))
"""
    old = os.environ | {"POLYC_MACHINE": "x86-64-v2"}
    done = subprocess.run([sys.executable, "-c", program], env=old, capture_output=True, text=True)
    assert "code for x86-64-v3 cannot run on the machine x86-64-v2" in done.stdout, done.stderr
