"""The loop nest interpreter: values, garbage, bounds, checks."""

import numpy as np
import pytest

from polyc.diagnostics import InternalError
from polyc.ir import loops_in_python
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, Size, int_const
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops import Buffer, Guard, If, Loop, Store, Update
from polyc.ir.loops_by_rows import find_rows
from polyc.ir.loops_reader import parse_loops
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


ROWS = {
    "elements of its own": ("B[i] = A[2 * i + 1] * B[i] + C[3];", True),
    "into every second": ("B[2 * i] = A[i];  B[2 * i + 1] = -A[i];", True),
    "a value that is read at once": ("B[i] = exp(A[i]);  C[i] *= B[i];", True),
    "a sum": ("C[3] += A[i] * B[i];", True),
    "a maximum beside elements": ("B[i] = A[i];  C[0] max= B[i];", True),
    "the element before": ("B[i + 1] = B[i] + A[i];", False),
    "the element behind": ("B[i] = B[i + 1] + A[i];", False),
    "two that meet": ("B[i] = A[i];  B[i + 1] = C[i];", False),
    "a sum as it grows": ("C[0] += A[i];  B[i] = C[0];", False),
    "one of its own elements": ("B[i] = B[5] + A[i];", False),
    "the last one stays": ("B[0] = A[i];", False),
    "memory of another array": ("D[i] = A[i] + E[i];", False),
    "from the end": ("B[20 - i] = A[i];", False),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_at_once_have_the_bits_of_elements_one_after_the_other(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body, is_row = ROWS[name]
    statements = body.replace(";  ", ";\n    ")
    nest = parse_loops(f"""nest f(N)
  argument A: f32[64] strides (4) at data[0]
  argument B: f32[64] strides (4) at data[1]
  argument C: f32[64] strides (4) at data[2]
  argument D: f32[63] strides (4) at data[3] may alias E
  argument E: f32[63] strides (4) at data[4] may alias D
  vector(lanes 8) for (i = 0; i < N; i++) {{
    {statements}
  }}
""")
    (found,) = nest.body
    assert isinstance(found, Loop)
    assert (find_rows(found, {b.name: b for b in nest.buffers}, loops_in_python._is_host) is not None) == is_row

    def run(n: int) -> np.ndarray:
        memory = np.random.default_rng(n).standard_normal((4, 64), np.float32)
        interpret_loops(nest, [*memory[:3], memory[3, 1:], memory[3, :-1]], {"N": n})
        return memory

    if name == "into every second":
        with pytest.raises(InternalError, match="a write of B has subscript 0 at 64"):
            run(33)
    at_once = [run(n) for n in (0, 1, 5, 6, 19, 21)]
    monkeypatch.setattr(loops_in_python, "_FEWEST", 1 << 40)
    for n, expected in zip((0, 1, 5, 6, 19, 21), at_once, strict=True):
        np.testing.assert_array_equal(run(n), expected)
