"""The way from a Python call to compiled code, itself compiled: `polyc_call`, a CPython function in LLVM IR.

It finds the planned call for the layouts of its arguments, checks all that a plan wants checked, has results allocated, and
jumps.  `runtime/fastcalls.py` describes the tables it reads, `call_self_test.py` there tests it before use; nothing depends on
its being there.

Of CPython it uses functions of the stable ABI and the place of `ob_type`; of NumPy the fields of `PyArrayObject_fields` and
`PyArray_Descr`, which are part of NumPy's documented binary interface (extension modules have their offsets compiled in).
"""

from __future__ import annotations

from polyc.call_layout import ALLOCATOR, AREA, ERROR, MAX_ADDRESSES, MAX_ARRAYS, MAX_WORDS, RECORD, TABLE, TEAM
from polyc.codegen.objects.call_lookup import LOOKUP
from polyc.codegen.objects.call_objects import OBJECTS
from polyc.codegen.objects.call_probe import PROBE
from polyc.codegen.objects.call_scalars import SCALARS
from polyc.codegen.writer.words import read_field

# Fields of tables have the names of `call_layout`.  Given: inputs, then results of the caller's.
IR = f"""
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
declare i64 @PyThread_get_thread_ident()
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyArray_Empty(i32, ptr, ptr, i32)

@one_integer = private constant [2 x i8] c"L\\00"
@three_integers = private constant [4 x i8] c"LLL\\00"

{LOOKUP}
{SCALARS}
; %self is a bytearray with the words of a table.  None: no plan fits.
define ptr @polyc_call(ptr %self, ptr %arguments, i64 %n_given) {{
  %table = call ptr @PyByteArray_AsString(ptr %self)
  %result = call ptr @call_planned(ptr %table, ptr %arguments, i64 %n_given)
  %is_missed = icmp eq ptr %result, @Py_None
  br i1 %is_missed, label %miss, label %done
miss:
  call void @Py_IncRef(ptr @Py_None)
  ret ptr @Py_None
done:
  ret ptr %result
}}
{OBJECTS}
; None, without a reference: no plan fits.
define private ptr @call_planned(ptr %table, ptr %arguments, i64 %n_given) {{
entry:
  %addresses = alloca [{MAX_ADDRESSES} x i64], align 16
  %results = alloca [{MAX_ADDRESSES} x ptr], align 16
  %words = alloca [{MAX_WORDS} x i64], align 16
  %values = alloca [{MAX_ARRAYS} x i64], align 16
  %error = alloca [3 x i64], align 16
  %count = alloca i64
  %hash = alloca i64
  store i64 0, ptr %count
  store i64 -3750763034362895579, ptr %hash
  %slots = load ptr, ptr %table
{read_field(TABLE, "table", "n_outputs")}
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
  br i1 %is_good, label %array_alias, label %other
other:
  br i1 %is_output, label %miss, label %number
number:
  %value_place = getelementptr i64, ptr %values, i64 %i
  %is_number = call i1 @push_number(
    ptr %argument, i64 %i, ptr %table, ptr %value_place, ptr %words, ptr %count, ptr %hash, ptr %address_place)
  br i1 %is_number, label %array_alias, label %miss
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
{read_field(RECORD, "r", "misaligned")}
  %bits = and i64 %mixed, %misaligned
  %is_misaligned = icmp ne i64 %bits, 0
  br i1 %is_misaligned, label %miss, label %check_overlap
check_overlap:
{read_field(RECORD, "r", "bounds", "ptr")}
  %is_clear = call i1 @is_clear(ptr %addresses, ptr %bounds, i64 %n_inputs, i64 %n_given)
  br i1 %is_clear, label %start, label %miss

; From here on the call is made.  The record may be forgotten while Python code or other threads run: its owner is held.
start:
{read_field(RECORD, "r", "owner", "ptr")}
  call void @Py_IncRef(ptr %owner)
{read_field(RECORD, "r", "touched", "ptr")}
  store i8 1, ptr %touched
{read_field(RECORD, "r", "n_constants")}
{read_field(RECORD, "r", "constants", "ptr")}
{read_field(RECORD, "r", "n_allocated")}
{read_field(RECORD, "r", "allocators", "ptr")}
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
  %how = getelementptr [{len(ALLOCATOR)} x i64], ptr %allocators, i64 %a
  %allocator = load ptr, ptr %how
{read_field(ALLOCATOR, "how", "rank")}
{read_field(ALLOCATOR, "how", "extents", "ptr")}
{read_field(ALLOCATOR, "how", "element_type", "ptr")}
  %is_small = icmp eq ptr %allocator, null
  br i1 %is_small, label %allocate_small, label %allocate_large
allocate_small:
  call void @Py_IncRef(ptr %element_type)                 ; the function takes a reference
  %rank32 = trunc i64 %rank to i32
  %small = call ptr @PyArray_Empty(i32 %rank32, ptr %extents, ptr %element_type, i32 0)
  br label %allocated_or_not
allocate_large:
  %large = call ptr @PyObject_CallObject(ptr %allocator, ptr null)
  br label %allocated_or_not
allocated_or_not:
  %new = phi ptr [%small, %allocate_small], [%large, %allocate_large]
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
  br i1 %is_serial, label %workspace, label %look_for_team
look_for_team:
{read_field(RECORD, "r", "known_team", "ptr")}
{read_field(TEAM, "known_team", "requested")}
{read_field(TEAM, "known_team", "limited_below")}
{read_field(TEAM, "known_team", "limit_function", "ptr")}
  %is_unknown = icmp eq i64 %requested, 0
  br i1 %is_unknown, label %ask_team, label %known
known:
  %is_unlimited = icmp eq ptr %limit_function, null
  br i1 %is_unlimited, label %workspace, label %ask_limit
ask_limit:
  %limit32 = call i32 %limit_function()
  %limit = sext i32 %limit32 to i64
  %is_lowered = icmp slt i64 %limit, %limited_below
  %is_less = icmp slt i64 %limit, %requested
  %counts = and i1 %is_lowered, %is_less
  %limited = select i1 %counts, i64 %limit, i64 %requested
  br label %workspace
ask_team:
  %size_object = call ptr @PyObject_CallObject(ptr %team_function, ptr null)
  %team_failed = icmp eq ptr %size_object, null
  br i1 %team_failed, label %fail, label %have_team
have_team:
  %team_size = call i64 @PyLong_AsLongLong(ptr %size_object)
  call void @Py_DecRef(ptr %size_object)
  br label %workspace
workspace:
  %n_threads64 = phi i64 [1, %team], [%requested, %known], [%limited, %ask_limit], [%team_size, %have_team]
  %n_threads = trunc i64 %n_threads64 to i32
{read_field(RECORD, "r", "block", "ptr")}
  %workspace_place = getelementptr i64, ptr %r, i64 12
  %workspace_function = load ptr, ptr %workspace_place
  %bytes = call i64 %workspace_function(ptr %block, i32 %n_threads)
  %none_wanted = icmp eq i64 %bytes, 0
  br i1 %none_wanted, label %run, label %look_for_place
look_for_place:
{read_field(RECORD, "r", "known_area", "ptr")}
{read_field(AREA, "known_area", "known_thread")}
{read_field(AREA, "known_area", "known_bytes")}
{read_field(AREA, "known_area", "known_place")}
  %this_thread = call i64 @PyThread_get_thread_ident()
  %is_its_own = icmp eq i64 %this_thread, %known_thread
  %is_enough = icmp ule i64 %bytes, %known_bytes
  %is_known = and i1 %is_its_own, %is_enough
  br i1 %is_known, label %run, label %ask_place
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
  %place = phi i64 [0, %workspace], [%known_place, %look_for_place], [%place_number, %have_place]
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
{read_field(ERROR, "error", "index")}
{read_field(ERROR, "error", "bound")}
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
  ret ptr @Py_None

fail:                                                     ; an exception is set: results made so far are dropped
  %n_made = phi i64 [%a, %allocated_or_not], [%n_allocated, %ask_team], [%n_allocated, %ask_place], [%n_allocated, %guard]
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

{PROBE}"""


def make_call() -> bytes:
    """Object code of `IR`.

    Compiled with little optimisation, which takes 33 ms (with none 6, with all of it 90) and saves a call 0.04 µs.  Raises
    RuntimeError where LLVM cannot make it."""
    import llvmlite.binding as llvm  # only now: a process that finds this in the cache loads no LLVM

    from polyc.codegen.objects import jit
    from polyc.codegen.objects.host import physical_host

    target = physical_host()
    with jit.locked_session():
        backend = llvm.Target.from_triple(target.triple)
        machine = backend.create_target_machine(opt=1, reloc="pic", codemodel="small")
        module = llvm.parse_assembly(IR)
        module.verify()
        passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
        passes.getModulePassManager().run(module, passes)
        return bytes(machine.emit_object(module))
