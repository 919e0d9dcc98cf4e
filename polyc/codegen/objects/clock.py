"""The clock of the core, found by timing additions that wait for each other: each takes one cycle."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache

from polyc.codegen.objects.host import physical_host
from polyc.codegen.objects.jit import compile_object, load_object

_CHAIN, _ROUNDS = 64, 2000
CYCLES = _CHAIN * _ROUNDS
"""That one call of `addition_chain` takes."""


@cache
def addition_chain() -> Callable[[], object]:
    """A function that takes `CYCLES` cycles and a few for the call."""
    steps, last = [], "%x"
    for n in range(_CHAIN):
        # Both operands in registers: some processors add constants while they rename registers.  The empty text keeps LLVM
        # from summing the chain up.
        steps.append(f'  %s{n} = add i64 {last}, %y\n  %h{n} = call i64 asm sideeffect "", "=r,0"(i64 %s{n})')
        last = f"%h{n}"
    text = f"""
define i32 @polyc_clock(i64 %start, i64 %y) {{
  br label %loop
loop:
  %i = phi i32 [ 0, %0 ], [ %next, %loop ]
  %x = phi i64 [ %start, %0 ], [ {last}, %loop ]
{chr(10).join(steps)}
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, {_ROUNDS}
  br i1 %more, label %loop, label %done
done:
  %result = trunc i64 {last} to i32
  ret i32 %result
}}
define i64 @polyc_clock_workspace() {{
  ret i64 0
}}
"""
    loaded = load_object(compile_object(text, physical_host()), "polyc_clock")
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64)(loaded.entry_address)

    def run(keepalive: object = loaded) -> object:
        return function(1, 3)

    return run


def time_chain() -> float:
    """Seconds of CPU time of one run of the chain."""
    run = addition_chain()
    start = time.thread_time()
    run()
    return time.thread_time() - start
