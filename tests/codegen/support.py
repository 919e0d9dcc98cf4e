"""Run hand-written loop nests: compile, lay out arguments, call the entry point, and compare with the interpreter."""

from __future__ import annotations

import ctypes
import functools

import numpy as np

from polyc.codegen.emission.llvm import emit_llvm
from polyc.codegen.objects.host import host_target
from polyc.codegen.objects.jit import compile_object
from polyc.codegen.objects.loader import load_object
from polyc.ir.expr import Call, Const, Expr, Index, Read, Size
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops import Buffer, LoopNest
from polyc.ir.types import I64, DType, from_numpy
from polyc.machine import PINNED, Machine, select_model
from tests.machines import pinned_caches

ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
WORKSPACE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32)

with pinned_caches():  # modules are imported before the tests pin them
    HOST = host_target()
LEVELS = [level for level in PINNED if PINNED[level].vector_bits <= HOST.vector_bits]


@functools.lru_cache
def target(level: str) -> Machine:
    return HOST if level == "host" else select_model(HOST, level)


@functools.lru_cache
def openmp() -> dict[str, int]:
    library = ctypes.CDLL("libgomp.so.1")
    names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
    return {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in names}


class Compiled:
    """A loaded nest; `run` takes arrays by buffer name and sizes by name, and changes the arrays."""

    def __init__(self, nest: LoopNest, target: Machine, symbols: dict[str, int] | None = None) -> None:
        """`symbols`: the OpenMP entry points, the process's own where they are not given."""
        self.nest = nest
        self.text = emit_llvm(nest, target)
        self.code = load_object(compile_object(self.text, target), nest.name, symbols or openmp())
        self.entry = ENTRY(self.code.entry_address)
        self.workspace = WORKSPACE(self.code.workspace_address)

    def run(
        self, arrays: dict[str, np.ndarray], sizes: dict[str, int] | None = None, threads: int = 1
    ) -> tuple[int, list[int]]:
        buffers = [b for b in self.nest.buffers if b.space == "argument"]
        data = (ctypes.c_void_p * max(1, len(buffers)))()
        values = dict(sizes or {})
        for buffer in buffers:
            array = arrays[buffer.name]
            data[buffer.position or 0] = array.ctypes.data
            values |= {f"{buffer.name}.stride{d}": s for d, s in enumerate(array.strides)}
        params = (ctypes.c_int64 * max(1, len(self.nest.parameters)))(*(values[n] for n in self.nest.parameters))
        size = self.workspace(params, threads)
        raw = np.full(size + 128, 0xA5, np.uint8)
        base = (raw.ctypes.data + 63) // 64 * 64
        error = (ctypes.c_int64 * 3)()
        code = self.entry(data, params, base, error, threads)
        end = base + size - raw.ctypes.data
        assert (raw[end:] == 0xA5).all(), "wrote past the workspace"
        return code, list(error)


def compiled(nest: LoopNest, level: str = "host") -> Compiled:
    return Compiled(nest, target(level))


def check_with_interpreter(
    nest: LoopNest,
    arrays: dict[str, np.ndarray],
    sizes: dict[str, int],
    level: str = "host",
    code: Compiled | None = None,
    rtol: float = 1e-5,
    threads: int = 1,
) -> None:
    """Run compiled and interpreted on copies of `arrays`; all arrays must agree afterwards."""
    code = code or compiled(nest, level)
    ours = {name: _copy(a) for name, a in arrays.items()}
    theirs = {name: _copy(a) for name, a in arrays.items()}
    code.run(ours, sizes, threads)
    order = [b.name for b in nest.buffers if b.space == "argument"]
    interpret_loops(nest, [theirs[name] for name in order], sizes)
    for name in order:
        if ours[name].dtype.kind not in "fiub":  # bfloat16: NumPy does not know that its NaN are equal
            ours[name], theirs[name] = ours[name].astype(np.float32), theirs[name].astype(np.float32)
        if ours[name].dtype.kind == "f":
            np.testing.assert_allclose(ours[name], theirs[name], rtol=rtol, atol=rtol, err_msg=f"{name} {sizes}")
        else:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=f"{name} {sizes}")


def _copy(array: np.ndarray) -> np.ndarray:
    """A copy with the same strides, so that nests specialised for them see the same layout."""
    copy = np.empty_like(array)
    copy[...] = array
    return copy


# -- short forms for writing nests


def c(value: int) -> Const:
    return Const(value, I64)


def i(name: str) -> Index:
    return Index(name)


def n(name: str) -> Size:
    return Size(name)


def rd(name: str, *subscripts: Expr) -> Read:
    return Read(name, subscripts)


def op(name: str, *args: Expr) -> Call:
    return Call(name, args)


def argument(name: str, dtype: DType, shape: tuple[Expr, ...], position: int, contiguous: bool = True) -> Buffer:
    """Unit last stride where `contiguous`; the other strides are parameters."""
    strides: list[Expr] = [Size(f"{name}.stride{d}") for d in range(len(shape))]
    if contiguous and shape:
        strides[-1] = Const(dtype.itemsize, I64)
    return Buffer(name, dtype, shape, tuple(strides), "argument", position)


def strides_of(*arguments: Buffer) -> tuple[str, ...]:
    return tuple(f"{b.name}.stride{d}" for b in arguments for d in range(len(b.shape)))


def random_array(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(dtype.numpy)
    return rng.integers(info.min, info.max, shape, dtype=dtype.numpy, endpoint=True)


def dtype_of(array: np.ndarray) -> DType:
    dtype = from_numpy(array.dtype)
    assert dtype is not None
    return dtype
