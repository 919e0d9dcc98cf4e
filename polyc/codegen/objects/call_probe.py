"""Entry points that `runtime/call_self_test.py` tests `polyc_call` with before it is used."""

from __future__ import annotations

from polyc.codegen.writer.words import read_field

BLOCK = ("last_at", "status", "bytes")
"""Sizes of the probe: the number of the argument that it writes to, its status, bytes of its workspace."""

PROBE = f"""
; For the self-test: writes the address of input 0, the number of threads, the workspace and the first word of input 0 into the
; last argument..
define i32 @polyc_probe(ptr %data, ptr %sizes, ptr %workspace, ptr %error, i32 %threads) {{
  %first = load i64, ptr %data
{read_field(BLOCK, "sizes", "last_at")}
  %last_place = getelementptr ptr, ptr %data, i64 %last_at
  %last = load ptr, ptr %last_place
  store i64 %first, ptr %last
{read_field(BLOCK, "sizes", "status")}
  %threads_place = getelementptr i64, ptr %last, i64 1
  %threads64 = sext i32 %threads to i64
  store i64 %threads64, ptr %threads_place
  %workspace_place = getelementptr i64, ptr %last, i64 2
  store ptr %workspace, ptr %workspace_place
  %first_pointer = inttoptr i64 %first to ptr
  %value = load i64, ptr %first_pointer, align 1
  %value_place = getelementptr i64, ptr %last, i64 3
  store i64 %value, ptr %value_place
  %index_place = getelementptr i64, ptr %error, i64 1
  store i64 -7, ptr %index_place
  %bound_place = getelementptr i64, ptr %error, i64 2
  store i64 5, ptr %bound_place
  %result = trunc i64 %status to i32
  ret i32 %result
}}
define i64 @polyc_probe_workspace(ptr %sizes, i32 %threads) {{
{read_field(BLOCK, "sizes", "bytes")}
  ret i64 %bytes
}}
"""
