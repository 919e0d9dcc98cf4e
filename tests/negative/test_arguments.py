"""Calls that do not fit their operator: the answer names the argument, both sizes, and what to do."""

from __future__ import annotations

import array
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import polyc
from polyc.diagnostics import PolycError
from tests.negative.support import refuse

MM = "def mm(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }"
A, B, X = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32), np.ones(6, np.float32)
HUGE = 2**40


def read_only() -> np.ndarray:
    array = np.ones((3, 5), np.float32)
    array.flags.writeable = False
    return array


@pytest.fixture(scope="module")
def mm():
    return polyc.compile(MM)


@pytest.fixture(scope="module")
def scale():
    return polyc.compile("def scale(float(N) x, float alpha) -> (y) { y(i) = alpha * x(i) }")


@pytest.fixture(scope="module")
def two():
    return polyc.compile("def two(float(N) x) -> (y, z) { y(i) = x(i) z(i) = x(i) + 1 }")


INPUTS = {
    "double_for_float": ((A.astype(np.float64), B), {}, "argument-type-dtype", "A: expected type float32", "float64", "astype"),
    "integers_for_float": ((A.astype(int), B), {}, "argument-type-dtype", "int64", "A.astype('float32')"),
    "rows_without_columns": ((A[0], B), {}, "argument-rank", "expected 2 dimensions but found tensor with 1 dimension"),
    "extents_differ": ((A, A), {}, "argument-size", "B has 3 rows", "K is 4 since A's dimension 1 is 4"),
    "one_missing": ((A,), {}, "argument-count", "B missing"),
    "all_missing": ((), {}, "argument-count", "A, B missing"),
    "one_too_many": ((A, B, B), {}, "argument-count", "expected 2 inputs (A, B), but got 3"),
    "misspelt_name": ((A,), {"b": B}, "argument-name", "did you mean B?"),
    "given_twice": ((A, B), {"A": A}, "argument-twice", "by position and by name"),
    "size_that_differs": ((A, B), {"M": 7}, "argument-size", "A has 3 rows", "M=7 was given"),
    "size_unknown": ((A, B), {"Q": 7}, "argument-name", "no input, size or constant named Q"),
    "size_negative": ((A, B), {"M": -3}, "argument-size", "must not be negative", "-3"),
    "size_fractional": ((A, B), {"M": 3.5}, "argument-type-size", "integer, not 3.5"),
    "size_beyond_any": ((A, B), {"M": 2**62}, "argument-size", "beyond 2**62"),
    "text": (("hello", B), {}, "argument-type-array", "A is a str"),
    "nothing": ((None, B), {}, "argument-type-array", "A is a NoneType"),
    "ragged_list": (([[1, 2], [3]], B), {}, "argument-type-array", "give every row one length"),
    "objects": ((np.array([[None]]), B), {}, "argument-type-dtype", "object"),
    "other_byte_order": ((A.astype(">f4"), B), {}, "argument-type-byteorder", "newbyteorder"),
    "masked": ((np.ma.array(A), B), {}, "argument-type-masked", "filled"),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_are_refused(mm, name):
    args, named, code, *fragments = INPUTS[name]
    refuse(lambda: mm(*args, **named), code, *fragments)


def test_inputs_are_refused_at_their_declaration(mm):
    error = refuse(lambda: mm(A[0], B), "argument-rank", "1 | def mm(float(M, K) A")
    span = error.diagnostics[0].span
    assert span is not None and span.source.text[span.start : span.end] == "A"


@pytest.mark.parametrize("value", ["2", None, 1j, X, [1, 2]], ids=["text", "none", "complex", "array", "list"])
def test_scalars_are_refused(scale, value):
    with pytest.raises(polyc.PolycError) as caught:
        scale(X, value)
    assert "alpha" in str(caught.value) and caught.value.code in ("argument-type-array", "argument-type-dtype", "argument-rank")


OUTPUTS = {
    "read_only": (read_only(), "argument-out-readonly", "writable"),
    "broadcast": (np.broadcast_to(np.float32(0), (3, 5)), "argument-out-readonly", "writable"),
    "transposed_shape": (np.ones((5, 3), np.float32), "argument-out-shape", "shape (5, 3)", "shape (3, 5)", "numpy.empty"),
    "double": (np.ones((3, 5)), "argument-type-dtype", "out for C", "numpy.empty((3, 5), 'float32')"),
    "other_name": ({"D": np.ones((3, 5), np.float32)}, "argument-out-name", "no result named D", "results are: C"),
    "lists": ([[0] * 5] * 3, "argument-out-count", "expected 1 output (C), but out has 3"),
    "two_for_one": ((None, None), "argument-out-count", "out has 2"),
    "text": ("result", "argument-type-out", "is a str"),
    "overlapping_itself": (
        as_strided(np.ones(20, np.float32), (3, 5), (4, 4)),
        "argument-out-overlap",
        "share memory",
        "numpy.empty_like",
    ),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_out_is_refused(mm, name):
    value, code, *fragments = OUTPUTS[name]
    refuse(lambda: mm(A, B, out=value), code, *fragments)


def test_out_that_overlaps_an_input(mm):
    square = np.ones((8, 8), np.float32)
    refuse(lambda: mm(square[:3, :4], square[:4, :5], out=square[:3, :5]), "argument-overlap", "shares part", "a copy of")


def test_outputs_that_share_memory(two):
    y = np.empty_like(X)
    refuse(lambda: two(X, out=(y, y)), "argument-overlap", "out for z and out for y")
    refuse(lambda: two(X, out=y), "argument-out-count", "expected 2 outputs (y, z)", "tuple")
    refuse(lambda: two(X, out=(y, y, y)), "argument-out-count", "out has 3")


def test_accumulated_output_is_required():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", polyc.PolycWarning)
        total = polyc.compile("def total(float(M, N) A) -> (s) { s(m) += A(m, n) }")
    refuse(lambda: total(A), "argument-out-required", "out={'s': array}", "+=!")


def test_results_that_no_memory_holds_are_refused_before_they_are_allocated():
    outer = polyc.compile("def outer(float(M) x, float(N) y) -> (z) { z(i, j) = x(i) * y(j) }")
    for extent in (2**19, 2**20, HUGE):
        x = np.broadcast_to(np.float32(1), extent)
        refuse(lambda x=x: outer(x, x), "argument-too-large", f"({extent}, {extent})", "GiB", "smaller sizes")


def test_temporaries_that_no_memory_holds_are_refused():
    text = "def f(float(N) x) -> (s) { T(i, j) = x(i) + x(j) s(i) max=! T(i, j) s(i) = s(i) + T(i, i) }"
    op = polyc.compile(text, inline=False, tile=False, vectorize=False, parallel=False, scheduler="source")
    x = np.broadcast_to(np.float32(1), 2**20)
    with pytest.raises(polyc.PolycError) as caught:
        op(x)
    assert caught.value.code == "argument-too-large"


def test_sizes_that_leave_a_range_negative():
    window = polyc.compile("def w(float(N) x, float(K) k) -> (y) { y(i) +=! x(i + j) * k(j) }")
    refuse(lambda: window(np.ones(2, np.float32), np.ones(5, np.float32)), "range-negative", "index i of y", "before -2")


def test_precondition_on_sizes():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", polyc.PolycWarning)
        op = polyc.compile("def f(float(N) x, float(M) y) -> (z) { z(i) = x(i) * y(i + 1) where i in 0:N }")
    refuse(lambda: op(np.ones(4, np.float32), np.ones(3, np.float32)), "range-out-of-bounds", "y(i + 1)", "must be in 0:3")


@pytest.mark.parametrize("index", [6, -1, 2**31 - 1, -(2**31)])
def test_index_values_outside(index):
    look = polyc.compile("def look(float(V) T, int32(N) I) -> (O) { O(i) = T(I(i)) }")
    places = np.array([0, index], np.int32)
    refuse(lambda: look(X, places), "bounds-index", f"subscript {index}", "dimension 0 of T", "0 <= subscript < 6")


def test_fixed_sizes():
    refuse(lambda: polyc.compile(MM, sizes={"M": 7})(A, B), "argument-size", "fixed when the operator was compiled")
    refuse(lambda: polyc.compile(MM, sizes={"Q": 7}), "argument-name", "no size named Q")
    refuse(lambda: polyc.compile(MM, sizes={"M": -1}), "argument-size", "negative")
    refuse(lambda: polyc.compile(MM, sizes={"M": "x"}), "argument-type-size", "'x'")


def test_kernels_for_other_sizes(mm):
    refuse(lambda: mm.specialize(M=2**40, K=4, N=8)(A, B), "argument-size", "A has 3 rows")
    refuse(lambda: mm.specialize(M=3, K=4, N=2**62), "argument-size", "beyond 2**62")


def test_options():
    refuse(lambda: polyc.compile(MM, verfy=True), "argument-type-option", "did you mean verify?")
    refuse(lambda: polyc.compile(MM, target="x86-64-v5"), "argument-option", "x86-64-v4")
    refuse(lambda: polyc.compile(MM, scheduler="fast"), "argument-option", "ilp, isl, source")


def test_options_of_other_types():
    refuse(lambda: polyc.compile(MM, tile="no"), "argument-type-option", "option tile is True or False, not 'no'")
    refuse(lambda: polyc.op(MM, verify=1), "argument-type-option", "verify=True or verify=False")
    refuse(lambda: polyc.compile(MM, sizes="M=3"), "argument-type-size", "sizes={'N': 128}")
    refuse(lambda: polyc.compile(MM, sizes=[3]), "argument-type-size", "sizes is a list")


def test_target_of_the_environment(monkeypatch):
    monkeypatch.setenv("POLYC_TARGET", "z80")
    refuse(lambda: polyc.compile(MM), "argument-option", "POLYC_TARGET")


def test_number_of_threads_of_the_environment_that_is_no_number():
    code = "import polyc; polyc.get_num_threads()"
    environment = {**os.environ, "POLYC_NUM_THREADS": "lots"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "<string>:1: PolycWarning" in done.stderr and "POLYC_NUM_THREADS=lots" in done.stderr, done.stderr


@pytest.mark.parametrize("source", ["matmul.txt", "/tmp/operators", "operators/mm", ".tc2"])
def test_paths_that_do_not_end_in_tc(source):
    refuse(lambda: polyc.compile(source), "argument-file", f"pathlib.Path({source!r})")


def test_entries():
    both = MM + MM.replace("mm(", "other(")
    refuse(lambda: polyc.compile(both), "argument-entry", "2 defs (mm, other)", "entry='mm'", "--entry mm")
    refuse(lambda: polyc.compile(MM, entry="nn"), "argument-entry", "no def named nn", "defs are: mm")
    refuse(lambda: polyc.compile(MM, entry="MM"), "argument-entry", "did you mean mm?")


def test_stages(mm):
    refuse(lambda: mm.lower().as_text("loop"), "argument-stage", "did you mean loops?")


@pytest.mark.parametrize("n", [0, -1, 2**40])
def test_numbers_of_threads(n):
    refuse(lambda: polyc.set_num_threads(n), "argument-threads", "cores")


@pytest.mark.parametrize("source", [None, 3, b"bytes", [MM], {}], ids="none number bytes list dict".split())
def test_sources(source):
    refuse(lambda: polyc.compile(source), "argument-type-source", "pass .tc text, a path or a function")


@pytest.mark.parametrize("is_symbolic", [True, False], ids=["symbolic", "fixed"])
def test_workspaces_whose_bytes_64_bits_cannot_count_do_not_look_empty(is_symbolic):
    text = "def f(float(N) x, float(M) z) -> (s) { T(i, j) = x(i) + z(j) s max=! T(i, j) s = s + T(0, 0) }"
    op = polyc.compile(text, inline=False, tile=False, vectorize=False, parallel=False, scheduler="source")
    x = np.broadcast_to(np.float32(1), 2**31)
    kernel = op.lower().compile() if is_symbolic else op.specialize(x, x)
    refuse(lambda: kernel(x, x), "argument-too-large", "with its results and temporaries", "GiB")


def test_parameters_may_have_the_names_of_pythons_own():
    op = polyc.compile("def f(float(self) out, float(self) sizes) -> (args) { args(i) = out(i) + sizes(i) }")
    np.testing.assert_array_equal(op(X, X), X + X)
    op = polyc.compile("def f(float(N) self) -> (y) { y(i) = self(i) + 1 }")
    np.testing.assert_array_equal(op(self=X), X + 1)
    np.testing.assert_array_equal(op.specialize(X)(self=X), X + 1)


def test_index_values_outside_are_marked_at_the_subscript():
    look = polyc.compile("def look(float(V) T, int32(N) I) -> (O) {\n  O(i) = T(I(i) + 1)\n}")
    error = refuse(lambda: look(X, np.array([5], np.int32)), "bounds-index", "subscript 6")
    span = error.diagnostics[0].span
    assert span is not None and span.source.text[span.start : span.end] == "I(i) + 1"


@pytest.mark.parametrize("value", [1e300, 10**400, -(10**39)])
@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_numbers_that_would_become_infinite_are_refused(dtype, value):
    operator = polyc.compile(f"def f({dtype} s, {dtype}(N) A) -> (O) {{ O(i) = A(i) * s }}")
    refuse(lambda: operator(value, [1.0, 2.0]), "argument-type-dtype", "s holds a number", "cannot hold")
    refuse(lambda: operator(1.0, [1.0, value]), "argument-type-dtype", "A holds a number", "cannot hold")
    assert np.isinf(operator(float("inf"), [1.0])).all()


def test_the_conversion_that_is_proposed_is_one_of_the_value(mm):
    refuse(lambda: mm(array.array("d", [1, 2]), B), "argument-type-dtype", "numpy.asarray(A).astype('float32')")
    torch = pytest.importorskip("torch")
    refuse(lambda: mm(torch.ones(3, 4, dtype=torch.float64), B), "argument-type-dtype", "A.to(torch.float32)")
    refuse(lambda: mm(A, B, out=np.zeros((3, 5), ">f4")), "argument-type-byteorder", "this machine's byte order")


def test_thousands_of_errors_are_counted_instead_of_written_out():
    with pytest.raises(PolycError) as caught:
        polyc.compile("def f(float(N) A) -> (B) { B(i) = A(i) }\n" * 1500)
    assert str(caught.value).endswith("… and 1399 more")
    assert len(caught.value.diagnostics) == 1499


def test_verified_calls_say_how_to_keep_subscripts_inside():
    text = "def f(float(N) A, int32(M) k) -> (B) { B(m) = A(k(m)) }"
    operator = polyc.compile(text, verify=True)
    refuse(lambda: operator(X, np.array([9], np.int32)), "bounds-subscript", "clamp the subscript")
