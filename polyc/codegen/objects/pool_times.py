"""LLVM IR of what the pool of threads (`pool_ir`) knows of time: its clock, and what regions took that found helpers asleep."""

from __future__ import annotations

from polyc.codegen.objects.pool_layout import LAST_END, MEMORY, SPIN, TIMES, WAKE, at, load_word


def times_ir() -> str:
    """``now()``, ``identify(function, data)``, ``is_worth_waking(hash, start)`` and ``note_time(hash, start, woke)``."""
    return f"""
; Nanoseconds of a clock that only goes forward.
define internal i64 @now() noinline {{
  %place = alloca [2 x i64], align 8
  %ignored = call i32 @clock_gettime(i32 1, ptr %place)
  %seconds = load i64, ptr %place
  %rest_place = getelementptr i64, ptr %place, i64 1
  %rest = load i64, ptr %rest_place
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}}

; A number for the region, of its function and its sizes.
define internal i64 @identify(ptr %function, ptr %data) {{
  %address = ptrtoint ptr %function to i64
  %digest = load i64, ptr %data
  %sum = add i64 %address, %digest
  %hash = mul i64 %sum, -7046029254386353131
  ret i64 %hash
}}
define internal ptr @time_place(i64 %hash) {{
  %slot = lshr i64 %hash, 56
  %bytes = shl i64 %slot, 4
  %offset = add i64 %bytes, {TIMES}
  %place = getelementptr i8, ptr @{MEMORY}, i64 %offset
  ret ptr %place
}}

; Whether helpers that sleep are to be woken for the region with this hash.
define internal i1 @is_worth_waking(i64 %hash, i64 %start) {{
  %place = call ptr @time_place(i64 %hash)
  %known = load atomic i64, ptr %place monotonic, align 8
  %is_unknown = icmp ne i64 %known, %hash
  %time_place = getelementptr i64, ptr %place, i64 1
  %time = load atomic i64, ptr %time_place monotonic, align 8
{load_word("least", WAKE)}
  %is_long = icmp uge i64 %time, %least
  %end = load atomic i64, ptr {at(LAST_END)} monotonic, align 8
  %gap = sub i64 %start, %end
{load_word("longest", SPIN)}
  %is_soon = icmp ult i64 %gap, %longest
  %first = or i1 %is_unknown, %is_long
  %result = or i1 %first, %is_soon
  ret i1 %result
}}

; Notes what a region took that found helpers asleep.
define internal void @note_time(i64 %hash, i64 %start, i1 %woke) noinline {{
  %end = call i64 @now()
  store atomic i64 %end, ptr {at(LAST_END)} monotonic, align 8
  %elapsed = sub i64 %end, %start
  %twice = shl i64 %elapsed, 1
  %time = select i1 %woke, i64 %twice, i64 %elapsed
  %place = call ptr @time_place(i64 %hash)
  %time_place = getelementptr i64, ptr %place, i64 1
  store atomic i64 %time, ptr %time_place monotonic, align 8
  store atomic i64 %hash, ptr %place monotonic, align 8
  ret void
}}
"""
