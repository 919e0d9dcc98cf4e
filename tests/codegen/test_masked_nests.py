"""Guarded reads and writes of rows of 1 to 40 elements: machine code against the interpreted nest, beside pages that may not be
touched.

Nests run in child processes: where LLVM or the code ends one, that is a failure with the nest's text.  By hand, for a longer
run: ``POLYC_EXAMPLES=200 pytest tests/codegen/test_masked_nests.py``.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from polyc.codegen.emission.llvm import emit_llvm
from polyc.codegen.objects.jit import compile_object
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops_text import format_loops
from polyc.ir.verify_loops import verify_loops
from polyc.machine import X86_64_V3
from tests.property.guarded import run_apart

from .masked_nests import MaskedNest
from .support import LEVELS, Compiled, target

N_EXAMPLES = 14


def check_seed(seed: int, level: str) -> None:
    """Compile, run and compare the nest of `seed`."""
    drawn = MaskedNest(seed)
    verify_loops(drawn.nest)
    theirs, ours = drawn.make_arrays(), drawn.make_arrays()
    failures = interpret_loops(drawn.nest, [theirs[name].array for name in drawn.names], drawn.sizes)
    assert not failures
    code = Compiled(drawn.nest, target(level))
    if level == "x86-64-v3":  # LLVM would have to split wider ones, and does it wrong
        masked = re.findall(r"call [^\n]*@llvm\.masked\.(?:load|store)\.v(\d+)[fi](32|64)\b", code.text)
        assert all(int(lanes) * int(bits) <= X86_64_V3.vector_bits for lanes, bits in masked)
    code.run({name: placed.array for name, placed in ours.items()}, drawn.sizes)
    for name in drawn.names:
        wanted, got = theirs[name], ours[name]
        np.testing.assert_array_equal(got.array.astype(np.float64), wanted.array.astype(np.float64), err_msg=name)
        np.testing.assert_array_equal(got.gaps(), wanted.gaps(), err_msg=f"beside elements of {name}")


@pytest.mark.optimised
@pytest.mark.parametrize("level", [*(level for level in LEVELS if level != "x86-64-v4"), "host"])
def test_guarded_rows_of_any_width(level: str) -> None:
    failed = run_apart(lambda seed: check_seed(seed, level), N_EXAMPLES)
    if failed is not None:
        seed, what = failed
        pytest.fail(f"{level}, seed {seed}: {what}\n{format_loops(MaskedNest(seed).nest)}", pytrace=False)


@pytest.mark.optimised
def test_wide_divisions_that_llvm_makes_of_loops_are_found() -> None:
    """LLVM counts the iterations of this nest's loops by a division of 128 bits, a function of the compiler's own library."""
    nest = MaskedNest(688926796123).nest
    assert b"__udivti3" in compile_object(emit_llvm(nest, target("x86-64-v2")), target("x86-64-v2"))
    failed = run_apart(lambda n: check_seed(688926796123, "x86-64-v2"), 1)
    assert failed is None, failed
