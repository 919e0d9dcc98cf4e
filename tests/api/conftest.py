"""Kernels whose code is the reference interpreter behind the C entry point, so that these tests are about the interface."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from polyc import driver
from polyc.diagnostics import Diagnostic, UnsupportedError
from polyc.ir.expr import Const, int_const
from polyc.ir.interpret import interpret
from polyc.ir.interpret_ranges import solve_ranges
from polyc.ir.program import Program
from polyc.ir.signature import ArraySpec, Signature
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


def view_memory(address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    interface = {"version": 3, "shape": shape, "typestr": dtype.str, "data": (address or 1, False), "strides": strides}
    return np.asarray(type("Holder", (), {"__array_interface__": interface})())


@dataclass
class InterpretedLowering:
    """Stands in for `driver.Lowered`; remembers what it was asked for."""

    program: Program
    sizes: dict[str, int]
    strides: object
    aliases: tuple[tuple[str, str], ...]
    options: object
    wrong: bool = False
    keep: list[object] = field(default_factory=list)

    def alias_is_safe(self, output: str, source: str) -> bool:
        return self.program.name != "reverse"

    def compile(self) -> Kernel:
        program, sizes, wrong = self.program, self.sizes, self.wrong
        ranges = solve_ranges(program, sizes)
        arrays = []
        for name in program.parameters:
            t = program.tensor(name)
            arrays.append(ArraySpec(t.base, t.dtype, tuple(t.shape), (Const(0),) * t.rank, "input"))
        for r in program.returns:
            t, box = program.tensor(r.version), ranges.tensors[r.version]
            role = "output" if r.initial is None else "inout"
            shape = tuple(int_const(hi - lo) for lo, hi in box)
            arrays.append(ArraySpec(r.name, t.dtype, shape, tuple(int_const(lo) for lo, _ in box), role))
        signature = Signature(program.name, program.sizes, (), tuple(arrays))
        from polyc.ir.expr import evaluate

        def entry(data, block, place, error, threads):
            position, views = len(program.sizes), []
            for i, a in enumerate(arrays):
                shape = tuple(evaluate(e, sizes) for e in a.shape)
                strides = tuple(block[position + d] for d in range(len(shape)))
                position += len(shape)
                views.append(view_memory(data[i], shape, strides, a.dtype.numpy))
            n = len(program.parameters)
            out = {r.name: v.copy() for r, v in zip(program.returns, views[n:], strict=True) if r.initial}
            results = interpret(program, dict(zip(program.parameters, views[:n], strict=True)), sizes, out)
            for r, v in zip(program.returns, views[n:], strict=True):
                v[...] = results[r.name]
                if wrong and v.size:
                    v.flat[v.size // 2] += 1
            return 0

        function, size = ENTRY(entry), WORKSPACE(lambda block, threads: 0)
        addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in (function, size)]
        return Kernel(signature, *addresses, (function, size), fixed_sizes=sizes)


@pytest.fixture
def lowered(monkeypatch) -> list[InterpretedLowering]:
    """Interpreted kernels instead of compiled ones; the list holds every request for a compilation."""
    requests: list[InterpretedLowering] = []

    def lower(
        program: Program,
        *,
        sizes: Mapping[str, int] | None = None,
        strides=None,
        aliases=(),
        options=None,
        typical=None,
        **others,
    ) -> InterpretedLowering:
        if typical:
            raise UnsupportedError(Diagnostic("unsupported-test", "the interpreter needs all sizes"))
        requests.append(InterpretedLowering(program, dict(sizes or {}), strides, aliases, options))
        return requests[-1]

    def infer_shapes(program: Program, sizes: Mapping[str, int]):
        boxes = solve_ranges(program, sizes).tensors
        return {
            r.name: (tuple(lo for lo, _ in boxes[r.version]), tuple(hi - lo for lo, hi in boxes[r.version]))
            for r in program.returns
        }

    monkeypatch.setenv("POLYC_CACHE", "0")  # there is nothing to keep of an interpreted kernel
    monkeypatch.setattr(driver, "lower", lower)
    monkeypatch.setattr(driver, "infer_shapes", infer_shapes)
    return requests
