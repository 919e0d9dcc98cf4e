"""Fragments → clusters: what is compiled together, decided by the access maps of statements and the traffic between them.

A cluster is one kernel.  Putting a statement into the kernel of its producer saves storing and reading what is between them;
it must not give a contraction's loops a second master.  The rules, in the order of fragments:

* a contraction (a sum of products over more than a few points) begins a cluster, and takes with it what only moves or converts
  its operands and nobody else reads: that is inlined into its reads;
* pointwise work goes to the cluster that makes its largest operand, where both have as many elements: an activation, a
  residual, a bias ride on the accumulators;
* a reduction (a mean, a softmax, a pooling) goes to its producer's cluster unless that has a contraction;
* a recurrence is alone with the pointwise work behind it.

No cluster may come to need itself: a fragment joins a cluster only where no other producer of it depends on that cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from polyc.frontends.onnx.trace import Fragment
from polyc.ir.expr import Call, Const, Expr, Index, Read, reads, walk
from polyc.ir.program import RangeClause, Statement
from polyc.ir.traced import whole

Kind = Literal["contraction", "reduction", "recurrence", "pointwise", "opaque"]
"""``opaque``: nothing that polyc compiles; a step of its own."""

MAX_STATEMENTS = 24
"""Statements of a cluster: the time to compile grows faster than their number."""
FEWEST_PRODUCTS = 8
"""Points of a sum of products from which on it counts as a contraction."""


@dataclass(slots=True)
class Cluster:
    """Fragments (by number) that are compiled together; `needs` are all clusters it depends on, also through others."""

    number: int
    fragments: list[int] = field(default_factory=list)
    kind: Kind = "pointwise"
    size: int = 0
    """Elements of the result of its contraction or recurrence; without one, of its largest result."""
    n_statements: int = 0
    needs: set[int] = field(default_factory=set)


def partition(fragments: Sequence[Fragment | None], producers: Sequence[Iterable[int]]) -> list[list[int]]:
    """Groups of fragments in an order in which they can run; None stands for a node that is no fragment, alone in its group.

    `producers` are the numbers of the fragments each one reads.  A fragment without statements is in no group."""
    state = _Partitioning(fragments, [tuple(dict.fromkeys(p)) for p in producers])
    for i in range(len(fragments)):
        state.place(i)
    return state.ordered()


class _Partitioning:
    def __init__(self, fragments: Sequence[Fragment | None], producers: Sequence[tuple[int, ...]]) -> None:
        self.fragments = fragments
        self.producers = producers
        self.clusters: list[Cluster] = []
        self.cluster_of: dict[int, Cluster] = {}
        self.kinds = [classify(f) for f in fragments]
        self.sizes = [0 if f is None else largest_result(f) for f in fragments]
        self.readers: dict[int, int] = {}
        for p in producers:
            for i in p:
                self.readers[i] = self.readers.get(i, 0) + 1

    def sources(self, i: int) -> list[int]:
        """Producers of a fragment that compute something: those behind views."""
        found: dict[int, None] = {}
        for p in self.producers[i]:
            if p in self.cluster_of:
                found[p] = None
            else:
                found |= dict.fromkeys(self.sources(p))
        return list(found)

    def place(self, i: int) -> None:
        """Put a fragment into a cluster."""
        fragment = self.fragments[i]
        if fragment is not None and not fragment.statements:
            return
        sources = self.sources(i)
        needed = {c.number for s in sources for c in (self.cluster_of[s],)}
        home = None if fragment is None else self._find_home(i, sources)
        if home is None:
            home = Cluster(len(self.clusters))
            self.clusters.append(home)
        home.fragments.append(i)
        home.n_statements += 0 if fragment is None else len(fragment.statements)
        if RANK[self.kinds[i]] > max(RANK[home.kind], RANK["reduction"]):
            home.size = self.sizes[i]
        elif RANK[home.kind] <= RANK["reduction"]:
            home.size = max(home.size, self.sizes[i])
        home.kind = stronger(home.kind, self.kinds[i])
        self.cluster_of[i] = home
        for number in needed - {home.number}:
            home.needs |= {number} | self.clusters[number].needs
        for other in self.clusters:  # who needs this cluster needs what it needs now
            if home.number in other.needs:
                other.needs |= home.needs

    def _find_home(self, i: int, sources: Sequence[int]) -> Cluster | None:
        """The cluster that a fragment joins; None: one of its own."""
        kind, fragment = self.kinds[i], self.fragments[i]
        assert fragment is not None
        best: Cluster | None = None
        for s in sources:
            home = self.cluster_of[s]
            if home.kind == "opaque" or home.n_statements + len(fragment.statements) > MAX_STATEMENTS:
                continue
            if any(home.number in self.cluster_of[o].needs for o in sources if self.cluster_of[o] is not home):
                continue
            if not self._fits(i, kind, s, home):
                continue
            if best is None or (home.size, home.number) > (best.size, best.number):
                best = home
        return best

    def _fits(self, i: int, kind: Kind, source: int, home: Cluster) -> bool:
        """Whether a fragment of this kind may share the kernel of `home`."""
        if kind == "recurrence":
            return False
        if kind == "contraction":
            # Pointwise work on an operand is repeated for each of its uses where it is not a copy: it must be cheap.
            only = home.kind == "pointwise" and all(self.readers.get(f, 0) == 1 for f in home.fragments)
            return only and all(is_cheap(s) for f in home.fragments for s in self._statements(f))
        if kind == "reduction":
            return home.kind in ("pointwise", "reduction")
        if home.kind in ("contraction", "recurrence"):
            return self.sizes[i] == self.sizes[source] and self.sizes[i] == home.size
        return True

    def _statements(self, i: int) -> Sequence[Statement]:
        fragment = self.fragments[i]
        return () if fragment is None else fragment.statements

    def ordered(self) -> list[list[int]]:
        """Clusters so that each stands behind those it needs; otherwise as the graph has them."""
        done: set[int] = set()
        result: list[list[int]] = []

        def visit(c: Cluster) -> None:
            if c.number not in done:
                done.add(c.number)
                for number in sorted(c.needs):
                    visit(self.clusters[number])
                result.append(sorted(c.fragments))

        for c in sorted(self.clusters, key=lambda c: max(c.fragments)):
            visit(c)
        return result


RANK: Mapping[Kind, int] = {"pointwise": 0, "reduction": 1, "contraction": 2, "recurrence": 3, "opaque": 4}


def stronger(a: Kind, b: Kind) -> Kind:
    """The kind of a cluster of both."""
    return a if RANK[a] >= RANK[b] else b


def classify(fragment: Fragment | None) -> Kind:
    """The kind of what a node computes, from its statements alone."""
    if fragment is None:
        return "opaque"
    own = {s.target for s in fragment.statements}
    kind: Kind = "pointwise"
    for s in fragment.statements:
        read = {r.tensor for r in reads(s.value)}
        if s.target in read or _is_circular(s, fragment.statements, own):
            return "recurrence"
        if s.reduction is not None:
            kind = stronger(kind, "contraction" if is_contraction(s) else "reduction")
    return kind


def _is_circular(s: Statement, statements: Sequence[Statement], own: set[str]) -> bool:
    """Whether what a statement reads is computed from what it writes."""
    seen: set[str] = set()
    stack = [r.tensor for r in reads(s.value) if r.tensor in own]
    while stack:
        tensor = stack.pop()
        if tensor == s.target:
            return True
        if tensor not in seen:
            seen.add(tensor)
            stack += [r.tensor for t in statements if t.target == tensor for r in reads(t.value) if r.tensor in own]
    return False


def is_contraction(s: Statement) -> bool:
    """A sum of products of two tensors over at least `FEWEST_PRODUCTS` points."""
    if s.reduction is None or s.reduction.op != "add":
        return False
    products = [e for e in walk(s.value) if isinstance(e, Call) and e.op == "mul"]
    if not any(all(reads(a) for a in p.args) and len({r.tensor for r in reads(p)}) > 1 for p in products):
        return False
    summed = [i for i in s.indices if i not in s.left_indices]
    return prod(extents(s).get(i, 1) for i in summed) >= FEWEST_PRODUCTS


def extents(s: Statement) -> dict[str, int]:
    """The extent of each index with a constant range."""
    found = {}
    for clause in s.where:
        if isinstance(clause, RangeClause) and isinstance(clause.lower, Const) and isinstance(clause.upper, Const):
            found[clause.index] = whole(clause.upper.value) - whole(clause.lower.value)
    return found


def largest_result(fragment: Fragment) -> int:
    """Elements of the largest output."""
    return max((prod(v.shape) for v in fragment.outputs), default=0)


CHEAP = frozenset(("add", "sub", "mul", "neg", "max", "min", "floordiv", "mod", "abs"))


def is_cheap(s: Statement) -> bool:
    """Whether a statement may be computed again at each read: it moves, converts or scales."""
    return s.reduction is None and all(_is_cheap_node(e) for e in walk(s.value))


def _is_cheap_node(e: Expr) -> bool:
    match e:
        case Call(op, _):
            return op in CHEAP
        case Read(_, subscripts):
            return not any(isinstance(n, Read) for s in subscripts for n in walk(s))
        case Index() | Const():
            return True
        case _:
            return True
