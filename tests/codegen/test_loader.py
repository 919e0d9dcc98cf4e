"""Objects linked without LLVM: the same results, and whatever is not simple is left to LLVM."""

from __future__ import annotations

import ctypes
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from polyc.codegen.emission.llvm import emit_llvm
from polyc.codegen.objects import loader
from polyc.codegen.objects.call_loader import EXPORTS, PYTHON_FUNCTIONS
from polyc.codegen.objects.calls import make_call
from polyc.codegen.objects.elf import HEADER, SECTION
from polyc.codegen.objects.host import adopt_facts, describe_machine, facts
from polyc.codegen.objects.jit import compile_object
from polyc.codegen.objects.loader import load_object, map_object
from polyc.machine import AARCH64
from polyc.runtime import fastcalls

from .support import ENTRY, HOST, openmp
from .test_jit_and_aot import call, scale_nest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not HOST.triple.startswith("x86_64"), reason="only ELF for x86-64 is linked without LLVM"
)

CALLS = """
declare double @fmod(double, double)
@table = private unnamed_addr constant [2 x double] [double 5.5, double -7.25]
define i32 @f(ptr %data, ptr %sizes, ptr %work, ptr %error, i32 %threads) {
  %place = load ptr, ptr %data
  %n = load i64, ptr %sizes
  %from = getelementptr double, ptr @table, i64 %n
  %x = load double, ptr %from
  %y = call double @fmod(double %x, double 2.0)
  store double %y, ptr %place
  ret i32 0
}
define i64 @f_workspace(ptr %sizes, i32 %threads) {
  ret i64 17
}
"""
WRITABLE = CALLS.replace("private unnamed_addr constant", "global")


@pytest.fixture(scope="module")
def scale():
    return compile_object(emit_llvm(scale_nest(), HOST), HOST)


def run_calls(code, n):
    out = np.zeros(1)
    data, sizes = (ctypes.c_void_p * 1)(out.ctypes.data), (ctypes.c_int64 * 1)(n)
    assert ENTRY(code.entry_address)(data, sizes, 0, 0, 1) == 0
    return out[0]


def test_a_kernel_with_threads_runs(scale):
    code = load_object(scale, "scale", openmp())
    assert isinstance(code.keepalive, loader.Mapped) and code.is_parallel
    x, y = np.arange(1000, dtype="f4"), np.zeros(1000, "f4")
    assert call(ENTRY(code.entry_address), x, y) == 0
    np.testing.assert_array_equal(y, 2 * x)


def test_tables_and_functions_of_the_c_library_are_found():
    code = load_object(compile_object(CALLS, HOST), "f")
    assert isinstance(code.keepalive, loader.Mapped)
    assert run_calls(code, 0) == 1.5 and run_calls(code, 1) == -1.25
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32)(code.workspace_address)(0, 1) == 17


def test_pages_of_code_cannot_be_written(scale):
    mapped = map_object(scale, openmp())
    start = min(mapped.addresses.values())
    lines = Path("/proc/self/maps").read_text().splitlines()
    ranges = [(*(int(n, 16) for n in line.split()[0].split("-")), line.split()[1]) for line in lines]
    assert [p for low, high, p in ranges if low <= start < high] == ["r-xp"]


def test_what_is_not_simple_is_left_to_llvm(scale):
    writable = compile_object(WRITABLE, HOST)
    assert map_object(writable, {}) is None
    assert run_calls(load_object(writable, "f"), 0) == 1.5
    assert map_object(compile_object(emit_llvm(scale_nest(), AARCH64), AARCH64), openmp()) is None
    assert map_object(b"\xcf\xfa\xed\xfe" + scale[4:], openmp()) is None


def test_relocations_of_another_kind_are_left_to_llvm(scale):
    header = HEADER.unpack_from(scale)
    sections = [SECTION.unpack_from(scale, header[6] + k * header[11]) for k in range(header[12])]
    (place,) = [s[4] for s in sections if s[1] == 4 and sections[s[7]][2] & 4][:1]
    changed = bytearray(scale)
    (info,) = struct.unpack_from("<Q", scale, place + 8)
    struct.pack_into("<Q", changed, place + 8, info & ~0xFFFFFFFF | 1)
    assert map_object(bytes(changed), openmp()) is None
    assert map_object(scale, openmp()) is not None


def test_an_object_cut_short_anywhere_is_refused_or_complete(scale):
    for length in (*range(0, len(scale), 37), len(scale)):
        mapped = map_object(scale[:length], openmp())
        assert mapped is None or length == len(scale)


def test_what_llvm_says_of_the_machine_is_kept_only_where_nothing_is_known():
    before = facts()
    adopt_facts(type(before)("z80-unknown-none", ("none",), "LLVM 0"))
    assert facts() is before
    assert describe_machine() == describe_machine()


def test_addresses_of_objects_outside_are_found_without_llvm():
    # polyc_call compares with the addresses of Python's objects, which stand in a table (GOT), not in the code.
    found = map_object(make_call(), fastcalls.symbols(PYTHON_FUNCTIONS))
    assert found is not None and set(EXPORTS) <= found.addresses.keys()
