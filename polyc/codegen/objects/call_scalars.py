"""Of `polyc_call`, what takes numbers for arrays without dimensions: a function in LLVM IR, private to it.

NumPy's scalars hold their value, which is taken for the element of an array of their own type.  Python's floats and ints become
elements of the type that the position asks for, where that surely holds them; `runtime/scalar_tables.py` describes the tables.
"""

from __future__ import annotations

from polyc.call_layout import MAX_WORDS, NUMBER, TABLE
from polyc.codegen.writer.words import read_field

SCALARS = f"""
@PyFloat_Type = external global i8
@PyLong_Type = external global i8
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)

; The layout of a number into the key, the address of its value (%room, or inside of %object) into %address.  False: no number,
; or one that the position does not hold.
define private i1 @push_number(
    ptr %object, i64 %position, ptr %table, ptr %room, ptr %words, ptr %count, ptr %hash, ptr %address) {{
entry:
  %overflow = alloca i32
  %type_place = getelementptr i8, ptr %object, i64 8
  %type = load ptr, ptr %type_place
  %n = load i64, ptr %count
  %end = add i64 %n, 3
  %fits = icmp sle i64 %end, {MAX_WORDS}
  br i1 %fits, label %ask, label %no
ask:
{read_field(TABLE, "table", "types", "ptr")}
{read_field(TABLE, "table", "numbers", "ptr")}
  %is_float = icmp eq ptr %type, @PyFloat_Type
  %is_integer = icmp eq ptr %type, @PyLong_Type
  %is_python = or i1 %is_float, %is_integer
  %n_types = load i64, ptr %types
  %pairs = getelementptr i64, ptr %types, i64 1
  br i1 %is_python, label %number, label %scan

scan:
  %k = phi i64 [0, %ask], [%k1, %next]
  %more = icmp slt i64 %k, %n_types
  br i1 %more, label %look, label %no
look:
  %pair = getelementptr {{ptr, i64}}, ptr %pairs, i64 %k
  %its_type = load ptr, ptr %pair
  %same = icmp eq ptr %its_type, %type
  br i1 %same, label %scalar, label %next
next:
  %k1 = add i64 %k, 1
  br label %scan
scalar:
  %its_word_place = getelementptr {{ptr, i64}}, ptr %pair, i64 0, i32 1
  %its_word = load i64, ptr %its_word_place
  %inside = getelementptr i8, ptr %object, i64 16
  br label %yes

number:
  %n_numbers = load i64, ptr %numbers
  %is_declared = icmp slt i64 %position, %n_numbers
  br i1 %is_declared, label %rule_of_position, label %no
rule_of_position:
  %rules = getelementptr i64, ptr %numbers, i64 1
  %rule = getelementptr [{len(NUMBER)} x i64], ptr %rules, i64 %position
  br i1 %is_float, label %float, label %integer

float:
{read_field(NUMBER, "rule", "float_word")}
{read_field(NUMBER, "rule", "float_bytes")}
  %value = call double @PyFloat_AsDouble(ptr %object)
  switch i64 %float_bytes, label %no [i64 8, label %wide i64 4, label %narrow]
wide:
  store double %value, ptr %room
  br label %yes
narrow:                                                   ; finite numbers beyond float32's are an error: left to Python
  %bits = bitcast double %value to i64
  %magnitude = and i64 %bits, 9223372036854775807
  %is_beyond = icmp ugt i64 %magnitude, 5183643170566569984
  %is_finite = icmp ult i64 %magnitude, 9218868437227405312
  %is_refused = and i1 %is_beyond, %is_finite
  br i1 %is_refused, label %no, label %round
round:
  %rounded = fptrunc double %value to float
  store float %rounded, ptr %room
  br label %yes

integer:
{read_field(NUMBER, "rule", "integer_word")}
{read_field(NUMBER, "rule", "integer_kind")}
{read_field(NUMBER, "rule", "least")}
{read_field(NUMBER, "rule", "largest")}
  %whole = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %over = load i32, ptr %overflow
  %is_over = icmp ne i32 %over, 0
  %is_below = icmp slt i64 %whole, %least
  %is_above = icmp sgt i64 %whole, %largest
  %outside = or i1 %is_below, %is_above
  %is_bad = or i1 %is_over, %outside
  br i1 %is_bad, label %no, label %convert
convert:
  switch i64 %integer_kind, label %no [i64 1, label %as_integer i64 4, label %as_float i64 8, label %as_double]
as_integer:                                               ; the low bytes are the first ones
  store i64 %whole, ptr %room
  br label %yes
as_float:
  %float_value = sitofp i64 %whole to float
  store float %float_value, ptr %room
  br label %yes
as_double:
  %double_value = sitofp i64 %whole to double
  store double %double_value, ptr %room
  br label %yes

yes:
  %word = phi i64 [%its_word, %scalar], [%float_word, %wide], [%float_word, %round],
    [%integer_word, %as_integer], [%integer_word, %as_float], [%integer_word, %as_double]
  %at = phi ptr [%inside, %scalar], [%room, %wide], [%room, %round],
    [%room, %as_integer], [%room, %as_float], [%room, %as_double]
  call void @push(ptr %words, ptr %count, ptr %hash, i64 %word)
  call void @push(ptr %words, ptr %count, ptr %hash, i64 0)
  store ptr %at, ptr %address
  ret i1 true
no:
  ret i1 false
}}
"""
"""5183643170566569984 is the largest float32 as a double, 9218868437227405312 infinity."""
