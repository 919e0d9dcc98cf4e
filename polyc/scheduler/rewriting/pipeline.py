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
from polyc.ir.program import Exists, Program
from polyc.ir.signature import Strides
from polyc.ir.text import format_program
from polyc.ir.verify import verify_program
from polyc.machine import Machine
from polyc.passes import Level, Pass, always
from polyc.poly.ranges import Ranges
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.builder import StatementRule, change_statements
from polyc.scheduler.rewriting.inline import inline_producers
from polyc.scheduler.rewriting.merge_indices import ByteStrides, Groups, merge_indices
from polyc.scheduler.rewriting.monoids import lower_monoids
from polyc.scheduler.rewriting.narrow_integers import narrow_integers
from polyc.scheduler.rewriting.overlap.overlap import overlap_tiles
from polyc.scheduler.rewriting.parts import merge_parts, split_band
from polyc.scheduler.rewriting.peepholes import PEEPHOLES, assign_single_value
from polyc.scheduler.rewriting.positions import block_positions
from polyc.scheduler.rewriting.precompute import hoist_conversions, store_functions, store_operands
from polyc.scheduler.rewriting.private_tables import split_table
from polyc.scheduler.rewriting.recurrence_ends import forward_ends
from polyc.scheduler.rewriting.reindexing import drop_invariant_dimensions, drop_unit_indices
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
from polyc.scheduler.rewriting.rules.turned_results import turn_results
from polyc.scheduler.rewriting.rules.windows import separate_windows
from polyc.scheduler.rewriting.short_indices import write_out_short_indices
from polyc.scheduler.rewriting.short_recurrences import write_out_steps
from polyc.scheduler.rewriting.split import split_reduction
from polyc.scheduler.rewriting.whole_pairs import move_pairs

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


def _rewriting(
    name: str,
    rewrite: Callable[..., Found],
    why: str,
    when: When = always,
    arguments: Callable[[ProgramContext], tuple[Any, ...]] = lambda ctx: (),
) -> Pass[State, ProgramContext]:
    """A rewriting ``(program, ranges, *arguments) → (program, ranges, remarks)`` as an optional pass."""

    def run(state: State, ctx: ProgramContext) -> State:
        program, ranges, found = rewrite(state.program, state.ranges, *arguments(ctx))
        ctx.remarks.extend(found)
        return replace(state, program=program, ranges=ranges)

    return Pass(name, run, why, lambda ctx: not ctx.as_written and when(ctx))


def _rule(
    name: str,
    rule: StatementRule,
    why: str,
    when: When = always,
    arguments: Callable[[ProgramContext], tuple[Any, ...]] = lambda ctx: (),
) -> Pass[State, ProgramContext]:
    """A rule for one statement at a time as an optional pass."""
    return _rewriting(name, partial(change_statements, name, rule), why, when, arguments)


def _peephole(name: str, when: When = always) -> Pass[State, ProgramContext]:
    return _rule(name, PEEPHOLES[name].change, PEEPHOLES[name].why, when)


def _algebra(ctx: ProgramContext) -> bool:
    return ctx.options.reassociate


def _vectors(ctx: ProgramContext) -> bool:
    return ctx.options.vectorize


def _tiles(ctx: ProgramContext) -> bool:
    return ctx.options.tile and ctx.options.vectorize


def _tiled_algebra(ctx: ProgramContext) -> bool:
    return _tiles(ctx) and ctx.options.reassociate


def _parallel_algebra(ctx: ProgramContext) -> bool:
    return ctx.options.parallel and ctx.options.reassociate


def _target(ctx: ProgramContext) -> tuple[Machine]:
    return (ctx.target,)


def _drop_exists(state: State, ctx: ProgramContext) -> State:
    """Without the clauses that only ranges are inferred from: what they read may be inlined away."""
    program = state.program
    if not any(isinstance(w, Exists) for s in program.statements for w in s.where):
        return state
    statements = (replace(s, where=tuple(w for w in s.where if not isinstance(w, Exists))) for s in program.statements)
    return replace(state, program=replace(program, statements=tuple(statements)))


def _lower_monoids(state: State, ctx: ProgramContext) -> State:
    program, ranges, found = lower_monoids(state.program, state.ranges, ctx.options.reassociate)
    ctx.remarks.extend(found)
    return replace(state, program=program, ranges=ranges)


def _move_pairs(state: State, ctx: ProgramContext) -> State:
    program, ranges, whole, found = move_pairs(state.program, state.ranges, dict(state.strides))
    ctx.remarks.extend(found)
    strides = {**state.strides, **{name: own[:-1] for name in whole if (own := state.strides[name]) is not None}}
    return State(program, ranges, strides, {**state.groups, **whole})


def _merge_indices(state: State, ctx: ProgramContext) -> State:
    program, ranges, groups, found = merge_indices(state.program, state.ranges, state.strides)
    ctx.remarks.extend(found)
    return replace(state, program=program, ranges=ranges, groups={**state.groups, **groups})


def _inline_rewritten(state: State, ctx: ProgramContext) -> State:
    """Inline once more where a rule about sums had something to say."""
    if not any(r.pass_name in _SUM_RULES for r in ctx.remarks):
        return state
    program, ranges, found = inline_producers(state.program, state.ranges)
    ctx.remarks.extend(r for r in found if r.kind == "passed")
    return replace(state, program=program, ranges=ranges)


def _as_written(name: str, run: Callable[[State, ProgramContext], State], why: str, when: When = always) -> Pass[Any, Any]:
    return Pass(name, run, why, lambda ctx: not ctx.as_written and when(ctx))


_SUMS: tuple[Pass[State, ProgramContext], ...] = (
    _peephole("logistic", _algebra),
    _peephole("weighted-sums", _algebra),
    _rewriting(
        "online-softmax",
        block_exponentials,
        "long rows of exponentials go by blocks under a running maximum",
        _algebra,
        _target,
    ),
    _rewriting("single-pass-moments", block_moments, "mean and squared deviations of long rows in one pass", _algebra, _target),
    _rule("factor-sums", factor_sums, "distributivity: factors that do not change along a sum leave it", _algebra),
    _peephole("reciprocals", _algebra),
    _peephole("root-reciprocals", _algebra),
    _rewriting(
        "share-rows", share_rows, "fusion by blocks of rows: reductions share the rows that they read", _tiled_algebra, _target
    ),
    _rule("separate-products", separate_products, "loop fission: each product of a sum is a contraction", _tiled_algebra),
    _rewriting(
        FILTERING,
        filter_minimally,
        "Winograd: filters of three taps take fewer products",
        _tiled_algebra,
        lambda ctx: (ctx.target, ctx.constants, ctx.form == FILTERED),
    ),
    _rewriting(
        "block-recurrences",
        block_recurrences,
        "factorisations, triangular solves and recurrences over intervals by blocks",
        _tiled_algebra,
    ),
)

_SUM_RULES = frozenset(p.name for p in _SUMS)

_PASSES: tuple[Pass[State, ProgramContext], ...] = (
    Pass("drop-exists", _drop_exists, "clauses that only ranges were inferred from are gone", required=True),
    Pass("monoid", _lower_monoids, "reductions by users' monoids are statements", required=True),
    _rewriting("invariant", drop_invariant_dimensions, "temporaries lose dimensions along which they are constant"),
    _rule("running-sums", run_sum, "sums over everything up to an index are prefix sums", _algebra),
    # Parts of a tensor: one statement for those that are alike, several where a band differs.
    _rewriting("merge-parts", merge_parts, "statements that write parts of a tensor alike become one"),
    _rule("split-bands", split_band, "domain splitting: what lies beside a band is a statement of its own"),
    _rewriting("block-positions", block_positions, "arg-reductions go by blocks", _algebra),
    _rule("single-values", assign_single_value, "reductions over one point are assignments"),
    _rewriting(
        "short-indices",
        write_out_short_indices,
        "full unrolling of short dimensions",
        _vectors,
        lambda ctx: (ctx.target, ctx.options.reassociate),
    ),
    _rewriting(
        "short-recurrences",
        write_out_steps,
        "full unrolling of recurrences of few steps: their steps are tiled as producers and consumers",
        lambda ctx: ctx.options.inline and ctx.options.tile,
        lambda ctx: (ctx.target, ctx.shared),
    ),
    _rewriting("inline", inline_producers, "temporaries are computed where they are read", lambda ctx: ctx.options.inline),
    _rewriting("narrow", narrow_integers, "integers are computed in as many bits as their ranges need", _vectors),
    # Indices, before they are merged.
    _as_written("move-pairs", _move_pairs, "complex numbers that are only moved are one element"),
    _rewriting("borders", write_borders, "padded operands of sums are stored with their borders"),
    _rule(
        "separate-phases",
        separate_phases,
        "polyphase decomposition: statements of remainders have domains of their own",
        _vectors,
    ),
    _rule("separate-windows", separate_windows, "windows are combined along one dimension at a time", _algebra),
    _rule("order-contractions", order_products, "products of several operands are summed a few at a time", _algebra),
    _rule("gather-windows", gather_windows, "scatter to gather: each result sums what is added to it", _algebra),
    _rule("byte-words", pack_byte_words, "dot products of bytes, four at a time", _vectors),
    _rewriting(
        "skew-diagonals",
        walk_diagonals,
        "wavefront skewing: recurrences in two directions run along diagonals",
        _vectors,
        _target,
    ),
    _rewriting(
        "unit-indices",
        lambda program, ranges: (*drop_unit_indices(program, ranges), []),
        "reduction indices of extent one are gone",
    ),
    _as_written("merge", _merge_indices, "dimension collapsing: dimensions that are dense together become one"),
    _peephole("bounded-exponentials", lambda ctx: not ctx.target.has_masks),
    # Whole sums.
    *_SUMS,
    _as_written(
        "inline-rewritten",
        _inline_rewritten,
        "temporaries of the rules above that are read once",
        lambda ctx: ctx.options.inline,
    ),
    _rule("hoist-conversions", hoist_conversions, "operands are converted before the sum that reads them often"),
    _rule("store-operands", store_operands, "computed operands of contractions are stored before them", _tiles),
    _rule("store-functions", store_functions, "functions that are computed again and again are stored", _tiles),
    _rewriting(
        "transpose-results",
        turn_results,
        "temporaries have the layout in which they are read",
        _tiles,
        lambda ctx: (ctx.target, ctx.constants),
    ),
    _rewriting("batch-recurrences", batch_recurrences, "many small recurrences run side by side in vectors", _tiles, _target),
    _rule("private-tables", split_table, "privatisation: histograms have a table for each thread", _parallel_algebra, _target),
    _rule("split", split_reduction, "rfactor: long reductions have partial results for threads", _parallel_algebra),
    _rewriting(
        "recurrence-ends",
        forward_ends,
        "forward substitution: the first and the last step of a recurrence read and write the caller's arrays",
        lambda ctx: ctx.options.inline,
        lambda ctx: (ctx.target, ctx.shared),
    ),
    _rewriting(
        "overlap",
        overlap_tiles,
        "overlapped tiling: producers are computed a tile at a time",
        lambda ctx: ctx.options.tile,
        _target,
    ),
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
