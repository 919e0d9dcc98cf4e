"""Program → LoopNest for one set of sizes, stage by stage: read it top to bottom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from polyc.config import Options
from polyc.diagnostics import RangeError, Remark, UnsupportedError
from polyc.driver.ladder import climb_down
from polyc.driver.loading import select_target
from polyc.driver.lowered import Lowered
from polyc.driver.signature import make_signature, memory_strides
from polyc.ir.complex_pairs import split_complex
from polyc.ir.expr import int_const
from polyc.ir.program import Program, specialize_sizes
from polyc.ir.signature import Strides
from polyc.ir.simplify import define_sizes
from polyc.ir.storage_types import widen_arithmetic
from polyc.ir.verify import verify_program
from polyc.poly.infer import infer_ranges
from polyc.poly.ranges import Ranges, assume_sizes
from polyc.poly.scop import Scop, extract_scop
from polyc.scheduler.constants import Prepared, split_constants
from polyc.scheduler.preparation import collect_preparations
from polyc.scheduler.rewriting.dead_instances import drop_dead_instances
from polyc.scheduler.rewriting.fold_sizes import find_folds
from polyc.scheduler.rewriting.merge_indices import Groups
from polyc.scheduler.rewriting.rewrite_program import rewrite_program
from polyc.scheduler.rewriting.rules import count_forms
from polyc.scheduler.size_classes import Version, find_size_classes
from polyc.target import Target


def run_stages(
    program: Program,
    sizes: dict[str, int],
    strides: Strides | None,
    aliases: tuple[tuple[str, str], ...],
    options: Options,
    target: Target | None,
    constants: frozenset[str],
    version: Version,
    is_chosen: bool = False,
    as_written: bool = False,
) -> Lowered:
    """`version`: what estimates take symbolic sizes for; `is_chosen`: whether it is among those that were compared;
    `as_written`: without rewritings that only speed asks for."""
    verify_program(program)
    target = target or select_target(options)
    sized = define_sizes(specialize_sizes(program, {name: int_const(value) for name, value in sizes.items()}))
    given, given_strides = sized, strides
    sized = widen_arithmetic(split_complex(sized))
    if strides is not None:
        strides = memory_strides(given, strides)
    generic = (lambda: widen_arithmetic(split_complex(define_sizes(program)))) if sizes else None
    ranges = assume_sizes(infer_ranges(sized, generic), sized.defined_sizes, version.typical)
    main, main_ranges, prepared = split_constants(sized, ranges, constants)
    made = main.parameters[len(sized.parameters) :]
    if strides is not None:  # what is prepared is laid out later
        n = len(sized.parameters)
        main_strides: Strides | None = (*strides[:n], *(None for _ in made), *strides[n:])
    else:
        main_strides = None
    given_constants = constants | set(made)
    form = _make_form(main, main_ranges, main_strides, options, target, given_constants, version.form, as_written)
    signature = make_signature(sized, given.types, ranges, form.scop, strides)
    classes = None
    if version.typical and not is_chosen and options.tile and options.vectorize:
        forms = [form]
        n_forms = 1 if as_written else count_forms(form.scop.program, form.scop.ranges, options)
        forms += [_make_form(main, main_ranges, main_strides, options, target, given_constants, n) for n in range(1, n_forms)]
        classes = find_size_classes([f.scop for f in forms], target, form.constants)
        if classes is not None and classes.versions[0].typical != version.typical:
            # Another one is best for most sizes.
            best = classes.versions[0]
            lowered = run_stages(
                program, sizes, given_strides, aliases, options, target, constants, best, is_chosen=True, as_written=as_written
            )
            lowered.size_classes = classes
            return lowered
        if classes is not None:
            form = forms[classes.versions[0].form]
    remarks = [*_tell_prepared(prepared), *form.remarks]
    try:
        lowered = climb_down(
            program, signature, form.scop, ranges, target, options, remarks, aliases, form.groups, form.constants
        )
    except (RangeError, UnsupportedError) as error:
        (reason, *_) = error.diagnostics
        if as_written or reason.code not in ("range-circular", "unsupported-recurrence"):
            raise
        # A rewriting may have joined what a recurrence needs apart; if not, the error speaks of what the user wrote.
        lowered = run_stages(
            program, sizes, given_strides, aliases, options, target, constants, version, is_chosen, as_written=True
        )
        lowered.remarks += (Remark("missed", "rewrite", "scheduled as written: rewritten, no order of loops was found"),)
        return lowered
    if not form.constants:
        lowered.nest = replace(lowered.nest, folds=find_folds(sized, ranges, lowered.signature, lowered.nest))
    lowered.prepared = (*form.prepared, *lowered.prepared)
    if constants:
        lowered.preparations = collect_preparations(lowered.signature, sized, prepared, lowered.scop.program, lowered.prepared)
    lowered.fixed_sizes = sizes
    lowered.size_classes = classes
    return lowered


@dataclass(frozen=True, slots=True)
class _Form:
    """A program rewritten, before it is scheduled."""

    scop: Scop
    groups: Groups
    remarks: list[Remark]
    constants: frozenset[str]
    prepared: tuple[Prepared, ...]
    """What rewritings made of constants alone."""


def _make_form(
    main: Program,
    ranges: Ranges,
    strides: Strides | None,
    options: Options,
    target: Target,
    constants: frozenset[str],
    number: int,
    as_written: bool = False,
) -> _Form:
    """The program in the form of this number (see `count_forms`)."""
    program, ranges, groups, remarks = rewrite_program(main, ranges, strides, options, target, constants, number, as_written)
    # What a rewriting makes of constants alone leaves the program, too.
    program, ranges, prepared = split_constants(program, ranges, constants)
    scop = extract_scop(program, ranges)
    live, live_ranges, found = drop_dead_instances(scop)
    if found:
        scop = extract_scop(live, live_ranges, scop)
    constants |= {p.statement.target for p in prepared}
    return _Form(scop, groups, [*remarks, *_tell_prepared(prepared), *found], constants, prepared)


def _tell_prepared(prepared: Sequence[Prepared]) -> list[Remark]:
    taken = {p.statement.target: p.statement.name for p in prepared}
    return [Remark("passed", "bind", f"{tensor} is computed once", name) for tensor, name in taken.items()]
