"""What nodes read, and an order in which each stands behind those whose values it reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnx import GraphProto, NodeProto


def sort_nodes(nodes: Sequence[NodeProto]) -> list[NodeProto] | None:
    """The nodes with each behind those whose values it reads, else in their order; None where they depend in a circle."""
    nodes = list(nodes)
    order = sort_by_names([_used_names(n) for n in nodes], [[o for o in n.output if o] for n in nodes])
    return None if order is None else [nodes[k] for k in order]


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Graphs in the attributes of a node."""
    for a in node.attribute:
        if a.HasField("g"):
            yield a.g
        yield from a.graphs


def _used_names(node: NodeProto) -> list[str]:
    """What a node reads: its inputs, and what its subgraphs take from around them."""
    names = [n for n in node.input if n]
    for graph in subgraphs(node):
        names += _captures(graph)
    return list(dict.fromkeys(names))


def _captures(graph: GraphProto) -> Iterable[str]:
    own = {p.name for p in graph.input} | {t.name for t in graph.initializer}
    own.update(o for n in graph.node for o in n.output)
    used: dict[str, None] = {p.name: None for p in graph.output}
    for node in graph.node:
        used.update((n, None) for n in _used_names(node))
    return [n for n in used if n not in own]


def sort_by_names(reads: Sequence[Sequence[str]], writes: Sequence[Sequence[str]]) -> list[int] | None:
    """Numbers of nodes in an order of dependence that leaves as they are those which need not move; None: a circle."""
    writer = {name: k for k, names in enumerate(writes) for name in names}
    sources = [{writer[n] for n in names if n in writer} for names in reads]
    if all(s < k for k, found in enumerate(sources) for s in found):
        return list(range(len(reads)))
    import heapq

    users: list[list[int]] = [[] for _ in reads]
    for k, found in enumerate(sources):
        for s in found:
            users[s].append(k)
    open_sources = [len(found) for found in sources]
    ready = [k for k, n in enumerate(open_sources) if not n]
    order: list[int] = []
    while ready:
        k = heapq.heappop(ready)
        order.append(k)
        for user in users[k]:
            open_sources[user] -= 1
            if not open_sources[user]:
                heapq.heappush(ready, user)
    return order if len(order) == len(reads) else None


def find_circle(nodes: Sequence[NodeProto]) -> list[str]:
    """Values that depend on each other, the first one again at the end; at most a few of them."""
    writer = {o: k for k, n in enumerate(nodes) for o in n.output if o}
    reads = [[n for n in _used_names(node) if n in writer] for node in nodes]
    state = [0] * len(nodes)  # 0: not seen, 1: on the path, 2: done
    for start in range(len(nodes)):
        path: list[tuple[int, Iterator[str]]] = [(start, iter(reads[start]))] if not state[start] else []
        names: list[str] = []
        if path:
            state[start] = 1
        while path:
            node, rest = path[-1]
            name = next(rest, None)
            if name is None:
                state[node] = 2
                path.pop()
                if names:
                    names.pop()
                continue
            source = writer[name]
            if state[source] == 1:
                first = next(k for k, (n, _) in enumerate(path) if n == source)
                circle = [*names[first:], name]
                shown = circle if len(circle) <= 6 else [*circle[:3], "…", *circle[-2:]]
                return [shown[-1], *shown]
            if not state[source]:
                state[source] = 1
                path.append((source, iter(reads[source])))
                names.append(name)
    return []
