"""Parts of parallel loops: each one is done once, a thread's own come first, and nobody waits for a thread that is late."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from polyc.codegen.emission.parts import MOST_PARTS, PLACES
from polyc.ir.loops import Buffer, Loop, LoopNest, Store
from polyc.ir.types import I64

from .support import Compiled, argument, c, compiled, i, n, op, rd, strides_of, target


def counting(least_part, is_uneven=False, step=1):
    """Adds 1 to each element that an iteration comes by, and writes down the how manieth it was."""
    y, order, count = argument("Y", I64, (n("N"),), 0), argument("Z", I64, (n("N"),), 1), argument("C", I64, (c(1),), 2)
    here = (i("k"),)
    body = (
        Store("Y", here, op("add", rd("Y", *here), c(1))),
        Store("Z", here, rd("C", c(0))),
        Store("C", (c(0),), op("add", rd("C", c(0)), c(1))),
    )
    loop = Loop("k", c(0), n("N"), step, "parallel", body, least_part=least_part, is_uneven=is_uneven)
    buffers = (y, order, count)
    return LoopNest("f", ("N", *(s for b in buffers for s in strides_of(b))), buffers, (loop,))


def run(code, size, threads):
    """How often each iteration ran, and their places in the order of all."""
    arrays = {"Y": np.zeros(size, np.int64), "Z": np.full(size, -1), "C": np.zeros(1, np.int64)}
    code.run(arrays, {"N": size}, threads)
    return arrays["Y"], arrays["Z"]


class Team:
    """An OpenMP runtime whose threads `come` one after the other; the others of a team never do."""

    def __init__(self, *come):
        self.come, self.now, self.size = come, 0, 1
        body_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

        def fork(body, data, threads, flags):
            self.size = threads
            for thread in self.come:
                self.now = thread
                body_type(body)(data)

        number = ctypes.CFUNCTYPE(ctypes.c_int)
        parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
        self.functions = {
            "GOMP_parallel": parallel(fork),
            "omp_get_thread_num": number(lambda: self.now),
            "omp_get_num_threads": number(lambda: self.size),
        }

    @property
    def symbols(self):
        return {name: ctypes.cast(f, ctypes.c_void_p).value for name, f in self.functions.items()}


@pytest.mark.parametrize("is_uneven", [False, True])
@pytest.mark.parametrize("step", [1, 3])
def test_every_iteration_runs_once_in_any_team(is_uneven, step):
    for least_part in (0, 1, 5):
        code = compiled(counting(least_part, is_uneven, step))
        for threads in (1, 2, 3, 7, PLACES + 2):
            for size in (0, 1, 5, 17, 64, 999):
                times, _ = run(code, size, threads)
                np.testing.assert_array_equal(times, np.arange(size) % step == 0, err_msg=f"{least_part} {threads} {size}")


@pytest.mark.parametrize("is_uneven", [False, True])
@pytest.mark.parametrize("come", [0, 1, 2])
def test_a_thread_that_is_late_leaves_nothing_undone(come, is_uneven):
    team = Team(come)
    code = Compiled(counting(1, is_uneven), target("host"), team.symbols)
    for size in (6, 24, 100):
        times, _ = run(code, size, 3)
        np.testing.assert_array_equal(times, np.ones(size))


def test_own_parts_come_first_then_those_of_the_next_thread():
    team = Team(1)
    _, order = run(Compiled(counting(1), target("host"), team.symbols), 96, 3)
    np.testing.assert_array_equal(np.argsort(order), np.roll(np.arange(96), -32))


def test_own_parts_of_uneven_loops_lie_apart_in_turning_order():
    team = Team(0)
    _, order = run(Compiled(counting(1, is_uneven=True), target("host"), team.symbols), 4 * MOST_PARTS, 2)
    first = np.argsort(order)[: 2 * MOST_PARTS : 2] // 2
    np.testing.assert_array_equal(first, [2 * part + part % 2 for part in range(MOST_PARTS)])


def test_parts_are_no_shorter_than_the_least():
    team = Team(0, 1)
    for size, parts in ((19, 1), (20, 1), (39, 1), (40, 2), (60, 3), (1000, MOST_PARTS)):
        _, order = run(Compiled(counting(10, is_uneven=True), target("host"), team.symbols), size, 2)
        # The first thread takes everything: its own parts, then those in between.
        turning = [2 * part + part % 2 for part in range(parts)]
        pieces = np.array_split(np.arange(size), 2 * parts)
        wanted = np.concatenate([pieces[n] for n in (*turning, *(n ^ 1 for n in turning))])
        np.testing.assert_array_equal(np.argsort(order), wanted, err_msg=f"{size} {parts}")


def test_each_thread_has_buffers_of_its_own():
    """What an iteration finds in a buffer of its thread is what the one before left there, of the same thread."""
    y, own = argument("Y", I64, (n("N"),), 0), Buffer("T", I64, (c(1),), (c(8),), "thread")
    body = (Store("Y", (i("k"),), rd("T", c(0))), Store("T", (c(0),), i("k")))
    loop = Loop("k", c(0), n("N"), 1, "parallel", body)
    code = Compiled(LoopNest("f", ("N", *strides_of(y)), (y, own), (loop,)), target("host"), Team(0, 1).symbols)
    found = np.zeros(6, np.int64)
    code.run({"Y": found}, {"N": 6}, 2)
    untouched = np.full(8, 0xA5, np.uint8).view(np.int64)[0]
    np.testing.assert_array_equal(found, [untouched, 0, 1, untouched, 3, 4])
