"""Options of the whole test suite, and what its tests share."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from polyc.codegen.objects import jit
from polyc.target import Target

# Every test compiles anew, whatever earlier runs left behind; POLYC_CACHE=1 and a POLYC_CACHE_DIR run the suite warm.
os.environ.setdefault("POLYC_CACHE", "0")

# Where Python may leave no bytecode beside the sources, each process that a test starts would compile polyc's modules again.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="Rewrite the golden files of tests/golden instead of comparing."
    )


def pytest_configure() -> None:
    jit.compile_object = remember_objects(jit.compile_object)


def remember_objects(compile_object: Callable[[str, Target], bytes]) -> Callable[[str, Target], bytes]:
    """`compile_object` that asks LLVM once for each text and target: what stands before it runs for every test."""
    objects: dict[tuple[bytes, Target], bytes] = {}

    def compile_once(ir_text: str, target: Target) -> bytes:
        key = hashlib.sha256(ir_text.encode()).digest(), target
        if key not in objects:
            objects[key] = compile_object(ir_text, target)
        return objects[key]

    return compile_once
