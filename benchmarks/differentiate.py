"""Gradients in PyTorch and JAX, of computations that are written forward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks.workload import Gradient, Peer, as_results, as_tuple

Forward = Callable[..., Any]
"""``forward(module, **inputs)``: the results, in the arrays of `torch` or `jax`."""


def differentiate_in_torch(gradient: Gradient, forward: Forward) -> Peer:
    """The forward computation with autograd's record, and what goes back along it."""

    def peer(torch: Any, out: Any, **inputs: Any) -> Any:
        cotangents = tuple(inputs.pop(n) for n in list(inputs) if n.startswith("d_"))
        leaves = {n: inputs[n].detach().requires_grad_() for n in gradient.wrt}
        with torch.enable_grad():
            results = as_tuple(forward(torch, **(inputs | leaves)))
            found = torch.autograd.grad(results, tuple(leaves.values()), cotangents or None)
        return as_results((*(r.detach() for r in results), *found) if gradient.has_value else found)

    return peer


def differentiate_in_jax(gradient: Gradient, forward: Forward, order: Sequence[str] = ()) -> Peer:
    """`jax.vjp`, or `jax.value_and_grad` of a loss; jitted by the runner, which sorts the names of inputs: `order`
    names several results in their order."""

    def peer(jax: Any, out: Any, **inputs: Any) -> Any:
        names = [f"d_{n}" for n in order] or [n for n in inputs if n.startswith("d_")]
        cotangents = tuple(inputs.pop(n) for n in names)
        others = {n: a for n, a in inputs.items() if n not in gradient.wrt}
        results, pull = jax.vjp(
            lambda *leaves: as_tuple(forward(jax, **others, **dict(zip(gradient.wrt, leaves, strict=True)))),
            *(inputs[n] for n in gradient.wrt),
        )
        found = pull(cotangents or tuple(jax.numpy.ones_like(r) for r in results))
        return as_results((*results, *found) if gradient.has_value else found)

    return peer


def compile_in_torch(torch: Any, gradient: Gradient, tensors: dict[str, Any]) -> Callable[[], Any]:
    """torch.compile as it is used in training: of the forward computation, which compiles what goes back along it as well."""
    compiled = torch.compile(partial(gradient.in_torch, torch), dynamic=False, fullgraph=True)
    peer = differentiate_in_torch(gradient, lambda _, **inputs: compiled(**inputs))
    return lambda: peer(torch, None, **tensors)
