"""What an `Operator` does with dask arrays; `polyc.api.blocks`, which plans it, is imported at the first of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from polyc.api.sources import program_formals
from polyc.runtime.arguments import convert_inputs
from polyc.runtime.arrays import argument_error, has_chunks
from polyc.runtime.sizes import missing_sizes
from polyc.runtime.weak import without_weakness

if TYPE_CHECKING:
    from polyc.api.operator import Operator


class Chunked:
    """An `Operator` on arrays in chunks."""

    def blocks(self, /, *inputs: Any, chunks: Any = None, memory: Any = None, dry_run: bool = False, **named: Any) -> Any:
        """The results for dask arrays, as dask arrays: each block of them is one task, on what it needs of the inputs.

        Inputs are those of a call, dask arrays among them; calls with dask arrays come here.  `chunks` are those of the
        results, as dask takes them (of several results a dict by name; by dimension, for some alone); else they follow from
        those of the inputs, and dimensions that cannot be cut are one chunk.  `memory` (bytes, ``"2 GiB"``) bounds what a task
        holds: results are cut further for it.  `dry_run` tells what would run, as a `polyc.api.block_report.BlockReport`.
        Kernels are compiled now, for any sizes and one thread each.  See docs/distributed.md."""
        from polyc.api.blocks import make_blocks
        from polyc.api.dask_arrays import check_chunks

        operator = cast("Operator", self)
        call = operator.sort_call(inputs, named)
        check_chunks(operator.formals, call.inputs)
        wanted = operator._describe(inputs, named)
        problem = missing_sizes(wanted.program.sizes, wanted.sizes, operator._fixed_sizes)
        if problem is not None:
            raise problem
        pairs = zip(program_formals(wanted.program), call.inputs, strict=True)
        arrays = [a if has_chunks(a) else without_weakness(convert_inputs([f], [a])[0]) for f, a in pairs]
        return make_blocks(operator, wanted.program, wanted.sizes, arrays, chunks, memory, dry_run)

    def _call_in_blocks(self, inputs: Sequence[Any], out: Any, named: Mapping[str, Any]) -> Any:
        """A call with dask arrays."""
        if out is not None:
            message = "results of dask arrays are dask arrays, which out= cannot be"
            raise argument_error("argument-type-out", message, None, "store them: dask.array.store(result, out)")
        return self.blocks(*inputs, **named)
