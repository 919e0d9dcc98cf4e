"""The machine code of hot loops: vector instructions as planned, no stack traffic, no calls, no scalar remains."""

from __future__ import annotations

import re

import pytest

from polyc.codegen.emission.llvm import emit_llvm
from polyc.codegen.objects.jit import assembly
from polyc.ir.types import F32
from polyc.machine import PINNED, X86_64_V3, X86_64_V4

from ..codegen.support import c, i, op, rd
from ..codegen.test_loops_to_llvm import elementwise
from ..codegen.test_math import function_nest
from ..codegen.test_registers import matmul_nest, reduction_nest, softmax_nest
from .machine_code import innermost_loops


def hottest(text: str, instruction: str) -> str:
    return max(innermost_loops(text), key=lambda loop: loop.count(instruction))


def has_stack_traffic(loop: str) -> bool:
    return "(%rsp" in loop or re.search(r"-?\d+\(%rbp\)", loop) is not None


@pytest.mark.parametrize(
    ("target", "tile", "register"),
    [
        (X86_64_V4, (6, 64, 16), "zmm"),
        (X86_64_V4, (14, 32, 16), "zmm"),
        (X86_64_V4, (8, 48, 16), "zmm"),
        (X86_64_V3, (6, 16, 8), "ymm"),
        (X86_64_V3, (4, 24, 8), "ymm"),
    ],
)
def test_register_tile(target, tile, register):
    """Full and partial tile: one fma per accumulator and k, nothing spilled in the full one."""
    text = assembly(emit_llvm(matmul_nest(*tile), target), target)
    fmas = tile[0] * tile[1] // tile[2]
    full = [loop for loop in innermost_loops(text) if len(re.findall(rf"vfmadd\d+ps.*{register}", loop)) == fmas]
    assert full, "no loop has the planned fmas"
    best = min(full, key=len)
    assert not has_stack_traffic(best) and "call" not in best
    loads = len(re.findall(rf"v(movups|broadcastss)\t.*\(.*%{register}", best))
    assert loads <= tile[0] + tile[1] // tile[2]


def test_dot_product_has_independent_accumulators():
    for target, register in ((X86_64_V4, "zmm"), (X86_64_V3, "ymm")):
        square = op("mul", rd("X", i("i")), rd("X", i("i")))
        lanes = target.lanes(4)
        text = assembly(emit_llvm(reduction_nest("add", F32, lanes, 4, value=square), target), target)
        loop = hottest(text, "vfmadd")
        destinations = re.findall(rf"vfmadd.*%({register}\d+)$", loop, re.M)
        assert len(destinations) == len(set(destinations)) == 4
        assert not has_stack_traffic(loop)


def test_maximum_costs_three_instructions_a_vector():
    text = assembly(emit_llvm(reduction_nest("max", F32, 16, 4), X86_64_V4), X86_64_V4)
    loop = hottest(text, "vmaxps")
    assert loop.count("vmaxps") == 4
    assert len(re.findall(r"^v", loop, re.M)) <= 4 * 4


@pytest.mark.parametrize(("name", "most"), [("exp", 16), ("sigmoid", 22), ("tanh", 26), ("log", 42), ("erf", 40)])
def test_inline_functions_do_not_call(name, most):
    for target in PINNED.values():
        text = assembly(emit_llvm(function_nest(name, F32), target), target)
        assert not re.search(rf"call\w*\t{name}f", text)
        if target is X86_64_V4:
            vectors = [loop for loop in innermost_loops(text) if "zmm" in loop]
            assert vectors and all(len(re.findall(r"^v", loop, re.M)) <= most for loop in vectors)


@pytest.mark.parametrize("target, lanes", [(X86_64_V3, 8), (X86_64_V4, 16)])
def test_maxima_of_two_vectors_share_a_test_for_nan(target, lanes):
    text = assembly(emit_llvm(reduction_nest("max", F32, lanes, 4), target), target)
    loop = hottest(text, "vmaxps")
    assert loop.count("vmaxps") == 4
    assert loop.count("vcmpunordps") == 2 and "vblend" not in loop and not re.search(r"vmov.*\{%k", loop)


def test_softmax_has_no_calls_in_its_loops():
    text = assembly(emit_llvm(softmax_nest(), X86_64_V4), X86_64_V4)
    assert not any("call" in loop or has_stack_traffic(loop) for loop in innermost_loops(text))


def test_masked_tail_uses_mask_registers():
    text = assembly(emit_llvm(elementwise(rd("X", i("i")), F32, F32, 16), X86_64_V4), X86_64_V4)
    assert re.search(r"vmovups\t.*\{%k\d\} \{z\}", text) and re.search(r"vmovups\t%zmm\d+, .*\{%k\d\}", text)


def test_sixteen_doubles_are_two_registers():
    from polyc.ir.types import F64

    value = op("add", rd("X", i("i")), rd("X", op("add", i("i"), c(0))))
    text = assembly(emit_llvm(elementwise(value, F64, F64, 16), X86_64_V4), X86_64_V4)
    assert hottest(text, "vaddpd").count("vaddpd") == 2
