"""The Kernel: binding, planning, allocation, errors, aliasing; the code itself is a Python function behind the C ABI."""

from __future__ import annotations

import ctypes
import threading
from array import array

import numpy as np
import pytest

from polyc.diagnostics import ArgumentError, ArgumentTypeError, BoundsError, PolycError, RangeError, UnsupportedError
from polyc.ir.expr import Call, Const, Size, int_const
from polyc.ir.signature import ArraySpec, HostCheck, RuntimeGuard, Signature
from polyc.ir.types import BOOL, F32, DType
from polyc.runtime.kernel import Kernel

ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_int32,
)
WORKSPACE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(ctypes.c_int64), ctypes.c_int32)


def spec(name: str, shape: str, role: str = "input", dtype: DType = F32, strides=None) -> ArraySpec:
    extents = tuple(int_const(int(s)) if s.isdigit() else Size(s) for s in shape.split())
    return ArraySpec(name, dtype, extents, (int_const(0),) * len(extents), role, strides)


def make_kernel(body, *arrays: ArraySpec, sizes=("M", "N"), checks=(), guards=(), workspace=0, **options) -> Kernel:
    """A kernel whose entry calls `body(views, sizes, workspace, error)`; `views` are NumPy views made from the ABI block."""
    signature = Signature("op", tuple(sizes), (), tuple(arrays), tuple(checks), tuple(guards))

    def entry(data, block, place, error, n_threads):
        values = {n: block[i] for i, n in enumerate(sizes)}
        position, views = len(sizes), []
        for i, a in enumerate(arrays):
            shape = tuple(values[e.name] if isinstance(e, Size) else e.value for e in a.shape)
            strides = tuple(block[position + d] for d in range(len(shape)))
            position += len(shape)
            views.append(strided_view(data[i], shape, strides, a.dtype.numpy))
        return body(views, values, place, error) or 0

    function, size_function = ENTRY(entry), WORKSPACE(lambda block, n: workspace)
    address = ctypes.cast(function, ctypes.c_void_p).value
    return Kernel(signature, address, ctypes.cast(size_function, ctypes.c_void_p).value, (function, size_function), **options)


def strided_view(address, shape, strides, dtype):
    interface = {"version": 3, "shape": shape, "typestr": dtype.str, "data": (address or 1, False), "strides": strides}
    return np.asarray(type("Holder", (), {"__array_interface__": interface})())


def add_kernel(**options) -> Kernel:
    def body(views, sizes, place, error):
        views[2][...] = views[0] + views[1]

    arrays = spec("X", "M N"), spec("b", "N"), spec("Y", "M N", "output")
    return make_kernel(body, *arrays, **options)


X = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.arange(4, dtype=np.float32)


def test_result_is_allocated_and_right():
    kernel = add_kernel()
    for _ in range(3):  # the second call takes the planned path
        y = kernel(X, B)
        assert y.dtype == np.float32
        np.testing.assert_array_equal(y, X + B)


def test_buffers_are_arrays():
    kernel = add_kernel()
    for x in (memoryview(X), memoryview(X[::-1])):
        np.testing.assert_array_equal(kernel(x, array("f", B)), np.asarray(x) + B)
    for wrong in (b"abc", memoryview(b"abcd").cast("c"), "abc", object()):
        with pytest.raises(ArgumentTypeError):
            kernel(X, wrong)


def test_a_view_of_torch_that_negates_is_refused():
    """Its memory holds the numbers with the other sign, and its DLPack capsule does not say so."""
    torch = pytest.importorskip("torch")
    kernel = add_kernel()
    b = torch.tensor(B + 1j * B).conj()
    kernel(X, b.real.contiguous())
    with pytest.raises(ArgumentTypeError, match=r"negates[\s\S]*resolve_neg"):
        kernel(X, b.imag)
    np.testing.assert_array_equal(kernel(X, b.imag.resolve_neg()), X - B)


def test_inputs_by_name_lists_and_dlpack():
    kernel = add_kernel()
    np.testing.assert_array_equal(kernel(b=B, X=X), X + B)
    np.testing.assert_array_equal(kernel(X.tolist(), b=[0.5, 1, 2, 3]), X + np.float32([0.5, 1, 2, 3]))
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(kernel(torch.from_numpy(X.copy()), B), X + B)
    out = torch.zeros(3, 4)
    assert kernel(X, B, out=out) is out
    np.testing.assert_array_equal(out.numpy(), X + B)
    with pytest.raises(ArgumentTypeError, match="detach"):
        kernel(torch.ones(3, 4, requires_grad=True), B)


def test_layouts_transposed_negative_broadcast_and_strided_out():
    kernel = add_kernel()
    for x in (np.asfortranarray(X), X[::-1, ::-1], np.broadcast_to(X[0], (3, 4)), X[:, :1][:, [0, 0, 0, 0]], X[1:2]):
        np.testing.assert_array_equal(kernel(x, B), x + B)
    big = np.zeros((6, 8), np.float32)
    kernel(X, B, out=big[::2, ::2])
    np.testing.assert_array_equal(big[::2, ::2], X + B)
    assert big.sum() == (X + B).sum()


def test_unaligned_input_is_copied():
    raw = np.zeros(49, np.uint8)
    x = raw[1:].view(np.float32).reshape(3, 4)
    x[...] = X
    kernel = add_kernel()
    kernel(X, B)
    np.testing.assert_array_equal(kernel(x, B), X + B)


@pytest.mark.parametrize(
    ("call", "error", "code", "fragment"),
    [
        (lambda k: k(X), ArgumentError, "argument-count", "expected 2 inputs (X, b), but got 1: b missing"),
        (lambda k: k(X, B, B), ArgumentError, "argument-count", "expected 2 inputs"),
        (lambda k: k(X, B, X=X), ArgumentError, "argument-twice", "X is given by position and by name"),
        (lambda k: k(X, B, q=1), ArgumentError, "argument-name", "named q"),
        (lambda k: k(X.astype("f8"), B), ArgumentTypeError, "argument-type-dtype", "expected type float32"),
        (lambda k: k(X.astype("c8"), B), ArgumentTypeError, "argument-type-dtype", "complex64"),
        (lambda k: k(X.astype(">f4"), B), ArgumentTypeError, "argument-type-byteorder", "byte order"),
        (lambda k: k("text", B), ArgumentTypeError, "argument-type-array", "X is a str"),
        (lambda k: k([[1], [2, 3]], B), ArgumentTypeError, "argument-type-array", "no array"),
        (lambda k: k(X, [2**24 + 1] * 4), ArgumentTypeError, "argument-type-dtype", "cannot hold exactly"),
        (lambda k: k(X, [1j] * 4), ArgumentTypeError, "argument-type-dtype", "complex128"),
        (lambda k: k(np.ma.masked_array(X), B), ArgumentTypeError, "argument-type-masked", "mask"),
        (lambda k: k(X[0], B), ArgumentError, "argument-rank", "expected 2 dimensions but found tensor with 1 dimension"),
        (
            lambda k: k(X, B[:3]),
            ArgumentError,
            "argument-size",
            "b has 3 elements (dimension 0), but N is 4 since X's",
        ),
        (lambda k: k(X, B, N=5), ArgumentError, "argument-size", "N is 5 since N=5 was given"),
        (lambda k: k(X, B, N=-1), ArgumentError, "argument-size", "negative"),
        (lambda k: k(X, B, N="4"), ArgumentTypeError, "argument-type-size", "integer"),
        (lambda k: k(X, B, out=[1.0]), ArgumentTypeError, "argument-type-out", "out for Y is a float"),
        (lambda k: k(X, B, out=np.empty(12, "f4")), ArgumentError, "argument-out-shape", "the result has shape (3, 4)"),
        (lambda k: k(X, B, out=np.empty((3, 4))), ArgumentTypeError, "argument-type-dtype", "out for Y"),
        (lambda k: k(X, B, out=(X, X)), ArgumentError, "argument-out-count", "expected 1 output"),
        (lambda k: k(X, B, out={"Z": X}), ArgumentError, "argument-out-name", "results are: Y"),
        (lambda k: k(X, B, out=np.broadcast_to(np.float32(0), (3, 4))), ArgumentError, "argument-out-readonly", "read-only"),
    ],
)
def test_argument_errors(call, error, code, fragment):
    with pytest.raises(error) as caught:
        call(add_kernel())
    assert isinstance(caught.value, PolycError)
    assert caught.value.code == code
    assert fragment in str(caught.value)


def test_rows_and_columns_are_named_with_both_sizes():
    def nothing(views, sizes, place, error):
        raise AssertionError("must not run")

    kernel = make_kernel(nothing, spec("W", "M N"), spec("X", "N M"), spec("Y", "M", "output"))
    with pytest.raises(ArgumentError, match=r"X has 7 rows \(dimension 0\), but N is 5 since W's dimension 1 is 5"):
        kernel(np.zeros((4, 5), "f4"), np.zeros((7, 4), "f4"))


def test_scalar_parameter_takes_python_numbers_only_where_exact():
    def body(views, sizes, place, error):
        views[1][...] = views[0] * 2

    kernel = make_kernel(body, spec("a", ""), spec("y", "", "output"), sizes=())
    result = kernel(0.1)
    assert result.shape == () and result == np.float32(0.1) * 2
    assert kernel(3) == 6 and kernel(np.float32(4)) == 8
    with pytest.raises(ArgumentTypeError, match="float64"):
        kernel(np.float64(0.1))
    with pytest.raises(ArgumentError, match="expected a tensor with 0 dimensions"):
        kernel([1.0])


def test_accumulated_output_is_required_and_updated():
    def body(views, sizes, place, error):
        views[1][...] += views[0].sum(axis=1)

    kernel = make_kernel(body, spec("X", "M N"), spec("O", "M", "inout"))
    with pytest.raises(ArgumentError, match="accumulated") as caught:
        kernel(X)
    assert caught.value.code == "argument-out-required"
    out = np.ones(3, np.float32)
    assert kernel(X, out={"O": out}) is out
    np.testing.assert_array_equal(out, 1 + X.sum(axis=1))


def test_several_results_are_a_tuple_and_out_may_be_partial():
    def body(views, sizes, place, error):
        views[1][...], views[2][...] = views[0].sum(), views[0].max(axis=1)

    kernel = make_kernel(body, spec("X", "M N"), spec("s", "", "output"), spec("m", "M", "output"))
    s, m = kernel(X)
    assert s.shape == () and s == X.sum()
    given = np.zeros(3, np.float32)
    s, m = kernel(X, out={"m": given})
    assert m is given and s == X.sum()
    with pytest.raises(ArgumentError, match="give a tuple"):
        kernel(X, out=given)


def test_overlap_of_out_is_refused_and_exact_alias_asked_for():
    x = np.zeros((4, 4), np.float32)
    kernel = add_kernel()
    with pytest.raises(ArgumentError) as caught:
        kernel(x[:3], B, out=x[1:])
    assert caught.value.code == "argument-overlap"
    with pytest.raises(UnsupportedError) as refused:
        kernel(x, B, out=x)
    assert refused.value.code == "unsupported-alias"
    asked = []
    safe = add_kernel(alias_is_safe=lambda out, source: asked.append((out, source)) or True)
    assert safe(x, B, out=x) is x
    assert asked == [("Y", "X")]
    interleaved = np.zeros((3, 8), np.float32)
    interleaved[:, ::2] = X
    np.testing.assert_array_equal(kernel(interleaved[:, ::2], B, out=interleaved[:, 1::2]), X + B)
    shared = np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (3, 4), (4, 4))
    with pytest.raises(ArgumentError, match="share memory"):
        kernel(X, B, out=shared)


def test_two_outs_must_not_share_memory():
    kernel = make_kernel(lambda *a: 0, spec("X", "M N"), spec("p", "M", "output"), spec("q", "M", "output"))
    block = np.zeros(5, np.float32)
    with pytest.raises(ArgumentError, match="out for q and out for p share memory"):
        kernel(X, out=(block[:3], block[2:]))


def test_host_check_and_missing_size():
    check = HostCheck(Call("le", (Size("K"), Size("N"))), "range-precondition", "window {K} exceeds the row of {N}")
    kernel = make_kernel(lambda *a: 0, spec("X", "M N"), spec("Y", "M", "output"), sizes=("M", "N", "K"), checks=(check,))
    with pytest.raises(ArgumentError, match="no array determines K") as caught:
        kernel(X)
    assert caught.value.code == "argument-size-missing"
    assert kernel(X, K=4).shape == (3,)
    with pytest.raises(RangeError, match="window 5 exceeds the row of 4"):
        kernel(X, K=5)


def test_negative_extent_is_a_range_error():
    out = ArraySpec("Y", F32, (Call("sub", (Size("N"), int_const(5))),), (int_const(0),), "output")
    kernel = make_kernel(lambda *a: 0, spec("X", "M N"), out)
    with pytest.raises(RangeError, match="dimension 0 of Y would have extent -1 at M=3, N=4"):
        kernel(X)


def test_extent_expression_is_solved_for_its_size():
    shape = (Call("add", (Call("mul", (int_const(2), Size("N"))), int_const(1))),)
    x = ArraySpec("X", F32, shape, (int_const(0),), "input")
    kernel = make_kernel(lambda *a: 0, x, spec("Y", "N", "output"), sizes=("N",))
    plan, _ = kernel.plan((np.zeros(9, "f4"),), (None,), {})
    assert plan.sizes == {"N": 4}
    with pytest.raises(ArgumentError):
        kernel.plan((np.zeros(8, "f4"),), (None,), {})


def test_guard_becomes_a_bounds_error():
    def body(views, sizes, place, error):
        error[0], error[1], error[2] = 0, 12, sizes["N"]
        return 1

    guard = RuntimeGuard("index I[i] is {value}, but T has {bound} rows")
    kernel = make_kernel(body, spec("X", "M N"), spec("Y", "M", "output"), guards=(guard,))
    with pytest.raises(BoundsError, match=r"index I\[i\] is 12, but T has 4 rows"):
        kernel(X)


def test_zero_sizes_and_large_results():
    kernel = add_kernel()
    assert kernel(np.zeros((0, 4), "f4"), B).shape == (0, 4)
    assert kernel(np.zeros((3, 0), "f4"), np.zeros(0, "f4")).shape == (3, 0)
    big = kernel(np.ones((200, 200), "f4"), np.ones(200, "f4"))
    assert big.ctypes.data % 64 == 0 and (big == 2).all() and big.flags.writeable


def test_workspace_is_aligned_and_private_to_a_thread():
    places, gate = {}, threading.Barrier(2)

    def body(views, sizes, place, error):
        places[threading.get_ident()] = place
        gate.wait(10)

    kernel = make_kernel(body, spec("X", "M N"), spec("Y", "M", "output"), workspace=1000)
    others = [threading.Thread(target=kernel, args=(X,)) for _ in range(2)]
    for t in others:
        t.start()
    for t in others:
        t.join()
    a, b = places.values()
    assert a % 64 == 0 and b % 64 == 0 and abs(a - b) >= 1000


def test_specialised_strides_refuse_other_layouts():
    kernel = make_kernel(lambda *a: 0, spec("X", "M N", strides=(16, 4)), spec("Y", "M", "output"))
    kernel(X)
    with pytest.raises(ArgumentError, match="stride"):
        kernel(np.asfortranarray(X))
    kernel(np.asfortranarray(X[:1]))


def test_condition_without_sizes_is_evaluated():
    never = HostCheck(Const(False, BOOL), "range-precondition", "never holds")
    with pytest.raises(RangeError, match="never holds"):
        add_kernel(checks=(never,))(X, B)
