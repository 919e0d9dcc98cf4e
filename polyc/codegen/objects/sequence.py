"""Kernels one after the other without a return to Python between them, which costs one to three microseconds each time.

`polyc_sequence` runs steps whose addresses somebody has filled in.  `polyc_program` has the signature of a kernel: it runs all
steps of a plan on the arrays of a call, and finds its intermediates in the workspace of the call.
"""

from __future__ import annotations

from polyc.call_layout import ERROR
from polyc.codegen.writer.words import read_field
from polyc.machine import Machine

NAME = "polyc_sequence"
STEP = ("entry_point", "addresses", "values", "workspace", "team")
"""Words of one step: the entry point and its arguments, but for the error block (`call_layout.ERROR`), which all have."""

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
  %first = mul i64 %i, {len(STEP)}
  %step = getelementptr i64, ptr %steps, i64 %first
{read_field(STEP, "step", "entry_point", "ptr")}
{read_field(STEP, "step", "addresses", "ptr")}
{read_field(STEP, "step", "values", "ptr")}
{read_field(STEP, "step", "workspace", "ptr")}
{read_field(STEP, "step", "team")}
  %threads_of_step = trunc i64 %team to i32
  %status = call i32 %entry_point(ptr %addresses, ptr %values, ptr %workspace, ptr %error, i32 %threads_of_step)
  %is_failed = icmp ne i32 %status, 0
  br i1 %is_failed, label %failed, label %passed
passed:
  %next = add i64 %i, 1
  %is_more = icmp slt i64 %next, %n
  br i1 %is_more, label %loop, label %done
failed:
  %failed_place = getelementptr i64, ptr %error, i64 {ERROR.index("step")}
  store i64 %i, ptr %failed_place
  ret i32 %status
done:
  ret i32 0
}}
define i64 @{NAME}_workspace(ptr %sizes, i32 %threads) {{
  ret i64 0
}}
"""


PROGRAM = "polyc_program"
HEADER = ("n", "limit", "address_bytes", "arena_bytes")
CALL = ("entry_point", "count", "values", "is_parallel", "n_operands")
OPERAND = ("base", "offset")
"""Words of the table that `polyc_program` reads in place of sizes.  In front: the number of steps, the most threads, bytes for
the addresses of one step, bytes of the arena.  Of each step: entry point, function of the workspace, sizes, whether it starts
threads, the number of operands.  Of each operand: its base and an address, an offset or a position."""
ABSOLUTE, IN_ARENA, OF_CALL = range(3)
"""Bases of operands: none, the arena, the arrays of the call."""
STEP_BIT = 16
"""The status of a call is that of the kernel that failed, with the number of its step from this bit on."""

_READ_HEADER = f"""\
{read_field(HEADER, "table", "n")}
{read_field(HEADER, "table", "limit")}
{read_field(HEADER, "table", "address_bytes")}
{read_field(HEADER, "table", "arena_bytes")}
  %limit32 = trunc i64 %limit to i32
  %is_fewer = icmp slt i32 %limit32, %threads
  %most = select i1 %is_fewer, i32 %limit32, i32 %threads
"""
_CHOOSE_TEAM = """\
  %starts_threads = icmp ne i64 %is_parallel, 0
  %team = select i1 %starts_threads, i32 %most, i32 1
"""

PROGRAM_IR = f"""
define i32 @{PROGRAM}(ptr %data, ptr %table, ptr %workspace, ptr %error, i32 %threads) {{
entry:
{_READ_HEADER}  %arena = getelementptr i8, ptr %workspace, i64 %address_bytes
  %own = getelementptr i8, ptr %arena, i64 %arena_bytes
  %arena_address = ptrtoint ptr %arena to i64
  %first = getelementptr i64, ptr %table, i64 {len(HEADER)}
  br label %steps
steps:
  %i = phi i64 [ 0, %entry ], [ %next, %passed ]
  %step = phi ptr [ %first, %entry ], [ %place, %passed ]
  %is_more = icmp slt i64 %i, %n
  br i1 %is_more, label %step_begins, label %done
step_begins:
{read_field(CALL, "step", "entry_point", "ptr")}
{read_field(CALL, "step", "values", "ptr")}
{read_field(CALL, "step", "is_parallel")}
{read_field(CALL, "step", "n_operands")}
  %operands = getelementptr i64, ptr %step, i64 {len(CALL)}
  br label %operand_loop
operand_loop:
  %k = phi i64 [ 0, %step_begins ], [ %k1, %written ]
  %place = phi ptr [ %operands, %step_begins ], [ %place1, %written ]
  %more_operands = icmp slt i64 %k, %n_operands
  br i1 %more_operands, label %operand, label %call
operand:
{read_field(OPERAND, "place", "base")}
{read_field(OPERAND, "place", "offset")}
  %is_given = icmp eq i64 %base, {OF_CALL}
  br i1 %is_given, label %given, label %computed
given:
  %given_place = getelementptr i64, ptr %data, i64 %offset
  %given_address = load i64, ptr %given_place
  br label %written
computed:
  %is_absolute = icmp eq i64 %base, {ABSOLUTE}
  %origin = select i1 %is_absolute, i64 0, i64 %arena_address
  %sum = add i64 %origin, %offset
  br label %written
written:
  %address = phi i64 [ %given_address, %given ], [ %sum, %computed ]
  %target = getelementptr i64, ptr %workspace, i64 %k
  store i64 %address, ptr %target
  %k1 = add i64 %k, 1
  %place1 = getelementptr i64, ptr %place, i64 {len(OPERAND)}
  br label %operand_loop
call:
{_CHOOSE_TEAM}  %status = call i32 %entry_point(ptr %workspace, ptr %values, ptr %own, ptr %error, i32 %team)
  %is_failed = icmp ne i32 %status, 0
  br i1 %is_failed, label %failed, label %passed
passed:
  %next = add i64 %i, 1
  br label %steps
failed:
  %number = trunc i64 %i to i32
  %shifted = shl i32 %number, {STEP_BIT}
  %code = or i32 %shifted, %status
  ret i32 %code
done:
  ret i32 0
}}
; Bytes for the addresses of one step, the arena, and what the step that needs most works in.
define i64 @{PROGRAM}_workspace(ptr %table, i32 %threads) {{
entry:
{_READ_HEADER}  %own = add i64 %address_bytes, %arena_bytes
  %first = getelementptr i64, ptr %table, i64 {len(HEADER)}
  br label %steps
steps:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %step = phi ptr [ %first, %entry ], [ %following, %body ]
  %largest = phi i64 [ 0, %entry ], [ %larger, %body ]
  %is_more = icmp slt i64 %i, %n
  br i1 %is_more, label %body, label %done
body:
{read_field(CALL, "step", "count", "ptr")}
{read_field(CALL, "step", "values", "ptr")}
{read_field(CALL, "step", "is_parallel")}
{read_field(CALL, "step", "n_operands")}
{_CHOOSE_TEAM}  %bytes = call i64 %count(ptr %values, i32 %team)
  %is_larger = icmp sgt i64 %bytes, %largest
  %larger = select i1 %is_larger, i64 %bytes, i64 %largest
  %operand_words = mul i64 %n_operands, {len(OPERAND)}
  %step_words = add i64 %operand_words, {len(CALL)}
  %following = getelementptr i64, ptr %step, i64 %step_words
  %next = add i64 %i, 1
  br label %steps
done:
  %all = add i64 %own, %largest
  ret i64 %all
}}
"""


def make_sequence(target: Machine) -> bytes:
    """Object code of `IR` and `PROGRAM_IR`."""
    from polyc.codegen.objects.jit import compile_object  # only now: a process that finds this in the cache loads no LLVM

    header = f'target triple = "{target.triple}"\n' if target.triple else ""
    return compile_object(header + IR + PROGRAM_IR, target)
