"""Object code in tests: LLVM is asked once for each text, and does not optimise where its optimiser is not what is tested."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

import llvmlite.binding as llvm
import pytest

from polyc.codegen.objects import jit
from polyc.machine import Machine

FOLDERS = ("api", "cache", "codegen", "conformance", "frontends", "negative", "onnx", "oracle", "poly", "scheduler")
UNOPTIMISED = (*(f"tests/{folder}/" for folder in FOLDERS), "tests/benchmarks/test_npbench.py", "tests/test_docs.py")
"""Folders and files whose tests run code as LLVM translates it without optimising, which takes a tenth of the time.  Assembly
text is always optimised.  LLVM takes little for granted that could be wrong (arguments that are ``noalias``, counters of loops
that do not overflow): the other folders and tests marked ``optimised`` run what users run."""

HALVED = ("tests/property/",)
"""Folders of generated programs: half of them, by their text, run optimised code, and half what it was optimised from."""

_STATE: dict[str, bool | None] = {"is_optimised": True}
"""None: by the text."""


def begin_test(item: pytest.Item) -> None:
    """From now on objects are made as this test wants them."""
    has_mark = item.get_closest_marker("optimised") is not None
    is_everywhere = os.environ.get("POLYC_TEST_LLVM") == "optimised"
    is_halved = item.nodeid.startswith(HALVED)
    _STATE["is_optimised"] = has_mark or is_everywhere or (None if is_halved else not item.nodeid.startswith(UNOPTIMISED))


def remember_objects(compile_object: Callable[[str, Machine], bytes]) -> Callable[[str, Machine], bytes]:
    """`compile_object` that asks LLVM once for each text and target, in the way that the running test wants."""
    objects: dict[tuple[bytes, Machine, bool], bytes] = {}

    def compile_once(ir_text: str, target: Machine) -> bytes:
        digest, is_optimised = hashlib.sha256(ir_text.encode()).digest(), _STATE["is_optimised"]
        if is_optimised is None:
            is_optimised = digest[0] % 2 == 0
        key = digest, target, is_optimised
        if key not in objects:
            objects[key] = compile_object(ir_text, target) if is_optimised else translate(ir_text, target)
        return objects[key]

    return compile_once


def translate(ir_text: str, target: Machine) -> bytes:
    """Object code for `target` that is not optimised."""
    with jit.locked_session():
        backend = llvm.Target.from_triple(target.triple)
        options = {"cpu": target.cpu, "features": target.features, "reloc": "pic", "codemodel": "small"}
        module = llvm.parse_assembly(ir_text)
        module.verify()
        return bytes(backend.create_target_machine(opt=0, **options).emit_object(module))
