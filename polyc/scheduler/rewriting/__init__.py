"""Rewritings by algebra: other sums with the same results up to rounding.  One rule a file, one switch a rule."""

from __future__ import annotations

from collections.abc import Collection

from polyc.config import Options
from polyc.diagnostics import Remark
from polyc.ir.program import Program
from polyc.poly.ranges import Ranges
from polyc.scheduler.rewriting.factors import factor_sums
from polyc.scheduler.rewriting.minimal_filtering import filter_minimally
from polyc.scheduler.rewriting.moments import block_moments
from polyc.scheduler.rewriting.recurrences import block_recurrences
from polyc.scheduler.rewriting.shifted_exponentials import block_exponentials
from polyc.target import Target


def rewrite_algebra(
    program: Program, ranges: Ranges, options: Options, target: Target, constants: Collection[str] = ()
) -> tuple[Program, Ranges, list[Remark]]:
    """Every rule that `options` allow; none with ``reassociate=False``.  `constants` are inputs that never change."""
    remarks: list[Remark] = []
    if options.reassociate and options.online_softmax:
        program, ranges, found = block_exponentials(program, ranges, target)
        remarks += found
    if options.reassociate and options.single_pass_moments:
        program, ranges, found = block_moments(program, ranges, target)
        remarks += found
    if options.reassociate and options.factor_sums:
        program, ranges, found = factor_sums(program, ranges)
        remarks += found
    if options.reassociate and options.minimal_filtering and options.tile and options.vectorize:
        program, ranges, found = filter_minimally(program, ranges, target, constants)
        remarks += found
    if options.reassociate and options.block_recurrences and options.tile and options.vectorize:
        program, ranges, found = block_recurrences(program, ranges)
        remarks += found
    return program, ranges, remarks
