"""What the machine can do, measured by kernels that do not pass through polyc.

Two small functions in explicit vector LLVM IR: `stream` reads R arrays and writes W (the workload's own mix and volume),
`fma` issues independent multiply-adds from registers.  llvmlite assembles them; nothing of polyc is used.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

UNROLL = 4
"""Vectors per array and iteration of the stream kernel."""


@functools.cache
def host() -> tuple[int, bool]:
    """Lanes of a float32 vector, and whether multiply-add is one instruction."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    lanes = 16 if features.get("avx512f") else 8 if features.get("avx") else 4
    has_fma = bool(features.get("fma")) or not llvm.get_process_triple().startswith(("x86", "i"))
    return lanes, has_fma


def stream_ir(n_reads: int, n_writes: int, lanes: int, nontemporal: bool) -> str:
    """``float stream(ptr *arrays, i64 begin, i64 end, i64 passes)``: every element of [begin, end) once per pass."""
    vec = f"<{lanes} x float>"
    head = [
        f"%p{a}.at = getelementptr ptr, ptr %arrays, i64 {a}\n  %p{a} = load ptr, ptr %p{a}.at"
        for a in range(n_reads + n_writes)
    ]
    accumulators = [f"s{u}" for u in range(UNROLL)] if not n_writes else []
    phis = [f"%{s} = phi {vec} [ %{s}.out, %outer ], [ %{s}.new, %inner ]" for s in accumulators]
    outer_phis = [f"%{s}.out = phi {vec} [ zeroinitializer, %entry ], [ %{s}.new, %next ]" for s in accumulators]
    body = []
    for u in range(UNROLL):
        body.append(f"%i{u} = add i64 %i, {u * lanes}")
        total = None
        for a in range(n_reads):
            body.append(f"%g{u}.{a} = getelementptr float, ptr %p{a}, i64 %i{u}")
            body.append(f"%x{u}.{a} = load {vec}, ptr %g{u}.{a}, align 64")
            if total is None:
                total = f"%x{u}.{a}"
            else:
                body.append(f"%t{u}.{a} = fadd {vec} {total}, %x{u}.{a}")
                total = f"%t{u}.{a}"
        if accumulators:
            body.append(f"%s{u}.new = fadd {vec} %s{u}, {total}")
        hint = ", !nontemporal !0" if nontemporal else ""
        for a in range(n_reads, n_reads + n_writes):
            body.append(f"%g{u}.{a} = getelementptr float, ptr %p{a}, i64 %i{u}")
            body.append(f"store {vec} {total or 'zeroinitializer'}, ptr %g{u}.{a}, align 64{hint}")
    fold, value = [], "zeroinitializer"
    for s in accumulators:
        fold.append(f"%{s}.f = fadd {vec} {value}, %{s}.new")
        value = f"%{s}.f"
    join = "\n  ".join
    return f"""
define float @stream(ptr %arrays, i64 %begin, i64 %end, i64 %passes) "min-legal-vector-width"="512" {{
entry:
  {join(head)}
  br label %outer
outer:
  %pass = phi i64 [ 0, %entry ], [ %pass.new, %next ]
  {join(outer_phis)}
  br label %inner
inner:
  %i = phi i64 [ %begin, %outer ], [ %i.new, %inner ]
  {join(phis)}
  {join(body)}
  %i.new = add i64 %i, {UNROLL * lanes}
  %more = icmp slt i64 %i.new, %end
  br i1 %more, label %inner, label %next
next:
  call void asm sideeffect "", "~{{memory}}"()
  %pass.new = add i64 %pass, 1
  %again = icmp slt i64 %pass.new, %passes
  br i1 %again, label %outer, label %done
done:
  {join(fold)}
  %r = extractelement {vec} {value}, i32 0
  ret float %r
}}
!0 = !{{i32 1}}
"""


def fma_ir(lanes: int, has_fma: bool) -> tuple[str, int]:
    """``float peak(float x, i64 n)`` and its flops per iteration: independent chains, enough to hide the latency."""
    vec = f"<{lanes} x float>"
    chains = 16 if lanes == 16 else 10
    phis, body, fold, value = [], [], [], "%v"
    for c in range(chains):
        phis.append(f"%a{c} = phi {vec} [ %v, %entry ], [ %b{c}, %loop ]")
        if has_fma:
            body.append(f"%b{c} = call {vec} @llvm.fma.v{lanes}f32({vec} %a{c}, {vec} %v, {vec} %v)")
        else:  # half the chains multiply, half add, as a multiply-add without the instruction would
            body.append(f"%b{c} = {'fmul' if c % 2 else 'fadd'} {vec} %a{c}, %v")
        fold.append(f"%f{c} = fadd {vec} {value}, %b{c}")
        value = f"%f{c}"
    join = "\n  ".join
    text = f"""
declare {vec} @llvm.fma.v{lanes}f32({vec}, {vec}, {vec})
define float @peak(float %x, i64 %n) "min-legal-vector-width"="512" {{
entry:
  %one = insertelement {vec} poison, float %x, i32 0
  %v = shufflevector {vec} %one, {vec} poison, <{lanes} x i32> zeroinitializer
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.new, %loop ]
  {join(phis)}
  {join(body)}
  %i.new = add i64 %i, 1
  %more = icmp slt i64 %i.new, %n
  br i1 %more, label %loop, label %done
done:
  {join(fold)}
  %r = extractelement {vec} {value}, i32 0
  ret float %r
}}
"""
    return text, chains * lanes * (2 if has_fma else 1)


def load(ir: str, name: str, *argument_types: Any) -> Callable[..., float]:
    """Assemble `ir` for this machine; the function releases the GIL while it runs."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3, jit=True
    )
    engine = llvm.create_lljit_compiler(machine)
    library = llvm.JITLibraryBuilder().add_ir(ir).export_symbol(name).link(engine, name)
    function = ctypes.CFUNCTYPE(ctypes.c_float, *argument_types)(library[name])
    function.keep = (engine, library)  # type: ignore[attr-defined]
    return function


def aligned_array(n: int) -> np.ndarray:
    """`n` float32 at a 64-byte boundary, every page touched; allocated as NumPy allocates the workloads' arrays."""
    raw = np.zeros(n * 4 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    view = raw[start : start + n * 4].view(np.float32)
    view.fill(1.0)
    return view


def untouched_array(n: int) -> np.ndarray:
    """`n` float32 at a 64-byte boundary, as NumPy's allocator gives them."""
    raw = np.empty(n * 4 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + n * 4].view(np.float32)


def mix_of(bytes_read: float, bytes_written: float) -> tuple[int, int]:
    """Whole numbers of arrays read and written, at most four each, that come closest to the ratio."""
    share = bytes_read / (bytes_read + bytes_written)
    options = [(r, w) for r in range(5) for w in range(5) if r + w > 0]
    return min(options, key=lambda o: (round(abs(o[0] / (o[0] + o[1]) - share), 6), o[0] + o[1]))


def in_team(threads: int, task: Callable[[int, int], object]) -> Callable[[int], None]:
    """``run(repetitions)`` calls ``task(0, repetitions) … task(threads - 1, repetitions)`` at the same time.

    Repeating is the task's, so that starting the threads costs once per round and not once per repetition."""
    if threads == 1:
        return lambda repetitions: void(task(0, repetitions))
    pool = ThreadPoolExecutor(threads)
    return lambda repetitions: void(list(pool.map(task, range(threads), [repetitions] * threads)))


def void(_: object) -> None:
    return None


def build_stream(
    bytes_read: float, bytes_written: float, threads: int, fresh: bool = False, nontemporal: bool | None = None
) -> Callable[[int], None]:
    """One repetition streams the given bytes: by plain or by non-temporal stores, the faster of them where that is not said.

    `fresh`: it writes to arrays that NumPy allocates for it, as workloads do that return new results."""
    n_reads, n_writes = mix_of(bytes_read, bytes_written)
    lanes, _ = host()
    grain = UNROLL * lanes * threads
    n = max(grain, int((bytes_read + bytes_written) / 4 / (n_reads + n_writes)) // grain * grain)
    arrays = [aligned_array(n) for _ in range(n_reads + n_writes)]
    table = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
    candidates = []
    kinds = (False, True) if nontemporal is None else (nontemporal,)
    for kind in kinds if n_writes else (False,):
        ir = stream_ir(n_reads, n_writes, lanes, kind)
        kernel = load(ir, "stream", ctypes.c_void_p, *[ctypes.c_int64] * 3)

        def part(t: int, passes: int, kernel: Callable[..., float] = kernel) -> object:
            return arrays, kernel(table, n // threads * t, n // threads * (t + 1), passes)

        run = in_team(threads, part)
        if fresh:
            run = with_fresh_arrays(run, arrays, table, n_reads)
        times = []
        for _ in range(5):
            start = time.perf_counter()
            run(4)
            times.append(time.perf_counter() - start)
        candidates.append((min(times), run))
    return min(candidates, key=lambda c: c[0])[1]


def with_fresh_arrays(
    run: Callable[[int], None], arrays: list[np.ndarray], table: ctypes.Array[ctypes.c_void_p], n_reads: int
) -> Callable[[int], None]:
    """`run` with newly allocated arrays behind the first `n_reads` of the table in each repetition."""

    def repeat(repetitions: int) -> None:
        for _ in range(repetitions):
            arrays[n_reads:] = [untouched_array(a.size) for a in arrays[n_reads:]]
            table[n_reads:] = [a.ctypes.data for a in arrays[n_reads:]]
            run(1)

    return repeat


def build_fma(flops: float, threads: int) -> Callable[[int], None]:
    """One repetition does (at least) `flops` floating point operations at full rate, spread over the team."""
    text, per_iteration = fma_ir(*host())
    kernel = load(text, "peak", ctypes.c_float, ctypes.c_int64)
    iterations = max(1, round(flops / per_iteration / threads))
    return in_team(threads, lambda t, passes: kernel(0.5, iterations * passes))
