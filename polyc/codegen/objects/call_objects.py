"""Of `polyc_call`, the way in where an operator itself is called: the method ``__call__`` of a class, in LLVM IR.

An object of such a class has a bytearray ``_doors`` of two words: the tables for calls that give no result, and one; 0 for
none.  What they do not know goes to its method ``_call_slowly``, with the arguments as they are.
"""

from __future__ import annotations

from polyc.codegen.writer.words import read_word

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
  %doors = call ptr @PyObject_GetAttr(ptr %self, ptr @name_doors)
  %is_lost = icmp eq ptr %doors, null
  br i1 %is_lost, label %failed, label %open
open:
  %words = call ptr @PyByteArray_AsString(ptr %doors)
  call void @Py_DecRef(ptr %doors)                        ; the object, which the caller holds, holds it
  %is_plain = icmp eq ptr %names, null
  br i1 %is_plain, label %plain, label %named
plain:
{read_word("allocating", "words", 0, "ptr")}
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
{read_word("filling", "words", 1, "ptr")}
  br label %door
door:
  %table = phi ptr [%allocating, %plain], [%filling, %into]
  %n = phi i64 [%n_given, %plain], [%n_all, %into]
  %is_shut = icmp eq ptr %table, null
  br i1 %is_shut, label %slow, label %planned
planned:
  %result = call ptr @call_planned(ptr %table, ptr %arguments, i64 %n)
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
