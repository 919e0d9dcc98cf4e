"""The register tiles that the scheduler plans, in machine code: the planned products and reads, and nothing on the stack."""

from __future__ import annotations

import functools
import os
import re

import pytest

from polyc import driver
from polyc.config import Options
from polyc.machine import AARCH64, MODELS, X86_64_V2, X86_64_V3, X86_64_V4, Machine
from polyc.scheduler.contractions.register_use import RegisterUse, register_use
from tests.golden.programs import CONV, MATMUL_NN, MATMUL_NT, MATMUL_TN, SOFTMAX
from tests.scheduler.support import lower

from .machine_code import Step, count_step, innermost_loops

BATCHED = "def batched(float(B, M, K) A, float(B, K, N) X) -> (C) { C(b, m, n) +=! A(b, m, k) * X(b, k, n) }"
CONVOLUTION = """def convolution(float(B, C, H, W) X, float(F, C, KH, KW) K) -> (T) {
  T(n, f, y, x) +=! X(n, c, y + i, x + j) * K(f, c, i, j)
}"""

MATRICES = [
    dict(zip("MNK", sizes, strict=True))
    for sizes in (
        (512, 512, 512),
        (100, 100, 100),
        (64, 48, 300),
        (7, 1000, 64),
        (1000, 7, 64),
        (16, 16, 16),
        (33, 65, 129),
        (128, 768, 768),
        (5, 24, 200),
        (257, 16, 40),
        (12, 300, 1000),
        (1024, 10, 10),
        (96, 14, 500),
    )
]
BATCHES = [
    dict(zip("BMNK", sizes, strict=True))
    for sizes in ((8, 64, 64, 64), (16, 16, 16, 16), (12, 128, 128, 64), (4, 33, 50, 100), (64, 8, 8, 32), (3, 100, 7, 100))
]
IMAGES = [
    {"B": 1, "C": c, "H": h, "W": w, "F": f, "KH": 3, "KW": 3}
    for c, h, w, f in ((64, 58, 58, 64), (3, 34, 34, 16), (16, 16, 16, 32), (128, 30, 30, 128), (8, 10, 66, 6), (32, 9, 9, 512))
]
FAMILIES = {
    "matmul NN": (MATMUL_NN, MATRICES),
    "matmul NT": (MATMUL_NT, MATRICES[1::2]),
    "matmul TN": (MATMUL_TN, MATRICES[::2]),
    "convolution 3x3": (CONVOLUTION, IMAGES),
    "batched matmul": (BATCHED, BATCHES),
}
SHARES = [
    (X86_64_V3, 32, slice(0, None, 2)),
    (X86_64_V4, 32, slice(1, None, 2)),
    (X86_64_V2, 32, slice(0, None, 3)),
    (AARCH64, 32, slice(1, None, 3)),
    (X86_64_V3, 64, slice(2, None, 3)),
    (X86_64_V4, 64, slice(0, None, 3)),
]
"""Targets, widths, and which of the sizes are compiled for them (all with POLYC_TEST_COMBINATIONS=all)."""
TARGETS = {t.name: t for t in (X86_64_V2, X86_64_V3, X86_64_V4, AARCH64)}


@functools.lru_cache(maxsize=64)
def lower_once(text: str, sizes: tuple[tuple[str, int], ...], target: Machine) -> driver.Lowered:
    return lower(text, dict(sizes), target=target, options=Options(parallel=False))


def compile_one(text: str, sizes: dict[str, int], target: Machine) -> driver.Lowered:
    """Products in tiles of different shapes are those of the first family, whose machine code is read next."""
    return lower_once(text, tuple(sizes.items()), target)


def faults(lowered: driver.Lowered, target: Machine) -> list[str]:
    """Why no innermost loop is the planned one; nothing where one is, or where no tile was planned."""
    found: list[str] = []
    steps = [count_step(loop, target) for loop in innermost_loops(lowered.as_text("s"))]
    for name, choice in lowered.choices.items():
        use = register_use(choice)
        assert use.registers <= target.n_registers
        candidates = [x for x in steps if x.products and x.products % use.accumulators == 0]
        # Without masks, the last vector of a row is read in pieces: as halves or element by element.
        extent = int(lowered.scop.statement(name).extents[choice.way.vector].value)
        is_partial = extent % choice.way.tile[choice.way.vector] != 0 and not target.has_masks
        pieces = choice.way.lanes if is_partial else 0
        # Neighbouring steps of a window share what they read.
        has_windows = any(len(form) > 1 for o in (choice.vector_operand, choice.row_operand) for form in o.forms)
        none = [f"{choice.way.tile}: no loop has {use.accumulators} products"]
        # Beside the full tile there are versions for remainders, and for borders.
        found += min((_compare(x, use, pieces, has_windows, target) for x in candidates), key=len, default=none)
    return found


def _compare(step: Step, use: RegisterUse, pieces: int, has_windows: bool, target: Machine) -> list[str]:
    """How the instructions of a loop differ from some steps of a register tile."""
    n = step.products // use.accumulators
    wrong = []
    # One accumulator makes room for the mask: its store and its load, in each step.
    if step.stack > (2 * n if pieces else 0):
        wrong.append(f"{step.stack} accesses to the stack")
    if not target.has_fma and step.additions != step.products:
        wrong.append(f"{step.additions} additions for {step.products} products")
    for what, found, planned in (("vectors", step.loads, n * use.loads), ("elements", step.broadcasts, n * use.broadcasts)):
        fewest = 1 if has_windows and n > 1 else planned - n * min(pieces, 1)
        if not fewest <= found <= planned + n * pieces:
            wrong.append(f"{found} {what} are read")
    return [f"{n} steps of {use}: {text}" for text in wrong]


def test_tiles_of_different_shapes_are_covered():
    for target in TARGETS.values():
        shapes = set()
        for sizes in MATRICES:
            for choice in compile_one(MATMUL_NN, sizes, target).choices.values():
                use = register_use(choice)
                shapes.add((use.loads, use.broadcasts))
        assert len(shapes) >= 4, f"{target.name}: {shapes}"


@pytest.mark.parametrize(("target", "bits", "share"), SHARES, ids=[f"{t.name}-{bits}" for t, bits, _ in SHARES])
@pytest.mark.parametrize("family", FAMILIES)
def test_inner_loops_are_as_planned(target, family, bits, share):
    text, all_sizes = FAMILIES[family]
    text = text if bits == 32 else text.replace("float(", "double(")
    if os.environ.get("POLYC_TEST_COMBINATIONS") != "all":
        all_sizes = all_sizes[share]
    planned = 0
    for sizes in all_sizes:
        lowered = compile_one(text, sizes, target)
        planned += len(lowered.choices)
        assert faults(lowered, target) == [], sizes
    assert planned >= len(all_sizes) // 2, "hardly any size has a tile"


@pytest.mark.parametrize("text", [MATMUL_NN, CONV, SOFTMAX], ids=["matmul", "convolution", "softmax"])
def test_aarch64_has_its_own_instructions_only(text):
    sizes = {"M": 64, "N": 64, "K": 64, "D": 100, "B": 1, "C": 16, "H": 18, "W": 18, "F": 16, "KH": 3, "KW": 3}
    names = re.findall(r"\b[A-Z]+\b", text.split("->")[0])
    lowered = lower(text, {n: v for n, v in sizes.items() if n in names and not text.count(f") {n}")}, target=AARCH64)
    assert "llvm.x86" not in lowered.llvm_ir and " asm " not in lowered.llvm_ir
    assembly = lowered.as_text("s")
    assert "fmla\tv" in assembly and re.search(r"ld(r|p|ur)\tq", assembly)
    assert lowered.object_code()[18:20] == (183).to_bytes(2, "little")  # EM_AARCH64


def test_all_models_are_covered():
    assert set(TARGETS) == set(MODELS)


def test_masks_of_a_partial_tile_are_compared_in_every_step_of_its_sum():
    """Their operands took the registers of two accumulators, which went through the stack: 300 cycles for a step of 12."""
    lowered = compile_one(MATMUL_NN, {"M": 128, "N": 3152, "K": 128}, X86_64_V4)
    masked = [loop for loop in innermost_loops(lowered.as_text("s")) if "vfmadd" in loop and "{%k" in loop]
    assert masked
    for loop in masked:
        assert not re.search(r"vpcmp|vmov.*\(%rsp\)", loop)
