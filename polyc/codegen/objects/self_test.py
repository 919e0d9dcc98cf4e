"""Whether LLVM makes right code of what polyc writes for a machine: small loops with known results, compiled and run together.

They read and write rows under conditions of the row, of the lane, of both and of data, in vectors of one and of several
registers: side by side, apart, backwards, gathered and scattered.  Values are small integers, so results are exact.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import numpy as np

from polyc.codegen.emission.llvm import emit_llvm
from polyc.codegen.objects import jit
from polyc.codegen.objects.host import describe_llvm
from polyc.codegen.objects.loader import load_object
from polyc.diagnostics import Diagnostic, UnsupportedError
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Read, Select, Size
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Store
from polyc.ir.types import F32, F64, I8, I32, I64
from polyc.machine import Machine

Write = tuple[str, Callable[[int], Node]]
"""The result that a case writes, and what does it in one iteration, given the case's number."""

ROWS, WIDTH = 3, 40
"""Of all arrays; no loop runs over more."""
SIZES = {"p": 5}
INPUTS = {"x": F32, "d": F64, "k": I32, "h": I8}
RESULTS = {"f": F32, "g": F64, "t": I32, "s": I8}
"""One block of rows for each case."""


def _op(name: str, *arguments: Expr) -> Call:
    return Call(name, arguments)


def _i64(value: int) -> Const:
    return Const(value, I64)


_I, _J, _P = Index("i"), Index("j"), Size("p")


def _both(*conditions: Expr) -> Expr:
    return _op("and", *conditions)


def _below(bound: int, place: Expr = _J) -> Expr:
    return _op("lt", place, _i64(bound))


def _guarded(condition: Expr, name: str, *place: Expr) -> Expr:
    """An element where the condition holds, else 0."""
    return Select(condition, Read(name, place), Const(0, INPUTS[name]))


def _store(name: str, value: Expr, where: Expr | None = None, at: Expr = _J) -> Write:
    """Store to the result `name` where a condition holds."""

    def write(number: int) -> Node:
        store = Store(name, (_i64(number), _I, at), value)
        return store if where is None else If(where, (store,))

    return name, write


def make_cases() -> dict[tuple[int, Expr], dict[str, Write]]:
    """By the lanes and the bound of the loop that they share, and by what they test."""
    late, near = _op("gt", _I, _i64(1)), _op("ge", _I, _i64(1))
    first, x, k = _op("lt", _J, _P), Read("x", (_I, _J)), Cast(Read("k", (_I, _J)), I64)
    ahead, before = _op("add", _J, _i64(27)), _op("sub", _I, _i64(1))
    return {
        (16, _i64(16)): {
            "conditions of row and lane": _store("f", _guarded(_both(late, _below(8)), "x", _I, _J)),
            "rows before, shifted": _store("g", _guarded(_both(near, _below(WIDTH, ahead)), "d", before, ahead)),
            "one condition or another": _store("f", _guarded(_op("or", first, _op("ge", _J, _i64(8))), "x", _I, _J)),
            "every other element": _store("f", _guarded(first, "x", _I, _op("mul", _J, _i64(2)))),
            "stored under conditions": _store("f", x, _both(late, _below(8))),
            "chosen by data": _store("t", Select(_op("gt", x, Const(2, F32)), Read("k", (_I, _J)), Const(-1, I32))),
        },
        (8, _P): {
            "ends of rows": _store("f", x),
            "gathered": _store("f", _guarded(_below(4), "x", _I, k)),
            "backwards": _store("f", Read("x", (_I, _op("sub", _i64(12), _J)))),
            "doubles of row and lane": _store("g", _guarded(_both(late, _below(4)), "d", _I, _J)),
        },
        (4, _i64(4)): {
            "scattered": _store("g", Read("d", (_I, _J)), _op("lt", _J, _op("sub", _P, _i64(2))), k),
            "bytes": _store("s", _guarded(_both(late, _op("lt", _J, _op("sub", _P, _i64(2)))), "h", _I, _J)),
        },
    }


KNOWN = {
    "conditions of row and lane": 2690,
    "rows before, shifted": 5642,
    "one condition or another": 8038,
    "every other element": 2588,
    "stored under conditions": 2690,
    "chosen by data": 7942,
    "ends of rows": 2766,
    "gathered": 2611,
    "backwards": 2539,
    "doubles of row and lane": 830,
    "scattered": 789,
    "bytes": 977,
}
"""The sum of all elements of a case's result, each times its number."""


def make_nest(target: Machine) -> LoopNest:
    """All cases in one loop over rows.  Vectors have two registers of floats, or one where masked lanes are branches."""
    most = target.lanes(4) * (2 if target.has_masked_loads(4) else 1)
    inner: list[Loop] = []
    n_cases = 0
    for (lanes, upper), writes in make_cases().items():
        body = tuple(write(number) for number, (_, write) in enumerate(writes.values(), start=n_cases))
        lanes, trip = min(lanes, most), None if isinstance(upper, Const) else lanes
        inner.append(Loop("j", _i64(0), upper, 1, "vector", body, trip, lanes))
        n_cases += len(writes)
    shapes = dict.fromkeys(INPUTS, (ROWS, WIDTH)) | dict.fromkeys(RESULTS, (n_cases, ROWS, WIDTH))
    buffers = []
    for position, (name, dtype) in enumerate((INPUTS | RESULTS).items()):
        extents = shapes[name]
        strides = [dtype.itemsize * math.prod(extents[d + 1 :]) for d in range(len(extents))]
        buffers.append(Buffer(name, dtype, tuple(map(_i64, extents)), tuple(map(_i64, strides)), "argument", position))
    rows = Loop("i", _i64(0), _i64(ROWS), 1, "serial", tuple(inner))
    return LoopNest("self_test", tuple(SIZES), tuple(buffers), (rows,))


def make_arrays() -> list[np.ndarray]:
    """Inputs and results, in the order of the nest's arguments."""
    number = np.arange(ROWS * WIDTH).reshape(ROWS, WIDTH)
    values = {"x": number % 7 + 1, "d": number % 5 + 1, "k": number % WIDTH * 7 % 13, "h": number % 9 + 1}
    n_cases = sum(map(len, make_cases().values()))
    inputs = [values[name].astype(dtype.numpy) for name, dtype in INPUTS.items()]
    return inputs + [np.zeros((n_cases, ROWS, WIDTH), dtype.numpy) for dtype in RESULTS.values()]


def find_sums(arrays: list[np.ndarray]) -> dict[str, float]:
    """What the results give together, as in `KNOWN`."""
    results = dict(zip(RESULTS, arrays[len(INPUTS) :], strict=True))
    numbers = np.arange(1, ROWS * WIDTH + 1)
    cases = [(what, name) for writes in make_cases().values() for what, (name, _) in writes.items()]
    return {what: float(results[name][n].reshape(-1).astype(np.float64) @ numbers) for n, (what, name) in enumerate(cases)}


def find_faults(target: Machine) -> list[str]:
    """Cases with other results than they should have.  The target must be one that this processor can run."""
    code = jit.compile_object(emit_llvm(make_nest(target), target), target)
    loaded = load_object(code, "self_test")
    arrays = make_arrays()
    data = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    sizes = (ctypes.c_int64 * len(SIZES))(*SIZES.values())
    error = (ctypes.c_int64 * 3)()
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4, ctypes.c_int32)(loaded.entry_address)
    entry(data, sizes, None, error, 1)
    found = find_sums(arrays)
    return [what for what, known in KNOWN.items() if found[what] != known]


def check_code(target: Machine) -> None:
    """Raise UnsupportedError (``unsupported-code-generator``) where code for `target` does not do what it should."""
    faults = find_faults(target)
    if not faults:
        return
    names = "; ".join(faults)
    message = f"{describe_llvm()} makes wrong code for {target.name}: {len(faults)} of {len(KNOWN)} tests fail ({names})"
    note = f"the instructions of the target are {target.features or 'those of every processor'}"
    help = "choose an older instruction set, with POLYC_TARGET=x86-64-v2, or install another version of llvmlite"
    raise UnsupportedError(Diagnostic("unsupported-code-generator", f"{message}; {note}", None, help))
