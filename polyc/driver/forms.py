"""The forms in which a program may be scheduled: for any sizes, for windows of known extents, with fewer products."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from polyc import passes
from polyc.config import Options
from polyc.diagnostics import Remark
from polyc.ir.expr import int_const
from polyc.ir.program import Program, integer_parameters, specialize_sizes
from polyc.ir.signature import Strides
from polyc.ir.sizes import define_sizes
from polyc.machine import Machine
from polyc.poly.extraction import extract_scop
from polyc.poly.infer import infer_ranges
from polyc.poly.ranges import Ranges, assume_sizes
from polyc.poly.scop import Scop
from polyc.records import dataclass, replace
from polyc.scheduler import size_costs
from polyc.scheduler.constants import Prepared, split_constants
from polyc.scheduler.fold_sizes import foldable_sizes
from polyc.scheduler.long_rows import join_long_rows
from polyc.scheduler.rewriting.needed_instances import complete_tiles, drop_dead_instances
from polyc.scheduler.rewriting.pipeline import PROGRAM, ProgramContext, begin, count_forms
from polyc.scheduler.rewriting.reindexing import Groups, drop_unit_indices
from polyc.scheduler.size_classes import Version, find_windows, is_worth_known_sizes


@dataclass(frozen=True, slots=True)
class Source:
    """What forms are made of: a program, and how it is asked for; `as_written`: without rewritings that only speed asks for."""

    program: Program
    ranges: Ranges
    strides: Strides | None
    """Of arguments, then results."""
    options: Options
    target: Machine
    constants: frozenset[str]
    as_written: bool
    shared: frozenset[str] = frozenset()
    """Inputs whose memory results share."""
    generic: Callable[[], Program] | None = None
    """Makes the program before sizes became numbers; None where it is this one."""


@dataclass(frozen=True, slots=True)
class Form:
    """A program rewritten, before it is scheduled; `program` and `ranges` are those before."""

    program: Program
    ranges: Ranges
    candidate: size_costs.Form
    groups: Groups
    session: passes.Session
    """What its passes said, and those of its schedule will."""
    constants: frozenset[str]
    first_prepared: tuple[Prepared, ...]
    """What the program as written makes of constants alone."""
    prepared: tuple[Prepared, ...]
    """What rewritings made of constants alone."""

    @property
    def scop(self) -> Scop:
        return self.candidate.scop

    def is_of(self, version: Version) -> bool:
        return (self.candidate.number, self.candidate.known) == (version.form, version.known)


def make_form(source: Source, version: Version) -> Form:
    """The program in the form of a version."""
    program, ranges = source.program, source.ranges
    if version.known:
        program, ranges = _assume_known(source, version.known)
    main, main_ranges, first_prepared = split_constants(program, ranges, source.constants)
    made = main.parameters[len(program.parameters) :]
    strides = source.strides
    if strides is not None:  # what is prepared is laid out later
        n = len(program.parameters)
        strides = (*strides[:n], *(None for _ in made), *strides[n:])
    constants = source.constants | set(made)
    session = passes.begin_session(source.options.disable)
    remarks = session.remarks
    remarks += _tell_prepared(first_prepared)
    context = ProgramContext(source.options, source.target, constants, version.form, source.as_written, remarks, source.shared)
    state = passes.run(PROGRAM, begin(main, main_ranges, strides), context, session)
    rewritten, rewritten_ranges, groups = state.program, state.ranges, state.groups
    # What a rewriting makes of constants alone leaves the program, too.
    rewritten, rewritten_ranges, prepared = split_constants(rewritten, rewritten_ranges, constants)
    scop = extract_scop(rewritten, rewritten_ranges)
    live, live_ranges, found = drop_dead_instances(scop)
    if found:
        scop = extract_scop(live, live_ranges, scop)
    if source.options.tile and source.options.vectorize and not source.as_written:
        whole, whole_ranges, completed = complete_tiles(scop, source.target, constants)
        if completed:
            scop = extract_scop(whole, whole_ranges, scop)
            found = [*found, *completed]
    if strides is not None and source.options.tile and source.options.vectorize and not source.as_written:
        arguments = (*main.parameters, *(r.version for r in main.returns))
        scop, groups, joined = join_long_rows(scop, _merged_strides(arguments, strides, groups), groups, source.target)
        remarks += joined
    remarks += [*_tell_prepared(prepared), *found]
    folds = [] if constants else foldable_sizes(program, ranges)
    candidate = size_costs.Form(scop, version.form, version.known, folds)
    return Form(
        program,
        ranges,
        candidate,
        groups,
        session,
        constants | {p.statement.target for p in prepared},
        first_prepared,
        prepared,
    )


def _merged_strides(arguments: Iterable[str], strides: Strides, groups: Groups) -> dict[str, tuple[int | None, ...] | None]:
    """Byte strides of arguments in the dimensions that theirs were merged into."""
    known = dict(zip(arguments, strides, strict=True))
    return {
        name: own and tuple(own[g[-1]] for g in groups.get(name, [(d,) for d in range(len(own))]))
        for name, own in known.items()
    }


def make_forms(source: Source, version: Version, plain: Form) -> list[Form]:
    """`plain`, the program for any sizes, and all others that sizes like those of `version` may be worth."""
    forms = [plain]
    known: Mapping[str, int] = {}
    if not source.constants and not source.as_written:
        known = find_windows(plain.scop, source.target)
        if known:
            # Symbols that are computed from sizes have to mean the same in all versions.
            program, _ = _assume_known(source, known)
            known = known if set(program.defined_sizes) <= set(source.program.defined_sizes) else {}
    special = [make_form(source, replace(version, known=known))] if known else []
    forms += [f for f in special if is_worth_known_sizes(f.candidate, plain.candidate, source.target)]
    for f in (plain, *special):
        n_forms = 1 if source.as_written else count_forms(f.scop.program, f.scop.ranges, source.options)
        forms += [make_form(source, replace(version, form=n, known=f.candidate.known)) for n in range(1, n_forms)]
    return forms


def _assume_known(source: Source, known: Mapping[str, int]) -> tuple[Program, Ranges]:
    """The program with numbers for sizes, and its ranges; windows of one element are gone."""
    program = define_sizes(specialize_sizes(source.program, {name: int_const(value) for name, value in known.items()}))
    generic = source.generic if integer_parameters(program) else None
    ranges = infer_ranges(program, generic or (lambda: source.program))
    return drop_unit_indices(program, assume_sizes(ranges, program.defined_sizes, source.ranges.typical))


def _tell_prepared(prepared: Sequence[Prepared]) -> list[Remark]:
    taken = {p.statement.target: p.statement.name for p in prepared}
    return [Remark("passed", "bind", f"{tensor} is computed once", name) for tensor, name in taken.items()]
