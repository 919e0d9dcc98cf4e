"""From object code to a kernel that can be called on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyc.config import Options, machine_name
from polyc.diagnostics import ArgumentError, Diagnostic, UnsupportedError
from polyc.driver.lock import compiling

if TYPE_CHECKING:
    from polyc.machine import Machine


def select_target(options: Options) -> Machine:
    """The machine model that `options.target` names."""
    from polyc.codegen.objects.host import host_target

    if options.target == "host":
        return host_target()
    from polyc.machine import MODELS, select_model

    if options.target not in MODELS:
        names = ", ".join(("host", *MODELS))
        raise ArgumentError(Diagnostic("argument-target", f"no target {options.target!r}", help=f"targets are: {names}"))
    return select_model(host_target(), options.target)


def load_kernel(made: Any, constants: Sequence[Any] = (), bound: Mapping[str, Any] | None = None) -> Any:
    """A `Kernel` of a `Lowered`, or of what was kept of one: anything with its object code and facts about it.

    Raises UnsupportedError (``unsupported-foreign-target``) where the code is for another kind of processor, or for
    instructions that this one lacks, or the one of `POLYC_MACHINE`."""
    from polyc.codegen.objects.call_loader import PYTHON_FUNCTIONS, load_call
    from polyc.codegen.objects.loader import load_object
    from polyc.codegen.objects.pool import load_pool
    from polyc.runtime import fastcalls, threads
    from polyc.runtime.kernel import Kernel

    if not (getattr(made, "is_for_host", False) and not machine_name()):  # made for what this machine is, as its key says
        _refuse_foreign(made.target)
    fastcalls.offer(PYTHON_FUNCTIONS, load_call)
    with compiling():
        code = made.object_code()
        symbols = threads.symbols(load_pool) if b"GOMP_parallel" in code else {}
        loaded = load_object(code, made.signature.name, symbols)
    return Kernel(
        made.signature,
        loaded.entry_address,
        loaded.workspace_address,
        (loaded, made),
        fixed_sizes=made.fixed_sizes,
        remarks=made.remarks,
        alias_is_safe=made.alias_is_safe,
        constants=constants,
        bound=bound,
        is_parallel=loaded.is_parallel,
    )


def _refuse_foreign(target: Machine) -> None:
    import platform

    from polyc.codegen.objects.host import host_target, physical_host
    from polyc.machine import is_runnable

    physical, machine = physical_host(), host_target()
    lacking = next((m for m in (physical, machine) if not is_runnable(target, m)), None)
    if lacking is not None:
        is_foreign = target.architecture != lacking.architecture
        which = f"which is {lacking.architecture}" if is_foreign else "which lacks some of its instructions"
        this = f"this machine ({platform.node()}, {physical.cpu})"
        where = this if lacking is physical else f"the machine {machine.name} (POLYC_MACHINE)"
        message = f"code for {target.name} cannot run on {where}, {which}"
        variable = "" if machine is physical else ", or unset POLYC_MACHINE"
        help = f"write it to a file (polyc compile -o, or object_code()), or leave the option target out{variable}"
        raise UnsupportedError(Diagnostic("unsupported-foreign-target", message, None, help))
