"""Of `polyc_call`, the way in where an operator itself is called: the method ``__call__`` of a class, in LLVM IR.

An object of such a class has a bytearray ``_doors`` of three words: the tables for calls that give no result, and one; 0 for
none; and which of the inputs are bound, 0 where none is: the number of inputs that a call gives, that of all, and for each of
these the array that is bound, or 0.  What the tables do not know goes to the method ``_call_slowly`` of the object, with the
arguments as they are.
"""

from __future__ import annotations

from polyc.call_layout import BOUND, DOORS, MAX_ARRAYS
from polyc.codegen.writer.words import read_field, read_word

OBJECTS = f"""
@name_doors = external global i8
@name_slow = external global i8
@name_out = external global i8
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)

; %names: names of the last arguments, or null.
define ptr @polyc_call_object(ptr %self, ptr %arguments, i64 %n_given, ptr %names) {{
entry:
  %merged = alloca [{MAX_ARRAYS} x ptr], align 16
  %doors = call ptr @PyObject_GetAttr(ptr %self, ptr @name_doors)
  %is_lost = icmp eq ptr %doors, null
  br i1 %is_lost, label %failed, label %open
open:
  %words = call ptr @PyByteArray_AsString(ptr %doors)
  call void @Py_DecRef(ptr %doors)                        ; the object, which the caller holds, holds it
  %is_plain = icmp eq ptr %names, null
  br i1 %is_plain, label %plain, label %named
plain:
{read_field(DOORS, "words", "allocating", "ptr")}
  br label %door
named:
  %n_names = call i64 @PyTuple_Size(ptr %names)
  %is_single = icmp eq i64 %n_names, 1
  br i1 %is_single, label %single, label %slow
single:
  %name = call ptr @PyTuple_GetItem(ptr %names, i64 0)
  %is_out = icmp eq ptr %name, @name_out
  br i1 %is_out, label %into, label %slow
into:                                                     ; what is given by name follows the others
  %n_all = add i64 %n_given, 1
{read_field(DOORS, "words", "filling", "ptr")}
  br label %door
door:
  %table = phi ptr [%allocating, %plain], [%filling, %into]
  %n = phi i64 [%n_given, %plain], [%n_all, %into]
  %is_shut = icmp eq ptr %table, null
  br i1 %is_shut, label %slow, label %look_for_bound
look_for_bound:
{read_field(DOORS, "words", "bound", "ptr")}
  %is_unbound = icmp eq ptr %bound, null
  br i1 %is_unbound, label %planned, label %fit
fit:
{read_field(BOUND, "bound", "n_free")}
{read_field(BOUND, "bound", "n_inputs")}
  %n_results = sub i64 %n, %n_given
  %n_merged = add i64 %n_inputs, %n_results
  %is_complete = icmp eq i64 %n_given, %n_free
  %is_few = icmp ule i64 %n_merged, {MAX_ARRAYS}
  %may_merge = and i1 %is_complete, %is_few
  br i1 %may_merge, label %merge_loop, label %slow
merge_loop:                                               ; the object holds what is bound
  %k = phi i64 [0, %fit], [%k1, %merge]
  %taken = phi i64 [0, %fit], [%taken1, %merge]
  %more = icmp slt i64 %k, %n_merged
  br i1 %more, label %choose, label %planned
choose:
  %is_input = icmp slt i64 %k, %n_inputs
  br i1 %is_input, label %choose_input, label %choose_given
choose_input:
  %bound_at = add i64 %k, 2
{read_word("own", "bound", "%bound_at", "ptr")}
  %is_free = icmp eq ptr %own, null
  br i1 %is_free, label %choose_given, label %merge
choose_given:
{read_word("given", "arguments", "%taken", "ptr")}
  br label %merge
merge:
  %object = phi ptr [%own, %choose_input], [%given, %choose_given]
  %step = phi i64 [0, %choose_input], [1, %choose_given]
  %taken1 = add i64 %taken, %step
  %merged_place = getelementptr ptr, ptr %merged, i64 %k
  store ptr %object, ptr %merged_place
  %k1 = add i64 %k, 1
  br label %merge_loop
planned:
  %arrays = phi ptr [%arguments, %look_for_bound], [%merged, %merge_loop]
  %n_arrays = phi i64 [%n, %look_for_bound], [%n_merged, %merge_loop]
  %result = call ptr @call_planned(ptr %table, ptr %arrays, i64 %n_arrays)
  %is_missed = icmp eq ptr %result, @Py_None
  br i1 %is_missed, label %slow, label %done
done:
  ret ptr %result
slow:
  %method = call ptr @PyObject_GetAttr(ptr %self, ptr @name_slow)
  %has_none = icmp eq ptr %method, null
  br i1 %has_none, label %failed, label %call
call:
  %other = call ptr @PyObject_Vectorcall(ptr %method, ptr %arguments, i64 %n_given, ptr %names)
  call void @Py_DecRef(ptr %method)
  ret ptr %other
failed:
  ret ptr null
}}
"""
