"""Random graphs of random nodes, compiled, against onnx's reference implementation.

``python -m tests.onnx.random_graphs SEED COUNT`` runs many and prints those that go wrong; exit code 1 then.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import polyc.onnx

OPSET = 21
LARGEST = 20_000
"""Elements of a value, at most."""


class Graph:
    """A graph that grows; `values` are what its names stand for with the inputs it is tried on."""

    def __init__(self, seed: int) -> None:
        self.pick, self.rng = random.Random(seed), np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, np.ndarray] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.values: dict[str, np.ndarray] = {}

    def input(self, shape: tuple[int, ...]) -> None:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.values[name] = self.rng.standard_normal(shape).astype(np.float32)

    def constant(self, contents: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(contents, dtype)
        return name

    def numbers(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape), np.float32)

    def node(self, op: str, *inputs: str, n_outputs: int = 1, **attributes: Any) -> None:
        """Add a node, unless onnx refuses it or its results are not finite or too large."""
        outputs = [f"v{len(self.nodes)}_{k}" for k in range(n_outputs)]
        known = {n: self.values[n] if n in self.values else self.constants[n] for n in inputs if n}
        try:
            node = helper.make_node(op, list(inputs), outputs, **attributes)
            results = ReferenceEvaluator(model_of([node], known, outputs, {})).run(None, known)
        except Exception:  # the attributes do not fit: another node is drawn
            return
        if all(np.asarray(r).size <= LARGEST and np.all(np.abs(r.astype(np.float64)) < 1e4) for r in results):
            self.nodes.append(node)
            self.values |= {n: np.asarray(r) for n, r in zip(outputs, results, strict=True)}

    def draw(self, rank: int | None = None) -> str:
        """A value of float32, mostly one of the last."""
        names = [n for n, v in self.values.items() if v.dtype == np.float32 and (rank is None or v.ndim == rank)]
        return self.pick.choice(names[-4:] if names and self.pick.random() < 0.8 else names or list(self.inputs))


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Any],
    outputs: list[str],
    constants: dict[str, np.ndarray],
    dynamic: bool = False,
) -> onnx.ModelProto:
    def port(name: str, a: np.ndarray) -> onnx.ValueInfoProto:
        shape = [f"{name}_{d}" for d in range(a.ndim)] if dynamic else a.shape
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), shape)

    graph = helper.make_graph(
        nodes,
        "random",
        [port(n, a) for n, a in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


# --- Nodes -----------------------------------------------------------------------------------------------------------


def elementwise(g: Graph) -> None:
    unary = "Relu Sigmoid Tanh Abs Neg Erf Softplus LeakyRelu HardSwish Exp Sqrt Gelu Elu Floor Sin Mish Identity".split()
    if g.pick.random() < 0.5:
        g.node(g.pick.choice(unary), g.draw())
    else:
        partner = g.draw() if g.pick.random() < 0.5 else g.numbers(*g.values[g.draw()].shape[-1:])
        g.node(g.pick.choice("Add Sub Mul Max Min Mean Div".split()), g.draw(), partner)


def choose(g: Graph) -> None:
    x, y = g.draw(), g.draw()
    g.node("Greater", x, y)
    g.node("Where", list(g.values)[-1], x, y)


def product(g: Graph) -> None:
    x = g.draw()
    n, m = g.values[x].shape[-1] if g.values[x].ndim else 1, g.pick.choice([1, 3, 8, 17])
    if g.values[x].ndim == 2 and g.pick.random() < 0.4:
        g.node("Gemm", x, g.numbers(m, n), g.numbers(m), transB=1, alpha=g.pick.choice([1.0, 0.5]))
    else:
        y = g.draw() if g.pick.random() < 0.3 else g.numbers(n, m)
        if g.values[x].ndim and (y not in g.values or g.values[y].ndim):
            g.node("MatMul", x, y)


def convolution(g: Graph) -> None:
    x = g.draw(4)
    if g.values[x].ndim == 4:
        channels, k = g.values[x].shape[1], g.pick.choice([1, 2, 3])
        group = channels if g.pick.random() < 0.3 else 1
        filters, stride = g.numbers(g.pick.choice([1, 2]) * group, channels // group, k, k), g.pick.choice([1, 1, 2])
        rest = {"strides": [stride, 1], "pads": [k // 2, 0, k // 2, k - 1]}
        if g.pick.random() < 0.2:
            g.node("ConvTranspose", x, g.numbers(channels, 2, k, k), strides=[stride, 2])
        else:
            g.node("Conv", x, filters, group=group, **rest)


def pool(g: Graph) -> None:
    x = g.draw(4)
    rest = {"strides": [g.pick.choice([1, 2])] * 2, "pads": [0, 1, 1, 0]}  # the reference is wrong about ceil_mode
    if g.values[x].ndim == 4 and g.values[x].shape[3] > 1:
        g.node(g.pick.choice(["MaxPool", "AveragePool"]), x, kernel_shape=[2, g.pick.choice([2, 3])], **rest)


def move(g: Graph) -> None:
    x = g.draw()
    shape = g.values[x].shape
    rank = len(shape)
    axis = g.pick.randrange(rank) if rank else 0
    match g.pick.randrange(9):
        case 0:
            g.node("Transpose", x, perm=g.pick.sample(range(rank), rank))
        case 1:
            g.node("Reshape", x, g.constant([*shape[:axis], -1]))
        case 2:
            g.node("Concat", x, g.draw() if g.pick.random() < 0.5 else x, axis=axis)
        case 3:
            step = g.pick.choice([1, 2, -1])
            start, end = (g.pick.randint(0, 2), 2**31) if step > 0 else (-1, -(2**31))
            g.node("Slice", x, *(g.constant([v]) for v in (start, end, axis, step)))
        case 4 if rank and shape[axis] > 1:
            first = g.pick.randint(1, shape[axis] - 1)
            g.node("Split", x, g.constant([first, shape[axis] - first]), n_outputs=2, axis=axis)
        case 5:
            mode = g.pick.choice(["constant", "edge", "reflect"])
            pads = [g.pick.randint(0, 1) if mode != "reflect" or n > 1 else 0 for n in shape]
            g.node("Pad", x, g.constant(pads * 2), mode=mode)
        case 6 if rank and shape[axis]:
            g.node("Gather", x, g.constant(g.rng.integers(-shape[axis], shape[axis], 3)), axis=axis)
        case 7:
            g.node("Unsqueeze", x, g.constant([axis]))
        case _:
            g.node("Tile", x, g.constant([g.pick.randint(1, 2) for _ in range(rank)]))


def reduce(g: Graph) -> None:
    x = g.draw()
    rank = g.values[x].ndim
    axes = g.constant(g.pick.sample(range(rank), g.pick.randint(1, rank)) if rank else [])
    g.node("Reduce" + g.pick.choice("Sum Mean Max Min L2 SumSquare LogSumExp".split()), x, axes, keepdims=g.pick.choice([0, 1]))


def normalize(g: Graph) -> None:
    x = g.draw()
    shape = g.values[x].shape
    if not shape:
        return
    axis = g.pick.randrange(len(shape))
    match g.pick.randrange(5):
        case 0:
            g.node("Softmax", x, axis=axis)
        case 1:
            g.node("LayerNormalization", x, g.numbers(*shape[axis:]), axis=axis)
        case 2:
            g.node("CumSum", x, g.constant(axis), reverse=g.pick.choice([0, 1]))
        case 3 if shape[axis]:
            g.node("TopK", x, g.constant([g.pick.randint(1, shape[axis])]), n_outputs=2, axis=axis)
        case _:
            g.node("ArgMax", x, axis=axis, keepdims=1)
            g.node("Cast", list(g.values)[-1], to=1)


def resize(g: Graph) -> None:
    rank = g.values[x := g.draw(4)].ndim
    scales = g.constant([1.0] * (rank - 2) + [2.0] * min(rank, 2), np.float32)
    g.node("Resize", x, "", scales, mode=g.pick.choice(["nearest", "linear"]))


KINDS: tuple[Callable[[Graph], None], ...] = (
    *(elementwise, elementwise, choose, product, convolution, pool, move, move, move, reduce, normalize, resize),
)


# --- Trying them -----------------------------------------------------------------------------------------------------


def grow(seed: int) -> Graph:
    """A graph of a few nodes on one or two inputs."""
    g = Graph(seed)
    shape = tuple(g.pick.choice([1, 2, 3, 5, 8]) for _ in range(g.pick.choice([1, 2, 3, 4, 4])))
    g.input(shape)
    if g.pick.random() < 0.5:
        g.input(tuple(n if g.pick.random() < 0.7 else 1 for n in shape))
    wanted = g.pick.randint(2, 9)
    for _ in range(4 * wanted):
        if len(g.nodes) < wanted:
            g.pick.choice(KINDS)(g)
    return g


def find_fault(seed: int) -> str | None:
    """What is wrong with the results of a random graph; None if nothing is."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        g = grow(seed)
        used = {n for node in g.nodes for n in node.input}
        outputs = [n for n in g.values if n not in g.inputs and (n not in used or g.pick.random() < 0.1)]
        if not outputs:
            return None
        text = "; ".join(helper.printable_node(n) for n in g.nodes)
        model = model_of(g.nodes, g.inputs, outputs, g.constants, dynamic=g.pick.random() < 0.5)
        try:
            results = polyc.onnx.load(model, strict=True).run(None, g.inputs)
        except Exception as error:
            return f"{seed}: {type(error).__name__}: {error}\n  {text}"
        for name, found in zip(outputs, results, strict=True):
            wanted = g.values[name]
            if found.shape != wanted.shape or found.dtype != wanted.dtype:
                return f"{seed}: {name} is {found.dtype}{found.shape}, not {wanted.dtype}{wanted.shape}\n  {text}"
            scale = max(1.0, float(np.abs(wanted).max(initial=0)))
            if not np.allclose(found, wanted, rtol=1e-3, atol=2e-4 * scale, equal_nan=True):
                return f"{seed}: {name} differs by {np.abs(found - wanted).max()}\n  {text}"
    return None


def main(seed: int, count: int) -> int:
    faults = [fault for k in range(seed, seed + count) if (fault := find_fault(k)) is not None]
    print(*faults, f"{count} graphs, {len(faults)} faults", sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
