"""The way from a Python call to compiled code, itself compiled: `polyc_call`, a CPython function in LLVM IR.

It finds the planned call for the layouts of its arguments, checks all that a plan wants checked, has results allocated, and
jumps.  `runtime/fastcalls.py` describes the tables it reads and tests it before use; nothing depends on its being there.

Of CPython it uses functions of the stable ABI and the place of `ob_type`; of NumPy the fields of `PyArrayObject_fields` and
`PyArray_Descr`, which are part of NumPy's documented binary interface (extension modules have their offsets compiled in).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

PYTHON_FUNCTIONS = (
    "PyByteArray_AsString Py_IncRef Py_DecRef PyObject_CallObject PyObject_CallFunction PyLong_AsLongLong "
    "PyErr_Occurred PyEval_SaveThread PyEval_RestoreThread PyTuple_New PyTuple_SetItem"
).split()
"""What `IR` calls."""
PYTHON_OBJECTS = ("PyArray_Type", "Py_None")
"""Objects whose addresses `IR` knows."""

MAX_ARRAYS, MAX_WORDS, MAX_ADDRESSES = 64, 512, 128
"""Arrays of a call, words of their layouts, and addresses handed to the code; calls with more go the long way."""

# Fields of tables have the names of `runtime/fastcalls.py`; each is one word.  Given: inputs, then results of the caller's.
IR = f"""
@PyArray_Type = external global i8
@Py_None = external global i8
declare ptr @PyByteArray_AsString(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyObject_CallObject(ptr, ptr)
declare ptr @PyObject_CallFunction(ptr, ptr, ...)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyErr_Occurred()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)

@one_integer = private constant [2 x i8] c"L\\00"
@three_integers = private constant [4 x i8] c"LLL\\00"

; One word into the key, and into the hash (FNV-1a by words, with a shift since the low bits choose the slot).
define private void @push(ptr %words, ptr %count, ptr %hash, i64 %word) alwaysinline {{
  %n = load i64, ptr %count
  %place = getelementptr i64, ptr %words, i64 %n
  store i64 %word, ptr %place
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %count
  %h = load i64, ptr %hash
  %mixed = xor i64 %h, %word
  %product = mul i64 %mixed, 1099511628211
  %high = lshr i64 %product, 29
  %next = xor i64 %product, %high
  store i64 %next, ptr %hash
  ret void
}}

; The layout of one array into the key, its address into %address.  False: no plain array, no more room, or elements that are
; not aligned; for a result also memory that may not be written.
define private i1 @push_array(ptr %object, i32 %wanted_flags, ptr %words, ptr %count, ptr %hash, ptr %address) alwaysinline {{
  %type_place = getelementptr i8, ptr %object, i64 8
  %type = load ptr, ptr %type_place
  %is_array = icmp eq ptr %type, @PyArray_Type
  br i1 %is_array, label %array, label %no
array:
  %nd_place = getelementptr i8, ptr %object, i64 24
  %nd32 = load i32, ptr %nd_place
  %nd = sext i32 %nd32 to i64
  %flags_place = getelementptr i8, ptr %object, i64 64
  %flags = load i32, ptr %flags_place
  %set = and i32 %flags, %wanted_flags
  %is_usable = icmp eq i32 %set, %wanted_flags
  %n = load i64, ptr %count
  %twice = shl i64 %nd, 1
  %needed = add i64 %n, %twice
  %fits = icmp slt i64 %needed, {MAX_WORDS - 4}
  %both = and i1 %is_usable, %fits
  br i1 %both, label %room, label %no
room:
  %data_place = getelementptr i8, ptr %object, i64 16
  %data = load i64, ptr %data_place
  store i64 %data, ptr %address
  %descr_place = getelementptr i8, ptr %object, i64 56
  %descr = load ptr, ptr %descr_place
  ; A type of NumPy's own is told by its number, which has many objects: the word of kind, code, byte order, flags and number.
  %descr_word_place = getelementptr i8, ptr %descr, i64 24
  %descr_word = load i64, ptr %descr_word_place
  %type_number = lshr i64 %descr_word, 32
  %is_number = icmp ule i64 %type_number, 12
  %is_half = icmp eq i64 %type_number, 23
  %is_own = or i1 %is_number, %is_half
  %descr_address = ptrtoint ptr %descr to i64
  %type_word = select i1 %is_own, i64 %descr_word, i64 %descr_address
  call void @push(ptr %words, ptr %count, ptr %hash, i64 %type_word)
  call void @push(ptr %words, ptr %count, ptr %hash, i64 %nd)
  %shape_place = getelementptr i8, ptr %object, i64 32
  %shape = load ptr, ptr %shape_place
  %strides_place = getelementptr i8, ptr %object, i64 40
  %strides = load ptr, ptr %strides_place
  br label %dimensions
dimensions:
  %d = phi i64 [0, %room], [%d1, %dimension]
  %more = icmp slt i64 %d, %nd
  br i1 %more, label %dimension, label %yes
dimension:
  %extent_place = getelementptr i64, ptr %shape, i64 %d
  %extent = load i64, ptr %extent_place
  call void @push(ptr %words, ptr %count, ptr %hash, i64 %extent)
  %stride_place = getelementptr i64, ptr %strides, i64 %d
  %stride = load i64, ptr %stride_place
  call void @push(ptr %words, ptr %count, ptr %hash, i64 %stride)
  %d1 = add i64 %d, 1
  br label %dimensions
yes:
  ret i1 true
no:
  ret i1 false
}}

; First input at the same address as a result, or -1.
define private i64 @find_alias(ptr %addresses, i64 %n_inputs, i64 %address) {{
entry:
  br label %loop
loop:
  %j = phi i64 [0, %entry], [%j1, %next]
  %more = icmp slt i64 %j, %n_inputs
  br i1 %more, label %look, label %none
look:
  %place = getelementptr i64, ptr %addresses, i64 %j
  %other = load i64, ptr %place
  %same = icmp eq i64 %other, %address
  br i1 %same, label %found, label %next
next:
  %j1 = add i64 %j, 1
  br label %loop
found:
  ret i64 %j
none:
  ret i64 -1
}}

; The record for a key, or null.
define private ptr @find_record(ptr %slots, ptr %words, i64 %count, i64 %hash) {{
entry:
  %mask = load i64, ptr %slots
  %pairs = getelementptr i64, ptr %slots, i64 1
  br label %probe
probe:
  %at = phi i64 [%hash, %entry], [%at1, %next]
  %slot = and i64 %at, %mask
  %place = getelementptr {{i64, ptr}}, ptr %pairs, i64 %slot
  %record_place = getelementptr i8, ptr %place, i64 8
  %record = load ptr, ptr %record_place
  %empty = icmp eq ptr %record, null
  br i1 %empty, label %none, label %look
look:
  %its_hash = load i64, ptr %place
  %same_hash = icmp eq i64 %its_hash, %hash
  br i1 %same_hash, label %compare_count, label %next
compare_count:
  %its_count = load i64, ptr %record
  %same_count = icmp eq i64 %its_count, %count
  br i1 %same_count, label %compare, label %next
compare:
  %its_words_place = getelementptr i8, ptr %record, i64 8
  %its_words = load ptr, ptr %its_words_place
  br label %word
word:
  %w = phi i64 [0, %compare], [%w1, %word_next]
  %more = icmp slt i64 %w, %count
  br i1 %more, label %word_look, label %found
word_look:
  %a_place = getelementptr i64, ptr %words, i64 %w
  %b_place = getelementptr i64, ptr %its_words, i64 %w
  %a = load i64, ptr %a_place
  %b = load i64, ptr %b_place
  %same = icmp eq i64 %a, %b
  br i1 %same, label %word_next, label %next
word_next:
  %w1 = add i64 %w, 1
  br label %word
next:
  %at1 = add i64 %at, 1
  br label %probe
found:
  ret ptr %record
none:
  ret ptr null
}}

; Whether no given result shares a byte with any other argument, but for the input at its own address (the key names it).
define private i1 @is_clear(ptr %addresses, ptr %bounds, i64 %n_inputs, i64 %n_given) {{
entry:
  br label %outer
outer:
  %i = phi i64 [%n_inputs, %entry], [%i1, %outer_next]
  %more = icmp slt i64 %i, %n_given
  br i1 %more, label %result, label %clear
result:
  %a_place = getelementptr i64, ptr %addresses, i64 %i
  %a = load i64, ptr %a_place
  %a_bounds = getelementptr {{i64, i64}}, ptr %bounds, i64 %i
  %a_low_offset = load i64, ptr %a_bounds
  %a_high_place = getelementptr i64, ptr %a_bounds, i64 1
  %a_high_offset = load i64, ptr %a_high_place
  %a_low = add i64 %a, %a_low_offset
  %a_high = add i64 %a, %a_high_offset
  %alias = call i64 @find_alias(ptr %addresses, i64 %n_inputs, i64 %a)
  br label %inner
inner:
  %j = phi i64 [0, %result], [%j1, %inner_next]
  %before = icmp slt i64 %j, %i
  br i1 %before, label %other, label %outer_next
other:
  %is_alias = icmp eq i64 %j, %alias
  br i1 %is_alias, label %inner_next, label %test
test:
  %b_place = getelementptr i64, ptr %addresses, i64 %j
  %b = load i64, ptr %b_place
  %b_bounds = getelementptr {{i64, i64}}, ptr %bounds, i64 %j
  %b_low_offset = load i64, ptr %b_bounds
  %b_high_place = getelementptr i64, ptr %b_bounds, i64 1
  %b_high_offset = load i64, ptr %b_high_place
  %b_low = add i64 %b, %b_low_offset
  %b_high = add i64 %b, %b_high_offset
  %left = icmp ult i64 %a_low, %b_high
  %right = icmp ult i64 %b_low, %a_high
  %overlap = and i1 %left, %right
  br i1 %overlap, label %shared, label %inner_next
inner_next:
  %j1 = add i64 %j, 1
  br label %inner
outer_next:
  %i1 = add i64 %i, 1
  br label %outer
clear:
  ret i1 true
shared:
  ret i1 false
}}

; %self is a bytearray of two words, the slots and the number of results among the arguments.  None: no plan fits.
define ptr @polyc_call(ptr %self, ptr %arguments, i64 %n_given) {{
entry:
  %addresses = alloca [{MAX_ADDRESSES} x i64], align 16
  %results = alloca [{MAX_ADDRESSES} x ptr], align 16
  %words = alloca [{MAX_WORDS} x i64], align 16
  %error = alloca [3 x i64], align 16
  %count = alloca i64
  %hash = alloca i64
  store i64 0, ptr %count
  store i64 -3750763034362895579, ptr %hash
  %table = call ptr @PyByteArray_AsString(ptr %self)
  %slots = load ptr, ptr %table
  %n_results_place = getelementptr i64, ptr %table, i64 1
  %n_outputs = load i64, ptr %n_results_place
  %n_inputs = sub i64 %n_given, %n_outputs
  %too_many = icmp sgt i64 %n_given, {MAX_ARRAYS}
  %too_few = icmp slt i64 %n_inputs, 0
  %odd = or i1 %too_many, %too_few
  br i1 %odd, label %miss, label %arrays

arrays:
  %i = phi i64 [0, %entry], [%i1, %array_done]
  %mixed = phi i64 [0, %entry], [%mixed1, %array_done]
  %more_arrays = icmp slt i64 %i, %n_given
  br i1 %more_arrays, label %array, label %lookup
array:
  %argument_place = getelementptr ptr, ptr %arguments, i64 %i
  %argument = load ptr, ptr %argument_place
  %address_place = getelementptr i64, ptr %addresses, i64 %i
  %is_output = icmp sge i64 %i, %n_inputs
  %flags = select i1 %is_output, i32 1280, i32 256        ; NPY_ARRAY_ALIGNED, and NPY_ARRAY_WRITEABLE
  %is_good = call i1 @push_array(ptr %argument, i32 %flags, ptr %words, ptr %count, ptr %hash, ptr %address_place)
  br i1 %is_good, label %array_alias, label %miss
array_alias:
  %address = load i64, ptr %address_place
  %mixed1 = or i64 %mixed, %address
  br i1 %is_output, label %output, label %array_done
output:
  %alias = call i64 @find_alias(ptr %addresses, i64 %n_inputs, i64 %address)
  call void @push(ptr %words, ptr %count, ptr %hash, i64 %alias)
  br label %array_done
array_done:
  %i1 = add i64 %i, 1
  br label %arrays

lookup:
  %n_words = load i64, ptr %count
  %key_hash = load i64, ptr %hash
  %r = call ptr @find_record(ptr %slots, ptr %words, i64 %n_words, i64 %key_hash)
  %unknown = icmp eq ptr %r, null
  br i1 %unknown, label %miss, label %check
check:
  %misaligned_place = getelementptr i64, ptr %r, i64 2
  %misaligned = load i64, ptr %misaligned_place
  %bits = and i64 %mixed, %misaligned
  %is_misaligned = icmp ne i64 %bits, 0
  br i1 %is_misaligned, label %miss, label %check_overlap
check_overlap:
  %bounds_place = getelementptr i64, ptr %r, i64 3
  %bounds = load ptr, ptr %bounds_place
  %is_clear = call i1 @is_clear(ptr %addresses, ptr %bounds, i64 %n_inputs, i64 %n_given)
  br i1 %is_clear, label %start, label %miss

; From here on the call is made.  The record may be forgotten while Python code or other threads run: its owner is held.
start:
  %owner_place = getelementptr i64, ptr %r, i64 4
  %owner = load ptr, ptr %owner_place
  call void @Py_IncRef(ptr %owner)
  %touched_place = getelementptr i64, ptr %r, i64 5
  %touched = load ptr, ptr %touched_place
  store i8 1, ptr %touched
  %n_constants_place = getelementptr i64, ptr %r, i64 6
  %n_constants = load i64, ptr %n_constants_place
  %constants_place = getelementptr i64, ptr %r, i64 7
  %constants = load ptr, ptr %constants_place
  %n_allocated_place = getelementptr i64, ptr %r, i64 8
  %n_allocated = load i64, ptr %n_allocated_place
  %allocators_place = getelementptr i64, ptr %r, i64 9
  %allocators = load ptr, ptr %allocators_place
  %given_outputs = getelementptr ptr, ptr %arguments, i64 %n_inputs
  ; The argument block is: inputs, constants, results.
  %constant_base = getelementptr i64, ptr %addresses, i64 %n_inputs
  %result_at = add i64 %n_inputs, %n_constants
  %result_base = getelementptr i64, ptr %addresses, i64 %result_at
  br label %outputs

outputs:                                                  ; backwards: constants push given results to the right
  %o = phi i64 [%n_outputs, %start], [%o1, %output_move]
  %more_outputs = icmp sgt i64 %o, 0
  br i1 %more_outputs, label %output_move, label %constant_loop
output_move:
  %o1 = sub i64 %o, 1
  %from = getelementptr i64, ptr %constant_base, i64 %o1
  %moved = load i64, ptr %from
  %to = getelementptr i64, ptr %result_base, i64 %o1
  store i64 %moved, ptr %to
  %object_place = getelementptr ptr, ptr %given_outputs, i64 %o1
  %object = load ptr, ptr %object_place
  call void @Py_IncRef(ptr %object)
  %kept_place = getelementptr ptr, ptr %results, i64 %o1
  store ptr %object, ptr %kept_place
  br label %outputs

constant_loop:
  %c = phi i64 [0, %outputs], [%c1, %constant]
  %more_constants = icmp slt i64 %c, %n_constants
  br i1 %more_constants, label %constant, label %allocate_loop
constant:
  %constant_from = getelementptr i64, ptr %constants, i64 %c
  %constant_address = load i64, ptr %constant_from
  %constant_to = getelementptr i64, ptr %constant_base, i64 %c
  store i64 %constant_address, ptr %constant_to
  %c1 = add i64 %c, 1
  br label %constant_loop

allocate_loop:
  %a = phi i64 [0, %constant_loop], [%a1, %allocated]
  %more_results = icmp slt i64 %a, %n_allocated
  br i1 %more_results, label %allocate, label %team
allocate:
  %allocator_place = getelementptr ptr, ptr %allocators, i64 %a
  %allocator = load ptr, ptr %allocator_place
  %new = call ptr @PyObject_CallObject(ptr %allocator, ptr null)
  %no_memory = icmp eq ptr %new, null
  br i1 %no_memory, label %fail, label %allocated
allocated:
  %new_place = getelementptr ptr, ptr %results, i64 %a
  store ptr %new, ptr %new_place
  %new_data_place = getelementptr i8, ptr %new, i64 16
  %new_data = load i64, ptr %new_data_place
  %new_to = getelementptr i64, ptr %result_base, i64 %a
  store i64 %new_data, ptr %new_to
  %a1 = add i64 %a, 1
  br label %allocate_loop

team:
  %team_place = getelementptr i64, ptr %r, i64 10
  %team_function = load ptr, ptr %team_place
  %is_serial = icmp eq ptr %team_function, null
  br i1 %is_serial, label %workspace, label %ask_team
ask_team:
  %size_object = call ptr @PyObject_CallObject(ptr %team_function, ptr null)
  %team_failed = icmp eq ptr %size_object, null
  br i1 %team_failed, label %fail, label %have_team
have_team:
  %team_size = call i64 @PyLong_AsLongLong(ptr %size_object)
  call void @Py_DecRef(ptr %size_object)
  br label %workspace
workspace:
  %n_threads64 = phi i64 [1, %team], [%team_size, %have_team]
  %n_threads = trunc i64 %n_threads64 to i32
  %block_place = getelementptr i64, ptr %r, i64 11
  %block = load ptr, ptr %block_place
  %workspace_place = getelementptr i64, ptr %r, i64 12
  %workspace_function = load ptr, ptr %workspace_place
  %bytes = call i64 %workspace_function(ptr %block, i32 %n_threads)
  %none_wanted = icmp eq i64 %bytes, 0
  br i1 %none_wanted, label %run, label %ask_place
ask_place:
  %place_place = getelementptr i64, ptr %r, i64 13
  %place_function = load ptr, ptr %place_place
  %place_object = call ptr (ptr, ptr, ...) @PyObject_CallFunction(ptr %place_function, ptr @one_integer, i64 %bytes)
  %place_failed = icmp eq ptr %place_object, null
  br i1 %place_failed, label %fail, label %have_place
have_place:
  %place_number = call i64 @PyLong_AsLongLong(ptr %place_object)
  call void @Py_DecRef(ptr %place_object)
  br label %run
run:
  %place = phi i64 [0, %workspace], [%place_number, %have_place]
  %place_pointer = inttoptr i64 %place to ptr
  store [3 x i64] zeroinitializer, ptr %error
  %entry_place = getelementptr i64, ptr %r, i64 14
  %entry_function = load ptr, ptr %entry_place
  %fail_place = getelementptr i64, ptr %r, i64 15
  %fail_function = load ptr, ptr %fail_place
  %state = call ptr @PyEval_SaveThread()
  %status = call i32 %entry_function(ptr %addresses, ptr %block, ptr %place_pointer, ptr %error, i32 %n_threads)
  call void @PyEval_RestoreThread(ptr %state)
  %is_done = icmp eq i32 %status, 0
  br i1 %is_done, label %done, label %guard
guard:
  %status64 = sext i32 %status to i64
  %index_place = getelementptr i64, ptr %error, i64 1
  %index = load i64, ptr %index_place
  %bound_place = getelementptr i64, ptr %error, i64 2
  %bound = load i64, ptr %bound_place
  %raised = call ptr (ptr, ptr, ...) @PyObject_CallFunction(
    ptr %fail_function, ptr @three_integers, i64 %status64, i64 %index, i64 %bound)
  br label %fail

done:
  call void @Py_DecRef(ptr %owner)
  %n_results = add i64 %n_outputs, %n_allocated
  %is_single = icmp eq i64 %n_results, 1
  %first = load ptr, ptr %results
  br i1 %is_single, label %single, label %pack
single:
  ret ptr %first
pack:
  %tuple = call ptr @PyTuple_New(i64 %n_results)
  %no_tuple = icmp eq ptr %tuple, null
  br i1 %no_tuple, label %give_up, label %pack_loop
pack_loop:
  %p = phi i64 [0, %pack], [%p1, %pack_one]
  %more_packs = icmp slt i64 %p, %n_results
  br i1 %more_packs, label %pack_one, label %packed
pack_one:
  %pack_place = getelementptr ptr, ptr %results, i64 %p
  %packed_object = load ptr, ptr %pack_place
  %ignored = call i32 @PyTuple_SetItem(ptr %tuple, i64 %p, ptr %packed_object)
  %p1 = add i64 %p, 1
  br label %pack_loop
packed:
  ret ptr %tuple

miss:
  call void @Py_IncRef(ptr @Py_None)
  ret ptr @Py_None

fail:                                                     ; an exception is set: results made so far are dropped
  %n_made = phi i64 [%a, %allocate], [%n_allocated, %ask_team], [%n_allocated, %ask_place], [%n_allocated, %guard]
  call void @Py_DecRef(ptr %owner)
  %n_failed = add i64 %n_made, %n_outputs
  br label %drop_loop
give_up:
  br label %drop_loop
drop_loop:
  %left = phi i64 [%n_failed, %fail], [%n_results, %give_up], [%left1, %drop]
  %more_drops = icmp sgt i64 %left, 0
  br i1 %more_drops, label %drop, label %failed
drop:
  %left1 = sub i64 %left, 1
  %drop_place = getelementptr ptr, ptr %results, i64 %left1
  %dropped = load ptr, ptr %drop_place
  call void @Py_DecRef(ptr %dropped)
  br label %drop_loop
failed:
  ret ptr null
}}

; For the self-test: writes the address of input 0, the second size and the number of arguments into the last argument.
define i32 @polyc_probe(ptr %data, ptr %sizes, ptr %workspace, ptr %error, i32 %threads) {{
  %first = load i64, ptr %data
  %last_at = load i64, ptr %sizes
  %last_place = getelementptr ptr, ptr %data, i64 %last_at
  %last = load ptr, ptr %last_place
  store i64 %first, ptr %last
  %status_place = getelementptr i64, ptr %sizes, i64 1
  %status = load i64, ptr %status_place
  %threads_place = getelementptr i64, ptr %last, i64 1
  %threads64 = sext i32 %threads to i64
  store i64 %threads64, ptr %threads_place
  %workspace_place = getelementptr i64, ptr %last, i64 2
  store ptr %workspace, ptr %workspace_place
  %index_place = getelementptr i64, ptr %error, i64 1
  store i64 -7, ptr %index_place
  %bound_place = getelementptr i64, ptr %error, i64 2
  store i64 5, ptr %bound_place
  %result = trunc i64 %status to i32
  ret i32 %result
}}
define i64 @polyc_probe_workspace(ptr %sizes, i32 %threads) {{
  %place = getelementptr i64, ptr %sizes, i64 2
  %bytes = load i64, ptr %place
  ret i64 %bytes
}}
"""
"""Offsets of `PyArrayObject_fields` on 64-bit machines: data 16, nd 24, dimensions 32, strides 40, descr 56, flags 64;
of `PyArray_Descr`: kind 24, type_num 28.  NPY_BOOL to NPY_DOUBLE are 0 to 12, NPY_HALF is 23."""

EXPORTS = ("polyc_call", "polyc_probe", "polyc_probe_workspace")
_NUMBERS = itertools.count()


def load_call(symbols: Mapping[str, int]) -> tuple[dict[str, int], object]:
    """Addresses of `EXPORTS`, and what keeps them valid.  `symbols`: addresses of `PYTHON_FUNCTIONS` and `PYTHON_OBJECTS`.

    Compiled without optimisation, which takes 3 ms (with it 40) and costs a call some tens of nanoseconds.  Raises RuntimeError
    where LLVM cannot make or link it."""
    import llvmlite.binding as llvm  # here, as nothing else that a process needs to run kernels does

    from polyc.codegen import jit
    from polyc.codegen.host import host_target

    target = host_target()
    with jit.locked_session() as session:
        backend = llvm.Target.from_triple(target.triple)
        machine = backend.create_target_machine(opt=0, reloc="pic", codemodel="small")
        module = llvm.parse_assembly(IR)
        module.verify()
        passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
        passes.getModulePassManager().run(module, passes)
        builder = llvm.JITLibraryBuilder().add_object_img(bytes(machine.emit_object(module)))
        for name in (*PYTHON_FUNCTIONS, *PYTHON_OBJECTS):
            builder.import_symbol(name, symbols[name])
        for name in EXPORTS:
            builder.export_symbol(name)
        tracker = builder.link(session, f"polyc_call.{next(_NUMBERS)}")
        return {name: tracker[name] for name in EXPORTS}, tracker
