"""Mutated models in a process of their own: whatever they say, it ends by itself, with results or named errors.  Random graphs:
they are compiled, and compute what they should.

POLYC_FUZZ_MODELS is the number of models (20), POLYC_FUZZ_GRAPHS that of graphs (15), POLYC_FUZZ_SEED the seed (0)."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
from multiprocessing.connection import Connection

from tests.onnx import fuzzing
from tests.onnx.random_graphs import find_fault
from tests.onnx.suite import load_cases

SEED = int(os.environ.get("POLYC_FUZZ_SEED", "0"))
COUNT = int(os.environ.get("POLYC_FUZZ_MODELS", "20"))
GRAPHS = int(os.environ.get("POLYC_FUZZ_GRAPHS", "15"))
PATIENCE = 300 + 5 * COUNT
"""Seconds after which a process counts as one that hangs."""


def fuzz(sender: Connection) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        status = fuzzing.main(SEED, COUNT)
    sender.send((status, said.getvalue()))


def test_mutated_models_give_results_or_named_errors() -> None:
    load_cases()  # before the fork: other tests need them as well
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=fuzz, args=(sender,))
    process.start()
    sender.close()
    try:
        assert receiver.poll(PATIENCE), "it hangs"
        status, said = receiver.recv()  # EOFError: the process has ended before it said anything
    finally:
        process.kill()
        process.join()
    assert status == 0, said
    assert "results" in said and "semantic-onnx" in said


def test_random_graphs_compute_what_the_reference_computes() -> None:
    faults = [fault for k in range(GRAPHS) if (fault := find_fault(SEED + k)) is not None]
    assert not faults, "\n".join(faults)
