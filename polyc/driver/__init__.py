"""Who knows all layers: `lower` takes a Program down to loops, `Lowered` holds every stage's value and makes code on demand.

`stages` is the table of stages, `ladder` the schedules that are tried.  Both bring isl: they are imported when something is
compiled, so that a process that finds its kernels in the disk cache starts without them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from polyc.config import Options, default_options
from polyc.driver.loading import load_kernel, select_target
from polyc.driver.lock import compiling
from polyc.driver.shapes import infer_extents, infer_shapes
from polyc.ir.program import Program
from polyc.ir.signature import Strides

if TYPE_CHECKING:
    from polyc.driver.lowered import STAGES, Lowered
    from polyc.machine import Machine
    from polyc.passes import Level


def lower(
    program: Program,
    *,
    sizes: Mapping[str, int] | None = None,
    strides: Strides | None = None,
    aliases: tuple[tuple[str, str], ...] = (),
    options: Options | None = None,
    target: Machine | None = None,
    constants: Collection[str] = (),
    typical: Mapping[str, int] | None = None,
) -> Lowered:
    """Program → LoopNest.

    `sizes`: values baked into the code (None or partial: the others stay symbolic).  `strides`: byte strides per array
    argument in ABI order (None: any).  `aliases`: pairs (result, input) that are exactly the same memory.  `constants`:
    parameters that never change; what depends on them alone becomes `Lowered.preparations`.  `typical`: what estimates take
    symbolic sizes for; the code is correct for any.
    """
    from polyc.driver.stages import run_stages
    from polyc.driver.versions import add_versions
    from polyc.scheduler.size_classes import Version

    with compiling():
        options = options or default_options()
        fixed, guesses = dict(sizes or {}), dict(typical or {})
        lowered = run_stages(program, fixed, strides, aliases, options, target, frozenset(constants), Version(guesses))
        if lowered.size_classes is None or len(lowered.size_classes.versions) == 1:
            return lowered

        def lower_version(version: Version) -> Lowered:
            return run_stages(program, fixed, strides, aliases, options, target, frozenset(constants), version, is_chosen=True)

        return add_versions(lowered, lower_version)


def load_compiler() -> None:
    """Import what compiles programs now instead of with the first one."""
    from polyc.codegen.emission import llvm  # noqa: F401
    from polyc.codegen.objects import jit  # noqa: F401
    from polyc.driver import stages, versions  # noqa: F401


def pass_levels() -> tuple[Level[Any, Any], ...]:
    """The levels of passes, in the order in which a compilation runs them."""
    from polyc.codegen.nests.pipeline import LOOPS
    from polyc.scheduler.pipeline import PLAN
    from polyc.scheduler.rewriting.pipeline import PROGRAM

    return PROGRAM, PLAN, LOOPS


def __getattr__(name: str) -> Any:
    """What makes things, loaded when first asked for: a process that finds all it needs in the disk cache does without."""
    if name in ("STAGES", "Lowered"):
        from polyc.driver import lowered

        return getattr(lowered, name)
    if name in ("read_tc", "read_tc_with_warnings"):
        from polyc.frontends import tc

        return getattr(tc, name)
    if name in ("read_function", "read_signature", "Index", "UserMonoid", "indices"):
        from polyc.frontends import python

        return getattr(python, name)
    if name in ("read_einsum", "read_einsum_symbolic", "count_operands"):
        from polyc.frontends import einsum

        return getattr(einsum, name)
    if name in ("read_pattern", "check_lengths", "fit_pattern", "read_einops", "result_type"):
        from polyc.frontends import einops

        return getattr(einops, name)
    raise AttributeError(name)


__all__ = [
    "STAGES",
    "Lowered",
    "Strides",
    "compiling",
    "infer_extents",
    "infer_shapes",
    "load_compiler",
    "load_kernel",
    "lower",
    "pass_levels",
    "select_target",
]
