"""Peers that prepare something before they run: torch.compile, oneDNN's blocked layout, JAX, onnxruntime, Halide.

Each `build_…` returns a function that computes once.  Preparation (compiling, laying out weights) is never in a round.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.differentiate import compile_in_torch
from benchmarks.graph import Graph, build_model
from benchmarks.workload import Arrays, Results, Workload, as_results, as_tuple

Once = Callable[[], Any]

AUTOSCHEDULERS = {"halide_mullapudi2016": "Mullapudi2016", "halide_adams2019": "Adams2019", "halide_li2018": "Li2018"}
"""Sides that run Halide, and the autoscheduler behind each.  (Anderson2021 schedules for graphics processors only.)"""
HALIDE = ("halide", *AUTOSCHEDULERS)
"""All sides that run Halide; the first one has schedules that were written by hand."""


def flags(side: str, threads: int) -> dict[str, str]:
    """Environment variables of these sides: XLA takes its threads from them and from the cores it is held to."""
    if side != "jax":
        return {}
    pool = "true" if threads > 1 else "false"
    return {"JAX_PLATFORMS": "cpu", "NPROC": str(threads), "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={pool}"}


def import_torch(threads: int) -> Any:
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return torch


def build_compiled(workload: Workload, arrays: Arrays, threads: int) -> Once:
    """torch.compile of the lines that eager PyTorch runs, for these sizes; it allocates its results itself."""
    torch = import_torch(threads)
    tensors = {n: torch.from_numpy(a) for n, a in arrays.items()}
    if workload.gradient is not None:
        return compile_in_torch(torch, workload.gradient, tensors)
    peer = workload.peers["torch_compile"]
    compiled = torch.compile(lambda **inputs: peer(torch, None, **inputs), dynamic=False, fullgraph=True)
    return lambda: compiled(**tensors)


def import_opencv(threads: int) -> Any:
    import cv2

    cv2.setNumThreads(threads)
    return cv2


@dataclass(frozen=True, slots=True)
class Opaque:
    """A tensor that oneDNN keeps in a layout of its own; read as an array it is laid out plainly, in the result's shape."""

    tensor: Any
    shape: tuple[int, ...]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        array: np.ndarray = self.tensor.to_dense().numpy().reshape(self.shape)
        return array if dtype is None else array.astype(dtype)


def build_blocked(workload: Workload, arrays: Arrays, threads: int) -> Once:
    """A convolution as inside a network that stays in oneDNN's layouts: weights reordered before, results left blocked.

    The image comes as oneDNN left it behind the layer before (blocked), or plain where that is faster."""
    torch = import_torch(threads)
    conv, peer = workload.convolution, workload.peers["torch_blocked"]
    assert conv is not None
    tensors = {n: torch.from_numpy(a) for n, a in arrays.items()}
    image, filters = conv.as_plain(tensors.pop("X"), tensors.pop("F"))
    numbers = [conv.pad] * 2, [conv.stride] * 2, [conv.dilation] * 2, conv.groups
    laid_out = reorder(torch, filters, *numbers, image.shape)
    others = {n: t.to_mkldnn() for n, t in tensors.items()}
    channels = image.shape[1]
    identity = torch.eye(channels, dtype=image.dtype).reshape(channels, channels, 1, 1)
    plain = image.to_mkldnn()
    blocked = torch.conv2d(plain, reorder(torch, identity, [0, 0], [1, 1], [1, 1], 1, image.shape))
    candidates: list[Once] = [partial(peer, torch, None, X=x, F=laid_out, **others) for x in (blocked, plain)]
    run = fastest(candidates)
    return lambda: Opaque(run(), conv.result)


def reorder(torch: Any, filters: Any, pad: Any, stride: Any, dilation: Any, groups: int, image: Any) -> Any:
    """Weights in the layout that oneDNN wants for an image of this shape."""
    return torch._C._nn.mkldnn_reorder_conv2d_weight(filters.to_mkldnn(), pad, stride, dilation, groups, list(image))


def fastest(candidates: list[Once], attempts: int = 5) -> Once:
    """The function with the smallest time; every one is called once before."""

    def seconds(run: Once) -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    for run in candidates:
        run()
    times = [min(seconds(run) for _ in range(attempts)) for run in candidates]
    return candidates[times.index(min(times))]


def build_jax(workload: Workload, arrays: Arrays) -> Once:
    """The jitted function; a call ends when its result is there."""
    import jax

    jax.config.update("jax_enable_x64", True)
    jitted = jax.jit(partial(workload.peers["jax"], jax, None))
    tensors = {n: jax.device_put(a) for n, a in arrays.items()}
    return lambda: as_results([r.block_until_ready() for r in as_tuple(jitted(**tensors))])


MODEL_BYTES = 1 << 31
"""What a serialised model takes at most."""


def build_onnxruntime(workload: Workload, arrays: Arrays, out: Results | None, threads: int) -> Once:
    """A session of a small model; inputs and results are bound, so that a run copies nothing.

    Weights are constants of the model, or inputs if it would be too large for a file of ONNX."""
    import onnxruntime

    conv, given = workload.convolution, dict(arrays)
    places = None if out is None else as_tuple(out)
    shapes = [p.shape for p in places or ()]
    if conv is not None:
        given["X"], given["F"] = conv.as_plain(given["X"], given["F"])
        shapes = [conv.plain_result]
    graph = Graph({n: a.shape for n, a in given.items()}, workload.dtype)
    result = workload.peers["onnxruntime"](graph, None, **{n: n for n in given})
    held = sum(given[n].nbytes for n in workload.weights) < MODEL_BYTES
    constants = workload.weights if held else ()
    model = build_model(graph, given, constants, result, workload.dtype)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in given.items():
        if name not in constants:
            binding.bind_cpu_input(name, array)
    for number, name in enumerate(as_tuple(result)):
        if places is None:
            binding.bind_output(name, "cpu")
        else:
            place = places[number]
            binding.bind_output(name, "cpu", 0, place.dtype.type, shapes[number], place.ctypes.data)

    def once(keep: Arrays = given) -> Any:  # the binding holds addresses only
        session.run_with_iobinding(binding)
        if out is not None:
            return out
        fresh = [o.numpy() for o in binding.get_outputs()]
        return as_results(fresh) if conv is None else fresh[0].reshape(conv.result)

    return once


def build_halide(side: str, workload: Workload, arrays: Arrays, out: Results | None, threads: int) -> Once:
    """The pipeline under the schedule that this autoscheduler finds for these sizes, or its own; found and compiled once."""
    import halide

    buffers = {n: halide.Buffer(a) if a.ndim else a.item() for n, a in arrays.items()}
    function, shape = workload.peers[side](halide, None, **buffers)
    run = schedule_in_halide(halide, side, function, [(0, n) for n in shape], threads)

    def into(array: np.ndarray, keep: Arrays = arrays) -> np.ndarray:  # a buffer refers to NumPy's memory
        run(halide.Buffer(array))
        return array

    if out is None:
        return lambda: into(np.empty(shape, str(function.types()[0])))
    (place,) = as_tuple(out)
    return lambda: into(place)


def schedule_in_halide(
    halide: Any, side: str, function: Any, region: list[tuple[int, int]], threads: int
) -> Callable[[Any], None]:
    """What computes `function` into a buffer, by the schedule that an autoscheduler finds for `region` (starts and extents,
    outermost first), or by the one that it has."""
    pipeline, target = halide.Pipeline(function), _target_of_halide(halide)
    if side in AUTOSCHEDULERS:
        name = AUTOSCHEDULERS[side]
        plugin = f"libautoschedule_{name.lower()}.so"
        # Inside the wheel the libraries lie beside the package, where the loader does not look.
        halide.load_plugin(str(Path(halide.__file__).parent / "lib64" / plugin))
        function.set_estimates(region[::-1])
        pipeline.apply_autoscheduler(target, halide.AutoschedulerParams(name, {"parallelism": str(threads)}))
    pipeline.compile_jit(target)
    return lambda buffer: pipeline.realize(buffer, target)


def _target_of_halide(halide: Any) -> Any:
    """Its target for this machine, without AVX-512 where the system does not offer it: Halide goes by the processor's model."""
    target = halide.get_jit_target_from_environment()
    if "avx512f" not in Path("/proc/cpuinfo").read_text().split():
        for name in dir(halide.TargetFeature):
            if name.startswith("AVX512"):
                target = target.without_feature(getattr(halide.TargetFeature, name))
    return target


def build_sweeps(side: str, workload: Workload, arrays: Arrays, out: Results | None, threads: int) -> Once:
    """Two sweeps for each of ``steps``, from one grid into the inside of another and back."""
    import halide

    sweep, start = workload.peers[side], arrays["X"]
    variables = [halide.Var(f"x{d}") for d in range(start.ndim)]
    grid = halide.ImageParam(halide.Float(64), start.ndim)
    grid.set_estimates([(0, n) for n in reversed(start.shape)])

    def at(*distances: int) -> Any:
        places = [v + d if d else v for v, d in zip(variables, distances, strict=True)]
        return grid[tuple(reversed(places))]

    function = halide.Func("sweep")
    function[tuple(reversed(variables))] = sweep(halide, at)
    run = schedule_in_halide(halide, side, function, [(1, n - 2) for n in start.shape], threads)
    (place,) = as_tuple(out) if out is not None else (None,)
    scratch = np.empty_like(start)

    def once() -> np.ndarray:
        result = np.empty_like(start) if place is None else place
        result[...] = start
        scratch[...] = start
        wholes = [halide.Buffer(a) for a in (result, scratch)]
        insides = [b.cropped([(1, n - 2) for n in reversed(start.shape)]) for b in wholes]
        for _ in arrays["steps"]:
            for source, target in ((0, 1), (1, 0)):
                grid.set(wholes[source])
                run(insides[target])
        return result

    return once
