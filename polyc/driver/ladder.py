"""The ladder of schedules: each rung is tried when the one above found none, or one that could not be proved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from polyc import passes
from polyc.codegen.nests.loops import translate_schedule
from polyc.codegen.nests.pipeline import LOOPS, LoopContext
from polyc.config import Options, debugging
from polyc.diagnostics import CompileBudgetError, Diagnostic, InternalError, Remark, UnsupportedError
from polyc.driver.lock import compiling
from polyc.driver.lowered import Lowered
from polyc.ir.expr import Read, size_names
from polyc.ir.loops import Loop, LoopNest
from polyc.ir.program import Program
from polyc.ir.read_sites import collect_reads, is_data_dependent
from polyc.ir.segments import LENGTH
from polyc.ir.signature import Signature
from polyc.ir.walk import walk_nodes
from polyc.machine import Machine
from polyc.poly.circles import LONGEST, find_circle, raise_circle
from polyc.poly.dependences import Dependences, compute_dependences, keep_initial_values
from polyc.poly.instances import Known
from polyc.poly.legality import alias_is_safe, prove_storage, prove_values
from polyc.poly.ranges import Ranges
from polyc.poly.rows import Node, keep_statements
from polyc.poly.scop import Scop
from polyc.poly.tree import build_schedule
from polyc.records import replace
from polyc.scheduler.pipeline import PLAN, Draft, PlanContext
from polyc.scheduler.preparation import add_constants
from polyc.scheduler.rewriting.reindexing import Groups
from polyc.scheduler.rows import fallback, ilp
from polyc.scheduler.storage import fold_steps

WITH_INITIAL_VALUES = "ilp with initial values"
"""A rung for recurrences, and for readers of nothing but what starts a tensor: that stays in front of what reads it."""
APART = "ilp, no loops shared"
"""Another one: all of a tensor is started, and written, before anything reads it that it does not need itself."""
AS_FOR_ANY_SIZES = "as for any sizes, "
"""Before a rung: rows of the program whose sizes are not known.  Of the few points that small sizes leave none may follow."""


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
    if first > 0:  # only this one runs several statements of a recurrence point by point
        yield "ilp", options
    for name in ("ilp", WITH_INITIAL_VALUES, APART):
        yield AS_FOR_ANY_SIZES + name, options


def climb_down(
    program: Program,
    signature: Signature,
    scop: Scop,
    ranges: Ranges,
    target: Machine,
    options: Options,
    session: passes.Session,
    aliases: tuple[tuple[str, str], ...],
    groups: Groups,
    constants: frozenset[str],
    at_any_sizes: Callable[[], Scop | None] = lambda: None,
) -> Lowered:
    """`at_any_sizes`: the same program with all its sizes unknown; None where there is none."""
    dependences = compute_dependences(scop)
    _refuse_circles(scop, dependences, longest=1)  # through several statements: no schedule of them can be proved
    has_recurrence, remarks = dependences.has_recurrence(), session.remarks
    for name, rung in _rungs(options):
        n_remarks = len(remarks)
        try:
            if (name == WITH_INITIAL_VALUES or name.startswith(AS_FOR_ANY_SIZES)) and not (
                has_recurrence or dependences.reads_initial_values_alone()
            ):
                continue
            if name == APART and not has_recurrence:
                continue
            rows = _find_rows(name, scop, dependences, target, at_any_sizes)
            if rows is None:
                remarks.append(Remark("missed", "schedule", f"{name} found no schedule"))
                continue
            refined = _plan(Draft(scop, rows), PlanContext(target, rung, constants, remarks, aliases), session)
            final, storage = refined.scop, refined.storage
            full_signature = add_constants(signature, final, storage)
            needed = dependences if final.statements is scop.statements else compute_dependences(final)
            schedule = build_schedule(final, refined.planned)
            known = Known()
            violation = prove_values(final, needed, schedule, known=known)
            violation = violation or prove_storage(final, needed, schedule, storage, known=known)
            if violation is None:
                storage, found = fold_steps(final, needed, schedule, refined.planned, storage, known)
                remarks += found
                lanes = 4 * target.lanes(8) if options.vectorize else 1
                nest = translate_schedule(final, schedule, storage, full_signature, aliases, groups, options.reassociate, lanes)
                nest = passes.run(LOOPS, nest, LoopContext(target, options.reassociate), session)
                label = name if rung is options else f"{name}, simplified"
                proved = Remark("passed", "schedule", f"{label}: proved by value and by storage")
                remarks.insert(n_remarks, proved)
                returned = {r.name: r.version for r in scop.program.returns}
                # Of another segment than the one that is computed nothing is proved.
                is_special = scop.ranges.segments is not None or _may_repeat(nest, target)
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
                    _alias_test(final, schedule, returned, aliases if is_special else None),
                    prepared=refined.prepared,
                    panels={name: f.panel for name, f in storage.items() if f.panel is not None},
                    choices=refined.choices,
                    is_reproducible=not session.has_failed,
                    session=session,
                )
            remarks[n_remarks:] = [Remark("missed", "schedule", f"{name} is not proved: {violation}")]
        except (CompileBudgetError, UnsupportedError) as error:
            remarks[n_remarks:] = [Remark("missed", "schedule", f"{name}: {error.diagnostics[0].message}")]
        except Exception as error:
            # A fault of ours on one rung is no reason to refuse the program: the next rung is simpler, and proved as well.
            if debugging():
                raise
            session.has_failed = True
            remarks[n_remarks:] = [Remark("missed", "schedule", f"{name}: internal fault, {type(error).__name__}: {error}")]
    if has_recurrence:
        _refuse_circles(scop, dependences, LONGEST)
        message = f"no order of loops was found in which {program.name} computes every element before it is read"
        help = "check the subscripts and ranges of the recurrence: an element may need itself through others"
        raise UnsupportedError(Diagnostic("unsupported-recurrence", message, program.statements[0].span, help))
    details = "; ".join(r.message for r in remarks if r.pass_name == "schedule")
    message = f"no schedule of {program.name} could be proved ({details})"
    help = "this is a bug in polyc; please report it with the operator and the sizes"
    raise InternalError(Diagnostic("internal-schedule", message, None, help))


def _plan(draft: Draft, context: PlanContext, session: passes.Session) -> Draft:
    """Planned loops.  Where threads share segments they do not share what is in one; but they do where each would need memory
    for all pairs of positions."""
    segments = draft.scop.ranges.segments
    if segments is None or not segments.is_parallel:
        return passes.run(PLAN, draft, context, session)
    n_remarks = len(context.remarks)
    alone = replace(context, options=context.options.replace(parallel=False))
    made = passes.run(PLAN, draft, alone, session)
    if not any(_keeps_pairs(made, name) for name in made.storage):
        return made
    text = "each thread would need memory for all pairs of positions: threads share the work on each segment"
    context.remarks[n_remarks:] = [Remark("analysis", "one-segment", text)]
    ranges = replace(draft.scop.ranges, segments=replace(segments, is_parallel=False))
    return passes.run(PLAN, replace(draft, scop=replace(draft.scop, ranges=ranges)), context, session)


def _keeps_pairs(draft: Draft, tensor: str) -> bool:
    """Whether a temporary has elements for all pairs of positions in a segment."""
    folding, shape = draft.storage[tensor], draft.scop.tensors[tensor].shape
    long = [e for e, m in zip(shape, folding.moduli, strict=True) if m is None and LENGTH in size_names(e)]
    return folding.space != "argument" and len(long) > 1


def _refuse_circles(scop: Scop, dependences: Dependences, longest: int) -> None:
    found = find_circle(scop, dependences, longest)
    if found is not None:
        s, *others = found.statements
        through = f" through {', '.join(dict.fromkeys(scop.tensors[o.target].base for o in others))}" if others else ""
        own = {scop.tensors[o.target].name for o in found.statements}
        by_data = any(
            site.read.tensor in own and _is_placed_by_data(site.read)
            for o in found.statements
            for site in collect_reads(o.origin)
        )
        needs = "may need its own value (data says which one it reads)" if by_data else "needs its own value"
        message = f"an element of {scop.tensors[s.target].base} {needs}{through}"
        help = "a recurrence reads elements that other statements, or earlier points, have computed; check the ranges"
        if by_data:
            help = "what a recurrence reads of itself must follow from indices and sizes: choose by c ? a : b, or by a sum"
        raise_circle(message, help, found, scop)


def _is_placed_by_data(read: Read) -> bool:
    return any(is_data_dependent(sub) for sub in read.subscripts)


def _may_repeat(nest: LoopNest, target: Machine) -> bool:
    """Whether the code may compute elements twice: without masks, the last vector of a loop is moved back to end with it."""
    return not target.has_masks and any(isinstance(n, Loop) and n.kind == "vector" for n in walk_nodes(nest.body))


def _alias_test(
    scop: Scop, schedule: Any, returned: Mapping[str, str], declared: tuple[tuple[str, str], ...] | None
) -> Callable[[str, str], bool]:
    """`declared`: the only pairs (result, input) that the code was written for as one memory; None where all run alike."""

    def is_safe(out: str, source: str) -> bool:
        if declared is not None and (out, source) not in declared:
            return False
        with compiling():  # kernels ask at calls, from any thread
            return alias_is_safe(scop, schedule, returned[out], source)

    return is_safe


def _find_rows(
    name: str,
    scop: Scop,
    dependences: Dependences,
    target: Machine,
    at_any_sizes: Callable[[], Scop | None] = lambda: None,
) -> Node | None:
    if name.startswith(AS_FOR_ANY_SIZES):
        known = {s.name: s.indices for s in scop.statements}
        general = at_any_sizes()
        if general is None or not known.items() <= {s.name: s.indices for s in general.statements}.items():
            return None
        rows = _find_rows(name.removeprefix(AS_FOR_ANY_SIZES), general, compute_dependences(general), target)
        return None if rows is None else keep_statements(rows, frozenset(known))
    if name == "ilp":
        return ilp.schedule_statements(scop, dependences, target=target)
    if name == WITH_INITIAL_VALUES:
        kept = keep_initial_values(scop, dependences)
        return None if kept is None else ilp.schedule_statements(scop, kept, target=target)
    if name == APART:
        return ilp.schedule_statements(scop, dependences, most_together=1)
    if name == "isl":
        return fallback.schedule_with_isl(scop, dependences)
    if dependences.reads_initial_values_alone():
        dependences = keep_initial_values(scop, dependences) or dependences
    return fallback.schedule_source_order(scop, dependences)
