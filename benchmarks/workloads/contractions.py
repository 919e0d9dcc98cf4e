"""Sums of products, written as einsum: matrix products in every transposition, batched, permuted, three operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Peer, Workload, nbytes, normal


def einsum_workload(
    name: str,
    what: str,
    subscripts: str,
    extents: dict[str, int],
    flops: float | None = None,
    torch: Peer | None = None,
    numpy: Peer | None = None,
    tolerance: float = 2e-5,
) -> Workload:
    """A contraction of normal operands named A, B, C …; `flops` defaults to two per point of the iteration space.

    The peers default to their own einsum (NumPy's with ``optimize=True``, so that it may call its BLAS)."""
    left, right = subscripts.split("->")
    shapes = [tuple(extents[i] for i in term) for term in left.split(",")]
    names = "ABCDEFGH"[: len(shapes)]

    def make_inputs(rng: np.random.Generator) -> Arrays:
        return {n: normal(rng, *s) for n, s in zip(names, shapes, strict=True)}

    def exact(**arrays: np.ndarray) -> np.ndarray:
        return np.einsum(subscripts, *arrays.values(), optimize=True)

    def numpy_einsum(np: Any, out: Any, **arrays: Any) -> Any:
        return np.einsum(subscripts, *arrays.values(), out=out, optimize=True)

    def torch_einsum(torch: Any, out: Any, **arrays: Any) -> Any:
        return torch.einsum(subscripts, *arrays.values())

    def opt_einsum(opt_einsum: Any, out: Any, **arrays: Any) -> Any:
        return opt_einsum.contract(subscripts, *arrays.values(), out=out)

    if flops is None:
        flops = 2.0 * float(np.prod([float(e) for e in extents.values()]))
    return Workload(
        name,
        what,
        "einsum",
        subscripts,
        make_inputs,
        exact,
        flops,
        nbytes(*shapes),
        nbytes(tuple(extents[i] for i in right)),
        {"numpy": numpy or numpy_einsum, "torch": torch or torch_einsum, "opt_einsum": opt_einsum},
        tolerance,
    )


def by_matmul(left: Callable[[Any], Any], right: Callable[[Any], Any]) -> Peer:
    """A peer that multiplies views of the operands into `out`; the same call in NumPy and PyTorch."""

    def peer(module: Any, out: Any, A: Any, B: Any) -> Any:
        return module.matmul(left(A), right(B), out=out)

    return peer


def plain(x: Any) -> Any:
    return x


def turned(x: Any) -> Any:
    return x.swapaxes(-1, -2)


def matmul_workload(name: str, m: int, n: int, k: int, form: str = "nn") -> Workload:
    """Matrix product; `form` says which operand is transposed in memory."""
    a, b = ("ik", "ki")[form[0] == "t"], ("kj", "jk")[form[1] == "t"]
    peer = by_matmul((plain, turned)[form[0] == "t"], (plain, turned)[form[1] == "t"])
    subscripts = f"{a},{b}->ij"
    return einsum_workload(name, f"{subscripts} {m}×{n}×{k}", subscripts, {"i": m, "j": n, "k": k}, torch=peer, numpy=peer)


def torch_kronecker3(torch: Any, out: Any, A: Any, B: Any, C: Any, D: Any) -> Any:
    # x[m,i,j,k] d[r,k] c[q,j] b[p,i], one factor after the other.
    t = torch.matmul(A, D.T)
    t = torch.matmul(C, t)
    return torch.einsum("pi,miqr->mpqr", B, t)


def _kronecker3() -> Workload:
    m, d, n = 256, 16, 16
    step = 2.0 * m * n**3 * d
    return einsum_workload(
        "kronecker3",
        "three 16×16 factors applied to 256 tensors of 16³",
        "mijk,pi,qj,rk->mpqr",
        {"m": m, "i": n, "j": n, "k": n, "p": d, "q": d, "r": d},
        flops=3 * step,
        torch=torch_kronecker3,
        tolerance=5e-5,
    )


WORKLOADS = (
    *(matmul_workload(f"matmul_{n}", n, n, n) for n in (512, 1024, 2048)),
    matmul_workload("matmul_tn_1024", 1024, 1024, 1024, "tn"),
    matmul_workload("matmul_nt_1024", 1024, 1024, 1024, "nt"),
    matmul_workload("matmul_tt_1024", 1024, 1024, 1024, "tt"),
    matmul_workload("bert", 128, 3072, 768),
    matmul_workload("tmm", 128, 256, 32, "nt"),
    einsum_workload(
        "tbmm",
        "bnm,bkm->bnk 500×26×26×72",
        "bnm,bkm->bnk",
        {"b": 500, "n": 26, "k": 26, "m": 72},
        torch=by_matmul(plain, turned),
        numpy=by_matmul(plain, turned),
    ),
    einsum_workload(
        "attn_scores",
        "bhqd,bhkd->bhqk 8×12×128×128×64",
        "bhqd,bhkd->bhqk",
        {"b": 8, "h": 12, "q": 128, "k": 128, "d": 64},
        torch=by_matmul(plain, turned),
        numpy=by_matmul(plain, turned),
    ),
    einsum_workload(
        "tc_abcd", "aebf,dfce->abcd, a–d 24, e f 32", "aebf,dfce->abcd", dict.fromkeys("abcd", 24) | {"e": 32, "f": 32}
    ),
    einsum_workload("tc_abc", "bda,dc->abc, 128 each", "bda,dc->abc", dict.fromkeys("abcd", 128)),
    einsum_workload(
        "mttkrp",
        "ijk,il,jl->kl 128³×32",
        "ijk,il,jl->kl",
        {"i": 128, "j": 128, "k": 128, "l": 32},
        flops=2.0 * 128**3 * 32,
    ),
    _kronecker3(),
)
