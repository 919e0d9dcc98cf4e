"""LLVM IR text to object code, and object code to callable addresses.

The same object serves the memory cache, the disk cache and ahead-of-time output: position-independent, small code model,
every outside symbol (libm, OpenMP) by its plain name.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import llvmlite.binding as llvm

from polyc.code_limits import LONG_MODULE
from polyc.codegen.objects.loader import OPENMP_SYMBOLS, LoadedCode
from polyc.diagnostics import Diagnostic, InternalError, UnsupportedError
from polyc.machine import Machine

WIDE_DIVISIONS = ("__divti3", "__modti3", "__udivti3", "__umodti3")
"""Divisions of integers of two words, which LLVM counts iterations of some loops with, and has no instructions for."""

_TEAM_OF_ONE = """
define void @GOMP_parallel(ptr %function, ptr %data, i32 %threads, i32 %flags) {
  call void %function(ptr %data)
  ret void
}
define i32 @omp_get_thread_num() {
  ret i32 0
}
define i32 @omp_get_num_threads() {
  ret i32 1
}
"""

_LOCK = threading.RLock()
_NUMBERS = itertools.count()
_STATE: dict[str, Any] = {}


def _initialize() -> None:
    if "ready" not in _STATE:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        llvm.initialize_native_asmparser()
        _STATE["ready"] = True


def _machine(target: Machine) -> llvm.TargetMachine:
    try:
        backend = llvm.Target.from_triple(target.triple)
    except RuntimeError as error:
        help = "install a llvmlite whose LLVM has it (the wheels on PyPI do), or choose another target"
        message = f"this LLVM has no code generator for {target.name}"
        raise UnsupportedError(Diagnostic("unsupported-backend", message, None, help)) from error
    return backend.create_target_machine(cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small")


def _optimize(ir_text: str, target: Machine) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    _initialize()
    machine = _machine(target)
    try:
        module = llvm.parse_assembly(ir_text)
        module.verify()
    except RuntimeError as error:
        help = "please report it with the text of the stage before, `--emit loops`"
        raise InternalError(Diagnostic("internal-llvm", f"LLVM refuses the generated code: {error}", help=help)) from error
    is_unrolling, is_whole = "llvm.loop.unroll.count" in ir_text, "!polyc.keeping" in ir_text
    _run_passes(module, machine, is_unrolling, is_whole, is_long=ir_text.count("\n") > LONG_MODULE)
    return module, machine


def _run_passes(module: llvm.ModuleRef, machine: llvm.TargetMachine, is_unrolling: bool, is_whole: bool, is_long: bool) -> None:
    """LLVM's simplification of functions, and the unrolling that loops ask for; or (`is_whole`) its pipeline for modules.

    What the latter does beyond the former takes as long again, for many stores in one loop ten times as long, and finds little:
    functions are those that the nest wants, with the arguments that they use; vectors, interleaving and unrolling are decided.
    It also keeps what a loop stores in registers for the next iteration, which recurrences gain by, and finds the masks and
    addresses that tiles with borders share, which spill without it.

    Only level 3 writes a loop twice for a condition inside that stays the same in it (short loops keep a register by that): in
    long modules, such as those of convolutions with symbolic sizes, the search takes as long as all other passes together, and
    none of them ran faster for it."""
    tuning = llvm.create_pipeline_tuning_options(speed_level=2 if is_long else 3)
    tuning.loop_vectorization = False
    tuning.loop_interleaving = False
    tuning.slp_vectorization = False
    tuning.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, tuning)
    if is_whole:
        builder.getModulePassManager().run(module, builder)
        return
    inlining = llvm.create_new_module_pass_manager()
    inlining.add_always_inliner_pass()
    inlining.add_global_dead_code_eliminate_pass()
    inlining.run(module, builder)
    folding = llvm.create_new_function_pass_manager()  # finds masks of which all lanes are active
    folding.add_instruction_combine_pass()
    folding.add_simplify_cfg_pass()
    unrolling = llvm.create_new_function_pass_manager()
    unrolling.add_loop_unroll_pass()
    unrolling.add_sroa_pass()
    unrolling.add_instruction_combine_pass()
    unrolling.add_simplify_cfg_pass()
    managers = [folding, builder.getFunctionPassManager(), *([unrolling] if is_unrolling else [])]
    for function in module.functions:
        if not function.is_declaration:
            for manager in managers:
                manager.run(function, builder)


@contextlib.contextmanager
def locked_session() -> Iterator[Any]:
    """The linker of this process, for one user at a time."""
    with _LOCK:
        _initialize()
        if "lljit" not in _STATE:
            _STATE["lljit"] = llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)
        yield _STATE["lljit"]


def compile_object(ir_text: str, target: Machine) -> bytes:
    """Optimised object code for `target`.  Raises InternalError (``internal-llvm``) on malformed IR."""
    with _LOCK:
        module, machine = _optimize(ir_text, target)
        return bytes(machine.emit_object(module))


def assembly(ir_text: str, target: Machine) -> str:
    """The same code as assembly text."""
    with _LOCK:
        module, machine = _optimize(ir_text, target)
        return str(machine.emit_assembly(module))


def optimized_ir(ir_text: str, target: Machine) -> str:
    """The module after LLVM's optimiser."""
    with _LOCK:
        return str(_optimize(ir_text, target)[0])


def load_object(obj: bytes, name: str, symbols: Mapping[str, int] | None = None) -> LoadedCode:
    """Link `obj` into the process.  `symbols` gives addresses by name (OpenMP); the rest (libm) is found in the process.

    Without OpenMP parallel loops run as a team of one.  Raises UnsupportedError (``unsupported-symbol``), naming the symbols,
    where the C library lacks a function."""
    with locked_session() as lljit:
        builder = llvm.JITLibraryBuilder().add_object_img(obj).add_current_process()
        if all(symbol in (symbols or {}) for symbol in OPENMP_SYMBOLS):
            for symbol in OPENMP_SYMBOLS:
                builder.import_symbol(symbol, (symbols or {})[symbol])
        else:
            builder.add_ir(_TEAM_OF_ONE)
        for symbol in (s for s in WIDE_DIVISIONS if s.encode() in obj):
            address = _address_in_libgcc(symbol)
            if address:
                builder.import_symbol(symbol, address)
        builder.export_symbol(name).export_symbol(f"{name}_workspace")
        try:
            tracker = builder.link(lljit, f"{name}.{next(_NUMBERS)}")
        except RuntimeError as error:
            help = "write the function with others, or run on a system whose C library has it"
            missing = ", ".join(_unknown_names(obj, name)) or str(error)
            raise UnsupportedError(
                Diagnostic("unsupported-symbol", f"this process has no function {missing}", help=help)
            ) from error
        return LoadedCode(tracker[name], tracker[f"{name}_workspace"], tracker, b"GOMP_parallel" in obj)


def _address_in_libgcc(symbol: str) -> int | None:
    """The address of a function of the compiler's runtime library, which programs link and processes may lack."""
    try:
        function = ctypes.CDLL("libgcc_s.so.1")[symbol]
    except (OSError, AttributeError):
        return None
    return ctypes.cast(function, ctypes.c_void_p).value


def _unknown_names(obj: bytes, name: str) -> list[str]:
    """Strings of the object's symbol table that the process does not define, for the message."""
    found = {match.decode() for match in re.findall(rb"(?<=\x00)([A-Za-z_]\w*)(?=\x00)", obj)}
    known = {name, f"{name}_workspace", *OPENMP_SYMBOLS}
    return sorted(n for n in found - known if len(n) > 2 and not llvm.address_of_symbol(n))
