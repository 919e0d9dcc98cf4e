"""The passes over loop nests, in their order: what runs between the translation of a schedule and the writing of code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from polyc.codegen.nests.align_tiles import align_strips, align_tiles
from polyc.codegen.nests.alignment import align_rows
from polyc.codegen.nests.block_sizes import fit_blocks
from polyc.codegen.nests.bounds import tighten_bounds
from polyc.codegen.nests.channels import transpose_channels
from polyc.codegen.nests.coalesce import coalesce_copies
from polyc.codegen.nests.double_buffer import double_buffer_strips
from polyc.codegen.nests.epilogues import keep_epilogues
from polyc.codegen.nests.far_rows import take_rows_from_afar
from polyc.codegen.nests.finished_points import skip_finished_points, strip_points
from polyc.codegen.nests.finished_steps import skip_finished_steps
from polyc.codegen.nests.partition import partition_loops
from polyc.codegen.nests.parts import Tiling
from polyc.codegen.nests.prefetch_accesses import prefetch_accesses
from polyc.codegen.nests.prefetch_blocks import prefetch_blocks
from polyc.codegen.nests.prefetch_next import prefetch_next
from polyc.codegen.nests.recurrences import carry_elements
from polyc.codegen.nests.row_pairs import pair_rows
from polyc.codegen.nests.scalars import hold_accumulators
from polyc.codegen.nests.segment_starts import start_segments
from polyc.codegen.nests.share_workspace import share_workspace
from polyc.codegen.nests.size import check_code_size
from polyc.codegen.nests.staging import stage_copies
from polyc.codegen.nests.streams import find_streamed_rows, stream_results
from polyc.codegen.nests.tile_loops import split_full_tiles, split_last_tiles
from polyc.codegen.nests.tiles import split_partial_tiles
from polyc.codegen.nests.transposes import block_transposes
from polyc.codegen.nests.triangles import split_triangles
from polyc.ir.loops import LoopNest
from polyc.ir.loops_text import format_loops
from polyc.ir.segment_runs import run_segments
from polyc.ir.verify_loops import verify_loops
from polyc.ir.walk import Body
from polyc.machine import Machine
from polyc.passes import Level, Pass
from polyc.records import replace


@dataclass(slots=True)
class LoopContext:
    """What passes over loop nests go by beside the nest."""

    target: Machine
    reassociate: bool
    """Whether terms may be added up in another order than the schedule's."""


Run = Callable[[LoopNest, LoopContext], LoopNest]


def _on_nest(transform: Callable[[LoopNest], LoopNest]) -> Run:
    return lambda nest, ctx: transform(nest)


def _for_target(transform: Callable[[LoopNest, Machine], LoopNest]) -> Run:
    return lambda nest, ctx: transform(nest, ctx.target)


def _on_body(transform: Callable[[Body, frozenset[str]], Body]) -> Run:
    """By a transformation that asks which buffers may be the same memory as others."""
    return lambda nest, ctx: replace(nest, body=transform(nest.body, nest.aliased))


def _separate_tiles(nest: LoopNest, ctx: LoopContext) -> LoopNest:
    registers = frozenset(b.name for b in nest.buffers if b.space == "register")
    tiling = Tiling(registers, nest.aliased, ctx.target.has_masks, ctx.target.in_flight)
    return replace(nest, body=split_partial_tiles(nest.body, tiling))


def _verify(nest: LoopNest, ctx: LoopContext) -> LoopNest:
    verify_loops(nest)
    return nest


_PASSES: tuple[Pass[LoopNest, LoopContext], ...] = (
    Pass("verify", _verify, "what the schedule was translated to is well formed", required=True),
    Pass(
        "tighten-bounds",
        _on_nest(tighten_bounds),
        "loops run from and up to ends that data gives, where tests of these stand around all that they do",
    ),
    Pass("start-segments", _on_nest(start_segments), "sums over segments start where they are made"),
    # Tests leave vector loops first: every later pass looks for loops without them.
    Pass(
        "partition-loops",
        _for_target(partition_loops),
        "loop unswitching and index-set splitting: vector loops run without tests of their index",
    ),
    Pass("split-triangle", _on_body(split_triangles), "full tiles below a diagonal are separated from partial ones"),
    # Registers, while loops still are as the schedule has them.
    Pass("promote-sums", _on_body(hold_accumulators), "scalar replacement: what a loop accumulates stays in registers"),
    Pass("fuse-epilogue", _on_nest(keep_epilogues), "what follows a reduction reads its registers instead of memory"),
    # Copies: where their tiles begin, then which loops they keep, then blocks.
    Pass("align-tiles", _for_target(align_tiles), "tiles of streamed copies, and of rows from others, begin at cache lines"),
    Pass("peel-copy-tiles", _on_nest(split_last_tiles), "the last tile of a copy gets a loop of its own"),
    Pass("coalesce-copies", _on_nest(coalesce_copies), "loop coalescing: copies without gaps in memory become one loop"),
    Pass(
        "stage-copies",
        _for_target(stage_copies),
        "blocks of transposing copies are packed, and streamed by whole lines wherever rows begin",
    ),
    Pass("transpose-channels", _on_nest(transpose_channels), "few interleaved channels are transposed in two steps"),
    Pass(
        "partition-rows",
        lambda nest, ctx: take_rows_from_afar(nest, ctx.target, ctx.reassociate),
        "rows of a matrix-vector product come from several sequential streams",
    ),
    Pass(
        "transpose-blocks",
        lambda nest, ctx: block_transposes(nest, find_streamed_rows(nest, ctx.target)),
        "transposing copies go by blocks that are transposed in registers",
    ),
    Pass("strip-points", _for_target(strip_points), "recurrences of points that end run by strips of points"),
    # Tiles, after everything that makes tiles.
    Pass("separate-tiles", _separate_tiles, "full tiles run without predicates, remainders in smaller tiles"),
    Pass("rotate-registers", _on_nest(carry_elements), "predictive commoning: recent values of a recurrence stay in registers"),
    Pass("jam-rows", _on_nest(pair_rows), "unroll-and-jam by two rows where both read the same rows"),
    Pass("align-rows", _for_target(align_rows), "alignment peeling: vectors of stencil rows begin at cache lines"),
    Pass("stream-stores", _for_target(stream_results), "non-temporal stores of results that no cache would hold"),
    Pass("prefetch-blocks", _for_target(prefetch_blocks), "software prefetch of the next block of a transposing copy"),
    Pass(
        "prefetch-next",
        _for_target(prefetch_next),
        "software prefetch of what the next iteration begins with, in the rest of this one",
    ),
    Pass(
        "prefetch-accesses",
        _for_target(prefetch_accesses),
        "software prefetch, iterations ahead, of what hardware does not follow",
    ),
    Pass("fit-blocks", _for_target(fit_blocks), "cache blocks are as long as the sizes of the call let them be"),
    Pass("align-reads", _for_target(align_strips), "strips of transposing copies begin at lines of what they read"),
    Pass("double-buffer-strips", _on_nest(double_buffer_strips), "double buffering of strips shorter than a line"),
    Pass("peel-full-tiles", _on_nest(split_full_tiles), "loops over tiles are split behind the last full one"),
    Pass("share-workspace", _on_nest(share_workspace), "buffers that are not alive together share memory"),
    Pass("skip-finished-steps", _on_nest(skip_finished_steps), "steps behind the end of a recurrence run no loops"),
    Pass("skip-finished-points", _on_nest(skip_finished_points), "strips of points run until all have ended"),
    Pass("run-segments", _on_nest(run_segments), "what is for one segment runs for all of them", required=True),
    Pass("check-size", lambda nest, _: check_code_size(nest), "too much code is a reason to schedule simply", required=True),
)

LOOPS: Level[LoopNest, LoopContext] = Level("loops", _PASSES, verify_loops, format_loops)
