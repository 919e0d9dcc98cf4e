"""Products of bytes that are summed as 32-bit integers: four at a time, exactly, whatever their signs, borders and numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import polyc
from tests.oracle.programs import agree
from tests.scheduler.support import infer, read, run_pass, statements

MATRICES = "def f({a}(M,K) A, {b}(K,N) B) -> (Y) {{ Y(m,n) +=! int32(A(m,k)) * int32(B(k,n)) }}"
IMAGES = "def f({a}(C,H,W) X, {b}(M,C,R,S) F) -> (Y) {{ Y(m,h,w) +=! int32(X(c,h+r,w+s)) * int32(F(m,c,r,s)) }}"
PADDED = (
    "def f({a}(C,H,W) X, {b}(M,C,R,S) F) -> (Y) {{ Y(m,h,w) +=! int32(pad(X(c,h+r-1,w+s-1), {a}(0))) * int32(F(m,c,r,s)) "
    "where h in 0:H, w in 0:W }}"
)
KINDS = list(itertools.product(("int8", "uint8"), repeat=2))
SIGNED = MATRICES.format(a="int8", b="int8")

OTHERS = {
    "matrix and vector": "def f(int8(M,K) A, int8(K) B) -> (Y) { Y(m) +=! int32(A(m,k)) * int32(B(k)) }",
    "narrow sums": "def f(int8(M,K) A, int8(K,N) B) -> (Y) { Y(m,n) +=! A(m,k) * B(k,n) }",
    "wide sums": "def f(int8(M,K) A, int8(K,N) B) -> (Y) { Y(m,n) +=! int64(A(m,k)) * int64(B(k,n)) }",
    "words of two bytes": "def f(int16(M,K) A, int16(K,N) B) -> (Y) { Y(m,n) +=! int32(A(m,k)) * int32(B(k,n)) }",
    "a largest product": "def f(int8(M,K) A, int8(K,N) B) -> (Y) { Y(m,n) max=! int32(A(m,k)) * int32(B(k,n)) }",
    "a triangle": "def f(int8(M,K) A, int8(K,N) B) -> (Y) { Y(m,n) +=! int32(A(m,k)) * int32(B(k,n)) where k <= m }",
    "a square": "def f(int8(M,K) A, int8(K,N) B) -> (Y) { Y(m,n) +=! int32(A(m,2*k)) * int32(B(k,n)) where k in 0:8 }",
}


def draw_bytes(op: polyc.Operator, shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    """All bytes, the extreme ones often."""
    rng, arrays = np.random.default_rng(0), []
    for t, shape in zip((op.program.tensor(n) for n in op.program.parameters), shapes, strict=True):
        low, high = np.iinfo(t.dtype.numpy).min, np.iinfo(t.dtype.numpy).max
        x = rng.integers(low, high + 1, shape)
        x[rng.random(shape) < 0.3] = low
        x[rng.random(shape) < 0.3] = high
        arrays.append(x.astype(t.dtype.numpy))
    return arrays


def is_packed(op: polyc.Operator, arrays: list[np.ndarray]) -> bool:
    return any(r.pass_name == "byte-words" for r in op.lower(*arrays).remarks)


def test_before_and_after():
    program, ranges = infer(read(SIGNED), M=20, K=32, N=40)
    new, _, remarks = run_pass("byte-words", program, ranges)
    assert [line.partition(":")[2].partition(" init")[0].strip() for line in statements(new)][2:] == [
        "Y.words[m, n] += dot4u8s8(Y.unsigned[m, k.block], Y.signed[k.block, n])",
        "Y.moved[n] += dot4u8s8(16843009:i32, Y.signed[k.block, n])",
        "Y[m, n] = Y.words[m, n] + -128:i32 * Y.moved[n]",
    ]
    assert [r.pass_name for r in remarks] == ["byte-words"]


@pytest.mark.pairs
@pytest.mark.parametrize("target", ["host", "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize(("a", "b"), KINDS)
@pytest.mark.parametrize(("m", "k", "n"), [(16, 32, 24), (19, 37, 33), (8, 17, 9)])
def test_matrices(a: str, b: str, target: str, m: int, k: int, n: int):
    op = polyc.compile(MATRICES.format(a=a, b=b), target=target)
    arrays = draw_bytes(op, [(m, k), (k, n)])
    agree(op, arrays, {"M": m, "K": k, "N": n})
    assert is_packed(op, arrays)


@pytest.mark.each
@pytest.mark.parametrize("source", [IMAGES, PADDED])
@pytest.mark.parametrize(("a", "b"), KINDS)
def test_images(a: str, b: str, source: str):
    op = polyc.compile(source.format(a=a, b=b))
    arrays = draw_bytes(op, [(10, 9, 12), (12, 10, 3, 3)])
    agree(op, arrays, {"C": 10, "H": 9, "W": 12, "M": 12, "R": 3, "S": 3})
    assert is_packed(op, arrays)


@pytest.mark.parametrize("name", OTHERS)
def test_what_stays(name: str):
    program, ranges = infer(read(OTHERS[name]), M=20, K=32, N=24)
    assert run_pass("byte-words", program, ranges) == (program, ranges, [])


def test_einsum_of_bytes():
    a, b = (np.random.default_rng(n).integers(-128, 128, (40, 64)).astype(np.int8) for n in range(2))
    np.testing.assert_array_equal(polyc.einsum("mk,nk->mn", a, b, dtype=np.int32), a.astype(np.int32) @ b.T.astype(np.int32))


def test_accumulated_and_bound():
    source = "def f(int8(M,K) A, int8(K,N) B, int32(N) C) -> (Y) { Y(m,n) = C(n) where m in 0:M\n"
    source += "Y(m,n) += int32(A(m,k)) * int32(B(k,n)) }"
    op = polyc.compile(source)
    a, b = draw_bytes(polyc.compile(SIGNED), [(20, 30), (30, 16)])
    c = np.arange(16, dtype=np.int32)
    expected = a.astype(np.int32) @ b.astype(np.int32) + c
    np.testing.assert_array_equal(op(a, b, c), expected)
    np.testing.assert_array_equal(op.bind(B=b, C=c)(a), expected)


def test_switch():
    op = polyc.compile(SIGNED, disable="byte-words")
    arrays = draw_bytes(op, [(16, 32), (32, 16)])
    agree(op, arrays, {"M": 16, "K": 32, "N": 16})
    assert not is_packed(op, arrays)
