"""The pool of threads: every number of a region runs once, whoever comes, and nobody waits for a helper that has not begun."""

from __future__ import annotations

import collections
import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from polyc.codegen.objects.pool import load_pool
from polyc.runtime.threads import HAS_POOL

from .support import HOST

pytestmark = pytest.mark.skipif(not HAS_POOL, reason="only Linux has the pool")
BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
PATIENCE = 60


class Pool:
    """A pool whose regions run Python functions of a number; `asleep`: helpers sleep at once instead of looking for work."""

    def __init__(self, asleep: bool = False, wake_ns: int = 0) -> None:
        times = replace(HOST.threads, spin_ns=0 if asleep else HOST.threads.spin_ns, wake_ns=wake_ns)
        addresses = load_pool(replace(HOST, threads=times))
        region = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
        self.fork = region(addresses["GOMP_parallel"])
        self.number = ctypes.CFUNCTYPE(ctypes.c_int)(addresses["omp_get_thread_num"])
        self.team = ctypes.CFUNCTYPE(ctypes.c_int)(addresses["omp_get_num_threads"])
        self.body = BODY(lambda data: self.running[data]())
        self.running: dict[int, Callable[[], None]] = {}

    def run(self, n, do):
        """Run a region of `n` numbers, and say which thread came for each."""
        came, runners = [], {}

        def run_number():
            number = self.number()
            came.append((number, self.team()))
            runners[number] = threading.get_native_id()
            do(number)

        digest = (ctypes.c_int64 * 1)(n)
        data = ctypes.addressof(digest)
        self.running[data] = run_number
        self.fork(ctypes.cast(self.body, ctypes.c_void_p), data, n, 0)
        assert sorted(came) == [(number, n) for number in range(n)]
        return runners


def wait_until_asleep(helper):
    """For one that is in no region."""
    while Path(f"/proc/self/task/{helper}/stat").read_text().rsplit(")", 1)[1].split()[0] != "S":
        pass


def meet(n):
    """What is passed by only when `n` threads are inside at the same time."""
    barrier = threading.Barrier(n)
    return lambda _: barrier.wait(PATIENCE)


def test_every_number_runs_once_in_any_team():
    pool = Pool()
    for n in (1, 2, 3, 17, 2, 300):
        pool.run(n, lambda _: None)
    assert (pool.number(), pool.team()) == (0, 1)


def test_many_callers_share_the_helpers():
    pool = Pool()
    with ThreadPoolExecutor(8) as callers:
        for _ in callers.map(lambda n: [pool.run(n, lambda _: None) for _ in range(40)], range(1, 9)):
            pass


def test_nobody_waits_for_helpers_that_are_held_up():
    pool, inside, end = Pool(), threading.Barrier(4), threading.Event()

    def hold(_):
        inside.wait(PATIENCE)
        end.wait(PATIENCE)

    with ThreadPoolExecutor(1) as other:
        held = other.submit(pool.run, 3, hold)
        inside.wait(PATIENCE)  # both helpers are inside now
        runners = pool.run(3, lambda _: None)
        assert set(runners.values()) == {threading.get_native_id()}
        end.set()
        assert len(set(held.result(PATIENCE).values())) == 3


def test_sleeping_helpers_are_woken_for_regions_that_are_worth_it():
    pool = Pool(asleep=True, wake_ns=0)
    for _ in range(20):
        assert len(set(pool.run(3, meet(3)).values())) == 3


def test_sleeping_helpers_are_left_asleep_where_a_region_was_short():
    pool = Pool(asleep=True, wake_ns=1 << 62)
    (helper,) = set(pool.run(2, meet(2)).values()) - {threading.get_native_id()}
    for _ in range(20):
        wait_until_asleep(helper)
        runners = pool.run(2, lambda _: None)  # the first of them wakes it, as nothing is known yet
    assert set(runners.values()) == {threading.get_native_id()}
    pool.run(3, meet(3))  # of other sizes nothing is known


def test_a_caller_sleeps_until_a_helper_that_has_begun_is_done():
    pool, order, begun = Pool(asleep=True), [], threading.Event()

    def do(number):
        if threading.get_native_id() == caller:
            begun.wait(PATIENCE)
        else:
            begun.set()
            while Path(f"/proc/self/task/{caller}/syscall").read_text().split()[0] != "202" and os.uname().machine == "x86_64":
                pass
        order.append(number)

    caller = threading.get_native_id()
    pool.run(2, do)
    assert sorted(order) == [0, 1]


def test_a_thread_that_runs_regions_inside_of_one_gets_its_number_back():
    pool, found = Pool(), collections.Counter()

    def do(number):
        pool.run(3, lambda _: None)
        found[number, pool.number(), pool.team()] += 1

    pool.run(2, do)
    assert found == {(0, 0, 2): 1, (1, 1, 2): 1}


def test_helpers_round_as_their_caller_does():
    pool, math, found = Pool(), ctypes.CDLL("libm.so.6"), []
    upward = {"x86_64": 0x800, "aarch64": 0x400000}[os.uname().machine]
    one, meeting = 1.0, meet(2)

    def do(number):
        meeting(number)
        found.append(one / 3)

    for mode in (0, upward, 0):
        math.fesetround(mode)
        try:
            pool.run(2, do)
        finally:
            math.fesetround(0)
    nearest, above = 1 / 3, 0.33333333333333337
    assert found == [nearest] * 2 + [above] * 2 + [nearest] * 2


PROCESS = """
import os, resource, threading, traceback
import numpy as np
import polyc
from concurrent.futures import ThreadPoolExecutor

shift = polyc.compile("def shift(double(N, D) X) -> (Y) { Y(n, d) = exp(X(n, d)) + 1.0 }")
x = np.linspace(-1, 1, 1 << 16).reshape(64, -1)

def check(n):
    polyc.set_num_threads(n)
    assert np.array_equal(shift(x), wanted)

def in_child(do):
    pid = os.fork()
    if pid == 0:
        try:
            do()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

def without_room():
    pages = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (pages + (4 << 20), -1))
    check(16)
    assert len(os.listdir("/proc/self/task")) < 16

def with_helpers():
    check(3)
    assert len(os.listdir("/proc/self/task")) == 3

polyc.set_num_threads(1)
wanted = shift(x)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for n in (2, 3, 8, 1, 2):
    check(n)
in_child(without_room)
in_child(with_helpers)
in_child(lambda: in_child(with_helpers))
with ThreadPoolExecutor(4) as pool:
    list(pool.map(check, [1, 2, 3, 4] * 20))
threading.Thread(target=lambda: [shift(x) for _ in iter(int, 1)], daemon=True).start()
check(2)
print("done")
"""


def test_kernels_run_on_one_core_in_children_in_pools_and_while_the_interpreter_ends():
    done = subprocess.run([sys.executable, "-c", PROCESS], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["done"], "")
