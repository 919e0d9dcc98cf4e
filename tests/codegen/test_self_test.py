"""The loops that tell whether LLVM makes right code: what they give, and what is said where they give something else."""

from __future__ import annotations

import re

import pytest

from polyc.codegen.objects import jit, self_test
from polyc.diagnostics import UnsupportedError
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.verify_loops import verify_loops
from polyc.machine import X86_64_V3, Machine

from .support import LEVELS, target

pytestmark = pytest.mark.optimised


def test_known_results_are_those_of_the_interpreter() -> None:
    nest, arrays = self_test.make_nest(X86_64_V3), self_test.make_arrays()
    verify_loops(nest)
    assert not interpret_loops(nest, arrays, self_test.SIZES)
    assert self_test.find_sums(arrays) == self_test.KNOWN


@pytest.mark.parametrize("level", dict.fromkeys([*LEVELS, "host"]))
def test_right_code_passes(level: str) -> None:
    assert self_test.find_faults(target(level)) == []


def test_code_that_drops_masks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    real = jit.compile_object

    def drop_masks(text: str, target: Machine) -> bytes:
        wrong = re.sub(r"(@llvm\.masked\.load\.[^\n]*?<\d+ x i1>) (%\w+)", r"\1 splat (i1 true)", text)
        assert wrong != text
        return real(wrong, target)

    monkeypatch.setattr(jit, "compile_object", drop_masks)
    with pytest.raises(UnsupportedError, match=r"LLVM \d+\.\d+.* makes wrong code") as caught:
        self_test.check_code(target("host"))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "unsupported-code-generator"
    assert "rows before, shifted" in diagnostic.message and "POLYC_TARGET=x86-64-v2" in (diagnostic.help or "")
