"""How each access of a statement moves with each index: what vectorisation and register tiling look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from types import MappingProxyType
from typing import Literal
from weakref import WeakKeyDictionary

from polyc.code_limits import FUNCTION_WORK, MAX_STRIDE, SHORT_SUM, UNKNOWN_EXTENT
from polyc.ir.expr import Call, Const, Expr, Index, Read, Select, Size, children, index_names, reads, walk
from polyc.ir.linear import index_coefficients, index_steps
from polyc.ir.loaded_ranges import LoadedRange, expected_trips
from polyc.ir.program import Statement
from polyc.poly.footprints import TILE
from polyc.poly.scop import Scop, ScopStatement
from polyc.records import dataclass

Motion = Literal["invariant", "unit", "strided"]
"""unit: to the neighbour; for a read also a few elements on, because all in between are loaded together and shuffled."""

LONGEST_STEP = 2
"""Elements from lane to lane, on average, up to which two registers hold all in between."""

_CHEAP_CALLS = frozenset(
    "add sub mul neg abs max min fmax fmin lt le gt ge eq ne and or not floordiv mod "
    "bitand bitor bitxor shl shr dot4u8s8 floor ceil rint trunc".split()
)


@dataclass(frozen=True, slots=True)
class AccessMotion:
    """One access: coefficient of every index per dimension (None: not linear), is it the write."""

    tensor: str
    coefficients: tuple[dict[str, int] | None, ...]
    is_write: bool
    named: tuple[frozenset[str], ...]
    """Indices in the subscript of each dimension: all that a subscript which is not linear can move with."""
    subscripts: tuple[Expr, ...]
    outer: frozenset[str] = frozenset()
    """Indices that name the segments in which those in the subscripts run: it moves with them, who knows how far."""

    def motion(self, index: str) -> Motion:
        """How the address moves when `index` grows by one."""
        if index in self.outer:
            return "strided"
        for d, c in enumerate(self.coefficients):
            last = d == len(self.coefficients) - 1
            if c is None:
                if index in self.named[d] and not (last and not self.is_write and _steps_on(self.subscripts[d], index)):
                    return "strided"
                continue
            if c.get(index, 0) and not (last and abs(c[index]) <= (1 if self.is_write else MAX_STRIDE)):
                return "strided"
        if not self.coefficients or index not in self.named[-1]:
            return "invariant"
        last_form = self.coefficients[-1]
        return "unit" if last_form is None or last_form.get(index, 0) else "invariant"

    def is_permuted(self, index: str) -> bool:
        """Whether elements along an index are put into lanes by a permutation, or one by one."""
        return bool(self.coefficients) and self.coefficients[-1] is None and index in self.named[-1]

    @property
    def is_placed_by_data(self) -> bool:
        """Whether some subscript is known at run time only, or jumps who knows how far."""
        return any(c is None and index_steps(e) is None for c, e in zip(self.coefficients, self.subscripts, strict=True))


def _steps_on(subscript: Expr, index: str) -> bool:
    """Whether a quotient of indices by a number goes on by two elements at most, so that few loads and a permutation have the
    elements of all lanes."""
    steps = index_steps(subscript)
    is_once = sum(isinstance(e, Index) and e.name == index for e in walk(subscript)) == 1
    return steps is not None and is_once and 0 < steps.get(index, 0) <= LONGEST_STEP


def access_motions(s: ScopStatement) -> list[AccessMotion]:
    """The write and all distinct reads of a statement (those inside subscripts included), but for those at borders."""
    found = _motions.get(s)
    if found is None:  # every pass asks
        found = _motions[s] = _find_motions(s)
    return list(found)


_motions: WeakKeyDictionary[ScopStatement, tuple[AccessMotion, ...]] = WeakKeyDictionary()


def _find_motions(s: ScopStatement) -> tuple[AccessMotion, ...]:
    return find_motions(s.target, s.subscripts, s.value, s.loaded_ranges)


def held_left(s: ScopStatement) -> tuple[str, ...]:
    """Left indices that a register tile may hold: those that are separate, but for numbers of tiles that temporaries are
    made for, of which as many would be alive."""
    made = (m for m in access_motions(s) if m.tensor.endswith(TILE))
    numbers = {i for m in made for names in m.named for i in names if i.endswith(TILE)}
    return tuple(i for i in s.separate_left if i not in numbers)


def find_motions(
    target: str, subscripts: tuple[Expr, ...], value: Expr, loaded: Mapping[str, LoadedRange] = MappingProxyType({})
) -> tuple[AccessMotion, ...]:
    """The write of ``target[subscripts]`` and the reads of a `value`."""
    border = _border_reads(value)
    inside = (read for read in dict.fromkeys(reads(value)) if read not in border)
    own = _access_motion(target, subscripts, True, loaded)
    return (own, *(_access_motion(read.tensor, read.subscripts, False, loaded) for read in inside))


def _border_reads(value: Expr) -> set[Read]:
    """Reads that take the place of linear ones outside of the tensor: clamped, wrapped or mirrored ones."""
    found = set()
    for node in walk(value):
        match node:
            case Select(then=Read() as then, other=Read() as other) if then.tensor == other.tensor:
                if _is_linear(then) and not _is_linear(other):
                    found.add(other)
    return found


def _is_linear(read: Read) -> bool:
    return all(index_steps(e) is not None for e in read.subscripts)


def _access_motion(
    tensor: str, subscripts: tuple[Expr, ...], is_write: bool, loaded: Mapping[str, LoadedRange]
) -> AccessMotion:
    named = tuple(frozenset(index_names(e)) for e in subscripts)
    parts = (r for i, r in loaded.items() if r.is_partition and any(i in names for names in named))
    outer = frozenset(o for r in parts for o in r.outer)
    return AccessMotion(tensor, tuple(map(index_coefficients, subscripts)), is_write, named, subscripts, outer)


def is_strided_window(s: ScopStatement) -> bool:
    """Whether a statement sums a few elements each, over windows that step on along rows of memory by more than one."""
    if not s.is_reduction or operation_weight(s.value) >= FUNCTION_WORK:
        return False
    if prod(trip_count(s.extents[i]) for i in s.reduction_indices) > SHORT_SUM:
        return False
    lasts = (m.coefficients[-1] for m in access_motions(s) if not m.is_write and m.coefficients)
    return any(c and 2 <= abs(c.get(i, 0)) <= MAX_STRIDE for c in lasts for i in s.separate_left)


def trip_count(extent: Expr) -> int:
    """The extent if it is constant, else an assumed one."""
    return int(extent.value) if isinstance(extent, Const) else UNKNOWN_EXTENT


def index_trips(s: ScopStatement) -> dict[str, int]:
    """Iterations by index: its extent, assumed where that is not known, or as many as are expected in a segment."""
    trips = {i: s.trips.get(i, trip_count(s.extents[i])) for i in s.indices}
    loaded = s.loaded_ranges
    return expected_trips(loaded, trips) if loaded else trips


def is_constant(extent: Expr) -> bool:
    return not any(isinstance(node, Size) for node in walk(extent))


def loose_indices(expr: Expr) -> Iterator[str]:
    """Indices used as values, outside of subscripts."""
    if isinstance(expr, Read):
        return
    if isinstance(expr, Index):
        yield expr.name
    for child in children(expr):
        yield from loose_indices(child)


def operation_weight(expr: Expr) -> int:
    """Arithmetic work of one evaluation, a transcendental counting `FUNCTION_WORK`; addresses and borders are beside it."""
    match expr:
        case Read():
            return 0
        case Select() if not reads(expr.condition):
            return operation_weight(expr.then) + operation_weight(expr.other)
        case Call():
            own = call_weight(expr)
        case _:
            own = 0
    return own + sum(operation_weight(child) for child in children(expr))


def look_up_weight(s: Statement) -> int:
    """Work of loading elements that data names for each element of a row, rather than for the row: as that of functions."""
    along = index_names(*s.subscripts[-1:])
    named = (r for r in set(reads(s.value)) for e in r.subscripts if reads(e) and not along.isdisjoint(index_names(e)))
    return FUNCTION_WORK * len(set(named))


def call_weight(call: Call) -> int:
    """Work of a call without that of its operands."""
    return 1 if call.op in _CHEAP_CALLS else (4 if call.op in ("truediv", "sqrt", "rsqrt", "fma") else FUNCTION_WORK)


def statement_work(s: ScopStatement) -> int:
    """Estimated work of all instances."""
    volume = 1
    for trip in index_trips(s).values():
        volume *= trip
    return volume * (1 + operation_weight(s.value))


def vector_itemsize(scop: Scop, statements: list[ScopStatement]) -> int:
    """Bytes of the widest element that these statements read or write, but for offsets of rows (``x[base[n] + k]``) and ends of
    segments.

    Those are numbers of their own, or, where lanes are along other indices, as wide as any address."""
    sizes = (
        scop.tensors[m.tensor].dtype.itemsize
        for s in statements
        for apart in (_offset_tensors(s) | _tensors_of_ends(s),)
        for m in access_motions(s)
        if m.tensor in scop.tensors and (m.is_write or m.tensor not in apart)
    )
    return max(sizes, default=4)


def _tensors_of_ends(s: ScopStatement) -> set[str]:
    """Tensors of which values say where segments end, and nothing else."""
    used = reads(s.value.then) if s.loaded_ranges and isinstance(s.value, Select) else ()
    ends = (r.tensor for found in s.loaded_ranges.values() if found.begin is not None for r in reads(found.begin))
    return set(ends) - {r.tensor for r in used}


def _offset_tensors(s: ScopStatement) -> set[str]:
    """Tensors that are read only to be added to indices in subscripts."""

    def outermost(expr: Expr) -> Iterator[str]:
        if isinstance(expr, Read):
            yield expr.tensor
        else:
            for child in children(expr):
                yield from outermost(child)

    offsets, others = set[str](), set(outermost(s.value))
    for read in reads(s.value):
        for subscript in read.subscripts:
            inside = {r.tensor for r in reads(subscript)}
            if inside and any(loose_indices(subscript)):
                offsets |= inside
            else:
                others |= inside
    return offsets - others
