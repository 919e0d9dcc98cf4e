"""When `polyc.einsum` compiles, and that its results do not tell."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.api import amortise
from polyc.api.amortise import EinsumCalls, choose_way
from polyc.api.functions import _einsum_calls, forget_einsums
from polyc.config import Options


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.fixture
def einsum_of(monkeypatch):
    """Fresh calls for subscripts; the compilation costs as much as `n` calls of what is asked for first."""

    def make(subscripts: str, arrays: tuple[np.ndarray, ...], n: float) -> EinsumCalls:
        forget_einsums()
        calls = _einsum_calls(subscripts, Options())
        estimate = calls._find_shape(arrays).estimate
        monkeypatch.setattr(amortise, "COMPILE_TIME", int(n * estimate))
        return calls

    return make


def ways(calls: EinsumCalls) -> list[str]:
    return [s.way for s in calls._shapes.values()]


def test_a_shape_gets_its_kernel_once_its_estimates_reach_a_compilation(einsum_of):
    a, b = normal(40, 50), normal(50, 30, seed=1)
    calls = einsum_of("ij,jk->ik", (a, b), 3)
    calls._find_family(calls._find_shape((a, b))).spent = -(10**12)  # no kernel for all sizes here
    seen = []
    for _ in range(4):
        np.testing.assert_allclose(calls((a, b), None), a @ b, rtol=1e-4, atol=1e-4)
        seen += ways(calls)
    assert seen == ["numpy", "numpy", "kernel", "kernel"]
    assert calls.operator.run_planned((a, b)) is not None


def test_many_shapes_share_one_kernel(einsum_of):
    calls = einsum_of("ijk,kl->jil", (normal(5, 30, 40), normal(40, 30)), 4)
    for n in range(30, 38):
        a, b = normal(5, n, 40), normal(40, n, seed=1)
        np.testing.assert_allclose(calls((a, b), None), np.einsum("ijk,kl->jil", a, b), rtol=1e-4, atol=1e-4)
    assert ways(calls)[:3] == ["numpy"] * 3 and set(ways(calls)[4:]) == {"symbolic"}
    assert len(calls._families) == 1
    (family,) = calls._families.values()
    assert family.kernel is not None and calls.operator.run_planned((a, b)) is None


def test_a_large_call_compiles_at_once():
    calls = EinsumCalls("ij,jk->ik", Options(), lambda: polyc.einsum_operator("ij,jk->ik"))
    shapes = [np.broadcast_to(np.float32(0), (n, n)) for n in (64, 512, 8192)]
    assert [choose_way(s := calls._find_shape((x, x)), calls._find_family(s)) for x in shapes] == ["numpy", "numpy", "kernel"]


def test_broadcast_shapes_take_no_kernel_for_all_sizes(einsum_of):
    a, b = normal(1, 50), normal(50, 30)
    calls = einsum_of("ij,ij->j", (normal(1, 30), b), 1.5)
    for n in (28, 29, 30):
        c = normal(40, n)
        np.testing.assert_allclose(calls((a[:, :n], c), None), np.einsum("ij,ij->j", a[:, :n], c), rtol=1e-4, atol=1e-4)
    assert "symbolic" not in ways(calls)


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
    assert ways(calls) == ["numpy"]
    compiled = polyc.einsum_operator(subscripts)(*arrays)
    assert ours.dtype == compiled.dtype and ours.shape == compiled.shape
    assert ours.flags.c_contiguous and ours.flags.writeable
    assert not any(np.shares_memory(ours, a) for a in arrays)
    np.testing.assert_allclose(ours, compiled, rtol=1e-4, atol=1e-3)


def test_mixed_types_are_multiplied_in_the_result_type():
    a = np.full((100, 100), 100, np.int8)
    c = np.ones((100, 100), np.float32)
    calls = EinsumCalls("ij,jk,kl->il", Options(), lambda: polyc.einsum_operator("ij,jk,kl->il"))
    assert calls._find_shape((a, a, c)).path is None
    expected = np.einsum("ij,jk,kl->il", a.astype("f4"), a.astype("f4"), c)
    np.testing.assert_allclose(calls((a[:9, :9], a[:9, :9], c[:9, :9]), None), expected[:9, :9] * 81 / 10000, rtol=1e-5)


def test_estimates():
    def estimate(subscripts: str, *shapes: tuple[int, ...]) -> tuple[object, int]:
        shape = EinsumCalls(subscripts, Options(), lambda: polyc.einsum_operator(subscripts))._find_shape(
            [np.empty(s, np.float32) for s in shapes]
        )
        return shape.path, shape.estimate - amortise.NUMPY_OVERHEAD

    assert estimate("ij,jk->ik", (64, 64), (64, 64)) == (((0, 1),), 64**3 // amortise.DOT_RATE)
    assert estimate("bij,bjk->bik", (4, 64, 64), (4, 64, 64)) == (None, 4 * 64**3 // amortise.LOOP_RATE)
    assert estimate("ij,jk->ijk", (64, 64), (64, 64)) == (None, 64**3 // amortise.LOOP_RATE)
    assert estimate("iij,jk->ik", (8, 8, 64), (64, 64)) == (None, 8 * 64 * 64 // amortise.LOOP_RATE)
    path, time = estimate("ij,jk,kl->il", (64, 64), (64, 64), (64, 64))
    assert len(path) == 2 and 0 < time < 64**4 // amortise.LOOP_RATE


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
    calls = einsum_of("ij,kj->ki", (a, a), 2)
    polyc.einsum("ij,kj->ki", a, a)
    (remark,) = polyc.einsum_operator("ij,kj->ki").remarks
    assert remark.kind == "missed" and "float32[30, 40], float32[30, 40]: numpy.einsum (1 calls" in str(remark)
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
