"""The one table of stages, and the ladder of schedules: who knows all layers is here.

`lower` takes a Program down to a LoopNest; `Lowered` holds every stage's value and makes code on demand.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from polyc.config import Options, debugging, default_options
from polyc.diagnostics import (
    ArgumentError,
    CompileBudgetError,
    Diagnostic,
    InternalError,
    PolycError,
    RangeError,
    Remark,
    UnsupportedError,
    suggest_name,
)
from polyc.ir.complex_pairs import split_complex
from polyc.ir.expr import Expr, int_const
from polyc.ir.loops import LoopNest
from polyc.ir.program import Exists, Program, specialize_sizes
from polyc.ir.signature import ArraySpec, RuntimeGuard, Signature, make_entry_name
from polyc.ir.simplify import define_sizes
from polyc.ir.storage_types import widen_arithmetic
from polyc.ir.text import format_loops, format_program
from polyc.ir.types import DType
from polyc.ir.verify import verify_program
from polyc.ir.versions import Tree, format_choice, leaves, renumber
from polyc.target import MODELS, Target, is_runnable, restrict

STAGES = ("program", "scop", "sched", "loops", "ll", "s")
"""Names of the stages, which are also file extensions."""

compile_lock = threading.RLock()
"""isl's context is not thread-safe: one compilation at a time."""


FORK_PATIENCE = 60.0
"""Seconds that a fork waits for compilations of other threads."""
_forking = threading.local()


def _finish_compiling() -> None:
    """Before a fork: what another thread is in the middle of (isl, LLVM, imports, cached properties) holds locks that nobody
    would release in the child."""
    _forking.is_holding = compile_lock.acquire(timeout=FORK_PATIENCE)


def _go_on() -> None:
    if _forking.is_holding:
        compile_lock.release()


def _renew_lock() -> None:
    """In a child after a fork: another thread of the parent may have held the lock all the same."""
    global compile_lock
    compile_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_finish_compiling, after_in_parent=_go_on, after_in_child=_renew_lock)

Strides = tuple[tuple[int | None, ...] | None, ...]


@dataclass(eq=False)
class Lowered:
    """All stages of one specialisation.  `program` is as written, `scop.program` what was scheduled."""

    program: Program
    signature: Signature
    options: Options
    target: Target
    ranges: Any
    scop: Any
    schedule: Any
    storage: dict[str, Any]
    nest: LoopNest
    remarks: tuple[Remark, ...]
    rows: Any = None
    plan: Any = None
    alias_is_safe: Callable[[str, str], bool] = field(default=lambda out, source: False)
    fixed_sizes: Mapping[str, int] = field(default_factory=dict)
    preparations: tuple[Program, ...] = ()
    """Programs that compute, each from bound inputs and the results of those before, the constants of the signature."""
    prepared: tuple[Any, ...] = ()
    """Statements that left the refined rows, and are in the last of `preparations`."""
    panels: Mapping[str, Any] = field(default_factory=dict)
    """By constant, the `Panel` of its layout where it has one."""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """By statement of the scop, the `Choice` of how its contraction is computed."""
    is_reproducible: bool = True
    """False where a rung of the ladder failed for a reason that may be gone tomorrow."""
    size_classes: Any = None
    """Where several versions are worth it, the `SizeClasses` of this one."""
    others: tuple[Lowered, ...] = ()
    """Versions for sizes of other magnitudes."""
    choice: Tree = 0
    """Which version a call takes: 0 is this one, 1 the first of `others`."""

    @cached_property
    def llvm_ir(self) -> str:
        from polyc.codegen.llvm import emit_llvm

        return emit_llvm(self.nest, self.target, [other.nest for other in self.others], self.choice)

    @cached_property
    def _object(self) -> bytes:
        from polyc.codegen.jit import compile_object

        return compile_object(self.llvm_ir, self.target)

    def as_text(self, stage: str) -> str:
        """The text of one of `STAGES`."""
        from polyc import explain

        match stage:
            case "program":
                return format_program(self.program)
            case "scop":
                return explain.format_scop(self.scop)
            case "sched":
                return explain.format_schedule(self.schedule)
            case "loops":
                return format_loops(self.nest)
            case "ll":
                return self.llvm_ir
            case "s":
                from polyc.codegen.jit import assembly

                return assembly(self.llvm_ir, self.target)
        help = suggest_name(stage, STAGES) or f"stages are: {', '.join(STAGES)}"
        raise ArgumentError(Diagnostic("argument-stage", f"there is no stage {stage!r}", None, help))

    @property
    def unread(self) -> tuple[str, ...]:
        """Inputs that the code never looks at: what it needs of them are constants."""
        read = {a.tensor for s in self.scop.statements for a in (*s.accesses, *s.init_accesses)}
        return tuple(a.name for a in self.signature.arrays if a.role == "input" and a.name not in read)

    def explain(self) -> str:
        """Domains, dependences, schedule and tiles with reasons, pseudo-C."""
        from polyc import explain

        with compile_lock:
            return explain.explain(self)

    def summary(self) -> str:
        """What the scheduler did, in one line."""
        from polyc import explain

        return explain.summarize(self)

    def object_code(self) -> bytes:
        """Object code for the target, with the C entry point of `ir.signature`."""
        with compile_lock:
            return self._object

    def c_header(self) -> str:
        """The C header that documents the entry point of `object_code`."""
        from polyc.codegen.aot import c_header

        return c_header(self.signature, self.nest.parameters)

    def compile(self, constants: Sequence[Any] = (), bound: Mapping[str, Any] | None = None) -> Any:
        """A loaded `Kernel`; `constants` are the arrays for the signature's constants, in order, `bound` inputs by name."""
        return load_kernel(self, constants, bound)


def load_kernel(made: Any, constants: Sequence[Any] = (), bound: Mapping[str, Any] | None = None) -> Any:
    """A `Kernel` of a `Lowered`, or of what was kept of one: anything with its object code and facts about it.

    Raises UnsupportedError (``unsupported-foreign-target``) where the code is for another kind of processor."""
    from polyc.codegen.calls import PYTHON_FUNCTIONS, load_call
    from polyc.codegen.host import host_target
    from polyc.codegen.loader import load_object
    from polyc.runtime import fastcalls, threads
    from polyc.runtime.kernel import Kernel

    host = host_target()
    if not is_runnable(made.target, host):
        message = f"code for {made.target.name} cannot run on this machine, which is {host.architecture}"
        help = "write it to a file (polyc compile -o, or object_code()), or leave the option target out"
        raise UnsupportedError(Diagnostic("unsupported-foreign-target", message, None, help))
    fastcalls.offer(PYTHON_FUNCTIONS, load_call)
    with compile_lock:
        code = made.object_code()
        symbols = threads.symbols() if b"GOMP_parallel" in code else {}
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


def select_target(options: Options) -> Target:
    """The machine model that `options.target` names."""
    from polyc.codegen.host import host_target

    if options.target == "host":
        return host_target()
    if options.target not in MODELS:
        names = ", ".join(("host", *MODELS))
        raise ArgumentError(Diagnostic("argument-target", f"no target {options.target!r}", help=f"targets are: {names}"))
    return restrict(host_target(), options.target)


def lower(
    program: Program,
    *,
    sizes: Mapping[str, int] | None = None,
    strides: Strides | None = None,
    aliases: tuple[tuple[str, str], ...] = (),
    options: Options | None = None,
    target: Target | None = None,
    constants: Collection[str] = (),
    typical: Mapping[str, int] | None = None,
) -> Lowered:
    """Program → LoopNest.

    `sizes`: values baked into the code (None or partial: the others stay symbolic).  `strides`: byte strides per array
    argument in ABI order (None: any).  `aliases`: pairs (result, input) that are exactly the same memory.  `constants`:
    parameters that never change; what depends on them alone becomes `Lowered.preparations`.  `typical`: what estimates take
    symbolic sizes for; the code is correct for any.
    """
    with compile_lock:
        options = options or default_options()
        fixed, guesses = dict(sizes or {}), dict(typical or {})
        lowered = _lower(program, fixed, strides, aliases, options, target, frozenset(constants), guesses)
        if lowered.size_classes is None or len(lowered.size_classes.typical) == 1:
            return lowered

        def version(sizes: Mapping[str, int]) -> Lowered:
            return _lower(program, fixed, strides, aliases, options, target, frozenset(constants), sizes, is_version=True)

        return _add_versions(lowered, version)


def _add_versions(lowered: Lowered, version: Callable[[Mapping[str, int]], Lowered]) -> Lowered:
    """`lowered` with versions for sizes of other magnitudes, as far as they are called in the same way."""
    numbers, others = {0: 0}, []
    for n, sizes in enumerate(lowered.size_classes.typical[1:], 1):
        numbers[n] = 0
        try:
            other = version(sizes)
        except PolycError as error:
            lowered.remarks += (
                Remark("missed", "sizes", f"no version for {_list_sizes(sizes)}: {error.diagnostics[0].message}"),
            )
            continue
        made = other.signature, other.nest.parameters, other.preparations, other.panels
        if made != (lowered.signature, lowered.nest.parameters, lowered.preparations, lowered.panels):
            lowered.remarks += (Remark("missed", "sizes", f"no version for {_list_sizes(sizes)}: it takes other constants"),)
        elif other.nest != lowered.nest:
            others.append(other)
            numbers[n] = len(others)
    choice = renumber(lowered.size_classes.tree, numbers)
    used = sorted({0, *leaves(choice)})
    lowered.others = tuple(others[n - 1] for n in used[1:])
    lowered.choice = renumber(choice, {n: k for k, n in enumerate(used)})
    if lowered.others:
        described = ", ".join(_list_sizes(other.ranges.typical) for other in (lowered, *lowered.others))
        message = f"{len(used)} versions, for sizes about {described}; {format_choice(lowered.choice)}"
        lowered.remarks += (Remark("passed", "sizes", message),)
        own, rest = lowered.alias_is_safe, [other.alias_is_safe for other in lowered.others]
        lowered.alias_is_safe = lambda out, source: own(out, source) and all(safe(out, source) for safe in rest)
        lowered.is_reproducible = all(each.is_reproducible for each in (lowered, *lowered.others))
    return lowered


def _list_sizes(sizes: Mapping[str, int]) -> str:
    return "/".join(f"{n}={v}" for n, v in sizes.items())


def _lower(
    program: Program,
    sizes: dict[str, int],
    strides: Strides | None,
    aliases: tuple[tuple[str, str], ...],
    options: Options,
    target: Target | None,
    constants: frozenset[str],
    typical: Mapping[str, int],
    is_version: bool = False,
) -> Lowered:
    from polyc.poly.infer import infer_ranges
    from polyc.poly.ranges import assume_sizes
    from polyc.poly.scop import extract_scop
    from polyc.scheduler.constants import split_constants
    from polyc.scheduler.dead_instances import drop_dead_instances
    from polyc.scheduler.preparation import collect_preparations
    from polyc.scheduler.size_classes import find_size_classes

    verify_program(program)
    target = target or select_target(options)
    sized = define_sizes(specialize_sizes(program, {name: int_const(value) for name, value in sizes.items()}))
    given, given_strides = sized, strides
    sized = widen_arithmetic(split_complex(sized))
    if strides is not None:
        strides = _memory_strides(given, strides)
    ranges = assume_sizes(infer_ranges(sized), sized.defined_sizes, typical)
    main, main_ranges, prepared = split_constants(sized, ranges, constants)
    made = main.parameters[len(sized.parameters) :]
    if strides is not None:  # what is prepared is laid out later
        n = len(sized.parameters)
        main_strides: Strides | None = (*strides[:n], *(None for _ in made), *strides[n:])
    else:
        main_strides = None
    rewritten, new_ranges, groups, remarks = _rewrite_program(main, main_ranges, main_strides, options, target)
    remarks += [Remark("passed", "bind", f"{p.statement.target} is computed once", p.statement.name) for p in prepared]
    scop = extract_scop(rewritten, new_ranges)
    live, live_ranges, found = drop_dead_instances(scop)
    if found:
        scop = extract_scop(live, live_ranges)
        remarks += found
    signature = _make_signature(sized, given.types, ranges, scop, strides)
    classes = None
    if typical and not is_version and options.tile and options.vectorize:
        classes = find_size_classes(scop, target, constants | set(made))
        if classes is not None and classes.typical[0] != typical:
            # Another one is best for most sizes.
            lowered = _lower(
                program, sizes, given_strides, aliases, options, target, constants, classes.typical[0], is_version=True
            )
            lowered.size_classes = classes
            return lowered
    lowered = _climb_down(program, signature, scop, ranges, target, options, remarks, aliases, groups, constants | set(made))
    if constants:
        lowered.preparations = collect_preparations(lowered.signature, sized, prepared, lowered.scop.program, lowered.prepared)
    lowered.fixed_sizes = sizes
    lowered.size_classes = classes
    return lowered


def _rewrite_program(
    program: Program, ranges: Any, strides: Strides | None, options: Options, target: Target
) -> tuple[Program, Any, dict[str, Any], list[Remark]]:
    """Rewritings of the program that come before the polyhedral model."""
    from polyc.scheduler.conversions import hoist_conversions
    from polyc.scheduler.inline import inline_producers
    from polyc.scheduler.invariant_dimensions import drop_invariant_dimensions
    from polyc.scheduler.merge_indices import merge_indices
    from polyc.scheduler.merge_parts import merge_parts
    from polyc.scheduler.monoids import lower_monoids
    from polyc.scheduler.overlap import overlap_tiles
    from polyc.scheduler.positions import block_positions
    from polyc.scheduler.private_tables import split_tables
    from polyc.scheduler.rewriting import rewrite_algebra
    from polyc.scheduler.single_values import assign_single_values
    from polyc.scheduler.split import split_reductions
    from polyc.scheduler.unit_indices import drop_unit_indices

    program = _without_exists(program)
    program, ranges, remarks = lower_monoids(program, ranges, options.reassociate)
    program, ranges, found = drop_invariant_dimensions(program, ranges)
    remarks += found
    program, ranges, found = merge_parts(program, ranges)
    remarks += found
    if options.reassociate:
        program, ranges, found = block_positions(program, ranges)
        remarks += found
    program = assign_single_values(program, ranges)
    if options.inline:
        program, ranges, found = inline_producers(program, ranges)
        remarks += found
    arguments = (*program.parameters, *(r.version for r in program.returns))
    known = {} if strides is None else dict(zip(arguments, strides, strict=True))
    known |= {r.initial: known.get(r.version) for r in program.returns if r.initial is not None}
    program, ranges = drop_unit_indices(program, ranges)
    program, ranges, groups, found = merge_indices(program, ranges, known)
    remarks += found
    program, ranges, found = rewrite_algebra(program, ranges, options, target)
    remarks += found
    if options.inline and found:
        program, ranges, found = inline_producers(program, ranges)
        remarks += [r for r in found if r.kind == "passed"]
    program, ranges, found = hoist_conversions(program, ranges)
    remarks += found
    if options.reassociate and options.parallel:
        program, ranges, found = split_tables(program, ranges, target)
        remarks += found
        program, ranges, found = split_reductions(program, ranges)
        remarks += found
    if options.tile:
        program, ranges, found = overlap_tiles(program, ranges, target)
        remarks += found
    return program, ranges, groups, remarks


def _without_exists(program: Program) -> Program:
    """`program` without the clauses that only ranges are inferred from: what they read may be inlined away."""
    if not any(isinstance(w, Exists) for s in program.statements for w in s.where):
        return program
    statements = (replace(s, where=tuple(w for w in s.where if not isinstance(w, Exists))) for s in program.statements)
    return replace(program, statements=tuple(statements))


WITH_INITIAL_VALUES = "ilp with initial values"
"""A rung for recurrences: what starts a tensor stays in front of the steps that read it."""
APART = "ilp, no loops shared"
"""Another one: all of a tensor is started, and written, before anything reads it that it does not need itself."""


def _rungs(options: Options) -> Iterator[tuple[str, Options]]:
    """The ladder: each rung is tried when the one above could not be found or proved."""
    order = ["ilp", "isl", "source"]
    first = order.index(options.scheduler) if options.scheduler in order else 0
    for name in order[first:]:
        yield name, options
        if options.tile and name == "ilp":
            yield name, options.replace(tile=False)
        if name == "ilp":
            yield WITH_INITIAL_VALUES, options
            yield APART, options
    yield "source", options.replace(tile=False, vectorize=False, parallel=False)


def _climb_down(
    program: Program,
    signature: Signature,
    scop: Any,
    ranges: Any,
    target: Target,
    options: Options,
    remarks: list[Remark],
    aliases: tuple[tuple[str, str], ...],
    groups: dict[str, Any],
    constants: frozenset[str],
) -> Lowered:
    from polyc.codegen.alignment import align_rows
    from polyc.codegen.lookahead import prefetch_windows
    from polyc.codegen.loops import build_loop_nest
    from polyc.codegen.prefetch import prefetch_rows
    from polyc.codegen.size import check_code_size
    from polyc.codegen.streams import stream_results
    from polyc.poly.dependences import compute_dependences
    from polyc.poly.legality import prove_storage, prove_values
    from polyc.poly.tree import build_schedule
    from polyc.scheduler import refine_rows
    from polyc.scheduler.preparation import add_constants
    from polyc.scheduler.storage import fold_steps

    dependences = compute_dependences(scop)
    _refuse_circles(scop, dependences)
    has_failed = False
    for name, rung in _rungs(options):
        try:
            if name in (WITH_INITIAL_VALUES, APART) and not dependences.has_recurrence():
                continue
            rows = _find_rows(name, scop, dependences)
            if rows is None:
                remarks.append(Remark("missed", "schedule", f"{name} found no schedule"))
                continue
            refined = refine_rows(rows, scop, target, rung, constants)
            final, storage = refined.scop, refined.storage
            full_signature = add_constants(signature, final, storage)
            needed = dependences if final is scop else compute_dependences(final)
            schedule = build_schedule(final, refined.plan)
            violation = prove_values(final, needed, schedule) or prove_storage(final, needed, schedule, storage)
            if violation is None:
                storage, found = fold_steps(final, needed, schedule, refined.plan, storage)
                nest = build_loop_nest(final, schedule, storage, full_signature, aliases, groups, target)
                nest = prefetch_windows(prefetch_rows(nest, target), target)
                nest = stream_results(align_rows(nest, target), target)
                check_code_size(nest)
                label = name if rung is options else f"{name}, simplified"
                remarks = [*remarks, Remark("passed", "schedule", f"{label}: proved by value and by storage")]
                remarks += [*refined.remarks, *found]
                returned = {r.name: r.version for r in scop.program.returns}
                return Lowered(
                    program,
                    full_signature,
                    options,
                    target,
                    ranges,
                    final,
                    schedule,
                    storage,
                    nest,
                    tuple(remarks),
                    refined.rows,
                    refined.plan,
                    _alias_test(final, schedule, returned),
                    prepared=refined.prepared,
                    panels={name: f.panel for name, f in storage.items() if f.panel is not None},
                    choices=refined.choices,
                    is_reproducible=not has_failed,
                )
            remarks.append(Remark("missed", "schedule", f"{name} is not proved: {violation}"))
        except (CompileBudgetError, UnsupportedError) as error:
            remarks.append(Remark("missed", "schedule", f"{name}: {error.diagnostics[0].message}"))
        except Exception as error:
            # A fault of ours on one rung is no reason to refuse the program: the next rung is simpler, and proved as well.
            if debugging():
                raise
            has_failed = True
            remarks.append(Remark("missed", "schedule", f"{name}: internal fault, {type(error).__name__}: {error}"))
    if dependences.has_recurrence():
        message = f"no order of loops was found that computes every element of {program.name} before it is read"
        help = "check the subscripts and ranges of the recurrence: an element may need itself through others"
        raise UnsupportedError(Diagnostic("unsupported-recurrence", message, program.statements[0].span, help))
    details = "; ".join(r.message for r in remarks if r.pass_name == "schedule")
    message = f"no schedule of {program.name} could be proved ({details})"
    help = "this is a bug in polyc; please report it with the operator and the sizes"
    raise InternalError(Diagnostic("internal-schedule", message, None, help))


def _refuse_circles(scop: Any, dependences: Any) -> None:
    from polyc.poly.dependences import find_circular

    found = find_circular(scop, dependences)
    if found is not None:
        s, point = found
        message = f"an element of {scop.tensors[s.target].base} needs its own value, at {point}"
        help = "a recurrence reads elements that other statements, or earlier points, have computed; check the ranges"
        raise RangeError(Diagnostic("range-circular", message, s.origin.span, help))


def _alias_test(scop: Any, schedule: Any, returned: Mapping[str, str]) -> Callable[[str, str], bool]:
    from polyc.poly.legality import alias_is_safe

    def is_safe(out: str, source: str) -> bool:
        with compile_lock:  # kernels ask at calls, from any thread
            return alias_is_safe(scop, schedule, returned[out], source)

    return is_safe


def _find_rows(name: str, scop: Any, dependences: Any) -> Any:
    from polyc.scheduler import fallback

    if name == "ilp":
        from polyc.scheduler.ilp import schedule_statements

        return schedule_statements(scop, dependences)
    if name == WITH_INITIAL_VALUES:
        from polyc.poly.dependences import keep_initial_values
        from polyc.scheduler.ilp import schedule_statements

        kept = keep_initial_values(scop, dependences)
        return None if kept is None else schedule_statements(scop, kept)
    if name == APART:
        from polyc.scheduler.ilp import schedule_statements

        return schedule_statements(scop, dependences, most_together=1)
    if name == "isl":
        return fallback.schedule_with_isl(scop, dependences)
    return fallback.schedule_source_order(scop, dependences)


def _memory_strides(program: Program, strides: Strides) -> Strides:
    """Strides of the arrays as compiled code sees them (`ArraySpec.memory`)."""
    types = [program.types[n] for n in (*program.parameters, *(r.version for r in program.returns))]
    return tuple(
        (*own, dtype.part.itemsize) if own is not None and dtype.is_complex else own
        for own, dtype in zip(strides, types, strict=True)
    )


def _make_signature(program: Program, types: Mapping[str, DType], ranges: Any, scop: Any, strides: Strides | None) -> Signature:
    """The entry point's description: parameters in source order, then returns; `types` are those of the caller's arrays."""
    arrays: list[ArraySpec] = []
    for name in program.parameters:
        t = program.tensor(name)
        intervals = ranges.tensors[name]
        arrays.append(
            ArraySpec(t.base, t.dtype, tuple(i.extent for i in intervals), tuple(i.lower for i in intervals), "input")
        )
    for r in program.returns:
        t = program.tensor(r.version)
        intervals = ranges.tensors[r.version]
        role = "output" if r.initial is None else "inout"
        arrays.append(
            ArraySpec(r.name, t.dtype, tuple(i.extent for i in intervals), tuple(i.lower for i in intervals), role)  # type: ignore[arg-type]
        )
    if strides is not None:
        arrays = [ArraySpec(a.name, a.dtype, a.shape, a.lower, a.role, s) for a, s in zip(arrays, strides, strict=True)]
    versions = (*program.parameters, *(r.version for r in program.returns))
    arrays = [_in_callers_terms(a, types[v]) for a, v in zip(arrays, versions, strict=True)]
    guards = tuple(RuntimeGuard(g.message, g.span or s.origin.span) for s in scop.statements for g in s.guards)
    return Signature(make_entry_name(program.name), program.sizes, program.defined_sizes, tuple(arrays), ranges.checks, guards)


def _in_callers_terms(array: ArraySpec, dtype: DType) -> ArraySpec:
    """The array whose `memory` is `array`."""
    if not dtype.is_complex:
        return array
    strides = None if array.strides is None else array.strides[:-1]
    return ArraySpec(array.name, dtype, array.shape[:-1], array.lower[:-1], array.role, strides)


def infer_shapes(program: Program, sizes: Mapping[str, int]) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Lower bounds and extents of every return at concrete sizes."""
    from polyc.poly.infer import concrete_shapes, infer_ranges

    with compile_lock:
        sized = define_sizes(specialize_sizes(program, {name: int_const(value) for name, value in sizes.items()}))
        shapes = concrete_shapes(infer_ranges(sized), sizes)
    result = {}
    for r in program.returns:
        intervals = shapes[r.version]
        result[r.name] = (tuple(low for low, _ in intervals), tuple(extent for _, extent in intervals))
    return result


def infer_extents(program: Program) -> tuple[dict[str, tuple[Expr, ...]], tuple[tuple[str, Expr], ...]]:
    """Extents of every parameter and return, by the name in a signature, over the symbols of sizes; and the definitions
    of those symbols that are computed from others."""
    from polyc.poly.infer import infer_ranges

    with compile_lock:
        sized = define_sizes(program)
        ranges = infer_ranges(sized)
    versions = {sized.tensor(n).base: n for n in sized.parameters} | {r.name: r.version for r in sized.returns}
    return {name: tuple(i.extent for i in ranges.tensors[v]) for name, v in versions.items()}, sized.defined_sizes


def __getattr__(name: str) -> Any:
    """Front ends, loaded when first asked for (their parsers are slow to import)."""
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


__all__ = ["STAGES", "Lowered", "PolycError", "infer_extents", "infer_shapes", "lower", "select_target"]
