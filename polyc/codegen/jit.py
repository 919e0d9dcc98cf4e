"""LLVM IR text to object code, and object code to callable addresses.

The same object serves the memory cache, the disk cache and ahead-of-time output: position-independent, small code model,
every outside symbol (libm, OpenMP) by its plain name.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import llvmlite.binding as llvm

from polyc.target import Target

_LOCK = threading.RLock()
_NUMBERS = itertools.count()
_STATE: dict[str, llvm.LLJIT] = {}


@dataclass(frozen=True, slots=True)
class LoadedCode:
    """Addresses of the entry points; they stay valid while `keepalive` is referenced."""

    entry_address: int
    workspace_address: int
    keepalive: object


def _initialize() -> None:
    if "ready" not in _STATE:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        llvm.initialize_native_asmparser()
        _STATE["ready"] = None


def _machine(target: Target) -> llvm.TargetMachine:
    backend = llvm.Target.from_triple(target.triple)
    return backend.create_target_machine(cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small")


def _optimize(ir_text: str, target: Target) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    _initialize()
    machine = _machine(target)
    module = llvm.parse_assembly(ir_text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    # Ours have decided about vectors, interleaving and unrolling.
    options.loop_vectorization = False
    options.loop_interleaving = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module, machine


def compile_object(ir_text: str, target: Target) -> bytes:
    """Object code at O3 for `target`.  Raises RuntimeError on malformed IR, which is a bug in the emitter."""
    with _LOCK:
        module, machine = _optimize(ir_text, target)
        return bytes(machine.emit_object(module))


def assembly(ir_text: str, target: Target) -> str:
    """The same code as assembly text."""
    with _LOCK:
        module, machine = _optimize(ir_text, target)
        return str(machine.emit_assembly(module))


def optimized_ir(ir_text: str, target: Target) -> str:
    """The module after LLVM's optimiser."""
    with _LOCK:
        return str(_optimize(ir_text, target)[0])


def load_object(obj: bytes, name: str, symbols: Mapping[str, int] | None = None) -> LoadedCode:
    """Link `obj` into the process.  `symbols` gives addresses by name (OpenMP); the rest (libm) is found in the process.

    Raises RuntimeError, naming the symbols, where one cannot be found."""
    with _LOCK:
        _initialize()
        lljit = _STATE.get("lljit")
        if lljit is None:
            lljit = _STATE["lljit"] = llvm.create_lljit_compiler(use_jit_link=True)
        builder = llvm.JITLibraryBuilder().add_object_img(obj).add_current_process()
        for symbol, address in (symbols or {}).items():
            builder.import_symbol(symbol, address)
        builder.export_symbol(name).export_symbol(f"{name}_workspace")
        tracker = builder.link(lljit, f"{name}.{next(_NUMBERS)}")
        return LoadedCode(tracker[name], tracker[f"{name}_workspace"], tracker)
