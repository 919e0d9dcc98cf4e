"""What is done to a graph before anything of it is compiled: plain functions, graph → graph, in the order of `PASSES`.

None depends on the shapes of inputs, so each is done once, when a model is loaded.  What moves data without computing is not
a matter of these passes: reshapes are views, and transposes are inlined where they are read.
"""

from __future__ import annotations

from collections.abc import Callable

from polyc.frontends.onnx.graph import Graph
from polyc.frontends.onnx.passes.common import merge_common
from polyc.frontends.onnx.passes.concatenations import split_concatenations
from polyc.frontends.onnx.passes.dead import remove_dead
from polyc.frontends.onnx.passes.integers import multiply_integers
from polyc.frontends.onnx.passes.invariants import hoist_invariants
from polyc.frontends.onnx.passes.no_ops import remove_no_ops
from polyc.frontends.onnx.passes.pads import merge_pads
from polyc.frontends.onnx.passes.quantization import cancel_quantization
from polyc.frontends.onnx.passes.scales import fold_scales
from polyc.frontends.onnx.passes.sequences import resolve_sequences
from polyc.frontends.onnx.passes.transposes import cancel_transposes

PASSES: tuple[Callable[[Graph], Graph], ...] = (
    hoist_invariants,
    remove_no_ops,  # Constant nodes become constants, which the others look for
    resolve_sequences,  # before equal parts are looked for
    merge_common,  # exporters repeat shapes and masks in each layer
    cancel_transposes,  # before scales, so that these stand behind their convolution again
    merge_pads,
    fold_scales,
    cancel_quantization,  # before layers are looked for that read what is left
    multiply_integers,  # behind those that look for layers of floats
    split_concatenations,
    remove_dead,  # what the others left without use
)


def simplify(graph: Graph) -> Graph:
    """All passes, one after the other; the same outputs up to rounding, fewer nodes."""
    for run in PASSES:
        graph = run(graph)
    return graph
