"""Kernels one after the other without a return to Python between them, which costs one to three microseconds each time."""

from __future__ import annotations

from polyc.codegen.words import read_word
from polyc.target import Target

NAME = "polyc_sequence"
WORDS = 5
"""Of one step: the entry point, and its first three arguments and the last one."""
FAILED = 3
"""The word of the error block that says which step has failed; kernels write those before it."""

IR = f"""
; An entry point as those of kernels: steps in place of addresses, their number in place of sizes.  The first that gives
; another status than 0 is the last to run.
define i32 @{NAME}(ptr %steps, ptr %sizes, ptr %unused, ptr %error, i32 %threads) {{
entry:
  %n = load i64, ptr %sizes
  %is_none = icmp sle i64 %n, 0
  br i1 %is_none, label %done, label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %passed ]
  %first = mul i64 %i, {WORDS}
  %step = getelementptr i64, ptr %steps, i64 %first
  %entry_point = load ptr, ptr %step
{read_word("addresses", "step", 1, "ptr")}
{read_word("values", "step", 2, "ptr")}
{read_word("workspace", "step", 3, "ptr")}
  %team_place = getelementptr i64, ptr %step, i64 4
  %team64 = load i64, ptr %team_place
  %team = trunc i64 %team64 to i32
  %status = call i32 %entry_point(ptr %addresses, ptr %values, ptr %workspace, ptr %error, i32 %team)
  %is_failed = icmp ne i32 %status, 0
  br i1 %is_failed, label %failed, label %passed
passed:
  %next = add i64 %i, 1
  %is_more = icmp slt i64 %next, %n
  br i1 %is_more, label %loop, label %done
failed:
  %failed_place = getelementptr i64, ptr %error, i64 {FAILED}
  store i64 %i, ptr %failed_place
  ret i32 %status
done:
  ret i32 0
}}
define i64 @{NAME}_workspace(ptr %sizes, i32 %threads) {{
  ret i64 0
}}
"""


def make_sequence(target: Target) -> bytes:
    """Object code of `IR`."""
    from polyc.codegen.jit import compile_object  # only now: a process that finds this in the cache loads no LLVM

    header = f'target triple = "{target.triple}"\n' if target.triple else ""
    return compile_object(header + IR, target)
