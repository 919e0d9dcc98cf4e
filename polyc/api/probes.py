"""Small functions of which the time tells what a core and its caches do: loops of loads, stores, multiply-adds and gathers.

Accesses are volatile, so that LLVM keeps each of them.  Offsets and lengths are bytes, of whole steps of a loop (`STEP`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyc.codegen.objects.jit import compile_object, load_object
from polyc.machine import Machine

STEP = 1024
"""Bytes of one iteration: 16 vectors of 64 bytes, 64 of 16."""

PIECE = 256
"""Consecutive bytes of each row in `strided`: the vectors of a register tile."""

AHEAD = 16
"""Rows ahead that `strided` prefetches."""

CHAIN, ROUNDS = 64, 300
"""Instructions of one iteration, and iterations, of loops that compute only."""

ACCUMULATORS = 12
"""Sums that do not wait for each other: more than any latency times units, and with operands few enough for 16 registers."""


def _loop(
    name: str, start: str, stop: str, step: int, body: Sequence[str], carried: Sequence[tuple[str, str, str]] = ()
) -> str:
    """A loop over ``%name``; `carried`: pairs (phi, type and first value, last value)."""
    phis = [f"  %{phi} = phi {first}, %before.{name} ], [ %{last}, %end.{name} ]" for phi, first, last in carried]
    lines = [
        f"  br label %before.{name}",
        f"before.{name}:",
        f"  br label %loop.{name}",
        f"loop.{name}:",
        f"  %{name} = phi i64 [ {start}, %before.{name} ], [ %next.{name}, %end.{name} ]",
        *phis,
        *body,
        f"  br label %end.{name}",
        f"end.{name}:",
        f"  %next.{name} = add i64 %{name}, {step}",
        f"  %more.{name} = icmp ult i64 %next.{name}, {stop}",
        f"  br i1 %more.{name}, label %loop.{name}, label %behind.{name}",
        f"behind.{name}:",
    ]
    return "\n".join(lines)


def _module(parameters: str, body: str, rest: str = "") -> str:
    return (
        f"define i32 @polyc_probe({parameters}) {{\n{body}\n  ret i32 0\n}}\n"
        f"define i64 @polyc_probe_workspace() {{\n  ret i64 0\n}}\n{rest}"
    )


def _load(text: str, types: Sequence[Any], target: Machine, symbols: Mapping[str, int] | None = None) -> Callable[..., object]:
    loaded = load_object(compile_object(text, target), "polyc_probe", symbols or {})
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(loaded.entry_address)

    def run(*args: Any, keepalive: object = loaded) -> object:
        return function(*args)

    return run


def vector_type(target: Machine) -> str:
    return f"<{target.lanes(4)} x float>"


def pass_over(target: Machine, kind: str) -> Callable[..., object]:
    """A function of (address, bytes, repetitions): `kind` is ``read``; ``copy`` and ``stream``, of what follows these bytes,
    with plain and with non-temporal stores; or ``pass``, which writes all, then reads it."""
    width, vector = target.vector_bits // 8, vector_type(target)

    def walk(name: str, accesses: Sequence[str]) -> str:
        body = [
            f"  %{name}to = getelementptr i8, ptr %a, i64 %{name}",
            f"  %{name}from = getelementptr i8, ptr %end, i64 %{name}",
        ]
        for n in range(STEP // width):
            for side in ("to", "from"):
                body.append(f"  %{name}{side}{n} = getelementptr i8, ptr %{name}{side}, i64 {n * width}")
            places = {"value": f"%{name}v{n}", "to": f"ptr %{name}to{n}", "from": f"ptr %{name}from{n}"}
            body += ["  " + access.format(**places, vector=vector, width=width) for access in accesses]
        return _loop(name, "0", "%bytes", STEP, body)

    read = "{value} = load volatile {vector}, {to}, align {width}"
    load = "{value} = load volatile {vector}, {from}, align {width}"
    copy = "store volatile {vector} {value}, {to}, align {width}"
    stream = "store {vector} {value}, {to}, align {width}, !nontemporal !0"
    write = "store volatile {vector} %data, {to}, align {width}"
    passes = {"read": [[read]], "copy": [[load, copy]], "stream": [[load, stream]], "pass": [[write], [read]]}[kind]
    inner = "\n".join(walk(f"i{n}", accesses) for n, accesses in enumerate(passes))
    first = f"  %data = load {vector}, ptr %a\n  %end = getelementptr i8, ptr %a, i64 %bytes\n"
    text = _module("ptr %a, i64 %bytes, i64 %times", first + _loop("r", "0", "%times", 1, [inner]), "!0 = !{i32 1}\n")
    return _load(text, (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64), target)


def strided(target: Machine, is_prefetched: bool) -> Callable[..., object]:
    """A function of (address, bytes from row to row, rows, repetitions) that reads `PIECE` bytes of one row after the other,
    then the next ones."""
    width, vector = target.vector_bits // 8, vector_type(target)
    body = ["  %offset = mul i64 %i, %stride", "  %row = getelementptr i8, ptr %a, i64 %offset"]
    body.append("  %place = getelementptr i8, ptr %row, i64 %c")
    if is_prefetched:
        body += [f"  %far = mul i64 %stride, {AHEAD}", "  %later = getelementptr i8, ptr %place, i64 %far"]
        for n in range(PIECE // target.cache_line):
            body.append(f"  %line{n} = getelementptr i8, ptr %later, i64 {n * target.cache_line}")
            body.append(f"  call void @llvm.prefetch.p0(ptr %line{n}, i32 0, i32 3, i32 1)")
    for n in range(PIECE // width):
        body.append(f"  %p{n} = getelementptr i8, ptr %place, i64 {n * width}")
        body.append(f"  %v{n} = load volatile {vector}, ptr %p{n}, align {width}")
    rows = _loop("i", "0", "%rows", 1, body)
    text = _module(
        "ptr %a, i64 %stride, i64 %rows, i64 %times",
        _loop("r", "0", "%times", 1, [_loop("c", "0", "%stride", PIECE, [rows])]),
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n",
    )
    return _load(text, (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64), target)


def multiply_adds(target: Machine, is_chain: bool) -> Callable[..., object]:
    """A function of the address of a vector: `CHAIN` times `ROUNDS` multiply-adds, each of which waits for the last one, or for
    that `ACCUMULATORS` before it."""
    vector, n_sums = vector_type(target), 1 if is_chain else ACCUMULATORS
    body, last = [], [f"s{k}" for k in range(n_sums)]
    for n in range(CHAIN):
        k = n % n_sums
        if target.has_fma:
            body.append(f"  %x{n} = call {vector} @llvm.fma({vector} %{last[k]}, {vector} %x, {vector} %x)")
        else:
            body.append(f"  %m{n} = fmul {vector} %{last[k]}, %x")
            body.append(f"  %x{n} = fadd {vector} %m{n}, %x")
        last[k] = f"x{n}"
    # Loads that are volatile give sums that LLVM does not take for one.
    carried = [(f"s{k}", f"{vector} [ %first{k}", last[k]) for k in range(n_sums)]
    lines = [
        f"  %x = load {vector}, ptr %a",
        *(f"  %first{k} = load volatile {vector}, ptr %a" for k in range(n_sums)),
        _loop("r", "0", str(ROUNDS), 1, body, carried),
    ]
    lines += [f"  store volatile {vector} %{last[k]}, ptr %a" for k in range(n_sums)]
    rest = f"declare {vector} @llvm.fma({vector}, {vector}, {vector})\n".replace("@llvm.fma", f"@llvm.fma.{_suffix(target)}")
    text = _module("ptr %a", "\n".join(lines).replace("@llvm.fma(", f"@llvm.fma.{_suffix(target)}("), rest)
    return _load(text, (ctypes.c_void_p,), target)


def gathered(target: Machine, is_gather: bool) -> Callable[..., object]:
    """A function of (address, 32-bit positions, vectors, repetitions) that reads elements at positions, by gathers or one by
    one."""
    lanes, vector = target.lanes(4), vector_type(target)
    places = f"<{lanes} x ptr>"
    body = [
        f"  %first = mul i64 %i, {4 * lanes}",
        "  %from = getelementptr i8, ptr %positions, i64 %first",
    ]
    rest = ""
    if is_gather:
        name = f"@llvm.masked.gather.{_suffix(target)}.v{lanes}p0"
        mask = ", ".join(["i1 true"] * lanes)
        body.append(f"  %n = load <{lanes} x i32>, ptr %from, align 4")
        body.append(f"  %p = getelementptr float, ptr %a, <{lanes} x i32> %n")
        body.append(f"  %v = call {vector} {name}({places} %p, i32 4, <{lanes} x i1> <{mask}>, {vector} zeroinitializer)")
        rest = f"declare {vector} {name}({places}, i32 immarg, <{lanes} x i1>, {vector})\n"
    else:
        for k in range(lanes):
            body.append(f"  %q{k} = getelementptr i8, ptr %from, i64 {4 * k}")
            body.append(f"  %n{k} = load volatile i32, ptr %q{k}, align 4")
            body.append(f"  %p{k} = getelementptr float, ptr %a, i32 %n{k}")
            body.append(f"  %e{k} = load volatile float, ptr %p{k}, align 4")
            before = f"%w{k - 1}" if k else "poison"
            body.append(f"  %w{k} = insertelement {vector} {before}, float %e{k}, i32 {k}")
        body.append(f"  %v = freeze {vector} %w{lanes - 1}")
    body.append(f"  store volatile {vector} %v, ptr %slot")
    inner = _loop("i", "0", "%n_vectors", 1, body)
    text = _module(
        "ptr %a, ptr %positions, i64 %n_vectors, i64 %times",
        f"  %slot = alloca {vector}\n" + _loop("r", "0", "%times", 1, [inner]),
        rest,
    )
    return _load(text, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64), target)


def forks(target: Machine, symbols: Mapping[str, int]) -> Callable[..., object]:
    """A function of (threads, rounds, repetitions): a region in which each of the threads adds `CHAIN` numbers that wait for
    each other in each round; of no threads without a region."""
    steps, last = [], "x"
    for n in range(CHAIN):
        steps.append(f"  %s{n} = add i64 %{last}, %y")
        steps.append(f'  %h{n} = call i64 asm sideeffect "", "=r,0"(i64 %s{n})')
        last = f"h{n}"
    # The data are two numbers: both operands come from registers.
    work = _loop("k", "0", "%rounds", 1, steps, [("x", "i64 [ %y", last)])
    read = "  %y = load i64, ptr %data\n  %place = getelementptr i64, ptr %data, i64 1\n  %rounds = load i64, ptr %place\n"
    body = f"define internal void @body(ptr %data) noinline {{\n{read}{work}\n  ret void\n}}\n"
    region = [
        "  %is_alone = icmp eq i32 %threads, 0",
        "  br i1 %is_alone, label %alone, label %together",
        "alone:",
        "  call void @body(ptr %data)",
        "  br label %joined",
        "together:",
        "  call void @GOMP_parallel(ptr @body, ptr %data, i32 %threads, i32 0)",
        "  br label %joined",
        "joined:",
    ]
    text = _module(
        "i32 %threads, i64 %rounds, i64 %times",
        "  %data = alloca [2 x i64]\n  store i64 3, ptr %data\n  %place = getelementptr i64, ptr %data, i64 1\n"
        "  store i64 %rounds, ptr %place\n" + _loop("r", "0", "%times", 1, region),
        body + "declare void @GOMP_parallel(ptr, ptr, i32, i32)\n",
    )
    return _load(text, (ctypes.c_int32, ctypes.c_int64, ctypes.c_int64), target, symbols)


def _suffix(target: Machine) -> str:
    return f"v{target.lanes(4)}f32"
