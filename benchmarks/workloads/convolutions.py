"""Convolutions of ResNet's and MobileNet's sizes, batch 1, and a pooling."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Convolution, Workload, example, nbytes, normal

CONV = """
def conv(float(N, C, H, W) X, float(K, C, R, S) F) -> (Y) {
  Y(n, k, h, w) +=! X(n, c, h + r, w + s) * F(k, c, r, s)
}
"""

CONV_PAD = """
def conv_pad(float(N, C, H, W) X, float(K, C, R, S) F) -> (Y) {
  Y(n, k, h, w) +=! pad(X(n, c, h + r - 1, w + s - 1), 0.0) * F(k, c, r, s) where h in 0:H, w in 0:W
}
"""

CONV_STRIDE_2 = """
def conv_stride_2(float(N, C, H, W) X, float(K, C, R, S) F) -> (Y) {
  Y(n, k, h, w) +=! X(n, c, 2 * h + r, 2 * w + s) * F(k, c, r, s)
}
"""


def windows(X: np.ndarray, r: int, s: int, stride: int = 1) -> np.ndarray:
    """View ``[n, c, h, w, r, s]`` of the windows of `X`."""
    view = np.lib.stride_tricks.sliding_window_view(X, (r, s), axis=(2, 3))
    return view[:, :, ::stride, ::stride]


def direct(X: np.ndarray, F: np.ndarray, stride: int = 1) -> np.ndarray:
    """Convolution without padding through one matrix product; works in the inputs' type."""
    k, c, r, s = F.shape
    v = windows(X, r, s, stride)
    n, _, h, w = v.shape[:4]
    rows = v.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * w, c * r * s)
    return np.ascontiguousarray((rows @ F.reshape(k, -1).T).reshape(n, h, w, k).transpose(0, 3, 1, 2))


def padded(X: np.ndarray, by: int = 1) -> np.ndarray:
    return np.pad(X, ((0, 0), (0, 0), (by, by), (by, by)))


def exact_depthwise(X: np.ndarray, F: np.ndarray) -> np.ndarray:
    r, s = F.shape[1:]
    return np.einsum("nchwrs,crs->nchw", windows(X, r, s), F)


def numpy_conv(np: Any, out: Any, X: Any, F: Any) -> Any:
    return direct(X, F)


def numpy_conv_pad(np: Any, out: Any, X: Any, F: Any) -> Any:
    return direct(padded(X), F)


def numpy_conv_stride_2(np: Any, out: Any, X: Any, F: Any) -> Any:
    return direct(X, F, 2)


def numpy_depthwise(np: Any, out: Any, X: Any, F: Any) -> Any:
    r, s = F.shape[1:]
    h, w = X.shape[2] - r + 1, X.shape[3] - s + 1
    y = np.zeros((X.shape[0], X.shape[1], h, w), X.dtype) if out is None else out
    y[...] = 0
    for i in range(r):
        for j in range(s):
            y += X[:, :, i : i + h, j : j + w] * F[:, i, j][:, None, None]
    return y


def numpy_conv_bias_relu(np: Any, out: Any, X: Any, F: Any, B: Any) -> Any:
    return np.maximum(direct(X, F) + B[:, None, None], 0, out=out)


def torch_conv(torch: Any, out: Any, X: Any, F: Any) -> Any:
    return torch.conv2d(X, F)


def torch_conv_pad(torch: Any, out: Any, X: Any, F: Any) -> Any:
    return torch.conv2d(X, F, padding=1)


def torch_conv_stride_2(torch: Any, out: Any, X: Any, F: Any) -> Any:
    return torch.conv2d(X, F, stride=2)


def torch_depthwise(torch: Any, out: Any, X: Any, F: Any) -> Any:
    return torch.conv2d(X, F[:, None], groups=F.shape[0])


def torch_conv_bias_relu(torch: Any, out: Any, X: Any, F: Any, B: Any) -> Any:
    return torch.conv2d(X, F, B).relu_()


def numpy_maxpool(np: Any, out: Any, X: Any) -> Any:
    y = np.maximum(X[:, :, ::2, ::2], X[:, :, 1::2, ::2], out=out)
    np.maximum(y, X[:, :, ::2, 1::2], out=y)
    return np.maximum(y, X[:, :, 1::2, 1::2], out=y)


def torch_maxpool(torch: Any, out: Any, X: Any) -> Any:
    return torch.nn.functional.max_pool2d(X, 2)


def conv_workload(
    name: str,
    what: str,
    text: str,
    image: tuple[int, ...],
    filters: tuple[int, ...],
    result: tuple[int, ...],
    exact: Any,
    peers: dict[str, Any],
    bias: bool = False,
    pad: int = 0,
    stride: int = 1,
) -> Workload:
    """A convolution, depthwise where the filters have no channels; flops are two per point of filter and result."""

    def make_inputs(rng: np.random.Generator) -> Arrays:
        arrays = {"X": normal(rng, *image), "F": normal(rng, *filters)}
        return arrays | {"B": normal(rng, filters[0])} if bias else arrays

    per_output = int(np.prod(filters[1:]))
    flops = 2.0 * int(np.prod(result)) * per_output
    return Workload(
        name,
        what,
        "tc",
        text,
        make_inputs,
        exact,
        flops,
        nbytes(image, filters),
        nbytes(result),
        peers,
        5e-5,
        weights=("F", "B") if bias else ("F",),
        convolution=Convolution(result, pad, stride, 1, image[1] if len(filters) == 3 else 1, bias),
    )


WORKLOADS = (
    conv_workload(
        "conv3x3",
        "3×3, 64 → 64 channels, 56×56 (image given padded)",
        CONV,
        (1, 64, 58, 58),
        (64, 64, 3, 3),
        (1, 64, 56, 56),
        direct,
        {"numpy": numpy_conv, "torch": torch_conv},
    ),
    conv_workload(
        "conv3x3_pad",
        "3×3, 64 → 64 channels, 56×56, padding 1",
        CONV_PAD,
        (1, 64, 56, 56),
        (64, 64, 3, 3),
        (1, 64, 56, 56),
        lambda X, F: direct(padded(X), F),
        {"numpy": numpy_conv_pad, "torch": torch_conv_pad},
        pad=1,
    ),
    conv_workload(
        "conv3x3_bias_relu",
        "3×3, 64 → 64 channels, 56×56, + bias, relu",
        example("conv_bias_relu"),
        (1, 64, 58, 58),
        (64, 64, 3, 3),
        (1, 64, 56, 56),
        lambda X, F, B: np.maximum(direct(X, F) + B[:, None, None], 0),
        {"numpy": numpy_conv_bias_relu, "torch": torch_conv_bias_relu},
        bias=True,
    ),
    conv_workload(
        "conv1x1",
        "1×1, 256 → 64 channels, 56×56",
        CONV,
        (1, 256, 56, 56),
        (64, 256, 1, 1),
        (1, 64, 56, 56),
        direct,
        {"numpy": numpy_conv, "torch": torch_conv},
    ),
    conv_workload(
        "dwconv3x3",
        "3×3 depthwise, 128 channels, 56×56",
        example("depthwise"),
        (1, 128, 58, 58),
        (128, 3, 3),
        (1, 128, 56, 56),
        exact_depthwise,
        {"numpy": numpy_depthwise, "torch": torch_depthwise},
    ),
    conv_workload(
        "conv7x7s2",
        "7×7 stride 2, 3 → 64 channels, 224×224 (image given padded)",
        CONV_STRIDE_2,
        (1, 3, 230, 230),
        (64, 3, 7, 7),
        (1, 64, 112, 112),
        lambda X, F: direct(X, F, 2),
        {"numpy": numpy_conv_stride_2, "torch": torch_conv_stride_2},
        stride=2,
    ),
    Workload(
        "maxpool",
        "2×2 maximum, 64 channels, 112×112, batch 8",
        "tc",
        example("maxpool"),
        lambda rng: {"X": normal(rng, 8, 64, 112, 112)},
        lambda X: windows(X, 2, 2, 2).max(axis=(4, 5)),
        3.0 * 8 * 64 * 56 * 56,
        nbytes((8, 64, 112, 112)),
        nbytes((8, 64, 56, 56)),
        {"numpy": numpy_maxpool, "torch": torch_maxpool},
    ),
)
