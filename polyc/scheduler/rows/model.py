"""What the scheduler needs to know of a Scop, as plain numbers: dimensions, footprints, and when two rows coincide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from math import prod

from polyc import code_limits
from polyc.ir.expr import Expr, Index, Read, Select, evaluate, index_names, substitute, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.scans import find_scan
from polyc.ir.types import DType
from polyc.machine.memory import LINE
from polyc.poly.dependences import Dependences
from polyc.poly.exclusive import Part, find_parts
from polyc.poly.footprints import TILE
from polyc.poly.scop import Scop, ScopStatement
from polyc.records import dataclass
from polyc.scheduler.rows.coincidence import Equation, linear_form, touching_equations, unit_pairs_of

UNKNOWN_EXTENT = code_limits.UNKNOWN_EXTENT // 8
"""Extent of a dimension of unknown size, for footprints."""

FAR = LINE // code_limits.WORD
"""Elements from which a step along the last dimension counts as one to another cache line."""


@dataclass(frozen=True, slots=True)
class AccessShape:
    """One access for the cost model: which dimensions move each subscript, and how many elements it touches in all."""

    tensor: str
    is_write: bool
    moves: tuple[frozenset[int], ...]
    footprint: int
    far: frozenset[int] = frozenset()
    """Dimensions that move the last subscript, but by a cache line or more."""


@dataclass(frozen=True, slots=True)
class StatementModel:
    """`fixed`: dimensions in which two instances of one element never differ (all, if it is no reduction).

    `is_scan`: it has one dimension, and runs along it as a scan does."""

    name: str
    position: int
    n_dims: int
    extents: tuple[int, ...]
    accesses: tuple[AccessShape, ...]
    fixed: frozenset[int]
    own_equations: tuple[Equation, ...]
    itemsize: int
    """Of what it writes."""
    is_scan: bool = False
    outer: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """By dimension that runs between loaded ends, those that name the ends: they are rows before it."""

    @property
    def along_rows(self) -> frozenset[int]:
        """Dimensions of a sum along which the largest of its operands is read in rows."""
        largest = max(a.footprint for a in self.accesses)
        rows = (a.moves[-1] - a.far for a in self.accesses if a.footprint == largest and a.moves)
        return frozenset[int]().union(*rows) if len(self.fixed) < self.n_dims else frozenset()

    def may_follow(self, used: frozenset[int]) -> list[int]:
        """The dimensions that may be the next row where these have been rows."""
        return [d for d in range(self.n_dims) if d not in used and self.outer.get(d, used) <= used]


@dataclass(frozen=True, slots=True)
class Edge:
    """A dependence between two statements: its rows coincide where all `equations` hold.

    `unit_pairs`: the pairs (dimension of source, dimension of sink) that coincide as rows of one index each.
    """

    source: str
    sink: str
    equations: tuple[Equation, ...]
    unit_pairs: frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Link:
    """Two statements that read the same elements at the same indices; no dependence, but a reason to share a pass."""

    first: str
    second: str
    unit_pairs: frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Model:
    statements: dict[str, StatementModel]
    edges: tuple[Edge, ...]
    links: tuple[Link, ...]
    readers: dict[str, frozenset[str]]
    writers: dict[str, frozenset[str]]
    outputs: frozenset[str]
    """Tensors that live beyond the program: never internal to a group of statements."""


class _Sizes(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return UNKNOWN_EXTENT


def build_model(scop: Scop, dependences: Dependences, sizes: Mapping[str, int]) -> Model:
    """Scop → Model.  `sizes` gives footprints their numbers; sizes that are not in it count as `UNKNOWN_EXTENT`."""
    known, parts = _Sizes(sizes), find_parts(scop)
    shapes = {t.name: tuple(max(1, evaluate(e, known)) for e in t.shape) for t in scop.tensors.values()}
    statements = {
        s.name: _statement_model(n, s, shapes, known, scop.tensors[s.target].dtype, parts)
        for n, s in enumerate(scop.statements)
    }
    by_name = {s.name: s for s in scop.statements}
    pairs: dict[tuple[str, str], list[Equation]] = {}
    for flow in dependences.flows:
        source, sink = by_name[flow.source], by_name[flow.sink]
        found = pairs.setdefault((flow.source, flow.sink), [])
        for tensor, subscripts in _reads(sink):
            if tensor == flow.tensor:
                for equation in touching_equations((source, source.subscripts), (sink, subscripts), parts):
                    if equation not in found:
                        found.append(equation)
    edges = tuple(
        Edge(a, b, tuple(equations), unit_pairs_of(equations, len(by_name[a].indices), len(by_name[b].indices)))
        for (a, b), equations in pairs.items()
    )
    readers: dict[str, set[str]] = {}
    writers: dict[str, set[str]] = {}
    for s in scop.statements:
        writers.setdefault(s.target, set()).add(s.name)
        for access in (*s.accesses, *s.init_accesses):
            readers.setdefault(access.tensor, set()).add(s.name)
    return Model(
        statements,
        edges,
        _find_links(scop),
        {t: frozenset(names) for t, names in readers.items()},
        {t: frozenset(names) for t, names in writers.items()},
        frozenset(t.name for t in scop.tensors.values() if t.role != "temporary"),
    )


def _reads(s: ScopStatement) -> list[tuple[str, tuple[Expr, ...]]]:
    """Tensor and subscripts of all reads, those of the initial value over the statement's own indices."""
    element = dict(zip(s.elements, s.subscripts, strict=True))
    initial = [(a.tensor, tuple(substitute(e, element) for e in a.read.subscripts)) for a in s.init_accesses]
    return [(a.tensor, a.read.subscripts) for a in s.accesses] + initial


def _statement_model(
    position: int,
    s: ScopStatement,
    shapes: Mapping[str, tuple[int, ...]],
    known: _Sizes,
    dtype: DType,
    parts: Mapping[str, Part],
) -> StatementModel:
    extents = tuple(max(1, evaluate(s.extents[i], known)) for i in s.indices)
    accesses = [_access_shape(s, s.target, s.subscripts, True, extents, shapes)]
    for tensor, subscripts in _reads(s):
        shape = _access_shape(s, tensor, subscripts, False, extents, shapes)
        if shape not in accesses:
            accesses.append(shape)
    own: tuple[Equation, ...] = ()
    fixed = frozenset(range(len(s.indices)))
    if s.is_reduction:
        own = tuple(touching_equations((s, s.subscripts), (s, s.subscripts), parts))
        same = unit_pairs_of(own, len(s.indices), len(s.indices))
        fixed = frozenset(d for d in fixed if (d, d) in same)
    is_scan = not s.is_reduction and len(s.indices) == 1 and _is_scan(s, s.indices[0], dtype)
    place = {i: d for d, i in enumerate(s.indices)}
    outer = {place[i]: frozenset(place[o] for o in r.outer) for i, r in s.loaded_ranges.items()}
    return StatementModel(
        s.name, position, len(s.indices), extents, tuple(accesses), fixed, own, dtype.itemsize, is_scan, outer
    )


def _is_scan(s: ScopStatement, index: str, dtype: DType) -> bool:
    return any(find_scan(s.target, s.subscripts, s.value, index, step, dtype) is not None for step in (1, -1))


def _access_shape(
    s: ScopStatement,
    tensor: str,
    subscripts: tuple[Expr, ...],
    is_write: bool,
    extents: tuple[int, ...],
    shapes: Mapping[str, tuple[int, ...]],
) -> AccessShape:
    position = {i: n for n, i in enumerate(s.indices)}
    moves, size = [], []
    forms = [index_coefficients(sub) for sub in subscripts]
    far = {position[i] for i, c in ((forms[-1] if forms else None) or {}).items() if abs(c) >= FAR}
    for sub, form, extent in zip(subscripts, forms, shapes[tensor], strict=True):
        nodes = list(walk(sub))
        moved = frozenset(position[node.name] for node in nodes if isinstance(node, Index))
        moves.append(moved)
        # An index h + r touches about as many elements as both extents together, not their product; one that counts tiles
        # touches all that lies in them.
        steps = {position[i]: abs(c) for i, c in (form or {}).items() if abs(c) >= FAR or i.endswith(TILE)}
        reach = sum(extents[d] * steps.get(d, 1) for d in moved)
        reach = extent if any(isinstance(node, Read) for node in nodes) else reach
        size.append(max(1, min(reach, extent)))
    return AccessShape(tensor, is_write, tuple(moves), prod(size), frozenset(far))


def _find_links(scop: Scop) -> tuple[Link, ...]:
    """Statements that read one tensor with identical full-rank subscripts, or write what lies between each other's elements:
    neighbours in source order only, of all and of those that sum over the same dimensions."""
    seen: dict[tuple[str, _Shape, tuple[bool, ...] | None], tuple[str, tuple[int, ...]]] = {}
    links: dict[tuple[str, str], Link] = {}
    for s in scop.statements:
        found: set[tuple[str, _Shape]] = set()
        walks = [(a.tensor, _walked_dimensions(a.read.subscripts, s)) for a in s.accesses]
        if not s.is_reduction and (own := _walked_dimensions(s.subscripts, s)) is not None:
            walks.append((s.target, (own[0], _between(own[1]))))
        for tensor, walked in walks:
            if walked is None or not walked[0] or len(walked[0]) != len(s.indices):
                continue
            mine, shape = walked
            key = (tensor, shape)
            if key in found:
                continue
            found.add(key)
            for summed in (None, tuple(s.indices[d] in s.reduction_indices for d in mine)):
                if (*key, summed) in seen:
                    other, theirs = seen[*key, summed]
                    links.setdefault((other, s.name), Link(other, s.name, frozenset(zip(theirs, mine, strict=True))))
                seen[*key, summed] = (s.name, mine)
    return (*links.values(), *_link_alike(scop, links))


def _link_alike(scop: Scop, links: Mapping[tuple[str, str], Link]) -> Iterator[Link]:
    """Statements that read several tensors alike, and otherwise have the same place on the left: neighbours among those that
    share a read that moves.

    Reductions of selected terms: ``r[b] += lo[b] <= x[i] ? w[i] : 0 ; n[b] += lo[b] <= x[i] ? 1 : 0``, where no read moves with
    what is not alike.  Without a selection they are products, which keep registers for themselves.  Others are updates by
    outer products: ``u[i, j] = x[i] * y[j] ; v[i, j] = x[i] - y[j]``."""
    seen: dict[tuple[str, _Shape], ScopStatement] = {}
    reads: dict[str, dict[tuple[str, _Shape], tuple[int, ...]]] = {}
    for s in scop.statements:
        if s.is_reduction and not any(isinstance(e, Select) for e in walk(s.value)):
            continue
        walks = ((a.tensor, _walked_dimensions(a.read.subscripts, s)) for a in s.accesses)
        mine = reads[s.name] = {(t, walked[1]): walked[0] for t, walked in walks if walked is not None}
        for other in dict.fromkeys(seen[key] for key in mine if key in seen):
            theirs = reads[other.name]
            alike = {pair for key in mine if key in theirs for pair in zip(theirs[key], mine[key], strict=True)}
            if not alike or (other.name, s.name) in links or other.is_reduction != s.is_reduction:
                continue
            if s.is_reduction and not all(_moves_only(x, {p[n] for p in alike}) for n, x in enumerate((other, s))):
                continue
            alike |= _pair_left(other, s, {a for a, _ in alike})
            if all(sorted(p[n] for p in alike) == list(range(len(x.indices))) for n, x in enumerate((other, s))):
                yield Link(other.name, s.name, frozenset(alike))
        seen |= dict.fromkeys(mine, s)


def _moves_only(s: ScopStatement, dims: Collection[int]) -> bool:
    """Whether all reads of a statement move with these dimensions alone."""
    names = index_names(*(e for a in s.accesses for e in a.read.subscripts))
    return names <= {s.indices[d] for d in dims}


def _pair_left(a: ScopStatement, b: ScopStatement, known: Collection[int]) -> set[tuple[int, int]]:
    """Other dimensions of two statements that stand alone at the same place on the left, and have the same extents."""
    found = set()
    for x, y in zip(a.subscripts, b.subscripts, strict=False):
        if isinstance(x, Index) and isinstance(y, Index) and a.extents[x.name] == b.extents[y.name]:
            found.add((a.indices.index(x.name), b.indices.index(y.name)))
    return {(d, e) for d, e in found if d not in known}


_Shape = tuple[tuple[tuple[tuple[int, bool], ...], int], ...]
"""Coefficients, largest first, with whether what they move is summed over where another one is equal, and the constant of each
subscript."""


def _between(shape: _Shape) -> _Shape:
    """The same for all elements that lie between those of one statement: phases of its steps, places in what it walks along."""
    last = max((n for n, (kinds, _) in enumerate(shape) if kinds), default=-1)
    return tuple(
        (kinds, constant // min(c for c, _ in kinds) if kinds else constant if n < last else 0)
        for n, (kinds, constant) in enumerate(shape)
    )


def _walked_dimensions(subscripts: tuple[Expr, ...], s: ScopStatement) -> tuple[tuple[int, ...], _Shape] | None:
    """The dimensions in the subscripts, in order, and how they move them; None unless each is there once, going forward (by any
    step), and none can be taken for another one: of two with one coefficient, one is summed over."""
    reduced = s.reduction_indices
    summed = {d for d, i in enumerate(s.indices) if i in reduced}
    dims: list[int] = []
    shape: list[tuple[tuple[tuple[int, bool], ...], int]] = []
    for sub in subscripts:
        form = linear_form(sub, s.indices)
        if form is None or form.sizes or min(form.coefficients, default=0) < 0:
            return None
        counts = Counter(form.coefficients)
        moving = sorted((-c, counts[c] > 1 and d in summed, d) for d, c in enumerate(form.coefficients) if c)
        kinds = tuple((-c, is_summed) for c, is_summed, _ in moving)
        if len(set(kinds)) < len(kinds):
            return None
        dims += [d for *_, d in moving]
        shape.append((kinds, form.constant))
    return (tuple(dims), tuple(shape)) if len(set(dims)) == len(dims) else None
