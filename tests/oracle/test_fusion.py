"""Several statements in one nest: packing, shared tiles and tile-local storage at sizes beside the tiles."""

import pytest

import polyc
from polyc import driver
from tests.oracle.programs import agree, draw, for_any_sizes, operator
from tests.property.pipeline import falls

PROGRAMS = {
    "layers": (
        """def f(float(B,M) X, float(N,M) W, float(N) C, float(O,N) U) -> (Y) {
            H(b,n) +=! X(b,m) * W(n,m)  G(b,n) = fmax(H(b,n) + C(n), 0.0)  Y(b,o) +=! G(b,n) * U(o,n) }""",
        "BMNO",
        ((17, 3, 13, 128), (1, 65, 33, 17), (31, 16, 257, 64), (129, 8, 9, 1), (40, 0, 9, 3)),
    ),
    "attention": (
        """def f(float(B,S,D) Q, float(B,T,D) K, float(B,T,D) V) -> (O) {
            P(b,i,j) +=! Q(b,i,d) * K(b,j,d)  M(b,i) max=! P(b,i,j)  X(b,i,j) = exp(P(b,i,j) - M(b,i))
            Z(b,i) +=! X(b,i,j)  O(b,i,d) +=! X(b,i,j) / Z(b,i) * V(b,j,d) }""",
        "BSDT",
        ((2, 17, 8, 33), (1, 1, 64, 1), (3, 64, 7, 9)),
    ),
    "pooled_convolution": (
        """def f(float(N,C,H,W) I, float(K,C,3,3) G) -> (O) {
            T(n,k,h,w) +=! I(n,c,h+r,w+s) * G(k,c,r,s)
            O(n,k,h,w) max=! T(n,k,2*h+a,2*w+b) where a in 0:2, b in 0:2 }""",
        "NCHWK",
        ((2, 3, 9, 19, 5), (1, 1, 4, 4, 1), (1, 17, 6, 37, 8)),
    ),
    "two_passes": (
        """def f(float(M,N) X) -> (O) {
            U(j) +=! X(i,j)  V(j) +=! (X(i,j) - U(j) / M) * (X(i,j) - U(j) / M)
            O(i,j) = (X(i,j) - U(j) / M) * rsqrt(V(j) / M + 0.001) }""",
        "MN",
        ((1, 1), (3, 17), (65, 130), (300, 7)),
    ),
    "rank_update": (
        """def f(float(N,N) A, float(N) U, float(N) V, float(N) Y, float(N) Z) -> (B, X, W) {
            B(i,j) = A(i,j) + U(i) * V(j)  X(i) +=! B(j,i) * Y(j)  T(i) = X(i) + Z(i)  W(i) +=! B(i,j) * T(j) }""",
        "N",
        ((1,), (16,), (33,), (130,)),
    ),
    "blur": (
        """def f(float(H,W) X) -> (O) {
            A(i,j) = (X(i,j) + X(i,j+1) + X(i,j+2)) / 3.0  O(i,j) = (A(i,j) + A(i+1,j) + A(i+2,j)) / 3.0 }""",
        "HW",
        ((3, 3), (17, 35), (64, 66)),
    ),
}


OTHERS = [("isl", "layers"), ("isl", "two_passes"), ("isl", "blur"), ("source", "attention"), ("source", "rank_update")]


@pytest.mark.parametrize(("scheduler", "name"), [*(("ilp", name) for name in PROGRAMS), *OTHERS])
def test_chains_at_sizes_beside_the_tiles(scheduler, name):
    text, symbols, variants = PROGRAMS[name]
    op = operator(text, scheduler=scheduler)
    kernel = for_any_sizes(op)
    polyc.set_num_threads(3)
    try:
        for values in variants:
            sizes = dict(zip(symbols, values, strict=True))
            agree(op, draw(op, sizes), sizes, call=kernel)
        for values in variants[:2] if scheduler == "ilp" else ():
            sizes = dict(zip(symbols, values, strict=True))
            agree(op, draw(op, sizes), sizes)
    finally:
        polyc.set_num_threads(None)


@pytest.mark.parametrize("batch", [17, 64, 128])
def test_copy_of_an_intermediate_result_is_not_made_before_it(batch):
    (program,) = driver.read_tc(PROGRAMS["layers"][0])
    lowered = driver.lower(program, sizes={"B": batch, "M": 3, "N": 512, "O": 512})
    assert not falls(lowered)
