"""Operators: calls, kernels per layout, named and open arguments, errors; kernels are interpreted (conftest.py)."""

# ruff: noqa: F821 (the bodies of operators use indices that Python never evaluates)
import os
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.api.names import where

MM = """
def mm(float(M,K) A, float(K,N) B) -> (C) {
  C(m,n) +=! A(m,k) * B(k,n)
}
"""
A = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.arange(20, dtype=np.float32).reshape(4, 5)

pytestmark = pytest.mark.usefixtures("lowered")


def test_call_by_position_name_and_out(lowered):
    mm = polyc.compile(MM)
    for c in (mm(A, B), mm(A, B=B), mm(B=B, A=A), mm(A.tolist(), B)):
        np.testing.assert_array_equal(c, A @ B)
    out = np.empty((3, 5), np.float32)
    for _ in range(2):
        out[...] = 0
        assert mm(A, B, out=out) is out
        np.testing.assert_array_equal(out, A @ B)
    assert mm(A, B, out=(out,)) is out
    assert mm(A, B, out={"C": out}) is out
    for wrong in ({"Q": B}, {"A": A}, {"N": 5}):
        with pytest.raises(polyc.ArgumentError):
            mm(A, **wrong)
    with pytest.raises(polyc.ArgumentError):
        mm(A, B, A=A)
    assert len(lowered) == 1


def test_one_kernel_per_types_sizes_and_stride_classes(lowered):
    mm = polyc.compile(MM)
    mm(A, B)
    mm(A.copy(), B)
    assert mm.specialize(A, B) is mm.specialize(("f32", (3, 4)), (np.float32, (4, 5)))
    assert mm.specialize(M=3, K=4, N=5) is mm.specialize(A, B)
    assert len(lowered) == 1
    assert lowered[0].sizes == {"M": 3, "K": 4, "N": 5}
    assert lowered[0].strides == ((16, 4), (20, 4), (20, 4))
    wide = np.zeros((3, 8), np.float32)
    wide[:, :4] = A
    np.testing.assert_array_equal(mm(wide[:, :4], B), A @ B)
    assert lowered[1].strides[0] == (None, 4)
    wider = np.zeros((3, 9), np.float32)
    wider[:, :4] = A
    np.testing.assert_array_equal(mm(wider[:, :4], B), A @ B)
    assert len(lowered) == 2
    for general in (np.asfortranarray(A), A[::-1, ::-1][::-1, ::-1][:, ::-1][:, ::-1].T.copy().T, wide[:, ::2]):
        np.testing.assert_allclose(mm(general, B), general @ B)
    assert lowered[2].strides[0] is None and len(lowered) == 3
    mm(A[:2], B)
    assert len(lowered) == 4


def test_extent_one_and_empty_layouts_count_as_contiguous(lowered):
    mm = polyc.compile(MM)
    column = np.zeros((3, 7), np.float32)[:, :1]
    row = np.zeros((1, 5), np.float32)
    mm(column[:1], row)
    assert lowered[0].strides == ((4, 4), (20, 4), (20, 4))
    assert mm(np.zeros((0, 4), np.float32), B).shape == (0, 5)


def test_symbolic_kernel_without_sizes(lowered):
    mm = polyc.compile(MM)
    mm.lower()
    assert lowered[0].sizes == {} and lowered[0].strides is None
    mm.lower(M=4)
    assert lowered[1].sizes == {"M": 4} and lowered[1].strides is None
    mm.lower(M=4, K=2, N=3)
    assert lowered[2].strides == ((8, 4), (12, 4), (12, 4))


def test_fixed_sizes_of_compile(lowered):
    mm = polyc.compile(MM, sizes={"K": 4})
    np.testing.assert_array_equal(mm(A, B), A @ B)
    with pytest.raises(polyc.ArgumentError, match=r"A has 3 columns \(dimension 1\), but K is 4 since K=4 was fixed"):
        mm(A[:, :3].copy(), B[:3])
    with pytest.raises(polyc.ArgumentError, match="no size named Q"):
        polyc.compile(MM, sizes={"Q": 4})


def test_entry_is_needed_where_there_are_several():
    text = MM + "def twice(float(N) X) -> (Y) { Y(i) = X(i) + X(i) }"
    with pytest.raises(polyc.ArgumentError, match="mm, twice") as caught:
        polyc.compile(text)
    assert caught.value.code == "argument-entry"
    twice = polyc.compile(text, "twice")
    np.testing.assert_array_equal(twice(B[0]), 2 * B[0])
    with pytest.raises(polyc.ArgumentError, match="defs are: mm, twice"):
        polyc.compile(text, entry="thrice")


def test_file_sources(tmp_path):
    path = tmp_path / "mm.tc"
    path.write_text(MM)
    np.testing.assert_array_equal(polyc.compile(path)(A, B), A @ B)
    np.testing.assert_array_equal(polyc.compile(str(path))(A, B), A @ B)
    path.write_bytes(b"\xff\xfe\x00")
    for source, fragment in (
        (path, "not a text file"),
        (tmp_path / "none.tc", "No such file"),
        (tmp_path, "directory"),
        ("a\0b.tc", "null"),
    ):
        with pytest.raises(polyc.ArgumentError, match=fragment) as caught:
            polyc.compile(source)
        assert caught.value.code == "argument-file"
    with pytest.raises(polyc.ArgumentTypeError, match="int is no source"):
        polyc.compile(3)


def test_several_results_and_a_rank_zero_result():
    text = "def f(float(N) X) -> (s, Y) { s +=! X(i) Y(i) = X(i) + X(i) }"
    s, y = polyc.compile(text)(B[0])
    assert isinstance(s, np.ndarray) and s.shape == () and s == B[0].sum()
    np.testing.assert_array_equal(y, 2 * B[0])
    given = np.zeros(5, np.float32)
    s, y = polyc.compile(text)(B[0], out={"Y": given})
    assert y is given


def test_accumulated_output(lowered):
    with pytest.warns(polyc.PolycWarning) as caught:
        total = polyc.compile("def total(float(M,N) X) -> (O) { O(m) += X(m,n) }")
    assert caught[0].filename == __file__
    with pytest.raises(polyc.ArgumentError, match="O is accumulated into"):
        total(B)
    out = np.ones(4, np.float32)
    total(B, out=out)
    np.testing.assert_array_equal(out, 1 + B.sum(axis=1))


def test_size_only_in_where_is_given_by_keyword():
    op = polyc.compile("def f(float(N) X) -> (Y) { Y(i, j) = X(i) where j in 0:3 }")
    assert op(B[0]).shape == (5, 3)
    source = polyc.compile("def g(float(N) X, float(M) Z) -> (Y) { Y(i) = X(i) + Z(0) }")
    with pytest.raises(polyc.ArgumentError, match="expected 2 inputs"):
        source(B[0])


def test_exact_alias_reaches_the_driver(lowered):
    relu = polyc.compile("def relu(float(N) X) -> (Y) { Y(i) = fmax(X(i), 0.0) }")
    x = np.array([-1, 2, -3], np.float32)
    assert relu(x, out=x) is x
    np.testing.assert_array_equal(x, [0, 2, 0])
    assert lowered[0].aliases == (("Y", "X"),)
    with pytest.raises(polyc.ArgumentError, match="shares part of its memory with X"):
        relu(x[:2], out=x[1:])
    y = np.zeros(3, np.float32)
    for _ in range(2):
        relu(x, out=y)
    assert lowered[1].aliases == () and len(lowered) == 2
    relu(x, out=x)
    assert len(lowered) == 2


def test_unsafe_alias_is_refused_every_time():
    reverse = polyc.compile("def reverse(float(N) X) -> (Y) { Y(i) = X(N - 1 - i) }")
    x = np.arange(3, dtype=np.float32)
    for _ in range(2):
        reverse(x)
        reverse(x, out=np.empty_like(x))
        with pytest.raises(polyc.UnsupportedError, match="out for Y is the same memory as X"):
            reverse(x, out=x)
    np.testing.assert_array_equal(x, [0, 1, 2])


def test_fast_path_is_not_taken_for_an_unfit_array():
    relu = polyc.compile("def relu(float(N) X) -> (Y) { Y(i) = fmax(X(i), 0.0) }")
    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    relu(x)
    relu(x, out=y)
    raw = np.zeros(13, np.uint8)[1:].view(np.float32)
    raw[...] = 1
    np.testing.assert_array_equal(relu(raw), x)
    y.flags.writeable = False
    with pytest.raises(polyc.ArgumentError, match="read-only"):
        relu(x, out=y)
    with pytest.raises(polyc.ArgumentTypeError, match="byte order"):
        relu(x.astype(">f4"))
    with pytest.raises(polyc.ArgumentTypeError, match="float64"):
        relu(x.astype("f8"))
    with pytest.raises(polyc.ArgumentError, match="expected 1 input "):
        relu(x, y)


def test_decorator_keeps_name_and_doc():
    @polyc.op
    def scaled(X: "f32[N]", *, factor=2.0):
        """Doc."""
        Y[i] = X[i] * factor
        return Y

    assert scaled.__name__ == "scaled" and scaled.__doc__ == "Doc." and scaled.name == "scaled"
    assert "scaled(X: f32[N])" in repr(scaled)
    x = B[0]
    np.testing.assert_array_equal(scaled(x), 2 * x)
    for factor in (3.0, 3, 2.0, 3.0):
        np.testing.assert_array_equal(scaled(x, factor=factor), factor * x)
    assert scaled.program.name == "scaled"
    with pytest.raises(polyc.ArgumentError, match="named other"):
        scaled(x, other=1)


def test_decorator_with_options(lowered):
    @polyc.op(reassociate=False)
    def total(X: "f32[N]"):
        s[()] += X[i]
        return s

    total(B[0])
    assert lowered[0].options.reassociate is False
    with pytest.raises(polyc.ArgumentTypeError, match="unknown option"):
        polyc.op(speed="max")(lambda x: x)
    with pytest.raises(polyc.ArgumentError, match="x86-64-v4"):
        polyc.compile(MM, target="z80")


def test_open_types_make_a_program_per_type(lowered):
    @polyc.op
    def double(X):
        Y[i] = X[i] + X[i]
        return Y

    for dtype in (np.float32, np.float64, np.int32):
        x = np.arange(4).astype(dtype)
        for _ in range(2):
            y = double(x)
            assert y.dtype == dtype
            np.testing.assert_array_equal(y, x + x)
    assert len(lowered) == 3
    with pytest.raises(polyc.ArgumentError, match="not declared") as caught:
        _ = double.program
    assert caught.value.code == "argument-program-open"
    with pytest.raises(polyc.ArgumentError, match="expected 1 input"):
        double.specialize()
    assert double.specialize(("f64", (4,))).signature.arrays[0].dtype.name == "f64"


def test_function_from_source_text():
    op = polyc.op("def f(X: 'f32[N]'):\n    Y[i] = X[i] * 3.0\n    return Y\n")
    np.testing.assert_array_equal(op(B[0]), 3 * B[0])


def test_einsum_is_a_drop_in():
    c = polyc.einsum("ik,kj->ij", A, B)
    np.testing.assert_array_equal(c, A @ B)
    assert polyc.einsum_operator("ik,kj->ij") is polyc.einsum_operator("ik,kj->ij")
    total = polyc.einsum("ij->", A)
    assert isinstance(total, np.float32) and total == A.sum()
    assert polyc.einsum("i,i", [1, 2], [3, 4]) == 11
    out = np.zeros((), np.float32)
    assert polyc.einsum("ij->", A, out=out) is out
    with pytest.raises(polyc.ArgumentError, match="expected 2 inputs"):
        polyc.einsum("ik,kj->ij", A)
    np.testing.assert_array_equal(polyc.einsum(A, [0, 1], [1, 0]), A.T)
    with pytest.raises(polyc.ArgumentTypeError, match="the list of operand 0 is a ndarray"):
        polyc.einsum(A, B)


def test_verify_names_the_element(lowered):
    mm = polyc.compile(MM, verify=True)
    np.testing.assert_array_equal(mm(A, B), A @ B)
    lowered.clear()
    real = polyc.driver.lower

    def wrong(*args, **options):
        made = real(*args, **options)
        made.wrong = True
        return made

    polyc.driver.lower = wrong
    try:
        with pytest.raises(polyc.InternalError, match="C") as caught:
            mm(A[:2], B)
    finally:
        polyc.driver.lower = real
    assert caught.value.code == "internal-verify"


def test_a_crash_of_the_compiler_is_a_named_error(monkeypatch):
    def crash(*arguments, **options):
        raise ZeroDivisionError("by zero")

    mm = polyc.compile(MM)
    monkeypatch.setattr(polyc.driver, "lower", crash)
    for call in (lambda: mm(A, B), lambda: mm.specialize(), lambda: mm.lower()):
        with pytest.raises(polyc.InternalError, match="compiling mm: ZeroDivisionError: by zero at ") as caught:
            call()
        assert caught.value.code == "internal-crash" and isinstance(caught.value.__cause__, ZeroDivisionError)


def test_threads_share_one_compilation(lowered):
    mm = polyc.compile(MM)
    results = []
    team = [threading.Thread(target=lambda: results.append(mm(A, B))) for _ in range(4)]
    for t in team:
        t.start()
    for t in team:
        t.join()
    assert len(results) == 4 and len(lowered) == 1


def test_names_outside_an_operator_explain_themselves():
    for call in (lambda: where(True), lambda: polyc.f32(3)):
        with pytest.raises(polyc.SemanticError, match=r"only inside a function decorated with @polyc.op"):
            call()
    assert repr(polyc.f32) == "polyc.f32" and np.empty(2, polyc.i8).dtype == np.int8
    i, j = polyc.indices("i j")
    assert isinstance(i, polyc.Index) and j.name == "j"
    with pytest.raises(polyc.SemanticError):
        polyc.indices("1x")


def test_public_names_exist():
    assert "onnx" in dir(polyc)
    for name in (*polyc.__all__, *dir(polyc)):
        assert getattr(polyc, name) is not None
    with pytest.raises(AttributeError):
        _ = polyc.nothing


def test_help_needs_no_onnx():
    """As does a star import; the name itself says what to install."""
    code = """
import importlib.abc, importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "onnx" else find(name, *rest)
import polyc, pydoc
from polyc import *
assert "Operator" in pydoc.render_doc(polyc) and "onnx" not in dir(polyc)
try:
    polyc.onnx
except polyc.ArgumentError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "error[argument-onnx-missing]" in done.stdout and "pip install 'polyc[onnx]'" in done.stdout, done.stderr


def test_no_warning_for_a_clean_program():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        polyc.compile(MM)(A, B)


def test_kernels_that_are_not_called_make_room(lowered, monkeypatch):
    monkeypatch.setattr("polyc.api.kernels.MAX_KERNELS", 4)
    mm = polyc.compile(MM)
    for n in range(1, 5):
        np.testing.assert_array_equal(mm(A, B[:, :n].copy()), A @ B[:, :n])
        mm(A, B)  # called all the time, through its plan
    mm(A[:2], B)
    assert len(mm._kernels) == 4
    assert [(r.sizes["M"], r.sizes["N"]) for r in lowered].count((3, 5)) == 1
    mm(A, B[:, :1].copy())
    assert [(r.sizes["M"], r.sizes["N"]) for r in lowered].count((3, 1)) == 2
    assert len(mm._plans._plans) <= 4


def test_compiling_goes_on_after_a_fork_that_found_the_lock_taken(monkeypatch):
    monkeypatch.setattr("polyc.driver.lock.FORK_PATIENCE", 0.1)
    held, release = threading.Event(), threading.Event()

    def hold():
        with driver.compiling():
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is what this is about
        child = os.fork()
    if child == 0:
        os._exit(0 if driver.compiling().acquire(timeout=5) else 1)
    release.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    "call, code, help",
    [
        (lambda op, a: op(a, verify=True), "argument-name", "verify is an option"),
        (lambda op, a: op(a, dynamic=True), "argument-name", "dynamic is an option"),
        (lambda op, a: polyc.compile("", threads=2), "argument-type-option", "polyc.set_num_threads(n)"),
        (lambda op, a: polyc.compile("", size={}), "argument-type-option", "did you mean sizes?"),
        (lambda op, a: polyc.einsum_operator("ij", dynamic=True), "argument-type-option", "a .tc text or a function"),
        (lambda op, a: polyc.indices(3), "argument-type-source", 'polyc.indices("i j")'),
    ],
)
def test_options_in_other_places_are_told(call, code, help):
    with pytest.raises(polyc.PolycError) as caught:
        call(polyc.compile("def twice(float(N) a) -> (b) { b(i) = 2 * a(i) }"), np.ones(8, np.float32))
    assert caught.value.code == code and help in str(caught.value)


def test_indices_by_one_text_or_several():
    assert polyc.indices("i", "j") == polyc.indices("i j") == polyc.indices("i, j")
