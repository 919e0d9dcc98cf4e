"""Results and workspaces use memory again: only when nobody refers to it, within the limit, under threads, forks and cycles."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import polyc
from polyc import ArgumentError, ArgumentTypeError
from polyc.runtime import memory, pages
from tests.runtime.test_kernel import make_kernel, spec

N = 1 << 18  # float32: 1 MiB


@pytest.fixture(autouse=True)
def empty_store():
    polyc.memory.release()
    yield
    polyc.memory.set_limit(None)


def result(n=N, dtype=np.float32) -> np.ndarray:
    return memory.allocate_result((n,), np.dtype(dtype))


def address(array) -> int:
    return array.__array_interface__["data"][0]


def test_memory_is_used_again_once_nobody_refers_to_it():
    y = result()
    first = address(y)
    z = result()
    assert address(z) != first
    del y
    assert address(result()) == first
    assert address(result(N - 1000)) == first  # about as many bytes


@pytest.mark.parametrize(
    "hold",
    [
        lambda y: y[5:],
        lambda y: y.reshape(2, -1).T[:3],
        lambda y: y.view(np.uint8)[::2],
        memoryview,
        lambda y: memoryview(y)[:4],
        lambda y: np.frombuffer(y, np.int32),
        lambda y: y.base,
        lambda y: memoryview(y.base),
        lambda y: y.view(np.recarray),
        np.from_dlpack,
        lambda y: y.__dlpack__(),
        lambda y: pytest.importorskip("torch").from_numpy(y)[3:],
        lambda y: pytest.importorskip("torch").from_dlpack(y),
    ],
)
def test_whatever_is_made_of_a_result_keeps_its_memory(hold):
    y = result()
    y[...] = 7
    first, holder = address(y), hold(y)
    del y
    gc.collect()
    assert polyc.memory.held() == 0
    others = [result() for _ in range(3)]
    assert first not in [address(o) for o in others]
    del holder
    assert polyc.memory.held() == 4 * N


def test_results_are_ordinary_arrays():
    y = result()
    y[...] = np.arange(N)
    assert type(y) is np.ndarray and y.flags.writeable and y.flags.c_contiguous and y.flags.aligned
    for other in (y.copy(), copy.deepcopy(y), pickle.loads(pickle.dumps(y))):
        np.testing.assert_array_equal(other, y)
        assert not np.shares_memory(other, y)
    with pytest.raises(TypeError, match="copied"):
        copy.copy(y.base)
    assert result(0).shape == (0,) and memory.allocate_result((), np.dtype("f8")).shape == ()


@pytest.mark.parametrize("size", [memory.REUSE_FROM, (1 << 20) + 4, pages.HUGE_PAGE, 5 * pages.HUGE_PAGE + 12])
def test_alignment(size):
    y = result(size, np.uint8)
    y[...] = 1
    assert address(y) % (pages.HUGE_PAGE if size >= pages.HUGE_PAGE else 64) == 0


def test_small_results_are_numpys_own():
    assert result(memory.REUSE_FROM - 1, np.uint8).flags.owndata
    assert not result(memory.REUSE_FROM, np.uint8).flags.owndata


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 131_072, 200_001, 3 << 20, (1 << 33) + 1])
def test_capacities_are_little_more_than_asked_for(size):
    capacity = pages.round_up(size)
    assert size <= capacity <= max(4096, size + size // 8 + 4096) and capacity % 4096 == 0
    assert pages.round_up(capacity) == capacity


def test_the_limit_holds_whatever_is_dropped():
    polyc.memory.set_limit(10 * 4 * N)
    kept = [result() for _ in range(50)]
    assert polyc.memory.held() == 0
    kept.clear()
    assert polyc.memory.held() == 10 * 4 * N
    del kept
    result(3 * N)  # what was used longest ago goes first
    assert polyc.memory.held() <= 10 * 4 * N and len(memory.store.pile(12 * N).blocks) == 1
    result(20 * N)  # more than all that may be kept
    assert not memory.store.pile(80 * N).blocks and len(memory.store.pile(12 * N).blocks) == 1
    polyc.memory.set_limit(0)
    assert polyc.memory.held() == 0 and polyc.memory.limit() == 0
    result()
    assert polyc.memory.held() == 0


def test_limits_that_are_none():
    for wrong in (True, "1", 1.0):
        with pytest.raises(ArgumentTypeError, match="integer"):
            polyc.memory.set_limit(wrong)
    with pytest.raises(ArgumentError, match="negative"):
        polyc.memory.set_limit(-1)
    polyc.memory.set_limit(None)
    assert polyc.memory.limit() == memory.default_limit() > 0


def test_release_gives_back_results_and_the_workspace():
    y = result()
    y[...] = 3
    memory.workspace_address(4 * N)
    result()
    held = polyc.memory.held()  # a workspace has pages around it, and its size is rounded up
    assert 8 * N <= held <= 9 * N
    assert polyc.memory.release() == held
    assert polyc.memory.held() == 0 and (y == 3).all()
    first = memory.workspace_address(4 * N)
    assert memory.workspace_address(100) == first  # kept from call to call


def test_the_pages_around_a_workspace_are_there():
    """Idle lanes of masked accesses that reached a missing page made kernels ten times as slow."""
    place = memory.workspace_address(4 * N)
    for page in (place - memory.GUARD, place + 4 * N + 64):
        assert np.ctypeslib.ctypes.string_at(page, 16) is not None


def test_workspaces_of_ended_threads_are_used_again():
    places = []
    for _ in range(5):
        thread = threading.Thread(target=lambda: places.append(memory.workspace_address(4 * N)))
        thread.start()
        thread.join()
    assert len(set(places)) == 1


def test_a_call_from_a_finaliser_leaves_the_call_around_it_its_workspace():
    """It wanted a larger workspace, and what it and later calls gave lay in the one that the call around it was to use."""

    def body(views, sizes, place, error):
        memory.workspace_address(64 * N)  # as a finaliser that runs after the address was asked for
        later = [result(N + 2 * memory.GUARD // 4) for _ in range(3)]
        places.extend((place, [address(y) for y in later]))

    places = []
    make_kernel(body, spec("X", "M N"), spec("Y", "M", "output"), workspace=4 * N)(np.zeros((2, 2), np.float32))
    place, others = places
    assert all(not other - 4 * N < place < other + 4 * N + 2 * memory.GUARD for other in others)


def test_workspaces_of_other_threads_go_at_their_next_call():
    go_on, waiting, seen = threading.Event(), threading.Event(), []

    def body(views, sizes, place, error):
        waiting.set()
        assert go_on.wait(10)
        np.ctypeslib.as_array((np.ctypeslib.ctypes.c_char * (4 * N)).from_address(place)).fill(b"x")

    def work():
        kernel(np.zeros((2, 2), np.float32))
        seen.append(polyc.memory.held())
        memory.workspace_address(16)
        seen.append(polyc.memory.held())

    kernel = make_kernel(body, spec("X", "M N"), spec("Y", "M", "output"), workspace=4 * N)
    thread = threading.Thread(target=work)
    thread.start()
    assert waiting.wait(10)
    polyc.memory.release()  # while the workspace is in use
    go_on.set()
    thread.join()
    assert 4 * N <= seen[0] <= 5 * N < 8 * N and seen[1] > seen[0]  # the old one is a free block now


def test_a_result_that_comes_back_to_life_keeps_its_memory():
    saved = []

    class Phoenix:
        def __del__(self):
            saved.append(self)

    phoenix = Phoenix()
    phoenix.self, phoenix.buffer = phoenix, memoryview(result().base)  # the collector sees through a memoryview
    first = np.frombuffer(phoenix.buffer, np.uint8).__array_interface__["data"][0]
    del phoenix
    gc.collect()
    assert saved and first not in [address(result()) for _ in range(3)]
    others = [result() for _ in range(3)]
    assert first not in [address(o) for o in others]
    saved.clear()
    gc.collect()


def test_threads_never_share_a_result():
    polyc.memory.set_limit(3 * 4 * N)  # so that blocks are dropped all the time
    problems = []

    def work(seed):
        rng = np.random.default_rng(seed)
        mine = []
        for step in range(150):
            y = result(int(rng.integers(N // 8, N)))
            y[:64] = y[-64:] = 1000 * seed + step
            mine.append((y, 1000 * seed + step))
            if len(mine) > 4:
                mine.pop(int(rng.integers(len(mine))))
            problems.extend(v for a, v in mine if not ((a[:64] == v).all() and (a[-64:] == v).all()))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    gc.collect()
    assert not problems and polyc.memory.held() <= 3 * 4 * N + sum(a.size for a in memory._areas if a.size > 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_has_memory_of_its_own():
    y = result(8 * N)
    y[...] = 1
    z = result(8 * N)
    del z
    with memory.store._lock:  # as if another thread had been inside
        child = os.fork()
        if child == 0:
            y[...] = 2
            fresh = result(8 * N)
            fresh[...] = 3
            ok = (y == 2).all() and polyc.memory.release() >= 0
            del fresh, y
            os._exit(0 if ok and polyc.memory.release() == 2 * 32 * N else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (y == 1).all()


RSS = """
import resource, numpy as np, polyc
scale = polyc.compile("def scale(float(N) X) -> (Y) { Y(n) = X(n) * 2 }")
x = np.ones(1 << 20, np.float32)                      # 4 MiB
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
scale(x); before = peak()
%s
"""


def run(code: str, **environment: str) -> tuple[str, str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.strip()


def test_a_hundred_dropped_results_take_the_memory_of_two():
    grown, _ = run(RSS % "for i in range(100): y = scale(x)\nprint(peak() - before)")
    assert int(grown) <= 3 * 4


def test_fifty_kept_results_take_the_memory_of_fifty_and_stay_right():
    code = (
        "kept = []\nfor i in range(200):\n    x[0] = i; kept = kept[-49:] + [scale(x)]\n"
        "assert [k[0] for k in kept] == [2 * i for i in range(150, 200)]\n"
        "grown = peak() - before; del kept; print(grown, polyc.memory.held() >> 20)"
    )
    grown, held = map(int, run(RSS % code, POLYC_HELD_MEMORY="40M")[0].split())
    assert grown <= 54 * 4 and held <= 40


def test_the_environment_sets_the_limit():
    show = "import polyc; print(polyc.memory.limit())"
    assert run(show, POLYC_HELD_MEMORY="3M")[0] == str(3 << 20)
    assert run(show, POLYC_HELD_MEMORY="0")[0] == "0"
    shown, warning = run(show, POLYC_HELD_MEMORY="much")
    assert int(shown) > 0 and "POLYC_HELD_MEMORY=much is no number of bytes" in warning


def test_results_that_live_until_the_end_do_not_disturb_it():
    code = "from polyc.runtime.memory import allocate_result as a; import numpy as np, sys\n"
    code += "sys.kept = y = a((1 << 20,), np.dtype('f4')); y[0] = 1; z = [a((1 << 20,), np.dtype('f4'))]; z.append(z)"
    assert run(code) == ("", "")
