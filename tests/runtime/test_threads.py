"""How many threads a call may use, and which OpenMP it takes; each case in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from polyc import ArgumentError, ArgumentTypeError
from polyc.runtime import threads


def run(code: str, **environment: str) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("POLYC_NUM_THREADS", "OMP_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**clean, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SHOW = "from polyc.runtime import threads; threads.find_openmp(); print(threads.get_num_threads())"


def test_default_is_the_number_of_cores():
    assert run(SHOW) == str(threads.count_cores())


def test_environment_variables():
    assert run(SHOW, OMP_NUM_THREADS="3") == "3"
    assert run(SHOW, OMP_NUM_THREADS="3", POLYC_NUM_THREADS="5") == "5"
    assert run(SHOW, OMP_NUM_THREADS="3,2", POLYC_NUM_THREADS="many") == "3"


def test_set_num_threads_and_back():
    code = (
        "import polyc; polyc.set_num_threads(3); a = polyc.get_num_threads(); "
        "polyc.set_num_threads(None); print(a, polyc.get_num_threads())"
    )
    assert run(code, OMP_NUM_THREADS="2") == "3 2"


@pytest.mark.parametrize(
    ("n", "error"),
    [
        (0, ArgumentError),
        (-1, ArgumentError),
        (2**40, ArgumentError),
        (True, ArgumentTypeError),
        ("2", ArgumentTypeError),
    ],
)
def test_set_num_threads_refuses(n, error):
    with pytest.raises(error):
        threads.set_num_threads(n)


def test_threadpool_limits_is_respected():
    code = """
import threadpoolctl, polyc
from polyc.runtime import threads
threads.find_openmp()
before = polyc.get_num_threads()
with threadpoolctl.threadpool_limits(1):
    inside = polyc.get_num_threads()
polyc.set_num_threads(4)
print(before, inside, polyc.get_num_threads())
with threadpoolctl.threadpool_limits(2):
    print(polyc.get_num_threads())
"""
    assert run(code, OMP_NUM_THREADS="3").split() == ["3", "1", "4", "2"]


def test_symbols_are_those_of_the_pool_which_is_loaded_once(monkeypatch):
    monkeypatch.setattr(threads, "HAS_POOL", True)
    monkeypatch.setattr(threads._state, "pool", {})
    pools = iter([{"GOMP_parallel": 1}, {"GOMP_parallel": 2}])
    assert [threads.symbols(lambda: next(pools)) for _ in range(2)] == [{"GOMP_parallel": 1}] * 2


def test_symbols_without_a_pool_are_addresses_of_one_library(monkeypatch):
    monkeypatch.setattr(threads, "HAS_POOL", False)
    addresses = threads.symbols(dict)
    assert set(addresses) == set(threads.SYMBOLS) and all(addresses.values())


def test_the_library_of_torch_is_taken():
    pytest.importorskip("torch")
    code = """
import torch
from polyc.runtime import threads
found = threads.find_openmp()
print(found.loaded_before, len(threads.loaded_runtimes()))
"""
    assert run(code) == "True 1"


def test_without_openmp_one_thread_and_a_warning():
    code = """
import ctypes, warnings
from polyc.runtime import threads
threads._search_openmp, threads.HAS_POOL = lambda: None, False
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    addresses = threads.symbols(dict)
    threads.symbols(dict)
print([w.message.code for w in caught], threads.get_num_threads())
done = []
body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(done.append)
parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
parallel(addresses["GOMP_parallel"])(ctypes.cast(body, ctypes.c_void_p), 7, 4, 0)
print(done, ctypes.CFUNCTYPE(ctypes.c_int)(addresses["omp_get_num_threads"])())
"""
    assert run(code).splitlines() == ["['threads-none'] 1", "[7] 1"]


FORK = """
import os, sys, warnings
from polyc.runtime import threads
{before}
pid = os.fork()
if pid == 0:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        threads.find_openmp()
        n = threads.team_size(), threads.team_size()
    print(n, [w.message.code for w in caught], flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(threads.team_size())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_without_a_pool_a_forked_child_runs_serially_after_parallel_use():
    used = "threads.HAS_POOL = False; threads.find_openmp(); threads.team_size()"
    assert run(FORK.format(before=used), OMP_NUM_THREADS="2").splitlines() == ["(1, 1) ['threads-fork']", "2"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_is_parallel_where_it_has_a_pool_or_the_parent_was_not():
    pool = ["threads.find_openmp(); threads.team_size()"] if threads.HAS_POOL else []
    for before in ("pass", "threads.find_openmp()", *pool):
        assert run(FORK.format(before=before), OMP_NUM_THREADS="2").splitlines() == ["(2, 2) []", "2"]


def test_warnings_point_at_the_user():
    code = """
import warnings
from polyc.runtime import threads
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    threads._warn_once("threads-none", "message", "help")
print(caught[0].filename, caught[0].message.code)
"""
    assert run(code) == "<string> threads-none"


def test_a_number_of_threads_in_the_environment_that_is_none_is_named():
    code = (
        "import warnings, polyc\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    polyc.get_num_threads(); polyc.get_num_threads()\n"
        "print([w.message.diagnostic.code for w in caught], 'POLYC_NUM_THREADS=many' in str(caught[0].message))"
    )
    assert run(code, POLYC_NUM_THREADS="many") == "['argument-environment'] True"
