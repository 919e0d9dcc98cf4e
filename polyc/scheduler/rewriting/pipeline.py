"""The rewritings of a program that come before the polyhedral model, in their order: `PROGRAM`.

Rules that look at single indices come before indices are merged, those that look at whole sums behind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any

from polyc.config import Options
from polyc.diagnostics import Remark
from polyc.ir.expr import Expr
from polyc.ir.loaded_bounds import lower_loaded_bounds
from polyc.ir.program import Exists, Program
from polyc.ir.signature import Strides
from polyc.ir.simplify import simplify
from polyc.ir.text import format_program
from polyc.ir.verify import verify_program
from polyc.machine import Machine
from polyc.passes import Level, Pass, always, summarize
from polyc.poly.ranges import Ranges
from polyc.records import dataclass, replace
from polyc.scheduler.one_segment import schedule_one_segment
from polyc.scheduler.rewriting.builder import StatementRule, change_statements
from polyc.scheduler.rewriting.inline import inline_producers
from polyc.scheduler.rewriting.merge_indices import ByteStrides, merge_indices
from polyc.scheduler.rewriting.monoids import lower_monoids
from polyc.scheduler.rewriting.narrow_integers import narrow_integers
from polyc.scheduler.rewriting.overlap.overlap import overlap_tiles
from polyc.scheduler.rewriting.parts import merge_parts, split_band
from polyc.scheduler.rewriting.peepholes import PEEPHOLES, apply_peephole, assign_single_value
from polyc.scheduler.rewriting.positions import block_positions
from polyc.scheduler.rewriting.precompute import hoist_conversions, store_functions, store_operands
from polyc.scheduler.rewriting.private_tables import split_table
from polyc.scheduler.rewriting.recurrence_ends import forward_ends
from polyc.scheduler.rewriting.reindexing import Groups, drop_invariant_dimensions, drop_unit_indices
from polyc.scheduler.rewriting.rules.batched_recurrences import batch_recurrences
from polyc.scheduler.rewriting.rules.borders import write_borders
from polyc.scheduler.rewriting.rules.byte_words import pack_byte_words
from polyc.scheduler.rewriting.rules.diagonals import walk_diagonals
from polyc.scheduler.rewriting.rules.gathered_windows import gather_windows, separate_phases
from polyc.scheduler.rewriting.rules.minimal_filtering import filter_minimally, has_symbolic_filter
from polyc.scheduler.rewriting.rules.moments import block_moments
from polyc.scheduler.rewriting.rules.products import factor_sums, order_products, separate_products
from polyc.scheduler.rewriting.rules.recurrences import block_recurrences
from polyc.scheduler.rewriting.rules.running_sums import run_sum
from polyc.scheduler.rewriting.rules.shared_rows import share_rows
from polyc.scheduler.rewriting.rules.shifted_exponentials import block_exponentials
from polyc.scheduler.rewriting.rules.turned_operands import turn_operands
from polyc.scheduler.rewriting.rules.turned_results import turn_results
from polyc.scheduler.rewriting.rules.windows import separate_windows
from polyc.scheduler.rewriting.short_indices import write_out_short_indices
from polyc.scheduler.rewriting.short_recurrences import write_out_steps
from polyc.scheduler.rewriting.split import split_reduction
from polyc.scheduler.rewriting.whole_pairs import move_pairs
from polyc.scheduler.symmetric_results import mirror_symmetric_results

FILTERED = 1
"""The form in which sums over windows of symbolic size are filtered with fewer products; 0 is the usual one."""

FILTERING = "minimal-filtering"


@dataclass(frozen=True, slots=True)
class State:
    """A program between two rewritings; it is another one where its text is."""

    program: Program
    ranges: Ranges = field(compare=False)
    strides: ByteStrides = field(compare=False)
    """Known byte strides, by argument and result."""
    groups: Groups = field(default_factory=dict, compare=False)
    """By argument or result, which of the caller's dimensions each dimension stands for."""


@dataclass(frozen=True, slots=True)
class ProgramContext:
    """What rewritings go by beside the program."""

    options: Options
    target: Machine
    constants: frozenset[str]
    """Tensors that never change."""
    form: int
    """Which of the forms that `count_forms` counts."""
    as_written: bool
    """Without rewritings that only speed asks for."""
    remarks: list[Remark]
    shared: frozenset[str] = frozenset()
    """Inputs whose memory results share."""


Found = tuple[Program, Ranges, list[Remark]]
When = Callable[[ProgramContext], bool]
Arguments = Callable[[ProgramContext], tuple[Any, ...]]
Step = Pass[State, ProgramContext]


def _on(*options: str) -> When:
    """Where all of these options are on."""
    return lambda ctx: all(getattr(ctx.options, name) for name in options)


def _with(*names: str) -> Arguments:
    """These fields of the context."""
    return lambda ctx: tuple(getattr(ctx, name) for name in names)


_ALGEBRA, _VECTORS, _TILES, _INLINE = _on("reassociate"), _on("vectorize"), _on("tile", "vectorize"), _on("inline")
_TILED_ALGEBRA, _PARALLEL_ALGEBRA, _NOTHING = _on("tile", "vectorize", "reassociate"), _on("parallel", "reassociate"), _with()


def _change(state: State, ctx: ProgramContext, found: Found, **others: Any) -> State:
    program, ranges, remarks = found
    ctx.remarks.extend(remarks)
    return replace(state, program=program, ranges=ranges, **others)


def _step(name: str, run: Callable[[State, ProgramContext], State], when: When | None = always, about: object = None) -> Step:
    """A pass that is for what the docstring of `about`, by default of `run`, says in its first line; required if `when` is
    None."""
    if when is None:
        return Pass(name, run, summarize(about or run), required=True)
    return Pass(name, run, summarize(about or run), lambda ctx: not ctx.as_written and when(ctx))


def _rewriting(
    name: str, rewrite: Callable[..., Found], when: When | None = always, arguments: Arguments = _NOTHING, about: object = None
) -> Step:
    """A rewriting ``(program, ranges, *arguments) → (program, ranges, remarks)`` as a pass."""

    def run(state: State, ctx: ProgramContext) -> State:
        return _change(state, ctx, rewrite(state.program, state.ranges, *arguments(ctx)))

    return _step(name, run, when, about or rewrite)


def _rule(name: str, rule: StatementRule, when: When = always, arguments: Arguments = _NOTHING, about: object = None) -> Step:
    """A rule for one statement at a time as an optional pass."""
    return _rewriting(name, partial(change_statements, name, rule), when, arguments, about or rule)


def _peephole(name: str, when: When = always) -> Step:
    return _rule(name, partial(apply_peephole, name), when, about=PEEPHOLES[name][0])


def _drop_exists(state: State, ctx: ProgramContext) -> State:
    """Clauses that only ranges were inferred from are gone.

    What they read may be inlined away."""
    statements = (replace(s, where=tuple(w for w in s.where if not isinstance(w, Exists))) for s in state.program.statements)
    return replace(state, program=replace(state.program, statements=tuple(statements)))


def _lower_loaded_bounds(state: State, ctx: ProgramContext) -> State:
    def ends(statement: str, index: str) -> tuple[Expr, Expr]:
        interval = state.ranges.statements[statement].indices[index]
        return interval.lower, simplify(interval.lower + interval.extent)

    return replace(state, program=lower_loaded_bounds(state.program, ends))


def _drop_unit_indices(state: State, ctx: ProgramContext) -> State:
    """Reduction indices of extent one are gone."""
    return _change(state, ctx, (*drop_unit_indices(state.program, state.ranges), []))


def _move_pairs(state: State, ctx: ProgramContext) -> State:
    """Complex numbers that are only moved are one element."""
    program, ranges, whole, found = move_pairs(state.program, state.ranges, dict(state.strides))
    strides = {**state.strides, **{name: own[:-1] for name in whole if (own := state.strides[name]) is not None}}
    return _change(state, ctx, (program, ranges, found), strides=strides, groups={**state.groups, **whole})


def _merge_indices(state: State, ctx: ProgramContext) -> State:
    """Dimension collapsing: dimensions that are dense together become one."""
    program, ranges, groups, found = merge_indices(state.program, state.ranges, state.strides)
    return _change(state, ctx, (program, ranges, found), groups={**state.groups, **groups})


def _inline_rewritten(state: State, ctx: ProgramContext) -> State:
    """Temporaries of the rules above that are read once.

    Only where a rule about sums had something to say."""
    if not any(r.pass_name in _SUM_RULES for r in ctx.remarks):
        return state
    program, ranges, found = inline_producers(state.program, state.ranges, ctx.target)
    return _change(state, ctx, (program, ranges, [r for r in found if r.kind == "passed"]))


_SUMS: tuple[Step, ...] = (
    _peephole("logistic", _ALGEBRA),
    _peephole("weighted-sums", _ALGEBRA),
    _rewriting("online-softmax", block_exponentials, _ALGEBRA, _with("target")),
    _rewriting("single-pass-moments", block_moments, _ALGEBRA, _with("target")),
    _rule("factor-sums", factor_sums, _ALGEBRA),
    _peephole("reciprocals", _ALGEBRA),
    _peephole("root-reciprocals", _ALGEBRA),
    _rewriting("share-rows", share_rows, _TILED_ALGEBRA, _with("target")),
    _rewriting("symmetric-results", mirror_symmetric_results, _TILED_ALGEBRA, _with("target")),
    _rule("separate-products", separate_products, _TILED_ALGEBRA),
    _rewriting(FILTERING, filter_minimally, _TILED_ALGEBRA, lambda ctx: (ctx.target, ctx.constants, ctx.form == FILTERED)),
    _rewriting("block-recurrences", block_recurrences, _TILED_ALGEBRA),
)

_SUM_RULES = frozenset(p.name for p in _SUMS)

_PASSES: tuple[Step, ...] = (
    _step("drop-exists", _drop_exists, None),
    _rewriting("one-segment", schedule_one_segment, _TILES, _with("options", "target", "constants", "shared")),
    _step("loaded-bounds", _lower_loaded_bounds, None, lower_loaded_bounds),
    _rewriting("monoid", lower_monoids, None, lambda ctx: (ctx.options.reassociate,)),
    _rewriting("invariant", drop_invariant_dimensions),
    _rule("running-sums", run_sum, _ALGEBRA),
    # Parts of a tensor: one statement for those that are alike, several where a band differs.
    _rewriting("merge-parts", merge_parts),
    _rule("split-bands", split_band),
    _rewriting("block-positions", block_positions, _ALGEBRA),
    _rule("single-values", assign_single_value),
    _rewriting("short-indices", write_out_short_indices, _VECTORS, lambda ctx: (ctx.target, ctx.options.reassociate)),
    _rewriting("short-recurrences", write_out_steps, _on("inline", "tile"), _with("target", "shared")),
    _rewriting("inline", inline_producers, _INLINE, _with("target")),
    _rewriting("narrow", narrow_integers, _VECTORS),
    # Indices, before they are merged.
    _step("move-pairs", _move_pairs),
    _rewriting("borders", write_borders),
    _rule("separate-phases", separate_phases, _VECTORS),
    _rule("separate-windows", separate_windows, _ALGEBRA),
    _rule("order-contractions", order_products, _ALGEBRA),
    _rule("gather-windows", gather_windows, _ALGEBRA),
    _rule("byte-words", pack_byte_words, _VECTORS),
    _rewriting("skew-diagonals", walk_diagonals, _VECTORS, _with("target")),
    _step("unit-indices", _drop_unit_indices),
    _step("merge", _merge_indices),
    _peephole("bounded-exponentials", lambda ctx: not ctx.target.has_masks),
    # Whole sums.
    *_SUMS,
    _step("inline-rewritten", _inline_rewritten, _INLINE),
    _rule("hoist-conversions", hoist_conversions),
    _rule("store-operands", store_operands, _TILES),
    _rule("store-functions", store_functions, _TILES),
    _rewriting("turn-operands", turn_operands, _TILES, _with("target")),
    _rewriting("transpose-results", turn_results, _TILES, _with("target", "constants")),
    _rewriting("batch-recurrences", batch_recurrences, _TILES, _with("target")),
    _rule("private-tables", split_table, _PARALLEL_ALGEBRA, _with("target")),
    _rule("split", split_reduction, _PARALLEL_ALGEBRA),
    _rewriting("recurrence-ends", forward_ends, _INLINE, _with("target", "shared")),
    _rewriting("overlap", overlap_tiles, _on("tile"), _with("target")),
)


PROGRAM: Level[State, ProgramContext] = Level(
    "program", _PASSES, lambda state: verify_program(state.program), lambda state: format_program(state.program)
)


def begin(program: Program, ranges: Ranges, strides: Strides | None) -> State:
    """The state before the first pass; `strides`: of arguments, then results."""
    arguments = (*program.parameters, *(r.version for r in program.returns))
    known = {} if strides is None else dict(zip(arguments, strides, strict=True))
    known |= {r.initial: known.get(r.version) for r in program.returns if r.initial is not None}
    return State(program, ranges, known)


def count_forms(program: Program, ranges: Ranges, options: Options) -> int:
    """In how many forms a program of symbolic sizes is worth having, given its usual one: only the sizes of a call say which
    is the faster."""
    may_filter = options.reassociate and options.tile and options.vectorize and FILTERING not in options.disable
    return FILTERED + 1 if may_filter and has_symbolic_filter(program, ranges) else 1
