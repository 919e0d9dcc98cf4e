"""What a workload is: one computation, how each side writes it, and how much work it is."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

Arrays = dict[str, np.ndarray]
Results = np.ndarray | tuple[np.ndarray, ...]
"""One array, or a tuple where a computation has several results."""
Peer = Callable[..., Any]
"""``peer(module, out, **inputs)``: computes once, into `out` where that is not None and the peer can, and returns the result.

`module` is the peer's package (numpy, torch …) or, for onnxruntime, a `benchmarks.graph.Graph` to write nodes into; inputs are
its own arrays, sharing memory with NumPy's where it can.  Several results are tuples, and so is `out`."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """What a convolution of images ``X`` with filters ``F`` is, for the peers that are derived from it."""

    result: tuple[int, ...]
    pad: int = 0
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    bias_relu: bool = False
    """Whether an input ``B`` is added per channel, and the maximum with 0 taken."""

    def as_plain(self, image: Any, filters: Any) -> tuple[Any, Any]:
        """Both with one dimension for all channels, the filters' counted within their group: NCHW and OIHW."""
        image = image.reshape(image.shape[0], -1, *image.shape[-2:])
        return image, filters.reshape(-1, image.shape[1] // self.groups, *filters.shape[-2:])

    @property
    def plain_result(self) -> tuple[int, ...]:
        """The result's shape as NCHW."""
        return self.result[0], int(np.prod(self.result[1:-2])), *self.result[-2:]


@dataclass(frozen=True, slots=True)
class Gradient:
    """That a workload is the gradient of what its source computes."""

    wrt: tuple[str, ...]
    """Inputs by which it is differentiated, in the order of the results."""
    has_value: bool
    """Whether the value, a scalar, is returned as well, in front of the gradients; else the cotangents are inputs."""
    in_torch: Callable[..., Any]
    """The forward computation, for torch.compile: ``in_torch(torch, **inputs)``."""

    def of(self, operator: Any) -> Any:
        """The operator to be measured, made of that of the source."""
        return operator.value_and_grad(wrt=self.wrt) if self.has_value else operator.vjp(wrt=self.wrt)


@dataclass(frozen=True, slots=True)
class Workload:
    """One computation.

    `source` is ``.tc`` text, an einsum's subscripts, or a decorated function.  `exact` computes the result (or a tuple of them)
    from float64 inputs.
    `flops` and the byte counts are those of the mathematics: every input read once, every output written once, temporaries
    never in memory.
    `tolerance` bounds ``|result - exact| / max(|exact|)`` over all elements.
    """

    name: str
    what: str
    notation: Literal["tc", "einsum", "python"]
    source: str
    make_inputs: Callable[[np.random.Generator], Arrays]
    exact: Callable[..., Results]
    flops: float
    bytes_read: float
    bytes_written: float
    peers: Mapping[str, Peer] = field(default_factory=dict)
    tolerance: float = 2e-5
    dtype: Literal["float32", "float64"] = "float32"
    weights: tuple[str, ...] = ()
    """Inputs that stay the same from call to call where this is a layer of a network: some sides may prepare them."""
    convolution: Convolution | None = None
    roof_bar: float = 0.9
    """Share of the measured roofline from which on the workload is as fast as this machine lets it be, whatever peers do."""
    entry: str | None = None
    """The definition of `source` that is measured, where there are several."""
    has_same_stores: bool = False
    """Whether the roofline writes as polyc's kernel does, past the caches or not, instead of the faster way."""
    gradient: Gradient | None = None

    def inputs(self) -> Arrays:
        """The same arrays in every process: the seed is fixed."""
        arrays = self.make_inputs(np.random.default_rng(7))
        return {n: a.astype(self.dtype) if a.dtype == np.float32 else a for n, a in arrays.items()}

    def signature(self) -> Signature:
        """Type and shape of each input."""
        return signature_of(self.make_inputs, self.dtype)


class ShapesOnly:
    """Stands for a random generator where only types and shapes are asked for; its arrays take no memory."""

    def standard_normal(self, shape: Any, dtype: Any = np.float64) -> np.ndarray:
        return np.broadcast_to(np.zeros((), dtype), shape)

    def random(self, shape: Any, dtype: Any = np.float64) -> np.ndarray:
        return self.standard_normal(shape, dtype)

    def integers(self, low: int, high: int, shape: Any, dtype: Any = np.int64) -> np.ndarray:
        return self.standard_normal(shape, dtype)

    def permutation(self, n: int) -> np.ndarray:
        return self.integers(0, n, n)


Signature = dict[str, tuple[np.dtype, tuple[int, ...]]]


def signature_of(make_inputs: Callable[[Any], Arrays], dtype: str) -> Signature:
    """Type and shape of each input, in a precision; without making the arrays where that is possible."""
    arrays = make_inputs(ShapesOnly())
    return {n: (np.dtype(dtype) if a.dtype == np.float32 else a.dtype, a.shape) for n, a in arrays.items()}


def in_double(workload: Workload) -> Workload:
    """The same computation in float64."""
    return replace(
        workload,
        name=f"{workload.name}_f64",
        what=f"{workload.what}, float64",
        source=re.sub(r"\bfloat\(", "double(", workload.source),
        bytes_read=2 * workload.bytes_read,
        bytes_written=2 * workload.bytes_written,
        tolerance=1e-6 * workload.tolerance,
        dtype="float64",
    )


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Standard normal float32."""
    return rng.standard_normal(shape, dtype=np.float32)


def as_tuple(results: Any) -> tuple[Any, ...]:
    """The results one by one, also where there is only one."""
    return tuple(results) if isinstance(results, tuple | list) else (results,)


def as_results(arrays: Sequence[Any]) -> Any:
    """One array as itself, several as a tuple."""
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def call_loops(
    path: str, sizes: Mapping[str, Any], make_results: Callable[[Arrays], Sequence[np.ndarray]], *constants: Any
) -> Peer:
    """The function in numba at `path`, ``module.function``.

    It takes the inputs (scalars as Python numbers), `constants`, the results, and the temporaries whose shapes the module's
    `SCRATCH` gives for `sizes`: they are made at the first call, in the first result's type, and stay.  `make_results(inputs)`
    makes results where none are given."""
    module, _, name = path.rpartition(".")
    made: list[np.ndarray] = []

    def peer(numba: Any, out: Results | None, **inputs: Any) -> Results:
        loops = importlib.import_module(module)  # needs numba
        results = as_tuple(make_results(inputs) if out is None else out)
        if not made and name in loops.SCRATCH:
            made.extend(np.zeros(shape, results[0].dtype) for shape in loops.SCRATCH[name](**sizes))
        given = [a.item() if a.ndim == 0 else a for a in inputs.values()]
        getattr(loops, name)(*given, *constants, *results, *made)
        returned: Results = as_results(results)
        return returned

    return peer


def make_once(make: Callable[..., Any]) -> Callable[..., Any]:
    """What `make` returns at its first call, at every call: what a program keeps of arrays that stay."""
    made: list[Any] = []

    def get(*given: Any) -> Any:
        if not made:
            made.append(make(*given))
        return made[0]

    return get


def nbytes(*shapes: tuple[int, ...], itemsize: int = 4) -> float:
    """Bytes of arrays of these shapes."""
    return float(sum(itemsize * int(np.prod(s)) for s in shapes))


def example(name: str) -> str:
    """Text of ``examples/<name>.tc``: what is shown is what is measured."""
    return (Path(__file__).parent.parent / "examples" / f"{name}.tc").read_text()
