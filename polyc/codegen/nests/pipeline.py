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
from polyc.ir.loops import Buffer, LoopNest
from polyc.ir.loops_text import format_loops
from polyc.ir.segment_runs import run_segments
from polyc.ir.verify_loops import verify_loops
from polyc.ir.walk import Body
from polyc.machine import Machine
from polyc.passes import Level, Pass
from polyc.records import replace

Buffers = tuple[Buffer, ...]


@dataclass(slots=True)
class LoopContext:
    """What passes over loop nests go by beside the nest."""

    target: Machine
    reassociate: bool
    """Whether terms may be added up in another order than the schedule's."""


LoopPass = Pass[LoopNest, LoopContext]
Run = Callable[[LoopNest, LoopContext], LoopNest]


def _rebuild(nest: LoopNest, body: Body, buffers: Buffers) -> LoopNest:
    """`nest` with another body and other buffers."""
    return nest if (body, buffers) == (nest.body, nest.buffers) else replace(nest, body=body, buffers=buffers)


def _aliased(nest: LoopNest) -> frozenset[str]:
    return frozenset(b.name for b in nest.buffers if b.may_alias)


def _on_buffers(transform: Callable[[Body, Buffers], tuple[Body, Buffers]]) -> Run:
    return lambda nest, ctx: _rebuild(nest, *transform(nest.body, nest.buffers))


def _on_nest(transform: Callable[[LoopNest, Machine], LoopNest]) -> Run:
    return lambda nest, ctx: transform(nest, ctx.target)


def _partition_rows(nest: LoopNest, ctx: LoopContext) -> LoopNest:
    return _rebuild(nest, take_rows_from_afar(nest.body, nest.buffers, ctx.target, ctx.reassociate), nest.buffers)


def _block_transposes(nest: LoopNest, ctx: LoopContext) -> LoopNest:
    streamed = find_streamed_rows(nest.body, nest.buffers, ctx.target)
    return _rebuild(nest, block_transposes(nest.body, nest.buffers, streamed), nest.buffers)


def _separate_tiles(nest: LoopNest, ctx: LoopContext) -> LoopNest:
    registers = frozenset(b.name for b in nest.buffers if b.space == "register")
    tiling = Tiling(registers, _aliased(nest), ctx.target.has_masks, ctx.target.in_flight)
    return _rebuild(nest, split_partial_tiles(nest.body, tiling), nest.buffers)


def _verify(nest: LoopNest, ctx: LoopContext) -> LoopNest:
    verify_loops(nest)
    return nest


_PASSES: tuple[LoopPass, ...] = (
    Pass("verify", _verify, "what the schedule was translated to is well formed", required=True),
    Pass(
        "tighten-bounds",
        lambda nest, ctx: _rebuild(nest, tighten_bounds(nest.body, nest.buffers, nest.preconditions), nest.buffers),
        "loops run from and up to ends that data gives, where tests of these stand around all that they do",
    ),
    Pass(
        "start-segments",
        lambda nest, ctx: _rebuild(nest, start_segments(nest), nest.buffers),
        "sums over segments start where they are made",
    ),
    # Tests leave vector loops first: every later pass looks for loops without them.
    Pass(
        "partition-loops",
        lambda nest, ctx: _rebuild(nest, partition_loops(nest.body, ctx.target, _aliased(nest)), nest.buffers),
        "loop unswitching and index-set splitting: vector loops run without tests of their index",
    ),
    Pass(
        "split-triangle",
        lambda nest, ctx: _rebuild(nest, split_triangles(nest.body, _aliased(nest)), nest.buffers),
        "full tiles below a diagonal are separated from partial ones",
    ),
    # Registers, while loops still are as the schedule has them.
    Pass(
        "promote-sums",
        lambda nest, ctx: _rebuild(nest, hold_accumulators(nest.body, _aliased(nest)), nest.buffers),
        "scalar replacement: what a loop accumulates stays in registers",
    ),
    Pass("fuse-epilogue", _on_buffers(keep_epilogues), "what follows a reduction reads its registers instead of memory"),
    # Copies: where their tiles begin, then which loops they keep, then blocks.
    Pass("align-tiles", _on_nest(align_tiles), "tiles of streamed copies, and of rows from others, begin at cache lines"),
    Pass(
        "peel-copy-tiles",
        lambda nest, ctx: _rebuild(nest, split_last_tiles(nest.body, nest.buffers), nest.buffers),
        "the last tile of a copy gets a loop of its own",
    ),
    Pass("coalesce-copies", _on_buffers(coalesce_copies), "loop coalescing: copies without gaps in memory become one loop"),
    Pass(
        "stage-copies",
        _on_nest(stage_copies),
        "blocks of transposing copies are packed, and streamed by whole lines wherever rows begin",
    ),
    Pass("transpose-channels", _on_buffers(transpose_channels), "few interleaved channels are transposed in two steps"),
    Pass("partition-rows", _partition_rows, "rows of a matrix-vector product come from several sequential streams"),
    Pass("transpose-blocks", _block_transposes, "transposing copies go by blocks that are transposed in registers"),
    Pass("strip-points", lambda nest, _: strip_points(nest), "recurrences of points that end run by strips of points"),
    # Tiles, after everything that makes tiles.
    Pass("separate-tiles", _separate_tiles, "full tiles run without predicates, remainders in smaller tiles"),
    Pass(
        "rotate-registers", _on_buffers(carry_elements), "predictive commoning: recent values of a recurrence stay in registers"
    ),
    Pass("jam-rows", lambda nest, ctx: pair_rows(nest), "unroll-and-jam by two rows where both read the same rows"),
    Pass("align-rows", _on_nest(align_rows), "alignment peeling: vectors of stencil rows begin at cache lines"),
    Pass("stream-stores", _on_nest(stream_results), "non-temporal stores of results that no cache would hold"),
    Pass("prefetch-blocks", _on_nest(prefetch_blocks), "software prefetch of the next block of a transposing copy"),
    Pass(
        "prefetch-next",
        _on_nest(prefetch_next),
        "software prefetch of what the next iteration begins with, in the rest of this one",
    ),
    Pass(
        "prefetch-accesses",
        _on_nest(prefetch_accesses),
        "software prefetch, iterations ahead, of what hardware does not follow",
    ),
    Pass("fit-blocks", _on_nest(fit_blocks), "cache blocks are as long as the sizes of the call let them be"),
    Pass("align-reads", _on_nest(align_strips), "strips of transposing copies begin at lines of what they read"),
    Pass(
        "double-buffer-strips", lambda nest, ctx: double_buffer_strips(nest), "double buffering of strips shorter than a line"
    ),
    Pass("peel-full-tiles", lambda nest, ctx: split_full_tiles(nest), "loops over tiles are split behind the last full one"),
    Pass("share-workspace", lambda nest, ctx: share_workspace(nest), "buffers that are not alive together share memory"),
    Pass("skip-finished-steps", lambda nest, _: skip_finished_steps(nest), "steps behind the end of a recurrence run no loops"),
    Pass("skip-finished-points", lambda nest, _: skip_finished_points(nest), "strips of points run until all have ended"),
    Pass("run-segments", lambda nest, _: run_segments(nest), "what is for one segment runs for all of them", required=True),
    Pass("check-size", lambda nest, _: check_code_size(nest), "too much code is a reason to schedule simply", required=True),
)

LOOPS: Level[LoopNest, LoopContext] = Level("loops", _PASSES, verify_loops, format_loops)
