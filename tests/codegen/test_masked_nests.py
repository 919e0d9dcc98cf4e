"""Guarded reads and writes of rows of 1 to 40 elements: machine code against the interpreted nest, beside pages that may not be
touched.

Nests run in child processes: where LLVM or the code ends one, that is a failure with the nest's text.  By hand, for a longer
run: ``POLYC_EXAMPLES=200 pytest tests/codegen/test_masked_nests.py``.
"""

from __future__ import annotations

import os
import re
import signal
import time

import numpy as np
import pytest

from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.text import format_loops
from polyc.ir.verify_loops import verify_loops
from polyc.target import X86_64_V3

from .masked_nests import MaskedNest
from .support import LEVELS, Compiled, target

EXAMPLES = float(os.environ.get("POLYC_EXAMPLES", "1"))
N_EXAMPLES = 30


def check_seed(seed: int, level: str) -> None:
    """Compile, run and compare the nest of `seed`."""
    drawn = MaskedNest(seed)
    verify_loops(drawn.nest)
    theirs, ours = drawn.make_arrays(), drawn.make_arrays()
    failures = interpret_loops(drawn.nest, [theirs[name].array for name in drawn.names], drawn.sizes)
    assert not failures
    code = Compiled(drawn.nest, target(level))
    if level == "x86-64-v3":  # LLVM would have to split wider ones, and does it wrong
        masked = re.findall(r"call [^\n]*@llvm\.masked\.(?:load|store)\.v(\d+)[fi](32|64)\b", code.text)
        assert all(int(lanes) * int(bits) <= X86_64_V3.vector_bits for lanes, bits in masked)
    code.run({name: placed.array for name, placed in ours.items()}, drawn.sizes)
    for name in drawn.names:
        wanted, got = theirs[name], ours[name]
        np.testing.assert_array_equal(got.array.astype(np.float64), wanted.array.astype(np.float64), err_msg=name)
        np.testing.assert_array_equal(got.gaps(), wanted.gaps(), err_msg=f"beside elements of {name}")


def run_apart(seeds: range, level: str) -> tuple[int, str] | None:
    """The first seed that fails and how, or None; in a child process, as it may end by a signal."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 0
        os.close(reader)
        os.dup2(writer, 2)  # what LLVM says before it ends the process
        try:
            for seed in seeds:
                os.write(writer, f"\0{seed} ".encode())
                check_seed(seed, level)
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
            status = 1
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read().decode(errors="replace")
    ending = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ending == 0:
        return None
    seed, _, what = said.rpartition("\0")[2].partition(" ")
    return int(seed), what if ending > 0 else f"{signal.Signals(-ending).name} {what}"


@pytest.mark.parametrize("level", dict.fromkeys([*LEVELS, "host"]))
def test_guarded_rows_of_any_width(level: str) -> None:
    if EXAMPLES <= 1:
        first, count = 0, max(1, int(N_EXAMPLES * EXAMPLES))
    else:
        first, count = time.time_ns() % (1 << 40), int(N_EXAMPLES * EXAMPLES)
    for start in range(first, first + count, N_EXAMPLES):
        failed = run_apart(range(start, min(start + N_EXAMPLES, first + count)), level)
        if failed is not None:
            seed, what = failed
            pytest.fail(f"{level}, seed {seed}: {what}\n{format_loops(MaskedNest(seed).nest)}", pytrace=False)
