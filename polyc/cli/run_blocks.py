"""``polyc run --memory``: from files to files, block by block."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from polyc.api.checkpoints import read_bytes, show_bytes
from polyc.cli.common import file_error
from polyc.diagnostics import ArgumentError, Diagnostic, PolycError


def open_input(path: str, memory: int) -> Any:
    """An array in a file, without reading it."""
    from polyc.api.dask_files import open_array

    try:
        return open_array(path, memory)
    except PolycError:
        raise
    except Exception as error:  # Zarr has classes of its own
        if isinstance(error, OSError) and error.strerror:
            raise file_error(path, error) from error
        message = f"{path} cannot be read: {error}"
        raise ArgumentError(
            Diagnostic("argument-file", message, None, "give a .npy file, a .zarr array, or FILE.h5:/NAME")
        ) from error


def run_blocks(operator: Any, inputs: Mapping[str, Any], sizes: Mapping[str, int], memory: str, output: str) -> None:
    """Run on arrays in chunks, on as many threads as `memory` says, which their tasks hold together at most.

    Prints what tasks read and hold, the greatest memory, and where the results are."""
    from polyc.api.dask_files import store_results
    from polyc.runtime.arrays import has_chunks
    from polyc.runtime.threads import get_num_threads

    n_workers = get_num_threads()
    limit = max(1, read_bytes(memory) // n_workers)
    if not any(map(has_chunks, inputs.values())):
        raise ArgumentError(Diagnostic("argument-count", "--memory is for inputs in files", None, "give them: --input X.npy"))
    report = operator.blocks(**inputs, **sizes, memory=limit, dry_run=True)
    click.echo(str(report))
    click.echo(f"greatest memory: {show_bytes(report.greatest_memory(n_workers), up=True)}, chunks that wait included")
    start = time.perf_counter()
    made = operator.blocks(**inputs, **sizes, memory=limit)
    compilation = time.perf_counter() - start
    results = made if isinstance(made, tuple) else (made,)
    names = [r.name for r in operator.program.returns]
    start = time.perf_counter()
    for path in store_results(dict(zip(names, results, strict=True)), output, n_workers):
        click.echo(f"written: {path}")
    click.echo(f"compiled in {compilation:.3f} s; ran in {time.perf_counter() - start:.3f} s", err=True)
