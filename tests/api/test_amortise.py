"""When `polyc.einsum` compiles, and that its results do not tell."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import polyc
from polyc import jobs, workers
from polyc.api import amortise
from polyc.api.amortise import EinsumCalls
from polyc.api.functions import _einsum_calls, forget_einsums
from polyc.api.numpy_ways import find_ways
from polyc.config import Options


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.fixture
def einsum_of(monkeypatch):
    """Fresh calls for subscripts, and a clock by which each call that is not a kernel's takes a millisecond; a compilation is
    worth `n` of them, and done in the call that wants it."""
    monkeypatch.setattr(jobs, "count_cores", lambda: 1)

    def make(subscripts: str, n: float, step: int = 1_000_000) -> EinsumCalls:
        forget_einsums()
        ticks = iter(range(0, 10**12, step))
        monkeypatch.setattr(amortise, "clock", lambda: next(ticks))
        monkeypatch.setattr(amortise, "MOST_LOST", n * 1_000_000)
        calls = _einsum_calls(subscripts, Options(), None, None)
        describe = calls._describe

        def at_a_millisecond(arrays):
            shape = describe(arrays)
            if shape is not None:
                shape.kernel_time = 0.0
                for way in shape.ways:
                    way.estimate = 1e6
            return shape

        monkeypatch.setattr(calls, "_describe", at_a_millisecond, raising=False)
        return calls

    return make


def ways(calls: EinsumCalls) -> list[str]:
    return [s.last.name for s in calls._shapes.values()]


def is_numpy(name: str) -> bool:
    return name.startswith("numpy.")


def test_a_shape_gets_its_kernel_once_it_has_lost_a_compilation(einsum_of):
    a, b = normal(40, 50), normal(50, 30, seed=1)
    calls = einsum_of("ij,jk->ik", 3)
    calls._find_family(calls._find_shape((a, b))).lost = -(10**12)  # no kernel for all sizes here
    seen = []
    for _ in range(5):
        np.testing.assert_allclose(calls((a, b), None), a @ b, rtol=1e-4, atol=1e-4)
        seen += ways(calls)
    assert all(map(is_numpy, seen[:3])) and seen[3:] == [amortise.KERNEL] * 2
    assert calls.operator.run_planned((a, b)) is not None


def test_many_shapes_share_one_kernel(einsum_of):
    calls = einsum_of("ijk,kl->jil", 4)
    for n in range(30, 38):
        a, b = normal(5, n, 40), normal(40, n, seed=1)
        np.testing.assert_allclose(calls((a, b), None), np.einsum("ijk,kl->jil", a, b), rtol=1e-4, atol=1e-4)
    assert all(map(is_numpy, ways(calls)[:4])) and set(ways(calls)[4:]) == {amortise.SYMBOLIC}
    assert len(calls._families) == 1
    (family,) = calls._families.values()
    assert family.kernel is not None and calls.operator.run_planned((a, b)) is None


def test_a_kernel_that_is_slower_is_not_kept(einsum_of, monkeypatch):
    a = normal(6, 7)
    calls = einsum_of("ij,ij->i", 1)
    real = calls._run

    def slow_kernel(way, *rest):
        if way.run is None:
            for _ in range(9):
                amortise.clock()
        return real(way, *rest)

    monkeypatch.setattr(calls, "_run", slow_kernel, raising=False)
    for _ in range(20):
        np.testing.assert_allclose(calls((a, a), None), (a * a).sum(1), rtol=1e-4)
    assert calls._find_shape((a, a)).account.state == "ready" and is_numpy(*ways(calls))


def test_a_large_call_of_numpys_loops_waits_for_its_kernel():
    calls = EinsumCalls("ij,jk->ik", Options(), lambda: polyc.einsum_operator("ij,jk->ik"))
    seen = []
    for kind, n in (("f4", 64), ("f4", 4096), ("i4", 64), ("i4", 1 << 13)):
        a = np.broadcast_to(np.zeros((), kind), (n, n))
        shape = calls._find_shape((a, a))
        calls._compile_where_due(shape, calls._find_family(shape), (a, a))
        seen.append([w.name for w in shape.ways] == [amortise.KERNEL])
    assert seen == [False, False, False, True]


def test_broadcast_shapes_take_no_kernel_for_all_sizes(einsum_of):
    calls = einsum_of("ij,ij->j", 1.5)
    for n in (28, 29, 30):
        a, c = normal(1, n), normal(40, n)
        np.testing.assert_allclose(calls((a, c), None), np.einsum("ij,ij->j", a, c), rtol=1e-4, atol=1e-4)
    assert all(map(is_numpy, ways(calls)))


def test_a_way_that_fails_is_left(einsum_of):
    a = normal(6, 7)
    calls = einsum_of("ij,ij->i", 100)

    def fail(operands):
        raise MemoryError

    shape = calls._find_shape((a, a))
    for way in shape.ways[1:]:
        way.run = fail
    for _ in range(4):
        np.testing.assert_allclose(calls((a, a), None), (a * a).sum(1), rtol=1e-4)
    assert len(shape.ways) == 1
    shape.ways[0].run = fail
    np.testing.assert_allclose(calls((a, a), None), (a * a).sum(1), rtol=1e-4)
    assert ways(calls) == [amortise.KERNEL]


@pytest.fixture
def with_workers(monkeypatch):
    """Workers compile, as they do for users with more than one core."""
    monkeypatch.setattr(jobs, "debugging", lambda: False)
    monkeypatch.setattr(jobs, "count_cores", lambda: 2)
    yield
    workers.end_all()


def wait_for(calls: EinsumCalls) -> None:
    (account,) = [s.account for s in calls._shapes.values()]
    end = time.monotonic() + 60
    while account.errand is not None and account.errand.state == "running" and time.monotonic() < end:
        time.sleep(0.01)


def test_numpy_goes_on_while_a_worker_compiles(einsum_of, with_workers):
    a, b = normal(20, 30), normal(30, 40, seed=1)
    calls = einsum_of("ij,jk->ki", 2)
    calls._find_family(calls._find_shape((a, b))).lost = -(10**12)
    for _ in range(4):
        np.testing.assert_allclose(calls((a, b), None), (a @ b).T, rtol=1e-4, atol=1e-4)
    assert is_numpy(*ways(calls)) and calls._find_shape((a, b)).account.state == "running"
    assert any(t.name == jobs.ERRAND for t in threading.enumerate())
    wait_for(calls)
    np.testing.assert_allclose(calls((a, b), None), (a @ b).T, rtol=1e-4, atol=1e-4)
    assert ways(calls) == [amortise.KERNEL] and len(calls.operator._kernels) == 1


def test_the_call_compiles_where_no_worker_can(einsum_of, with_workers, monkeypatch):
    def refuse():
        raise OSError("no processes here")

    monkeypatch.setattr(workers, "start", refuse)
    a, b = normal(21, 30), normal(30, 40, seed=1)
    calls = einsum_of("ij,jk->ki", 2)
    calls._find_family(calls._find_shape((a, b))).lost = -(10**12)
    for _ in range(3):
        calls((a, b), None)
    wait_for(calls)
    np.testing.assert_allclose(calls((a, b), None), (a @ b).T, rtol=1e-4, atol=1e-4)
    assert ways(calls) == [amortise.KERNEL]


def test_processes_fork_and_end_while_a_worker_compiles():
    program = textwrap.dedent("""
        import os, sys, numpy as np, polyc
        from polyc import jobs
        from polyc.api import amortise
        amortise.MOST_LOST = 0.0
        jobs.count_cores = lambda: 2
        a = np.ones((30, 31)) * 1j
        for _ in range(5):
            polyc.einsum("ij,kj->ik", a, a)
        assert jobs._errands
        if os.fork() == 0:
            assert not jobs._errands
            for _ in range(4):
                r = polyc.einsum("ij,kj->ik", a, a)
            os._exit(0 if np.allclose(r, a @ a.T) else 3)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
    """)
    environment = {k: v for k, v in os.environ.items() if k not in ("POLYC_EINSUM", "POLYC_DEBUG")}
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert (done.stdout.strip(), done.returncode) == ("0", 0), done.stderr


CASES = [
    ("ij->ji", "f4"),
    ("ii->i", "f8"),
    ("ii", "f4"),
    ("ij->", "i1"),
    ("ij,jk->ik", "i4"),
    ("ij,jk->ik", "f8"),
    ("ij,jk", "?"),
    ("ij,jk,kl->il", "f4"),
    ("ij,jk,kl->li", "i2"),
    ("...j,jk->...k", "f4"),
    ("i j , j k -> k i", "f4"),
    ("ij,ij->ij", "u1"),
    ("i,j->ij", "f4"),
    ("ij,kl->", "f4"),
    (",ij->ij", "f4"),
]


@pytest.mark.parametrize(("subscripts", "kind"), CASES)
def test_both_ways_agree(subscripts, kind, monkeypatch):
    extent = 24
    rng = np.random.default_rng(3)
    ranks = [len(t.replace("...", "a").replace(" ", "")) for t in subscripts.split("->")[0].split(",")]
    arrays = [(rng.standard_normal((extent,) * r) * 3).astype(kind) for r in ranks]
    calls = EinsumCalls(subscripts, Options(), lambda: polyc.einsum_operator(subscripts))
    ours = calls(tuple(arrays), None)
    assert all(map(is_numpy, ways(calls)))
    compiled = polyc.einsum_operator(subscripts)(*arrays)
    assert ours.dtype == compiled.dtype and ours.shape == compiled.shape
    assert ours.flags.c_contiguous and ours.flags.writeable
    assert not any(np.shares_memory(ours, a) for a in arrays)
    np.testing.assert_allclose(ours, compiled, rtol=1e-4, atol=1e-3)


def test_mixed_types_are_multiplied_in_the_result_type():
    a = np.full((100, 100), 100, np.int8)
    c = np.ones((100, 100), np.float32)
    calls = EinsumCalls("ij,jk,kl->il", Options(), lambda: polyc.einsum_operator("ij,jk,kl->il"))
    expected = np.einsum("ij,jk,kl->il", a.astype("f4"), a.astype("f4"), c)
    for _ in range(8):  # each way
        np.testing.assert_allclose(calls((a[:9, :9], a[:9, :9], c[:9, :9]), None), expected[:9, :9] * 81 / 10000, rtol=1e-5)


WAYS = [
    "ij,jk->ik",
    "ji,kj->ki",
    "bhqk,bkhd->bqhd",
    "bij,bjk->ikb",
    "bij,cjk->bick",
    "ibj,kbj->ki",
    "ij,ij->",
    "i,i",
    "ij,j->i",
    "ij,i->j",
    "ij,kl->ljki",
    "i,j->ji",
    "iij,jkk->i",
    "ijp,jkq->ik",
    "ii,ii->i",
    ",ij->ji",
    "ij,jk,kl->il",
    "ai,bi,ci->abc",
    "ab,bc,ca->",
    "...ij,...jk->...ik",
    "i...,...->...",
]


@pytest.mark.parametrize("kind", ["f4", "f8", "c8", "i4", "?"])
@pytest.mark.parametrize("subscripts", WAYS)
def test_all_ways_of_numpy_agree(subscripts, kind):
    rng = np.random.default_rng(5)
    calls = EinsumCalls(subscripts, Options(), lambda: polyc.einsum_operator(subscripts))
    for extents in ({}, {"j": 1}, {"i": 0}, {"b": 1, "k": 1}):
        sizes = dict(zip("abcdhijklpq", range(2, 13), strict=True)) | extents
        terms = subscripts.split("->")[0].split(",")
        for layout in ("C", "F", "steps", "broadcast"):
            arrays = []
            for n, term in enumerate(terms):
                dots = ([4, 3], [1, 3])[n % 2] if "..." in term else []
                place = term.find("...")
                shape = [sizes[x] for x in term.replace("...", "")]
                shape[max(0, place) : max(0, place)] = dots
                full = (rng.standard_normal([2 * m for m in shape]) * 3).astype(kind)
                array = (
                    full[tuple(slice(None, m) for m in shape)]
                    if layout != "steps"
                    else full[(slice(None, None, 2),) * len(shape)]
                )
                if layout == "broadcast" and shape and shape[0]:
                    array = np.broadcast_to(array[:1], shape)
                arrays.append(np.array(array, order="F") if layout == "F" else array)
            shape = calls._find_shape(arrays)
            expected = np.einsum(subscripts, *arrays)
            assert len(shape.ways) == 1 or len(terms) > 1
            for way in shape.ways:
                result = way.run(arrays)
                assert result.dtype == expected.dtype and result.shape == expected.shape and result.flags.c_contiguous
                np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-3)


def test_products_go_to_a_blas_and_few_copies_are_made():
    def cost(subscripts, *shapes, kind="f4"):
        terms, output = subscripts.split("->")
        found, _ = find_ways([tuple(t) for t in terms.split(",")], tuple(output), shapes, np.dtype(kind))
        return found[-1][2]

    assert cost("bhqk,bkhd->bqhd", (2, 3, 4, 5), (2, 5, 3, 6)).moved == 0
    assert cost("bhqk,bkhd->bqhd", (2, 3, 4, 5), (2, 5, 3, 6)).products == 720
    assert cost("zij,zjk->zik", (4, 9, 9), (4, 9, 9), kind="i4").steps == 4 * 9**3
    assert cost("ij,jk->ijk", (9, 9), (9, 9)).products == 0
    assert cost("xij,yjk->yxik", (4, 64, 64), (5, 64, 64)).moved == 0
    chain = cost("ij,jk,kl->il", (64, 64), (64, 64), (64, 64))
    assert chain.products == 2 * 64**3 and chain.steps == 0


def test_overflow_is_silent_in_all_ways(recwarn):
    a = np.full((40, 40), 1e30, np.float32)
    for _ in range(7):
        assert np.isinf(polyc.einsum("ij,jk->ik", a, a)).all() and np.isinf(polyc.einsum("ij,jk->ijk", a, a)).all()
    assert not recwarn.list


def test_out_and_its_errors():
    a, b = normal(3, 4), normal(4, 5)
    out = np.empty((3, 5), np.float32)
    assert polyc.einsum("ij,jk->ik", a, b, out=out) is out
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)
    with pytest.raises(polyc.ArgumentError, match="shape"):
        polyc.einsum("ij,jk->ik", a, b, out=out.T)
    with pytest.raises(polyc.ArgumentTypeError, match="int32"):
        polyc.einsum("ij,jk->ik", a, b, out=np.empty((3, 5), np.int32))


def test_errors_are_those_of_the_operator():
    for subscripts, arrays in (
        ("ij,jk->ik", (normal(3, 4), normal(5, 6))),
        ("ii->i", (normal(1, 3),)),
        ("ij->ii", (normal(3, 3),)),
        ("ij;jk", (normal(3, 3), normal(3, 3))),
        ("ijk->i", (normal(3, 3),)),
        ("ij->i", (normal(3, 3), normal(3, 3))),
        ("ij->i", (normal(3, 3).astype(np.longdouble),)),
    ):
        with pytest.raises(polyc.PolycError):
            polyc.einsum(subscripts, *arrays)


def test_remarks_say_how_each_shape_is_computed(einsum_of):
    a = normal(30, 40)
    calls = einsum_of("ij,kj->ki", 2)
    polyc.einsum("ij,kj->ki", a, a)
    (remark,) = polyc.einsum_operator("ij,kj->ki").remarks
    assert remark.kind == "missed" and "float32[30, 40], float32[30, 40]: numpy." in str(remark)
    calls._find_shape((a, a)).account.lost = 1e9
    polyc.einsum("ij,kj->ki", a, a)
    remark, *passes = polyc.einsum_operator("ij,kj->ki").remarks
    assert passes and remark.kind == "passed" and "a kernel of its own" in str(remark) and calls._operator is not None


def test_environment_asks_for_compilation(monkeypatch):
    monkeypatch.setenv("POLYC_EINSUM", "compile")
    forget_einsums()
    a = normal(6, 7)
    np.testing.assert_allclose(polyc.einsum("ab->ba", a), a.T)
    assert polyc.einsum_operator("ab->ba").run_planned((a,)) is not None


def test_shapes_are_forgotten_beyond_the_limit(monkeypatch):
    monkeypatch.setattr(amortise, "MAX_SHAPES", 5)
    calls = EinsumCalls("i->", Options(), lambda: polyc.einsum_operator("i->"))
    for n in range(9):
        calls((normal(n),), None)
    assert len(calls._shapes) == 5
