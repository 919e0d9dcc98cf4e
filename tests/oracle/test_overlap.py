"""Producers computed tile by tile of their consumers: chains and graphs of stencils, every border, odd and tiny sizes."""

from __future__ import annotations

import numpy as np
import pytest

from polyc import driver
from polyc.ir.tolerance import check_results, expect_results
from tests.property.pipeline import small_thresholds
from tests.scheduler.support import check_each, read

CHAINS = {
    "blur": (
        """def f(float(H,W) X) -> (O) {
            A(y,x) = X(y,x) + 4.0 * X(y,x+1) + 6.0 * X(y,x+2) + X(y,x+3)  O(y,x) = A(y,x) + 2.0 * A(y+1,x) + A(y+2,x) }""",
        ((3, 4), (4, 9), (13, 22)),
    ),
    "harris": (
        """def f(float(H,W) X) -> (O) {
            U(y,x) = X(y,x+2) - X(y,x) + 2.0 * (X(y+1,x+2) - X(y+1,x)) + X(y+2,x+2) - X(y+2,x)
            V(y,x) = X(y+2,x) - X(y,x) + 2.0 * (X(y+2,x+1) - X(y,x+1)) + X(y+2,x+2) - X(y,x+2)
            A(y,x) +=! U(y+r,x+s) * U(y+r,x+s) where r in 0:3, s in 0:3
            B(y,x) +=! V(y+r,x+s) * V(y+r,x+s) where r in 0:3, s in 0:3
            C(y,x) +=! U(y+r,x+s) * V(y+r,x+s) where r in 0:3, s in 0:3
            O(y,x) = A(y,x) * B(y,x) - C(y,x) * C(y,x) }""",
        ((5, 5), (9, 14), (12, 21)),
    ),
    "three levels": (
        """def f(float(N) X) -> (O) {
            A(i) = exp(X(i) + X(i+1))  B(i) = exp(A(i) - A(i+3))  O(i) = B(i) - B(i+1) + A(i+1) }""",
        ((5,), (6,), (40,)),
    ),
    "stride": (
        """def f(float(H,W) X) -> (O) {
            A(y,x) = exp(X(y,x) + X(y+1,x) + X(y,x+1))  O(y,x) max=! A(2*y+r,2*x+s) where r in 0:3, s in 0:3 }""",
        ((4, 4), (8, 9), (21, 18)),
    ),
    "convolutions": (
        """def f(float(N,C,H,W) X, float(K,C,3,3) F, float(L,K,3,3) G, float(L) b) -> (O) {
            T(n,k,h,w) +=! pad(X(n,c,h+r-1,w+s-1), 0.0) * F(k,c,r,s) where h in 0:H, w in 0:W
            R(n,k,h,w) = fmax(T(n,k,h,w), 0.0)
            U(n,l,h,w) +=! pad(R(n,k,h+r-1,w+s-1), 0.0) * G(l,k,r,s) where h in 0:H, w in 0:W
            O(n,l,h,w) = U(n,l,h,w) + b(l) }""",
        ((1, 1, 1, 1, 1, 1), (2, 2, 5, 6, 3, 2), (1, 3, 9, 11, 2, 4)),
    ),
    "no store of its own": (
        """def f(float(H,W) X, float(3,3) F) -> (O) {
            A(y,x) = tanh(X(y,x) - X(y,x+1))  O(y,x) +=! A(y+r,x+s) * F(r,s) }""",
        ((3, 4), (8, 12), (11, 23)),
    ),
    "backwards": (
        """def f(float(N) X) -> (O) { A(i) = exp(X(i) + X(i+1))  O(i) = A(N-2-i) * A(N-3-i) where i in 0:N-2 }""",
        ((3,), (9,), (30,)),
    ),
    "dilated": (
        """def f(float(H,W) X) -> (O) { A(y,x) = exp(X(y,x) + X(y,x+4))  O(y,x) = A(y,x) + A(y+6,x) }""",
        ((7, 5), (8, 10), (25, 13)),
    ),
    "ranges that do not start at zero": (
        """def f(float(N) X) -> (O) {
            A(i) = exp(X(i-1) + X(i+1)) where i in 1:N-1  O(i) = A(i-1) * A(i+2) where i in 2:N-3 }""",
        ((6,), (7,), (33,)),
    ),
    "rows of means": (
        """def f(float(H,W) X) -> (O) {
            M(y) +=! X(y,x)  A(y,x) = exp(X(y,x) - M(y))  O(y,x) = A(y,x) + A(y+1,x) + M(y) where x in 0:W }""",
        ((2, 1), (9, 7), (14, 12)),
    ),
    "a triangle": (
        """def f(float(N,N) X) -> (O) {
            S(i,j) +=! X(i,k) * X(j,k) where j in 0:N, k <= j  O(i,j) = S(i,j) - S(i+1,j) * S(i,j+1) }""",
        ((2,), (9,), (17,)),
    ),
    "two results": (
        """def f(float(H,W) X) -> (O, P) {
            U(y,x) = exp(X(y,x+2) * X(y,x))  V(y,x) = tanh(X(y+2,x) * X(y,x))
            O(y,x) = (U(y,x) + U(y+1,x)) * V(y,x+1)  P(y,x) = U(y+1,x) - V(y,x+1) }""",
        ((4, 4), (9, 11), (16, 25)),
    ),
    "a result that others read": (
        """def f(float(N) X) -> (A, O) { A(i) = exp(X(i) + X(i+1))  B(i) = exp(A(i) - A(i+1))  O(i) = B(i) + B(i+2) }""",
        ((4,), (23,)),
    ),
    "parts of rows and columns": (
        """def f(float(M,N) X, float(M,N) Z) -> (O) {
            T(2*y,2*x) = exp(X(y,x))  T(2*y,2*x+1) = X(y,x) + Z(y,x)
            T(2*y+1,2*x) = X(y,x) - Z(y,x)  T(2*y+1,2*x+1) = tanh(Z(y,x))
            O(y,x) = T(y,x) + T(y+1,x+1) * T(y+2,x) }""",
        ((1, 1), (3, 5), (7, 13)),
    ),
    "parts of which a tile needs one, or a border": (
        """def f(float(M,N) X) -> (O) {
            A(0,x) = X(0,x)  A(y,x) = exp(X(y,x) - X(y-1,x)) where y in 1:M
            T(2*y,x) = A(y,x)  T(2*y+1,x) = tanh(X(y,x))
            O(y,x) = T(2*y,x) * T(2*y+4,x) + A(y+1,x) }""",
        ((3, 1), (4, 6), (17, 11)),
    ),
    "doubles": (
        """def f(double(H,W) X) -> (O) { A(y,x) = exp(X(y,x) / X(y,x+1))  O(y,x) = A(y,x) / A(y+1,x) }""",
        ((2, 2), (9, 18)),
    ),
}
BORDERS = """def f(float(H,W) X) -> (O) {{
  A(y,x) = exp(pad(X(y-1,x), {0}) - pad(X(y+1,x), {0})) where y in 0:H, x in 0:W
  B(y,x) = pad(A(y,x-2), {0}) + A(y,x) + pad(A(y,x+2), {0}) where y in 0:H, x in 0:W
  O(y,x) = pad(B(y-2,x), {0}) * B(y,x) - pad(B(y+1,x+1), {0}) where y in 0:H, x in 0:W }}"""


def is_overlapping(lowered: driver.Lowered) -> bool:
    return any(r.kind == "passed" and r.pass_name == "overlap" for r in lowered.remarks)


@pytest.mark.parametrize("name", CHAINS)
def test_chains(name: str) -> None:
    text, variants = CHAINS[name]
    program = read(text)
    with small_thresholds():
        least, *others, largest = (dict(zip(program.sizes, v, strict=True)) for v in variants)
        _, lowered = check_each(program, [least, largest], others=others)
    assert is_overlapping(lowered), "the largest sizes"


@pytest.mark.parametrize("border", ["0.0", "7.5", "clamp", "wrap", "reflect"])
def test_borders(border: str) -> None:
    program = read(BORDERS.format(border))
    with small_thresholds():
        sizes = [{"H": h, "W": w} for h, w in ((2, 3), (13, 30), (1, 1), (7, 12))]
        _, lowered = check_each(program, sizes[:2], others=sizes[2:])
    # What is wrapped around is far away; all other borders are near.
    assert is_overlapping(lowered) == (border != "wrap")


@pytest.mark.parametrize("name", CHAINS)
def test_machine_code_on_threads(name: str) -> None:
    text, variants = CHAINS[name]
    program = read(text)
    sizes = dict(zip(program.sizes, variants[-1], strict=True))
    with small_thresholds():
        kernel = driver.lower(program).compile()
    rng = np.random.default_rng(3)
    from polyc.ir.expr import evaluate

    inputs = {}
    for parameter in program.parameters:
        t = program.tensor(parameter)
        inputs[parameter] = rng.standard_normal(tuple(evaluate(e, sizes) for e in t.shape or ())).astype(t.dtype.numpy)
    results = kernel(*inputs.values())
    got = dict(zip([r.name for r in program.returns], results if len(program.returns) > 1 else (results,), strict=True))
    assert check_results(got, expect_results(program, inputs, sizes, {})) is None
