"""Sparse matrices in CSR, of ten patterns: times a vector or 1 to 128 columns, sampled products, and a layer on a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.workload import Arrays, Peer, Workload, call_loops, make_once, nbytes, normal
from benchmarks.workloads.patterns import PATTERNS, Pattern, reduce_segments, segment_of

FEATURES = 32
"""Columns of the dense operands of sampled products and of the layer."""

ROW = "where p in ptr(i):ptr(i+1)"
MATRIX = "float(Z) v, int32(Z) c, int32(P) ptr"

SPMV = f"""
def spmv({MATRIX}, float(N) X) -> (Y) {{
  Y(i) +=! v(p) * X(c(p)) {ROW}
}}
"""

SPMM = f"""
def spmm({MATRIX}, float(N, K) X) -> (Y) {{
  Y(i, k) +=! v(p) * X(c(p), k) {ROW}
}}
"""

SDDMM = f"""
def sddmm({MATRIX}, float(M, K) U, float(N, K) V) -> (w) {{
  d(p) +=! U(i, k) * V(c(p), k) {ROW}
  w(p) = v(p) * d(p)
}}
"""

GCN = f"""
def gcn({MATRIX}, float(N, F) X, float(F, G) W) -> (Y) {{
  D(i) +=! v(p) {ROW}
  R(i) = D(i) > 0.0 ? 1.0 / sqrt(D(i)) : 0.0
  H(i, f) +=! v(p) * R(c(p)) * X(c(p), f) {ROW}
  T(i, g) +=! H(i, f) * W(f, g)
  Y(i, g) = fmax(R(i) * T(i, g), 0.0)
}}
"""


def multiply(v: np.ndarray, c: np.ndarray, ptr: np.ndarray, X: np.ndarray) -> np.ndarray:
    """A few columns at a time: there is a product for each entry and column."""
    if X.ndim == 1:
        return reduce_segments(np.add, v * X[c], ptr)
    parts = [reduce_segments(np.add, v[:, None] * X[c, k : k + 8], ptr) for k in range(0, X.shape[1], 8)]
    return np.concatenate(parts, axis=1)


def sample(v: np.ndarray, c: np.ndarray, ptr: np.ndarray, U: np.ndarray, V: np.ndarray) -> np.ndarray:
    row, total = segment_of(ptr), np.zeros_like(v)
    for u, w in zip(U.T, V.T, strict=True):
        total += u[row] * w[c]
    return v * total


def inverse_root(degree: Any, module: Any) -> Any:
    """One over the square root, 0 for 0."""
    return module.where(degree > 0, 1 / module.sqrt(module.where(degree > 0, degree, module.ones_like(degree))), 0 * degree)


def convolve(v: np.ndarray, c: np.ndarray, ptr: np.ndarray, X: np.ndarray, W: np.ndarray) -> np.ndarray:
    scale = inverse_root(reduce_segments(np.add, v, ptr), np)[:, None]
    return np.maximum(scale * (multiply(v, c, ptr, scale * X) @ W), 0)


Multiply = Callable[[Any, Any, dict[str, Any]], Any]
"""``(module, A, dense operands)``, with the matrix in the module's own form; and the values of that matrix as `v`."""


def convolve_scipy(module: Any, A: Any, dense: dict[str, Any]) -> Any:
    scale = inverse_root(np.asarray(A.sum(axis=1)).ravel(), np)[:, None]
    return np.maximum(scale * ((A @ (scale * dense["X"])) @ dense["W"]), 0)


def convolve_torch(torch: Any, A: Any, dense: dict[str, Any]) -> Any:
    X = dense["X"]
    scale = inverse_root(A @ torch.ones_like(X[:, :1]), torch)
    return (scale * ((A @ (scale * X)) @ dense["W"])).relu()


def sample_torch(torch: Any, A: Any, dense: dict[str, Any]) -> Any:
    return torch.sparse.sampled_addmm(A, dense["U"], dense["V"].T, beta=0.0).values() * A.values()


def with_matrix(multiply: Multiply, make: Callable[..., Any]) -> Peer:
    """Makes the matrix at the first call and keeps it, as a program does that multiplies with it often."""
    matrix = make_once(make)

    def peer(module: Any, out: Any, v: Any, c: Any, ptr: Any, **dense: Any) -> Any:
        return multiply(module, matrix(module, v, c, ptr), dense)

    return peer


def make_scipy_matrix(scipy: Any, v: Any, c: Any, ptr: Any) -> Any:
    from scipy import sparse

    return sparse.csr_array((v, c, ptr), (len(ptr) - 1, len(ptr) - 1))


def make_torch_matrix(torch: Any, v: Any, c: Any, ptr: Any) -> Any:
    return torch.sparse_csr_tensor(ptr, c, v, (len(ptr) - 1, len(ptr) - 1), check_invariants=False)


def plain(module: Any, A: Any, dense: dict[str, Any]) -> Any:
    return A @ dense["X"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One computation with a sparse matrix."""

    what: str
    source: str
    exact: Callable[..., np.ndarray]
    dense: Mapping[str, tuple[str | int, ...]]
    """Shapes of the dense operands; ``"rows"`` stands for the rows of the matrix, which has as many columns."""
    result: tuple[str | int, ...]
    """The result's shape; ``"entries"`` stands for those of the matrix."""
    work: Callable[[int, int], float]
    """Operations, by rows and entries."""
    scipy: Multiply | None = plain
    torch: Multiply = plain
    has_scratch: bool = False
    is_positive: bool = False
    """Whether the entries are all above 0."""


KINDS: Mapping[str, Kind] = {
    "spmv": Kind("times a vector", SPMV, multiply, {"X": ("rows",)}, ("rows",), lambda rows, entries: 2.0 * entries),
    **{
        f"spmm{n}": Kind(
            f"times a matrix of columns: {n}",
            SPMM,
            multiply,
            {"X": ("rows", n)},
            ("rows", n),
            lambda rows, entries, n=n: 2.0 * n * entries,  # type: ignore[misc]
        )
        for n in (1, 8, 32, 128)
    },
    "sddmm": Kind(
        "times a product of dense matrices at its entries",
        SDDMM,
        sample,
        {"U": ("rows", FEATURES), "V": ("rows", FEATURES)},
        ("entries",),
        lambda rows, entries: (2.0 * FEATURES + 1) * entries,
        scipy=None,
        torch=sample_torch,
    ),
    "gcn": Kind(
        "normalised by the degrees of a graph, times two matrices, with relu",
        GCN,
        convolve,
        {"X": ("rows", FEATURES), "W": (FEATURES, FEATURES)},
        ("rows", FEATURES),
        lambda rows, entries: (2.0 * FEATURES + 2) * entries + (2.0 * FEATURES + 2) * FEATURES * rows,
        scipy=convolve_scipy,
        torch=convolve_torch,
        has_scratch=True,
        is_positive=True,
    ),
}

ENTRIES: Mapping[str, int] = {"1e4": 10**4, "1e5": 10**5, "1e6": 10**6, "1e7": 10**7}
ON_REQUEST = ("1e7",)
"""Sizes that are in no group: with 128 columns a gigabyte for each side."""


def make_workload(
    kind: str, pattern: str, size: str, dtype: Literal["float32", "float64"] = "float32", entries: int | None = None
) -> Workload:
    """``<kind>_<pattern>_<size>``, behind it ``_f64`` in double precision; `entries` where they are not those of the size."""
    k, p = KINDS[kind], PATTERNS[pattern]
    entries = ENTRIES[size] if entries is None else entries
    rows = p.rows(entries)

    def concrete(shape: tuple[str | int, ...]) -> tuple[int, ...]:
        return tuple({"rows": rows, "entries": entries}[n] if isinstance(n, str) else n for n in shape)

    itemsize = np.dtype(dtype).itemsize
    shapes = {n: concrete(shape) for n, shape in k.dense.items()}
    # The matrix has rows + 1 positions; as many columns are read as there are rows, or entries where there are fewer.
    read = nbytes((entries,), (rows + 1,)) + nbytes((entries,), *shapes.values(), itemsize=itemsize)
    loops = call_loops(
        f"benchmarks.numba_sparse.{kind if kind in ('spmv', 'sddmm', 'gcn') else 'spmm'}",
        {"rows": rows, "features": FEATURES} if k.has_scratch else {},
        lambda inputs: [np.empty(concrete(k.result), inputs["v"].dtype)],
    )
    peers: dict[str, Peer] = {
        "numpy": lambda module, out, **arrays: k.exact(**arrays),
        "torch": with_matrix(k.torch, make_torch_matrix),
        "numba": loops,
    }
    if k.scipy is not None:
        peers["scipy"] = with_matrix(k.scipy, make_scipy_matrix)
    return Workload(
        f"{kind}_{pattern}_{size}{'_f64' if dtype == 'float64' else ''}",
        f"{entries:,} entries ({p.what}) {k.what}, {dtype}",
        "tc",
        k.source if dtype == "float32" else k.source.replace("float(", "double("),
        lambda rng: make_inputs(rng, k, p, entries, shapes),
        k.exact,
        k.work(rows, entries),
        read,
        nbytes(concrete(k.result), itemsize=itemsize),
        peers,
        tolerance=2e-5 if dtype == "float32" else 2e-11,
        dtype=dtype,
    )


def make_inputs(
    rng: np.random.Generator, kind: Kind, pattern: Pattern, entries: int, shapes: Mapping[str, tuple[int, ...]]
) -> Arrays:
    ptr, column = pattern.make(rng, entries)
    v = normal(rng, entries)
    if kind.is_positive:
        v = np.abs(v) + np.float32(0.1)
    return {"v": v, "c": column, "ptr": ptr} | {n: normal(rng, *shape) for n, shape in shapes.items()}


WORKLOADS = tuple(
    make_workload(kind, pattern, size, dtype)
    for kind in KINDS
    for pattern in PATTERNS
    for size in ENTRIES
    for dtype in ("float32", "float64")
)
_MEASURED = tuple(w.name for w in WORKLOADS if not set(ON_REQUEST) & set(w.name.split("_")))
GROUPS = {
    "sparse": _MEASURED,
    **{f"sparse_{kind}": tuple(n for n in _MEASURED if n.startswith(f"{kind}_")) for kind in KINDS},
    **{f"sparse_{size}": tuple(n for n in _MEASURED if size in n.split("_")) for size in ENTRIES if size not in ON_REQUEST},
}
