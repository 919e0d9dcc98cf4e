"""Objects: loading, missing OpenMP, missing symbols, malformed IR, the C header, the host's model."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from polyc.code_limits import LONG_MODULE
from polyc.codegen.emission.llvm import emit_llvm
from polyc.codegen.objects.aot import c_header, write_object
from polyc.codegen.objects.elf import rename_symbols
from polyc.codegen.objects.host import host_target, read_cache_sizes
from polyc.codegen.objects.jit import assembly, compile_object, load_object, optimized_ir
from polyc.diagnostics import InternalError, UnsupportedError
from polyc.ir.expr import int_const
from polyc.ir.loops import Loop, LoopNest, Store
from polyc.ir.signature import ArraySpec, HostCheck, RuntimeGuard, Signature
from polyc.ir.types import F32
from polyc.machine import AARCH64, BASELINE, PINNED, X86_64_V2, X86_64_V3, X86_64_V4, select_model

from .support import ENTRY, HOST, LEVELS, argument, c, i, n, op, rd, strides_of

pytestmark = pytest.mark.optimised


def scale_nest(kind="parallel", name="scale"):
    x, y = argument("X", F32, (n("N"),), 0), argument("Y", F32, (n("N"),), 1)
    value = op("add", rd("X", i("i")), rd("X", i("i")))
    return LoopNest(
        name, ("N", *strides_of(x, y)), (x, y), (Loop("i", c(0), n("N"), 1, kind, (Store("Y", (i("i"),), value),), lanes=8),)
    )


def call(entry, x, y, threads=2):
    data = (ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data)
    return entry(data, (ctypes.c_int64 * 3)(x.size, 4, 4), None, None, threads)


def test_without_openmp_a_parallel_loop_is_a_team_of_one():
    code = load_object(compile_object(emit_llvm(scale_nest(), HOST), HOST), "scale")
    x, y = np.arange(9, dtype="f4"), np.zeros(9, "f4")
    assert call(ENTRY(code.entry_address), x, y) == 0
    np.testing.assert_array_equal(y, 2 * x)


def test_two_objects_of_one_name_live_side_by_side():
    obj = compile_object(emit_llvm(scale_nest("vector"), HOST), HOST)
    first, second = load_object(obj, "scale"), load_object(obj, "scale")
    assert first.entry_address != second.entry_address
    del first
    x, y = np.arange(9, dtype="f4"), np.zeros(9, "f4")
    call(ENTRY(second.entry_address), x, y)
    np.testing.assert_array_equal(y, 2 * x)


def test_malformed_ir_is_an_internal_error():
    with pytest.raises(InternalError) as error:
        compile_object("define i32 @f() { ret i64 0 }", HOST)
    assert error.value.code == "internal-llvm"


CHOOSING = """
declare void @first(i64)
declare void @second(i64)
define void @choose(i64 %n, i1 %which) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %tail ]
  br i1 %which, label %then, label %else
then:
  call void @first(i64 %i)
  br label %tail
else:
  call void @second(i64 %i)
  br label %tail
tail:
  %next = add i64 %i, 1
  %again = icmp slt i64 %next, %n
  br i1 %again, label %head, label %done
done:
  ret void
}
"""


@pytest.mark.parametrize("whole", ["", "!polyc.keeping = !{}\n"], ids=["whole", "functions"])
def test_conditions_leave_the_loops_of_modules_that_are_not_long(whole):
    def count_loops(text):
        return optimized_ir(text, HOST).count(" = phi i64 ")

    assert count_loops(CHOOSING + whole) == 2
    assert count_loops(CHOOSING + whole + "; padding\n" * LONG_MODULE) == 1


def test_a_symbol_that_nobody_has_is_named():
    text = emit_llvm(scale_nest("serial"), HOST).replace(
        "ret i32 0\n}", "call void @no_such_function()\n  ret i32 0\n}\ndeclare void @no_such_function()", 1
    )
    with pytest.raises(UnsupportedError, match="no_such_function"):
        load_object(compile_object(text, HOST), "scale")


def test_every_level_gives_text_of_its_own_instruction_set():
    for level in PINNED:
        target = PINNED[level]
        text = assembly(emit_llvm(scale_nest("vector"), target), target)
        assert ("ymm" in text) == (level != "x86-64-v2")  # eight floats
    assert "define" in optimized_ir(emit_llvm(scale_nest(), BASELINE), BASELINE)


def test_a_processor_that_llvm_does_not_know_is_an_error():
    target = replace(BASELINE, name="z80", triple="z80-unknown-none")
    with pytest.raises(UnsupportedError, match="no code generator for z80"):
        assembly(emit_llvm(scale_nest(), target), target)


def test_a_parallel_body_takes_only_what_it_uses():
    """Not the second of the arrays, nor its strides: layers of a long chain would take those of all layers."""
    nest = scale_nest()
    unused = argument("Z", F32, (n("N"),), 2)
    nest = replace(nest, parameters=("N", *strides_of(*nest.buffers, unused)), buffers=(*nest.buffers, unused))
    lines = emit_llvm(nest, BASELINE).splitlines()
    headers = [line for line in lines if line.startswith('define internal void @"scale.body1"')]
    assert len(headers) == 1
    assert headers[0].count("ptr") == 2
    assert headers[0].count("i64") == 2  # the bounds: strides are known in this version


@pytest.mark.parametrize("is_carried", [False, True])
def test_modules_with_recurrences_are_marked(is_carried):
    read = rd("Y", op("sub", i("i"), c(1))) if is_carried else rd("Y", i("i"))
    x, y = argument("X", F32, (n("N"),), 0), argument("Y", F32, (n("N"),), 1)
    loop = Loop("i", c(1), n("N"), 1, "serial", (Store("Y", (i("i"),), op("add", read, rd("X", i("i")))),))
    nest = LoopNest("sums", ("N", *strides_of(x, y)), (x, y), (loop,))
    assert ("!polyc.keeping" in emit_llvm(nest, BASELINE)) == is_carried
    entry = load_object(compile_object(emit_llvm(nest, HOST), HOST), "sums")
    a, b = np.arange(9, dtype=np.float32), np.ones(9, np.float32)
    assert call(ENTRY(entry.entry_address), a, b) == 0
    assert b.tolist() == (1 + np.cumsum(a) if is_carried else 1 + a).tolist()


def test_a_host_is_restricted_by_models_of_its_own_kind_only():
    assert select_model(X86_64_V4, "aarch64") is AARCH64
    assert select_model(AARCH64, "x86-64-v2") is X86_64_V2
    limited = select_model(replace(X86_64_V4, cores=7), "x86-64-v3")
    assert (limited.features, limited.cores) == (X86_64_V3.features, 7)


SIGNATURE = Signature(
    "scale",
    ("N",),
    (("N2", op("mul", n("N"), n("N"))),),
    (
        ArraySpec("X", F32, (n("N"),), (int_const(0),), "input"),
        ArraySpec("Y", F32, (op("floordiv", n("N"), c(2)),), (int_const(1),), "output", (4,)),
    ),
    (HostCheck(op("ge", n("N"), c(3)), "range-x", "N is {N}"),),
    (RuntimeGuard("index {value} is outside 0 to {bound}"),),
)


def test_header_documents_every_slot():
    text = c_header(SIGNATURE, ("N", "N2", "X.stride0", "Y.stride0"))
    for part in (
        "[0] const float X[N]: read",
        "[1] float Y[floor(N / 2)]: written; element 0 of dimension 0 is index 1",
        "[1] N2 = (N * N)",
        "[3] Y.stride0",
        "(N >= 3)",
        "1: index {value} is outside 0 to {bound}",
        "Y must have the strides 4",
    ):
        assert part in text


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_object_and_header_serve_a_c_program(tmp_path):
    write_object(compile_object(emit_llvm(scale_nest(), HOST), HOST), tmp_path / "scale.o")
    (tmp_path / "scale.h").write_text(c_header(SIGNATURE, ("N", "X.stride0", "Y.stride0")))
    (tmp_path / "main.c").write_text(
        """
        #include <stdio.h>
        #include "scale.h"
        int main(void) {
            float x[5] = {1, 2, 3, 4, 5}, y[5];
            void *data[2] = {x, y};
            int64_t sizes[3] = {5, 4, 4}, error[3];
            if (scale_workspace(sizes, 2) != 0 || scale(data, sizes, 0, error, 2) != 0) return 1;
            printf("%g %g\\n", y[0], y[4]);
            return 0;
        }
        """
    )
    program = tmp_path / "main"
    command = ["cc", "-Wall", "-Werror", "-o", program, tmp_path / "main.c", tmp_path / "scale.o", "-lm", "-fopenmp"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and "omp" in done.stderr:
        pytest.skip("this C compiler has no OpenMP")
    assert done.returncode == 0, done.stderr
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "2 10\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["main", "main.c", "scale.h", "scale.o"]


def test_host_model_is_consistent():
    host = host_target()
    assert host.vector_bits in (128, 256, 512) and host.cores >= 1
    assert host.has_masks == (host.vector_bits == 512)
    assert 16 << 10 <= host.l1 <= host.l2 <= host.l3 <= 64 << 20
    assert LEVELS or host.cpu == "generic"


def test_absurd_cache_sizes_are_clamped(tmp_path):
    for k, (level, kind, size) in enumerate((("1", "Data", "48K"), ("1", "Instruction", "1K"), ("3", "Unified", "480M"))):
        entry = tmp_path / f"index{k}"
        entry.mkdir()
        for name, value in (("level", level), ("type", kind), ("size", size)):
            (entry / name).write_text(value + "\n")
    (tmp_path / "index9").mkdir()
    assert read_cache_sizes(tmp_path) == {1: 48 << 10, 3: 64 << 20}


def test_objects_of_other_systems_are_not_put_into_a_library():
    for other in (b"", b"MZ\x90\x00\x03\x00", b"\xcf\xfa\xed\xfe\x07\x00", b"\x7fELF\x01\x01"):
        with pytest.raises(UnsupportedError) as caught:
            rename_symbols(other, {"f": "g"})
        assert caught.value.code == "unsupported-object-format" and "Linux" in str(caught.value)
