"""Buffers of the workspace that are never alive together lie in the same memory.

Before: ``thread A: f32[24, 90] … thread B: f32[22, 90] … thread C: f32[20, 90] …`` and ``A = f(X) B = f(A) C = f(B) Y = f(C)``.
After: the same loops, and ``thread C: f32[20, 90] … in A``.

A buffer is alive from the first node of a sequence that touches it to the last one.  Iterations of a parallel loop find garbage
in what each thread has for itself, so that its life is one of their body; what all threads share is alive for as long as a
whole loop.  Lives become memory as in the allocation of registers, the largest buffer first (De Greef, Catthoor and De Man,
"Memory size reduction through storage order optimization for embedded parallel multimedia applications", 1997, call it
inter-array in-place mapping; in TVM it is StorageRewrite).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from polyc.ir.access import touched_in
from polyc.ir.expr import Const
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node
from polyc.ir.walk import Body
from polyc.machine.memory import PAGE
from polyc.records import dataclass, replace

Path = tuple[tuple[int, int], ...]
"""The way to a sequence of nodes: in each sequence on it the number of a node, and 1 for what an ``if`` does otherwise."""


@dataclass(frozen=True, slots=True)
class Life:
    """The nodes `first` to `last` of a sequence."""

    path: Path
    first: int
    last: int

    def meets(self, other: Life) -> bool:
        """Whether both are alive at the same time."""
        if len(self.path) > len(other.path):
            return other.meets(self)
        n = len(self.path)
        if other.path[:n] != self.path:
            return False
        if len(other.path) > n:
            return self.first <= other.path[n][0] <= self.last
        return self.first <= other.last and other.first <= self.last


def share_workspace(nest: LoopNest) -> LoopNest:
    """The nest with memory for each buffer of its workspace, of its own or of one that is alive at other times."""
    sizes = {b.name: _known_bytes(b) for b in nest.buffers if b.space in ("shared", "thread")}
    large = [b for b in nest.buffers if not b.may_alias and sizes.get(b.name, 0) >= PAGE]
    if len(large) < 2:
        return nest
    lives = find_lives(nest.body, large)
    memory: dict[str, str] = {}
    shares: dict[str, list[Buffer]] = {}
    for b in sorted(large, key=lambda b: -sizes[b.name]):
        if b.name not in lives:
            continue
        for first, others in shares.items():
            if others[0].space == b.space and not any(lives[o.name].meets(lives[b.name]) for o in others):
                others.append(b)
                memory[b.name] = first
                break
        else:
            shares[b.name] = [b]
    return replace(nest, buffers=tuple(replace(b, memory=memory.get(b.name, "")) for b in nest.buffers)) if memory else nest


def _known_bytes(buffer: Buffer) -> float:
    """Its bytes; infinity where they are not known."""
    total = buffer.dtype.itemsize
    for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
        if not isinstance(extent, Const) or not isinstance(stride, Const):
            return inf
        total += (int(extent.value) - 1) * int(stride.value)
    return total


def find_lives(body: Body, buffers: Iterable[Buffer]) -> dict[str, Life]:
    """When each buffer is alive that the body touches."""
    touched: dict[int, set[str]] = {}

    def touches(node: Node) -> set[str]:
        if id(node) not in touched:
            touched[id(node)] = touched_in((node,))
        return touched[id(node)]

    def find(body: Body, buffer: Buffer, path: Path) -> tuple[Life, bool] | None:
        """Its life in a sequence, and whether it begins anew in iterations of a parallel loop inside of it."""
        places = [k for k, node in enumerate(body) if buffer.name in touches(node)]
        if not places:
            return None
        whole = Life(path, places[0], places[-1]), False
        node = body[places[0]]
        if len(places) > 1 or not isinstance(node, (If, Loop)):
            return whole
        k = places[0]
        if isinstance(node, If):
            found = [find(part, buffer, (*path, (k, n))) for n, part in enumerate((node.body, node.orelse))]
            inside = [f for f in found if f is not None]
            is_inside = len(inside) == 1 and buffer.name not in touched_in((If(node.condition, ()),))
            return inside[0] if is_inside else whole
        inner = find(node.body, buffer, (*path, (k, 0)))
        if inner is None or buffer.space != "thread" or buffer.name in touched_in((replace(node, body=()),)):
            return whole
        is_anew = inner[1] or (node.kind == "parallel" and node.stream is None)
        return (inner[0], True) if is_anew else whole

    found = {b.name: find(body, b, ()) for b in buffers}
    return {name: life[0] for name, life in found.items() if life is not None}
