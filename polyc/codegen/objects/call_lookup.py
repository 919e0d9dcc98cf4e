"""Of `polyc_call`, what finds the planned call for its arguments and checks them: functions in LLVM IR, private to it.

Keys are words: of each array its type, rank, extents and strides, of a given result also which input it shares memory with.
"""

from __future__ import annotations

from polyc.call_layout import MAX_WORDS

LOOKUP = f"""
@PyArray_Type = external global i8

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
  %needed = add i64 %twice, 3                              ; with type, rank, and what a result shares memory with
  %end = add i64 %n, %needed
  %fits = icmp sle i64 %end, {MAX_WORDS}
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
"""
"""Offsets of `PyArrayObject_fields` on 64-bit machines: data 16, nd 24, dimensions 32, strides 40, descr 56, flags 64;
of `PyArray_Descr`: kind 24, type_num 28.  NPY_BOOL to NPY_DOUBLE are 0 to 12, NPY_HALF is 23."""
