"""Program → LoopNest for one set of sizes, stage by stage: read it top to bottom."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from polyc.config import Options
from polyc.diagnostics import InternalError, PolycError, RangeError, Remark, UnsupportedError
from polyc.driver.forms import Source, make_form, make_forms
from polyc.driver.ladder import climb_down
from polyc.driver.loading import select_target
from polyc.driver.lowered import Lowered
from polyc.driver.signature import make_signature, memory_strides
from polyc.driver.sized import size_program
from polyc.ir.complex_pairs import split_complex
from polyc.ir.program import Program
from polyc.ir.signature import Strides
from polyc.ir.sizes import define_sizes
from polyc.ir.stop_gradient import drop_stops
from polyc.ir.storage_types import widen_arithmetic
from polyc.ir.verify import verify_program
from polyc.machine import Machine
from polyc.poly.circles import CircularSizes
from polyc.poly.infer import infer_ranges
from polyc.poly.ranges import assume_sizes
from polyc.poly.scop import Scop
from polyc.scheduler.fold_sizes import find_folds
from polyc.scheduler.preparation import collect_preparations
from polyc.scheduler.size_classes import Version, find_size_classes

MAX_CIRCLES = 4
"""Kinds of sizes at which elements of a program need themselves, found by its schedule."""


def run_stages(
    program: Program,
    sizes: dict[str, int],
    strides: Strides | None,
    aliases: tuple[tuple[str, str], ...],
    options: Options,
    target: Machine | None,
    constants: frozenset[str],
    version: Version,
    is_chosen: bool = False,
    as_written: bool = False,
    circular: tuple[CircularSizes, ...] = (),
) -> Lowered:
    """`version`: what estimates take symbolic sizes for; `is_chosen`: whether it is among those that were compared;
    `as_written`: without rewritings that only speed asks for; `circular`: sizes that calls refuse."""
    verify_program(program)
    program = drop_stops(program)
    target = target or select_target(options)
    asked = size_program(program, sizes)
    given, given_strides = asked.program, strides
    sized = widen_arithmetic(split_complex(given))
    if strides is not None:
        strides = memory_strides(given, strides)
    generic = (lambda: widen_arithmetic(split_complex(define_sizes(program)))) if sizes else None
    inferred = asked.ranges if sized is given else infer_ranges(sized, generic)
    for found in circular:
        inferred = replace(inferred, context=inferred.context.intersect(found.context), checks=(*inferred.checks, found.check))
    ranges = assume_sizes(inferred, sized.defined_sizes, version.typical)
    source = Source(sized, ranges, strides, options, target, constants, as_written, frozenset(i for _, i in aliases), generic)
    form = make_form(source, version)
    signature = make_signature(sized, given.types, ranges, form.scop, strides)
    classes = None
    is_general = bool(version.typical) and form.scop.ranges.segments is None  # no call knows how long its segments are
    if is_general and not is_chosen and options.tile and options.vectorize:
        forms = make_forms(source, version, form)
        classes = find_size_classes([f.candidate for f in forms], target, form.constants)
        if classes is not None and classes.versions[0].typical != version.typical:
            # Another one is best for most sizes.
            best = classes.versions[0]
            lowered = run_stages(
                program, sizes, given_strides, aliases, options, target, constants, best, is_chosen=True, as_written=as_written
            )
            lowered.size_classes = classes
            return lowered
        if classes is not None:
            form = next(f for f in forms if f.is_of(classes.versions[0]))
    try:
        lowered = climb_down(
            program,
            signature,
            form.scop,
            ranges,
            target,
            options,
            form.session,
            aliases,
            form.groups,
            form.constants,
            lambda: _scop_at_any_sizes(program, source, sizes) if as_written and sizes else None,
        )
    except (RangeError, UnsupportedError, InternalError) as error:
        (reason, *_) = error.diagnostics
        if as_written or reason.code not in ("range-circular", "unsupported-recurrence", "internal-schedule"):
            raise
        # A rewriting may have joined what a recurrence needs apart; if not, the error speaks of what the user wrote.
        again = partial(run_stages, program, sizes, given_strides, aliases, options, target, constants, version, is_chosen)
        try:
            lowered = again(as_written=True, circular=circular)
        except CircularSizes as found:
            if len(circular) == MAX_CIRCLES:
                raise RangeError(*found.diagnostics) from None
            return again(circular=(*circular, found))
        lowered.remarks += (Remark("missed", "rewrite", "scheduled as written: rewritten, no order of loops was found"),)
        return lowered
    if not form.constants:
        folds = find_folds(form.program, form.ranges, lowered.signature, lowered.nest)
        lowered.nest = replace(lowered.nest, folds=folds)
    lowered.prepared = (*form.prepared, *lowered.prepared)
    if constants:
        first = form.first_prepared
        lowered.preparations = collect_preparations(lowered.signature, sized, first, lowered.scop.program, lowered.prepared)
    lowered.fixed_sizes = sizes
    lowered.size_classes = classes
    return lowered


def _scop_at_any_sizes(program: Program, source: Source, sizes: dict[str, int]) -> Scop | None:
    """The program before its sizes became numbers, as written; None where it cannot be read so."""
    general = widen_arithmetic(split_complex(define_sizes(program)))
    try:
        ranges = assume_sizes(infer_ranges(general), general.defined_sizes, sizes)
        return make_form(replace(source, program=general, ranges=ranges, strides=None), Version(sizes)).scop
    except PolycError:
        return None
