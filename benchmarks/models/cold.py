"""Models that are loaded cold (`benchmarks.cold_loads`): small weights from a fixed seed, many kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Shape = Sequence[int]


class Graph:
    """An ONNX graph being written; every method gives the name of what it adds."""

    def __init__(self, **inputs: Shape) -> None:
        self.inputs = inputs
        self.nodes: list[Any] = []
        self.weights: dict[str, np.ndarray] = {}
        self._rng = np.random.default_rng(0)

    def op(self, name: str, *inputs: str, n: int = 1, **attributes: Any) -> Any:
        """A node; the names of its results where `n` is not 1."""
        from onnx import helper

        results = [f"t{len(self.nodes)}.{k}" for k in range(n)]
        self.nodes.append(helper.make_node(name, list(inputs), results, **attributes))
        return results[0] if n == 1 else results

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.array(value, dtype)
        return name

    def weight(self, *shape: int) -> str:
        """Scaled by what is summed over: all dimensions but the first, of a matrix the first."""
        summed = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
        return self.constant(self._rng.standard_normal(shape) / np.sqrt(summed), np.float32)

    def linear(self, x: str, a: int, b: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.weight(a, b)), self.weight(b))

    def conv(self, x: str, channels: tuple[int, int], k: int, stride: int = 1, group: int = 1, relu: bool = True) -> str:
        a, b = channels
        weights = self.weight(b, a // group, k, k), self.weight(b)
        y = self.op("Conv", x, *weights, kernel_shape=[k, k], strides=[stride] * 2, pads=[k // 2] * 4, group=group)
        return self.op("Relu", y) if relu else y

    def norm(self, x: str, n: int) -> str:
        return self.op("LayerNormalization", x, self.weight(n), self.weight(n), axis=-1)

    def move(self, x: str, shape: Shape, order: Shape) -> str:
        """Reshaped, then transposed."""
        return self.op("Transpose", self.op("Reshape", x, self.constant(shape)), perm=order)

    def write(self, path: Path, *results: str) -> None:
        from onnx import TensorProto, helper, numpy_helper, save, shape_inference

        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in self.inputs.items()]
        outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in results]
        weights = [numpy_helper.from_array(a, n) for n, a in self.weights.items()]
        graph = helper.make_graph(self.nodes, path.stem, inputs, outputs, weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        save(shape_inference.infer_shapes(model), str(path))


def _resnet(path: Path) -> None:
    g = Graph(x=(1, 3, 128, 128))
    x = g.op("MaxPool", g.conv("x", (3, 32), 7, 2), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    a = 32
    for b in (32, 64, 128, 256):
        for stride in (1 if a == b else 2, 1):
            y = g.conv(g.conv(x, (a, b), 3, stride), (b, b), 3, relu=False)
            x = g.op("Relu", g.op("Add", y, x if a == b else g.conv(x, (a, b), 1, stride, relu=False)))
            a = b
    g.write(path, g.op("Softmax", g.linear(g.op("Flatten", g.op("GlobalAveragePool", x)), 256, 100)))


def _transformer(path: Path) -> None:
    rows, n, heads = 64, 192, 6
    g, x = Graph(x=(1, rows, n)), "x"
    for _ in range(4):
        q, k, v = (g.move(g.linear(x, n, n), (1, rows, heads, n // heads), (0, 2, 1, 3)) for _ in range(3))
        scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
        weights = g.op("Softmax", g.op("Mul", scores, g.constant(0.17, np.float32)), axis=-1)
        mixed = g.op("Transpose", g.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        x = g.norm(g.op("Add", x, g.linear(g.op("Reshape", mixed, g.constant((1, rows, n))), n, n)), n)
        f = g.linear(x, n, 4 * n)
        erf = g.op("Erf", g.op("Mul", f, g.constant(0.5**0.5, np.float32)))
        f = g.op("Mul", g.op("Mul", f, g.op("Add", erf, g.constant(1, np.float32))), g.constant(0.5, np.float32))
        x = g.norm(g.op("Add", x, g.linear(f, 4 * n, n)), n)
    g.write(path, x)


def _unrolled(path: Path, steps: int = 40) -> None:
    """An LSTM whose steps are written out, each a slice of the sequence."""
    n = 64
    g, h, c = Graph(x=(4, steps, 32), h=(4, n), c=(4, n)), "h", "c"
    w, u, b, axis = g.weight(32, 4 * n), g.weight(n, 4 * n), g.weight(4 * n), g.constant([1])
    results = []
    for t in range(steps):
        x = g.op("Squeeze", g.op("Slice", "x", g.constant([t]), g.constant([t + 1]), axis), axis)
        z = g.op("Add", g.op("Add", g.op("MatMul", x, w), g.op("MatMul", h, u)), b)
        i, f, o, s = g.op("Split", z, n=4, axis=1)
        i, f, o = (g.op("Sigmoid", part) for part in (i, f, o))
        c = g.op("Add", g.op("Mul", f, c), g.op("Mul", i, g.op("Tanh", s)))
        h = g.op("Mul", o, g.op("Tanh", c))
        results.append(g.op("Unsqueeze", h, axis))
    g.write(path, g.op("Concat", *results, axis=1))


def _detection(path: Path) -> None:
    g, a, n = Graph(x=(1, 3, 160, 160)), 16, 80
    x = g.conv("x", (3, 16), 3, 2)
    found: dict[int, list[str]] = {20: [], 4: []}
    for _ in range(4):
        b = min(2 * a, 128)
        x, a, n = g.conv(x, (a, b), 3, 2), b, n // 2
        y = g.conv(g.conv(x, (a, 64), 1), (64, 64), 3)
        for values, kind in ((20, "Sigmoid"), (4, "Exp")):
            z = g.conv(y, (64, 3 * values), 1, relu=False)
            z = g.move(g.op("Sigmoid", z) if kind == "Sigmoid" else z, (1, 3, values, n, n), (0, 3, 4, 1, 2))
            z = g.op("Reshape", z, g.constant((1, -1, values)))
            found[values].append(z if kind == "Sigmoid" else g.op("Exp", z))
    g.write(path, *(g.op("Concat", *parts, axis=1) for parts in found.values()))


def _products(path: Path, count: int = 40) -> None:
    """Layers of as many widths."""
    g, x, a = Graph(x=(16, 64)), "x", 64
    for b in np.random.default_rng(1).choice(np.arange(20, 400), count, replace=False).tolist():
        x, a = g.op("Relu", g.linear(x, a, b)), b
    g.write(path, x)


def _mobilenet(path: Path) -> None:
    g, a = Graph(x=(1, 3, 128, 128)), 16
    x = g.conv("x", (3, 16), 3, 2)
    for b, stride in ((24, 2), (24, 1), (40, 2), (40, 1), (80, 2), (80, 1), (112, 1), (160, 2)):
        e = 4 * a
        y = g.conv(g.conv(x, (a, e), 1), (e, e), 3, stride, group=e)
        scale = g.conv(g.conv(g.op("GlobalAveragePool", y), (e, e // 4), 1), (e // 4, e), 1, relu=False)
        y = g.conv(g.op("Mul", y, g.op("Sigmoid", scale)), (e, b), 1, relu=False)
        x, a = g.op("Add", x, y) if stride == 1 and a == b else y, b
    g.write(path, g.linear(g.op("Flatten", g.op("GlobalAveragePool", x)), 160, 100))


def _unet(path: Path) -> None:
    g, a = Graph(x=(1, 1, 64, 64)), 16
    x = g.conv(g.conv("x", (1, 16), 3), (16, 16), 3)
    kept = []
    for _ in range(3):
        kept.append((x, a))
        x = g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        x, a = g.conv(g.conv(x, (a, 2 * a), 3), (2 * a, 2 * a), 3), 2 * a
    scales = g.constant((1, 1, 2, 2), np.float32)
    for level, (skip, b) in reversed(list(enumerate(kept))):
        how = {"mode": "linear"} if level % 2 else {"mode": "nearest", "nearest_mode": "floor"}
        place = "half_pixel" if level % 2 else "asymmetric"
        x = g.op("Concat", g.op("Resize", x, "", scales, coordinate_transformation_mode=place, **how), skip, axis=1)
        x, a = g.conv(g.conv(x, (a + b, b), 3), (b, b), 3), b
    g.write(path, g.op("Sigmoid", g.conv(x, (16, 1), 1, relu=False)))


def _mixer(path: Path) -> None:
    rows, n = 64, 96
    g = Graph(x=(1, 3, 64, 64))
    x = g.op("Conv", "x", g.weight(n, 3, 8, 8), g.weight(n), kernel_shape=[8, 8], strides=[8, 8])
    x = g.move(x, (1, n, rows), (0, 2, 1))

    def layers(y: str, a: int, b: int) -> str:
        y = g.linear(y, a, b)
        gate = g.op("Sigmoid", g.op("Mul", y, g.constant(1.702, np.float32)))
        return g.linear(g.op("Mul", y, gate), b, a)

    for _ in range(4):
        y = layers(g.op("Transpose", g.norm(x, n), perm=[0, 2, 1]), rows, 2 * rows)
        x = g.op("Add", x, g.op("Transpose", y, perm=[0, 2, 1]))
        x = g.op("Add", x, layers(g.norm(x, n), n, 4 * n))
    g.write(path, g.linear(g.op("ReduceMean", x, axes=[1], keepdims=0), n, 10))


def _gru(path: Path) -> None:
    g, n, a = Graph(x=(2, 50, 40)), 64, 40
    x = g.op("Transpose", "x", perm=[1, 0, 2])
    for _ in range(2):
        weights = g.weight(2, 3 * n, a), g.weight(2, 3 * n, n), g.weight(2, 6 * n)
        y, _ = g.op("GRU", x, *weights, n=2, hidden_size=n, direction="bidirectional", linear_before_reset=1)
        x, a = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.constant((0, 0, 2 * n))), 2 * n
    g.write(path, g.op("Softmax", g.linear(x, a, 30), axis=-1))


def _speech(path: Path) -> None:
    g, a = Graph(x=(1, 200, 257)), 80
    mel = g.op("Abs", g.op("MatMul", g.op("Mul", "x", "x"), g.weight(257, 80)))
    x = g.op("Log", g.op("Add", mel, g.constant(1, np.float32)))
    x = g.op("Transpose", g.op("Sub", x, g.op("ReduceMean", x, axes=[1])), perm=[0, 2, 1])
    for b, k, step in ((256, 5, 1), (256, 3, 2), (256, 3, 3), (256, 1, 1), (512, 1, 1)):
        pads, weights = [step * (k // 2)] * 2, (g.weight(b, a, k), g.weight(b))
        x, a = g.op("Relu", g.op("Conv", x, *weights, kernel_shape=[k], dilations=[step], pads=pads)), b
    mean = g.op("ReduceMean", x, axes=[2])
    d = g.op("Sub", x, mean)
    spread = g.op("Sqrt", g.op("ReduceMean", g.op("Mul", d, d), axes=[2], keepdims=0))
    z = g.op("Concat", g.op("Squeeze", mean, g.constant([2])), spread, axis=1)
    g.write(path, g.linear(g.op("Relu", g.linear(z, 1024, 192)), 192, 50))


def _one_convolution(path: Path) -> None:
    g = Graph(x=(1, 64, 56, 56))
    g.write(path, g.conv("x", (64, 64), 3))


MODELS: Mapping[str, Callable[[Path], None]] = {
    "resnet": _resnet,
    "transformer": _transformer,
    "unrolled": _unrolled,
    "detection": _detection,
    "products": _products,
    "mobilenet": _mobilenet,
    "unet": _unet,
    "mixer": _mixer,
    "gru": _gru,
    "speech": _speech,
}
"""Writers of an ONNX file."""
CASES: Mapping[str, Callable[[Path], None]] = {
    "products_120": lambda path: _products(path, 120),
    "unrolled_200": lambda path: _unrolled(path, 200),
    "conv3x3": _one_convolution,
}
"""More of the same, to be asked for by name."""
