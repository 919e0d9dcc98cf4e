"""``polyc explain --chunk``: the tasks of an operator on arrays in chunks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
import numpy as np

from polyc.api.layouts import declared_layouts
from polyc.api.sources import program_formals
from polyc.cli.common import Shapes


def explain_blocks(operator: Any, sizes: Mapping[str, int], chunks: Shapes) -> None:
    """Print what would run on arrays of the declared shapes, those in `chunks` in chunks of these extents; no data is made."""
    from polyc.api.dask_arrays import load_dask

    formals = program_formals(operator.program)
    layouts = declared_layouts(formals, sizes)
    if layouts is None:
        raise click.UsageError("--chunk needs all sizes that shapes are made of: give them with --size")
    unknown = [n for n in chunks if n not in operator.input_names]
    if unknown:
        raise click.UsageError(f"no input is called {unknown[0]}; there are {', '.join(operator.input_names)}")
    inputs: dict[str, Any] = {}
    for formal, layout in zip(formals, layouts, strict=True):
        if formal.name in chunks:
            try:
                inputs[formal.name] = load_dask().zeros(layout.shape, chunks=chunks[formal.name], dtype=layout.dtype.numpy)
            except ValueError as problem:
                raise click.UsageError(f"--chunk {formal.name} does not fit {layout.shape}") from problem
        elif formal.name in operator.input_names:
            value = sizes.get(formal.name, 0)
            inputs[formal.name] = np.broadcast_to(np.array(value, layout.dtype.numpy), layout.shape)
    named = {n: v for n, v in sizes.items() if n not in operator.input_names}
    click.echo(operator.blocks(**inputs, **named, dry_run=True).explain())
