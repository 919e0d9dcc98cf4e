"""The loop nest interpreter: values, garbage, bounds, checks."""

import numpy as np
import pytest

from polyc.diagnostics import InternalError
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, Size, int_const
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops import Buffer, Guard, If, Store, Update
from polyc.ir.types import BOOL, DTYPES, F32, I32, I64
from polyc.ir.verify_loops import verify_loops
from tests.ir.nests import argument, loop, matmul_nest, nest_of

I, N = Index("i"), Size("N")


def call(op: str, *args: Expr) -> Call:
    return Call(op, args)


@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 6), (0, 3, 2), (3, 4, 0)])
def test_matmul(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32).T
    c = np.full((m, 2 * n), np.nan, np.float32)[:, ::2]
    assert interpret_loops(matmul_nest(), [a, b, c], {"M": m, "N": n, "K": k}) == []
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


def run_elementwise(value: Expr, source: np.ndarray, result: np.ndarray) -> None:
    nest = nest_of(
        (loop("i", N, Store("B", (I,), value)),),
        (
            argument("A", (N,), 0, DTYPES[_name(source)]),
            argument("B", (N,), 1, DTYPES[_name(result)]),
        ),
        ("N",),
    )
    verify_loops(nest)
    interpret_loops(nest, [source, result], {"N": len(source)})


def _name(array: np.ndarray) -> str:
    kind = array.dtype.kind
    return "bool" if kind == "b" else f"{kind}{array.dtype.itemsize * 8}"


def test_elements_follow_their_types() -> None:
    a = Read("A", (I,))
    values = np.array([100, -7, 2**31 - 1], np.int32)
    out = np.zeros(3, np.int32)
    run_elementwise(call("floordiv", call("mul", a, a), Const(0, I32)), values, out)
    np.testing.assert_array_equal(out, 0)
    run_elementwise(call("mul", a, a), values, out)
    np.testing.assert_array_equal(out, [10000, 49, 1])
    run_elementwise(Cast(call("mul", I, int_const(1 << 62)), I32), values, out)
    np.testing.assert_array_equal(out, 0)
    wide = np.zeros(3, np.int64)
    run_elementwise(call("mul", I, int_const(1 << 62)), values, wide)  # 2 * 2^62 wraps
    np.testing.assert_array_equal(wide, [0, 1 << 62, -(1 << 63)])
    real = np.array([np.nan, -2.5, 0.25], np.float32)
    found = np.zeros(3, np.float32)
    run_elementwise(call("max", a, Const(0.0, F32)), real, found)
    np.testing.assert_array_equal(found, np.array([np.nan, 0, 0.25], np.float32))
    run_elementwise(call("exp", a), real, found)
    np.testing.assert_array_equal(found, np.exp(real))
    truth = np.zeros(3, bool)
    run_elementwise(call("eq", call("add", call("lt", I, N), call("ge", I, int_const(0))), Const(True, BOOL)), real, truth)
    assert truth.all()


def test_select_and_pad_do_not_read_outside() -> None:
    source, found = np.array([1, 2, 3], np.float32), np.zeros(3, np.float32)
    shifted = Read("A", (call("add", I, int_const(1)),))
    run_elementwise(Select(call("lt", I, int_const(2)), shifted, Const(9.0, F32)), source, found)
    np.testing.assert_array_equal(found, [2, 3, 9])
    run_elementwise(Pad(shifted, Const(8.0, F32)), source, found)
    np.testing.assert_array_equal(found, [2, 3, 8])
    with pytest.raises(InternalError, match="a read of A has subscript 0 at 3, outside 0 to 2"):
        run_elementwise(shifted, source, found)


def test_writes_outside_are_refused() -> None:
    nest = nest_of((loop("i", int_const(3), Store("A", (I,), Const(0.0, F32))),), (argument("A", (int_const(2),), 0),))
    with pytest.raises(InternalError, match="a write of A has subscript 0 at 2"):
        interpret_loops(nest, [np.zeros(2, np.float32)], {})


def test_workspace_starts_as_garbage() -> None:
    scratch = Buffer("t", F32, (int_const(1),), (int_const(4),), "shared")
    body = loop("i", N, Store("A", (I,), Read("t", (int_const(0),))))
    out = np.zeros(2, np.float32)
    interpret_loops(nest_of((body,), (argument("A", (N,), 0), scratch), ("N",)), [out], {"N": 2})
    assert np.isnan(out).all()


def test_values_carried_between_parallel_iterations_show() -> None:
    first = call("eq", I, int_const(0))
    zero = (int_const(0),)
    body = loop(
        "i",
        N,
        If(first, (Store("t", zero, Const(1.0, F32)),)),
        Store("A", (I,), Read("t", zero)),
        kind="parallel",
    )
    out = np.zeros(3, np.float32)
    buffers = (argument("A", (N,), 0), Buffer("t", F32, (int_const(1),), (int_const(4),), "thread"))
    interpret_loops(nest_of((body,), buffers, ("N",)), [out], {"N": 3})
    np.testing.assert_array_equal(out, np.array([1, np.nan, np.nan], np.float32))


def test_guards_report_and_go_on() -> None:
    sub = Cast(Read("I", (I,)), I64)
    clamped = call("max", call("min", sub, int_const(2)), int_const(0))
    body = loop(
        "i",
        N,
        Guard(4, sub, int_const(3), call("ne", I, int_const(0))),
        Update("O", (), "add", Read("A", (clamped,))),
    )
    nest = nest_of((body,), (argument("A", (int_const(3),), 0), argument("I", (N,), 1, I32), argument("O", (), 2)), ("N",))
    verify_loops(nest)
    total = np.zeros((), np.float32)
    data = [np.array([1, 10, 100], np.float32), np.array([7, 1, -1, 3], np.int32), total]
    assert interpret_loops(nest, data, {"N": 4}) == [(4, -1, 3), (4, 3, 3)]
    assert total == 100 + 10 + 1 + 100


def test_deep_nests_and_long_expressions() -> None:
    value: Expr = Read("A", ())
    for _ in range(400):
        value = call("add", value, Const(1.0, F32))
    node = Update("A", (), "max", value)
    for depth in range(30):
        node = loop(f"i{depth}", int_const(1), node)
    nest = nest_of((node,), (argument("A", (), 0),))
    array = np.zeros((), np.float32)
    interpret_loops(nest, [array], {})
    assert array == 400


def test_arrays_must_fit_their_buffers() -> None:
    nest = matmul_nest()
    arrays = [np.zeros((2, 3), np.float32), np.zeros((3, 4), np.float32), np.zeros((2, 4), np.float32)]
    with pytest.raises(InternalError, match=r"A is f32\[2, 9\]"):
        interpret_loops(nest, arrays, {"M": 2, "N": 4, "K": 9})
    with pytest.raises(InternalError, match="byte strides"):
        interpret_loops(nest, arrays, {"M": 2, "N": 4, "K": 3, "A.stride0": 4})
    overlapping = Buffer("t", F32, (int_const(2), int_const(2)), (int_const(4), int_const(4)), "shared")
    with pytest.raises(InternalError, match="overlap"):
        interpret_loops(nest_of((), (overlapping,)), [], {})
