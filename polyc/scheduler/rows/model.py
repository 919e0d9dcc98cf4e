"""What the scheduler needs to know of a Scop, as plain numbers: dimensions, footprints, and when two rows coincide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from functools import lru_cache
from math import lcm, prod

from polyc import code_limits
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Read, Select, Size, evaluate, index_names, substitute, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.scans import find_scan
from polyc.ir.types import DType
from polyc.machine.memory import LINE
from polyc.poly.dependences import Dependences
from polyc.poly.exclusive import Part, find_parts
from polyc.poly.scop import Scop, ScopStatement
from polyc.records import dataclass

UNKNOWN_EXTENT = code_limits.UNKNOWN_EXTENT // 8
"""Extent of a dimension of unknown size, for footprints."""

FAR = LINE // 4
"""Elements from which a step along the last dimension counts as one to another cache line."""

Equation = tuple[tuple[tuple[int, int], int], ...]
"""Terms ((side, dimension), coefficient) whose sum over row coefficients must vanish; side 0 is the source, 1 the sink."""


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
    is_scan: bool = False
    outer: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """By dimension that runs between loaded ends, those that name the ends: they are rows before it."""

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
                for equation in _coincidence((source, source.subscripts), (sink, subscripts), parts):
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
        own = tuple(_coincidence((s, s.subscripts), (s, s.subscripts), parts))
        same = unit_pairs_of(own, len(s.indices), len(s.indices))
        fixed = frozenset(d for d in fixed if (d, d) in same)
    is_scan = not s.is_reduction and len(s.indices) == 1 and _is_scan(s, s.indices[0], dtype)
    place = {i: d for d, i in enumerate(s.indices)}
    outer = {place[i]: frozenset(place[o] for o in r.outer) for i, r in s.loaded_ranges.items()}
    return StatementModel(s.name, position, len(s.indices), extents, tuple(accesses), fixed, own, is_scan, outer)


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
        # An index h + r touches about as many elements as both extents together, not their product.
        steps = {position[i]: abs(c) for i, c in (form or {}).items()}
        reach = sum(extents[d] * (c if (c := steps.get(d, 1)) >= FAR else 1) for d in moved)
        reach = extent if any(isinstance(node, Read) for node in nodes) else reach
        size.append(max(1, min(reach, extent)))
    return AccessShape(tensor, is_write, tuple(moves), prod(size), frozenset(far))


@dataclass(frozen=True, slots=True)
class LinearForm:
    """``sum coefficients[d] * index_d + sum sizes[p] * p + constant``."""

    coefficients: tuple[int, ...]
    sizes: tuple[tuple[str, int], ...]
    constant: int

    def unit(self) -> int | None:
        """The index that is the whole form, or None."""
        if self.constant or self.sizes or sum(map(abs, self.coefficients)) != 1 or 1 not in self.coefficients:
            return None
        return self.coefficients.index(1)


def linear_form(expr: Expr, indices: tuple[str, ...]) -> LinearForm | None:
    """`expr` as a linear form over `indices` and sizes; None where it is not linear."""
    coefficients = [0] * len(indices)
    sizes: dict[str, int] = {}
    constant = 0

    def add(node: Expr, factor: int) -> bool:
        nonlocal constant
        match node:
            case Const() if not node.dtype.is_float:
                constant += factor * int(node.value)
            case Index():
                coefficients[indices.index(node.name)] += factor
            case Size():
                sizes[node.name] = sizes.get(node.name, 0) + factor
            case Cast() if node.dtype.is_integer and node.dtype.bits >= 32:
                return add(node.value, factor)
            case Call("add", (a, b)):
                return add(a, factor) and add(b, factor)
            case Call("sub", (a, b)):
                return add(a, factor) and add(b, -factor)
            case Call("neg", (a,)):
                return add(a, -factor)
            case Call("mul", (Const() as a, b)) | Call("mul", (b, Const() as a)) if not a.dtype.is_float:
                return add(b, factor * int(a.value))
            case _:
                return False
        return True

    if not add(expr, 1):
        return None
    return LinearForm(tuple(coefficients), tuple(sorted((k, v) for k, v in sizes.items() if v)), constant)


def coincidence_equations(
    source: ScopStatement, written: tuple[Expr, ...], sink: ScopStatement, read: tuple[Expr, ...]
) -> list[Equation]:
    """When a row of `source` and a row of `sink` are equal on all pairs that touch the same element.

    phi_sink - phi_source vanishes on the pairs iff it is a combination of the equalities ``written_d(i) = read_d(j)``, that is,
    orthogonal to their null space (the affine hull of the dependence).  Bounds of the domains play no part, so that a size
    of 1 gives the same schedule as any other; subscripts that are not linear give no equality, which only hides coincidence.
    """
    n, m = len(source.indices), len(sink.indices)
    rows: list[tuple[LinearForm, LinearForm]] = []
    for a, b in zip(written, read, strict=True):
        left, right = linear_form(a, source.indices), linear_form(b, sink.indices)
        if left is not None and right is not None:
            rows.append((left, right))
    units = [(left.unit(), right.unit()) for left, right in rows]
    lefts, rights = [a for a, _ in units], [b for _, b in units]
    if None not in lefts and None not in rights and len(set(lefts)) == len(lefts) and len(set(rights)) == len(rights):
        # Every equality is "this index = that index": those coincide, and all other indices are free.
        equations: list[Equation] = [(((0, a or 0), -1), ((1, b or 0), 1)) for a, b in units]
        equations += [(((0, d), 1),) for d in range(n) if d not in lefts]
        equations += [(((1, d), 1),) for d in range(m) if d not in rights]
        return equations
    sizes = sorted({name for left, right in rows for name, _ in (*left.sizes, *right.sizes)})
    matrix = []
    for left, right in rows:
        shift = dict(left.sizes)
        for name, value in right.sizes:
            shift[name] = shift.get(name, 0) - value
        tail = [shift.get(name, 0) for name in sizes]
        matrix.append([*left.coefficients, *(-c for c in right.coefficients), *tail, left.constant - right.constant])
    return equations_of_rows(matrix, n, m, n + m + len(sizes) + 1)


def _coincidence(written: _Touched, read: _Touched, parts: Mapping[str, Part]) -> list[Equation]:
    """When rows are equal on all pairs that touch the same element: what touches one of a partition does so in one part."""
    (source, left), (sink, right) = written, read
    a, b = parts.get(source.name), parts.get(sink.name)
    if a is not None and b is not None and a.key == b.key:
        element = Index(source.indices[a.element]), Index(sink.indices[b.element])
        if element in zip(left, right, strict=True):
            left, right = (*left, Index(source.indices[a.part])), (*right, Index(sink.indices[b.part]))
    return coincidence_equations(source, left, sink, right)


_Touched = tuple[ScopStatement, tuple[Expr, ...]]
"""A statement, and the subscripts of an access in it."""


def equations_of_rows(matrix: list[list[int]], n: int, m: int, width: int) -> list[Equation]:
    """Coincidence equations from equalities over (n source dimensions, m sink dimensions, sizes and constant)."""
    equations: list[Equation] = []
    for vector in null_space(matrix, width):
        terms = [((0, d), -vector[d]) for d in range(n) if vector[d]]
        terms += [((1, d), vector[n + d]) for d in range(m) if vector[n + d]]
        if terms:
            equations.append(tuple(terms))
    return equations


def pivot_columns(matrix: list[list[int]], width: int) -> list[int]:
    """As many columns as the matrix has independent rows, in which these are independent."""
    return _eliminate(matrix, width)[1]


def _eliminate(matrix: Sequence[Sequence[int]], width: int) -> tuple[list[list[Fraction]], list[int]]:
    """The reduced echelon form, and its pivot columns."""
    rows = [[Fraction(x) for x in row] for row in matrix]
    pivots: list[int] = []
    for column in range(width):
        found = next((r for r in range(len(pivots), len(rows)) if rows[r][column]), None)
        if found is None:
            continue
        top = len(pivots)
        rows[top], rows[found] = rows[found], rows[top]
        rows[top] = [x / rows[top][column] for x in rows[top]]
        for r in range(len(rows)):
            if r != top and rows[r][column]:
                factor = rows[r][column]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[top], strict=True)]
        pivots.append(column)
    return rows, pivots


def null_space(matrix: list[list[int]], width: int) -> list[list[int]]:
    """A basis, in integers, of the vectors orthogonal to every row."""
    return [list(vector) for vector in _null_space(tuple(map(tuple, matrix)), width)]


@lru_cache(maxsize=1024)
def _null_space(matrix: tuple[tuple[int, ...], ...], width: int) -> tuple[tuple[int, ...], ...]:
    """Statements of one form, of which a program may have dozens, ask for the same."""
    rows, pivots = _eliminate(matrix, width)
    basis = []
    for free in (c for c in range(width) if c not in pivots):
        vector = [Fraction(0)] * width
        vector[free] = Fraction(1)
        for r, pivot in enumerate(pivots):
            vector[pivot] = -rows[r][free]
        scale = lcm(*(x.denominator for x in vector))
        basis.append(tuple(int(x * scale) for x in vector))
    return tuple(basis)


def unit_pairs_of(equations: list[Equation] | tuple[Equation, ...], n: int, m: int) -> frozenset[tuple[int, int]]:
    """Pairs of single indices that satisfy all equations."""

    def holds(equation: Equation, a: int, b: int) -> bool:
        return sum(factor for (side, d), factor in equation if d == (b if side else a)) == 0

    return frozenset((a, b) for a in range(n) for b in range(m) if all(holds(e, a, b) for e in equations))


def _find_links(scop: Scop) -> tuple[Link, ...]:
    """Statements that read one tensor with identical full-rank subscripts, or write what lies between each other's elements:
    neighbours in source order only."""
    seen: dict[tuple[str, _Shape], tuple[str, tuple[int, ...]]] = {}
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
            if key in seen:
                other, theirs = seen[key]
                links.setdefault((other, s.name), Link(other, s.name, frozenset(zip(theirs, mine, strict=True))))
            seen[key] = (s.name, mine)
    return (*links.values(), *_link_sums(scop, links))


def _link_sums(scop: Scop, links: Mapping[tuple[str, str], Link]) -> Iterator[Link]:
    """Reductions of selected terms that read alike what moves with all indices that any of their reads moves with, neighbours
    among those that share a read: ``r[b] += lo[b] <= x[i] ? w[i] : 0 ; n[b] += lo[b] <= x[i] ? 1 : 0``.  What no read moves
    with has the same place on the left.  Without a selection they are products, which keep registers for themselves."""
    seen: dict[tuple[str, _Shape], ScopStatement] = {}
    reads: dict[str, dict[tuple[str, _Shape], tuple[int, ...]]] = {}
    for s in scop.statements:
        if not s.is_reduction or not any(isinstance(e, Select) for e in walk(s.value)):
            continue
        walks = ((a.tensor, _walked_dimensions(a.read.subscripts, s)) for a in s.accesses)
        mine = reads[s.name] = {(t, walked[1]): walked[0] for t, walked in walks if walked is not None}
        for other in dict.fromkeys(seen[key] for key in mine if key in seen):
            theirs = reads[other.name]
            alike = {pair for key in mine.keys() & theirs.keys() for pair in zip(theirs[key], mine[key], strict=True)}
            is_known = (other.name, s.name) in links
            if is_known or not (_moves_only(other, {a for a, _ in alike}) and _moves_only(s, {b for _, b in alike})):
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
    summed = {d for d, i in enumerate(s.indices) if i in s.reduction_indices}
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
