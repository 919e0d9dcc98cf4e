"""The rewritings of a program that come before the polyhedral model, in their order."""

from __future__ import annotations

from dataclasses import replace

from polyc.config import Options
from polyc.diagnostics import Remark
from polyc.ir.program import Exists, Program
from polyc.ir.signature import Strides
from polyc.poly.ranges import Ranges
from polyc.scheduler.rewriting.band_parts import part_bands
from polyc.scheduler.rewriting.conversions import hoist_conversions
from polyc.scheduler.rewriting.inline import inline_producers
from polyc.scheduler.rewriting.invariant_dimensions import drop_invariant_dimensions
from polyc.scheduler.rewriting.merge_indices import Groups, merge_indices
from polyc.scheduler.rewriting.merge_parts import merge_parts
from polyc.scheduler.rewriting.monoids import lower_monoids
from polyc.scheduler.rewriting.narrow_integers import narrow_integers
from polyc.scheduler.rewriting.overlap.overlap import overlap_tiles
from polyc.scheduler.rewriting.positions import block_positions
from polyc.scheduler.rewriting.private_tables import split_tables
from polyc.scheduler.rewriting.repeated_functions import store_repeated_functions
from polyc.scheduler.rewriting.rules import rewrite_algebra, rewrite_indices
from polyc.scheduler.rewriting.rules.batched_recurrences import batch_recurrences
from polyc.scheduler.rewriting.rules.bounded_exponentials import bound_exponentials
from polyc.scheduler.rewriting.rules.running_sums import run_sums
from polyc.scheduler.rewriting.rules.turned_results import turn_results
from polyc.scheduler.rewriting.short_indices import write_out_short_indices
from polyc.scheduler.rewriting.single_values import assign_single_values
from polyc.scheduler.rewriting.split import split_reductions
from polyc.scheduler.rewriting.stored_operands import store_operands
from polyc.scheduler.rewriting.unit_indices import drop_unit_indices
from polyc.scheduler.rewriting.whole_pairs import move_pairs
from polyc.target import Target


def rewrite_program(
    program: Program,
    ranges: Ranges,
    strides: Strides | None,
    options: Options,
    target: Target,
    constants: frozenset[str] = frozenset(),
    form: int = 0,
    as_written: bool = False,
) -> tuple[Program, Ranges, Groups, list[Remark]]:
    """`program` and `ranges` rewritten, what indices were merged into, and remarks.

    `strides`: of arguments, then results.  `constants`: tensors that never change.  `form`: which of the
    forms that `count_forms` counts.  `as_written`: rewrite only what must be."""
    program = _drop_exists(program)
    program, ranges, remarks = lower_monoids(program, ranges, options.reassociate)
    if as_written:
        return program, ranges, {}, remarks
    program, ranges, found = drop_invariant_dimensions(program, ranges)
    remarks += found
    if options.reassociate and options.running_sums:
        program, ranges, found = run_sums(program, ranges)
        remarks += found
    program, ranges, found = merge_parts(program, ranges)
    remarks += found
    program, ranges, found = part_bands(program, ranges)
    remarks += found
    if options.reassociate:
        program, ranges, found = block_positions(program, ranges)
        remarks += found
    program = assign_single_values(program, ranges)
    if options.vectorize:
        program, ranges, found = write_out_short_indices(program, ranges, target, options.reassociate)
        remarks += found
    if options.inline:
        program, ranges, found = inline_producers(program, ranges)
        remarks += found
    if options.vectorize:
        program, ranges, found = narrow_integers(program, ranges)
        remarks += found
    arguments = (*program.parameters, *(r.version for r in program.returns))
    known = {} if strides is None else dict(zip(arguments, strides, strict=True))
    known |= {r.initial: known.get(r.version) for r in program.returns if r.initial is not None}
    program, ranges, whole, found = move_pairs(program, ranges, known)
    remarks += found
    known |= {name: own[:-1] for name in whole if (own := known[name]) is not None}
    program, ranges, found = rewrite_indices(program, ranges, options, target)
    remarks += found
    program, ranges = drop_unit_indices(program, ranges)
    program, ranges, groups, found = merge_indices(program, ranges, known)
    groups = whole | groups
    remarks += found
    if not target.has_masks:
        program = bound_exponentials(program, ranges)
    program, ranges, found = rewrite_algebra(program, ranges, options, target, constants, form)
    remarks += found
    if options.inline and found:
        program, ranges, found = inline_producers(program, ranges)
        remarks += [r for r in found if r.kind == "passed"]
    program, ranges, found = hoist_conversions(program, ranges)
    remarks += found
    if options.tile and options.vectorize:
        program, ranges, found = store_operands(program, ranges)
        remarks += found
        program, ranges, found = store_repeated_functions(program, ranges)
        remarks += found
        program, ranges, found = turn_results(program, ranges, target, constants)
        remarks += found
        program, ranges, found = batch_recurrences(program, ranges, target)
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


def _drop_exists(program: Program) -> Program:
    """`program` without the clauses that only ranges are inferred from: what they read may be inlined away."""
    if not any(isinstance(w, Exists) for s in program.statements for w in s.where):
        return program
    statements = (replace(s, where=tuple(w for w in s.where if not isinstance(w, Exists))) for s in program.statements)
    return replace(program, statements=tuple(statements))
