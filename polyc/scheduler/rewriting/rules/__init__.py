"""Rewritings of statements: other sums with the same results, up to rounding where it is algebra.  One rule a file.

Rules that look at single indices come before indices are merged, those that look at whole sums behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from polyc.config import Options
from polyc.diagnostics import Remark
from polyc.ir.program import Program
from polyc.poly.ranges import Ranges
from polyc.scheduler.rewriting.rules.borders import write_borders
from polyc.scheduler.rewriting.rules.byte_words import pack_byte_words
from polyc.scheduler.rewriting.rules.contraction_order import order_contractions
from polyc.scheduler.rewriting.rules.diagonals import walk_diagonals
from polyc.scheduler.rewriting.rules.factors import factor_sums
from polyc.scheduler.rewriting.rules.gathered_windows import gather_windows
from polyc.scheduler.rewriting.rules.intervals import block_intervals
from polyc.scheduler.rewriting.rules.logistic_forms import use_logistic_forms
from polyc.scheduler.rewriting.rules.minimal_filtering import filter_minimally, has_symbolic_filter
from polyc.scheduler.rewriting.rules.moments import block_moments
from polyc.scheduler.rewriting.rules.phases import separate_phases
from polyc.scheduler.rewriting.rules.product_sums import separate_products
from polyc.scheduler.rewriting.rules.reciprocals import multiply_by_reciprocals
from polyc.scheduler.rewriting.rules.recurrences import block_recurrences
from polyc.scheduler.rewriting.rules.roots import multiply_by_roots
from polyc.scheduler.rewriting.rules.shared_rows import share_rows
from polyc.scheduler.rewriting.rules.shifted_exponentials import block_exponentials
from polyc.scheduler.rewriting.rules.weighted_sums import collect_weights
from polyc.scheduler.rewriting.rules.windows import separate_windows
from polyc.target import Target

FILTERED = 1
"""The form in which sums over windows of symbolic size are filtered with fewer products; 0 is the usual one."""

Rule = Callable[[Program, Ranges], tuple[Program, Ranges, list[Remark]]]


def rewrite_indices(program: Program, ranges: Ranges, options: Options, target: Target) -> tuple[Program, Ranges, list[Remark]]:
    """Every rule about windows, borders and operands that `options` allow."""
    algebra = options.reassociate
    rules: list[tuple[bool, Rule]] = [
        (True, write_borders),
        (options.vectorize, separate_phases),
        (algebra and options.separate_windows, separate_windows),
        (algebra and options.order_contractions, order_contractions),
        (algebra and options.gather_windows, gather_windows),
        (options.byte_words and options.vectorize, pack_byte_words),
        (options.vectorize, lambda p, r: walk_diagonals(p, r, target)),
    ]
    return _apply(rules, program, ranges)


def rewrite_algebra(
    program: Program,
    ranges: Ranges,
    options: Options,
    target: Target,
    constants: Collection[str] = (),
    form: int = 0,
) -> tuple[Program, Ranges, list[Remark]]:
    """Every rule about sums that `options` allow, none with ``reassociate=False``; `constants` are inputs that never change.

    `form`: which of the forms that `count_forms` counts."""
    if not options.reassociate:
        return program, ranges, []
    tiles = options.tile and options.vectorize
    rules: list[tuple[bool, Rule]] = [
        (options.logistic_forms, use_logistic_forms),
        (options.collect_weights, collect_weights),
        (options.online_softmax, lambda p, r: block_exponentials(p, r, target)),
        (options.single_pass_moments, lambda p, r: block_moments(p, r, target)),
        (options.factor_sums, factor_sums),
        (True, multiply_by_reciprocals),
        (True, multiply_by_roots),
        (tiles, lambda p, r: share_rows(p, r, target)),
        (options.separate_products and tiles, separate_products),
        (options.minimal_filtering and tiles, lambda p, r: filter_minimally(p, r, target, constants, form == FILTERED)),
        (options.block_recurrences and tiles, block_recurrences),
        (options.block_recurrences and tiles, block_intervals),
    ]
    return _apply(rules, program, ranges)


def count_forms(program: Program, ranges: Ranges, options: Options) -> int:
    """In how many forms a program of symbolic sizes is worth having, given its usual one: only the sizes of a call say which
    is the faster."""
    may_filter = options.reassociate and options.minimal_filtering and options.tile and options.vectorize
    return FILTERED + 1 if may_filter and has_symbolic_filter(program, ranges) else 1


def _apply(rules: list[tuple[bool, Rule]], program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    remarks: list[Remark] = []
    for is_allowed, rule in rules:
        if is_allowed:
            program, ranges, found = rule(program, ranges)
            remarks += found
    return program, ranges, remarks
