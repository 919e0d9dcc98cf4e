"""The contractions that are measured against vendor libraries: matrix products, batches, convolutions, permuted tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Convolution, Workload, nbytes, normal
from benchmarks.workloads import contractions, layers
from benchmarks.workloads.contractions import by_matmul, einsum_workload, matmul_workload, plain

GELU = """
def matmul_bias_gelu(float(M, K) X, float(N, K) W, float(N) B) -> (Y) {
  S(m, n) +=! X(m, k) * W(n, k)
  Z(m, n) = S(m, n) + B(n)
  Y(m, n) = 0.5 * Z(m, n) * (1.0 + erf(Z(m, n) * sqrt(float(0.5))))
}
"""


def conv_text(pad: int, stride: int = 1, dilation: int = 1, kind: str = "") -> str:
    """A convolution in ``.tc``; with padding the result is as large as the image, or half as large."""

    def at(index: str, window: str) -> str:
        position = f"{stride} * {index}" if stride > 1 else index
        position += f" + {dilation} * {window}" if dilation > 1 else f" + {window}"
        return position + (f" - {pad}" if pad else "")

    x, f, y, declared = {
        "": ("n, c", "k, c", "n, k", "float(N, C, H, W) X, float(K, C, R, S) F"),
        "depthwise": ("n, c", "c", "n, c", "float(N, C, H, W) X, float(C, R, S) F"),
        "grouped": ("n, g, c", "g, k, c", "n, g, k", "float(N, G, C, H, W) X, float(G, K, C, R, S) F"),
    }[kind]
    read = f"X({x}, {at('h', 'r')}, {at('w', 's')})"
    rows, columns = ("H", "W") if stride == 1 else (f"(H + 1) / {stride}", f"(W + 1) / {stride}")
    where = f" where h in 0:{rows}, w in 0:{columns}" if pad else ""
    value = f"pad({read}, 0.0)" if pad else read
    return f"def conv({declared}) -> (Y) {{\n  Y({y}, h, w) +=! {value} * F({f}, r, s){where}\n}}\n"


def conv(
    name: str,
    what: str,
    image: tuple[int, ...],
    filters: tuple[int, ...],
    pad: int = 0,
    stride: int = 1,
    dilation: int = 1,
    kind: str = "",
) -> Workload:
    """A convolution of one image; grouped ones have the group as a dimension of its own in all three arrays."""
    extent = [dilation * (n - 1) + 1 for n in filters[-2:]]
    size = tuple((n + 2 * pad - e) // stride + 1 for n, e in zip(image[-2:], extent, strict=True))
    channels = {"": filters[:1], "depthwise": image[1:2], "grouped": filters[:2]}[kind]
    result = (image[0], *channels, *size)
    term = {"": "nchwrs,kcrs->nkhw", "depthwise": "nchwrs,crs->nchw", "grouped": "ngchwrs,gkcrs->ngkhw"}[kind]
    groups = {"": 1, "depthwise": image[1], "grouped": image[1]}[kind]

    def make_inputs(rng: np.random.Generator) -> Arrays:
        return {"X": normal(rng, *image), "F": normal(rng, *filters)}

    def by_windows(X: np.ndarray, F: np.ndarray) -> np.ndarray:
        border = [(0, 0)] * (X.ndim - 2) + [(pad, pad)] * 2
        view = np.lib.stride_tricks.sliding_window_view(np.pad(X, border), extent, axis=(-2, -1))
        view = view[..., ::stride, ::stride, ::dilation, ::dilation]
        return np.einsum(term, view, F, optimize=True)

    def numpy(np: Any, out: Any, X: Any, F: Any) -> Any:
        return by_windows(X, F)

    def torch(torch: Any, out: Any, X: Any, F: Any) -> Any:
        X = X.reshape(X.shape[0], -1, *X.shape[-2:])
        F = F.reshape(-1, *((1,) if kind == "depthwise" else F.shape[-3:-2]), *F.shape[-2:])
        return torch.conv2d(X, F, None, stride, pad, dilation, groups).reshape(result)

    per_output = int(np.prod(filters[1 if kind != "grouped" else 2 :]))
    flops = 2.0 * int(np.prod(result)) * per_output
    peers = {"numpy": numpy, "torch": torch}
    text = conv_text(pad, stride, dilation, kind)
    return Workload(
        name,
        what,
        "tc",
        text,
        make_inputs,
        by_windows,
        flops,
        nbytes(image, filters),
        nbytes(result),
        peers,
        5e-5,
        weights=("F",),
        convolution=Convolution(result, pad, stride, dilation, groups),
    )


def same_conv(channels: int, size: int) -> Workload:
    """A 3×3 convolution of ResNet-50."""
    what = f"3×3, {channels} → {channels} channels, {size}×{size}, padding 1"
    return conv(f"resnet3x3_{size}", what, (1, channels, size, size), (channels, channels, 3, 3), pad=1)


def batch(n: int) -> Workload:
    """Many small matrix products."""
    count = 2**19 // n**2
    peer = by_matmul(plain, plain)
    what = f"{count} products {n}×{n}×{n}"
    extents = {"b": count, "i": n, "j": n, "k": n}
    return einsum_workload(f"batch_{n}", what, "bik,bkj->bij", extents, torch=peer, numpy=peer)


def permuted(name: str, subscripts: str, **extents: int) -> Workload:
    """A tensor contraction; the same extent for all indices but those that are named."""
    letters = {x for x in subscripts if x.isalpha()}
    numbers = {x: extents.get(x, extents["all"]) for x in sorted(letters)}
    label = " ".join(f"{x}{n}" for x, n in numbers.items())
    return einsum_workload(f"tensor_{name}", f"{subscripts}, {label}", subscripts, numbers, tolerance=5e-5)


def gelu(z: np.ndarray) -> np.ndarray:
    """Exact to float64, through `math.erf`: NumPy has no error function."""
    from math import erf

    return 0.5 * z * (1 + np.vectorize(erf, otypes=[np.float64])(z * 0.7071067811865476))


def exact_bias_gelu(X: np.ndarray, W: np.ndarray, B: np.ndarray) -> np.ndarray:
    return gelu(X @ W.T + B)


def numpy_bias_gelu(np: Any, out: Any, X: Any, W: Any, B: Any) -> Any:
    return gelu(np.matmul(X, W.T) + B).astype(X.dtype)


def torch_bias_gelu(torch: Any, out: Any, X: Any, W: Any, B: Any) -> Any:
    return torch.nn.functional.gelu(torch.nn.functional.linear(X, W, B))


# -- new shapes at every call


N_NEW = 100
"""Calls of one repetition of `einsum_new_shapes`."""


def new_call(number: int, base: Any) -> tuple[str, list[Any]]:
    """Subscripts and operands of the `number`-th call: all different, cut out of `base`."""
    rng = np.random.default_rng(number)
    letters = "abcdef"
    extents = {x: int(rng.integers(2, 25)) for x in letters}
    terms, arrays = [], []
    for _ in range(int(rng.integers(2, 4))):
        term = "".join(rng.choice(list(letters), size=int(rng.integers(1, 4)), replace=False))
        shape = tuple(extents[x] for x in term)
        terms.append(term)
        arrays.append(base[: int(np.prod(shape))].reshape(shape))
    kept = [x for x in letters if any(x in t for t in terms) and rng.random() < 0.6]
    return f"{','.join(terms)}->{''.join(kept)}", arrays


def new_shapes_peer() -> Any:
    """Each repetition makes calls with shapes that were never seen; the result is the first repetition's sums."""
    state = {"next": 0}

    def peer(module: Any, out: Any, A: Any) -> Any:
        first, sums = state["next"], []
        for number in range(first, first + N_NEW):
            subscripts, arrays = new_call(number, A)
            sums.append(module.einsum(subscripts, *arrays).sum())
        state["next"] += N_NEW
        return np.asarray(sums, dtype=np.asarray(A).dtype)

    return peer


def exact_new_shapes(A: np.ndarray) -> np.ndarray:
    return np.asarray(
        [np.einsum(*(lambda call: (call[0], *call[1]))(new_call(n, A)), optimize=True).sum() for n in range(N_NEW)]
    )


NEW_SHAPES = Workload(
    "einsum_new_shapes",
    f"{N_NEW} calls of einsum with shapes not seen before",
    "einsum",
    "(a different one for each call)",
    lambda rng: {"A": normal(rng, 25**3)},
    exact_new_shapes,
    1e7,
    4e5,
    4e5,
    {name: new_shapes_peer() for name in ("polyc", "numpy", "torch")},
    5e-4,
)

MATMULS = (
    *(matmul_workload(f"matmul_{form}_{n}", n, n, n, form) for n in (512, 2048) for form in ("tn", "nt", "tt")),
    matmul_workload("matmul_odd", 1001, 999, 1003),
)

BERT = (
    matmul_workload("bert_768", 128, 768, 768),
    matmul_workload("bert_row", 1, 3072, 768),
    einsum_workload("matvec_4096", "ik,k->i, 4096 each", "ik,k->i", {"i": 4096, "k": 4096}),
)

BATCHES = tuple(batch(n) for n in (4, 8, 16, 32))

CONVOLUTIONS = (
    *(same_conv(c, s) for c, s in ((64, 56), (128, 28), (256, 14), (512, 7))),
    conv("conv1x1_28", "1×1, 512 → 128 channels, 28×28", (1, 512, 28, 28), (128, 512, 1, 1)),
    conv("conv1x1_s2", "1×1 stride 2, 256 → 512 channels, 56×56", (1, 256, 56, 56), (512, 256, 1, 1), stride=2),
    conv("conv7x7_s2_pad", "7×7 stride 2, padding 3, 3 → 64, 224×224", (1, 3, 224, 224), (64, 3, 7, 7), pad=3, stride=2),
    conv("depthwise_pad", "3×3 depthwise, 128 channels, 56×56, padding 1", (1, 128, 56, 56), (128, 3, 3), 1, kind="depthwise"),
    conv("grouped", "3×3, 32 groups of 4, 56×56, padding 1", (1, 32, 4, 56, 56), (32, 4, 4, 3, 3), 1, kind="grouped"),
    conv("dilated", "3×3 dilation 2, 64 → 64 channels, 56×56, padding 2", (1, 64, 56, 56), (64, 64, 3, 3), 2, 1, 2),
)

TENSORS = (
    permuted("abc_bda_dc", "bda,dc->abc", all=96),
    permuted("abc_acd_db", "acd,db->abc", all=128, d=24),
    permuted("abc_ad_bdc", "ad,bdc->abc", all=128),
    permuted("abcd_dbea_ec", "dbea,ec->abcd", all=40, c=32),
    permuted("abcd_deca_be", "deca,be->abcd", all=40),
    permuted("abcd_ea_ebcd", "ea,ebcd->abcd", all=40, e=64),
    permuted("abcd_aebf_fdec", "aebf,fdec->abcd", all=32),
    permuted("abcd_efbad_cef", "efbad,cef->abcd", all=24),
    permuted("abcde_efbad_cf", "efbad,cf->abcde", all=20),
    permuted("abcdef_dfgb_geac", "dfgb,geac->abcdef", all=16),
    permuted("abcdef_gebc_dafg", "gebc,dafg->abcdef", all=16),
    permuted("ab_cdaefg_gbfdec", "cdaefg,gfbdec->ab", all=10, a=32, b=32),
)

LAYERS = (
    Workload(
        "matmul_bias_gelu",
        "linear 128×768 → 3072 with bias and gelu",
        "tc",
        GELU,
        layers.linear_inputs(128, 3072, 768),
        exact_bias_gelu,
        2.0 * 128 * 3072 * 768,
        nbytes((128, 768), (3072, 768), (3072,)),
        nbytes((128, 3072)),
        {"numpy": numpy_bias_gelu, "torch": torch_bias_gelu},
        weights=("W", "B"),
    ),
)

WORKLOADS = (*MATMULS, *BERT, *BATCHES, *CONVOLUTIONS, *TENSORS, *LAYERS, NEW_SHAPES)

_KNOWN = [w.name for w in contractions.WORKLOADS]
GROUPS: dict[str, tuple[str, ...]] = {
    "matmul": (*(n for n in _KNOWN if n.startswith("matmul_")), *(w.name for w in MATMULS)),
    "bert": ("bert", "tmm", *(w.name for w in BERT)),
    "batched": ("attn_scores", "tbmm", *(w.name for w in BATCHES)),
    "convolution": tuple(w.name for w in CONVOLUTIONS),
    "tensor": ("tc_abc", "tc_abcd", "mttkrp", "kronecker3", *(w.name for w in TENSORS)),
    "layers": ("mlp3", *(w.name for w in LAYERS)),
    "new_shapes": (NEW_SHAPES.name,),
}
"""What ``python -m benchmarks contraction`` measures, by subject; each in single and in double precision."""
