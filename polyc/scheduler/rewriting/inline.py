"""Inline injective producers into their readers, at statement level, before anything is scheduled.

Before: ``T[i] = X[i] * 2 ; Y[i] = T[i] + 1``.  After: ``Y[i] = X[i] * 2 + 1``.  A producer is inlined where computing it
again costs less than storing and loading it: no reduction, no transcendental or look-up twice, nothing that a loop repeats.
More is computed again of what leaves the caches before another loop reads it (sums along its rows and sums down its columns).

What data chooses of a producer is computed where it is read, if less is loaded for it than would be stored:

    before  ``T[k, y, x] = f(X[k, y, x])  ;  Y[y, x] = T[p[y, x], y, x]``          k of eight planes
    after   ``Y[y, x] = f(X[p[y, x], y, x])``

A check at run time that p is inside moves on to X.  Where others read all of T, it is stored for those alone.  A table that is
computed of its places, ``m[i] = exp(-i * i / 9)``, is not stored where that takes fewer operations than vectors of look-ups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod

from polyc.code_limits import FUNCTION_WORK
from polyc.diagnostics import Remark
from polyc.ir.expr import Expr, Index, Pad, Read, Select, index_names, mentions, reads, rewrite, substitute, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Statement, Tensor, all_reads, map_statement
from polyc.ir.read_sites import find_sites, is_data_dependent
from polyc.machine import Machine
from polyc.poly.domains import is_box
from polyc.poly.extraction import write_out_pad
from polyc.poly.points import points_of
from polyc.poly.ranges import GuardedSubscript, Ranges, StatementRanges
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import look_up_weight, operation_weight, trip_count
from polyc.scheduler.rewriting.builder import ProgramBuilder, find_recurrences
from polyc.scheduler.rewriting.reindexing import map_reads
from polyc.scheduler.traffic import pass_operations

MAX_NODES = 160
"""Expression nodes beyond which a statement takes no more inlined code."""

MAX_REPEATED_WEIGHT = 7
"""Arithmetic operations per element that may be computed again to save a store and a load in near caches (a blur whose rows
have four and are read three times: 2.3 us for 32 x 256 with rows stored, 3.1 without)."""


@dataclass(frozen=True, slots=True)
class _Use:
    """What a consumer reads of a producer: `times` that it would compute each element, on average, and the `weight` of that,
    less look-ups; `is_chosen`: data names all elements that it reads, with `loads` for each; `along`: indices of the producer
    that its results move with; `reason`: why it reads what is stored."""

    reason: str | None
    times: float = 0.0
    weight: float = 0.0
    is_chosen: bool = False
    loads: int = 0
    along: frozenset[str] = frozenset()


def inline_producers(program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, list[Remark]]:
    """Temporaries are computed where they are read."""
    statements = {s.name: s for s in program.statements}
    remarks: dict[str, Remark] = {}
    builder = ProgramBuilder(program, ranges)
    own = builder.own
    readers: dict[str, list[str]] = {}
    for s in program.statements:
        for tensor in dict.fromkeys(r.tensor for r in all_reads(s)):
            readers.setdefault(tensor, []).append(s.name)
    writers = program.writers()
    cycles = [{s.name for s in members} for members in find_recurrences(program)]
    removed: set[str] = set()
    queue = deque(s.name for s in program.statements)
    while queue:
        s = statements[queue.popleft()]
        version = program.tensor(s.target)
        if version.role != "temporary" or s.reduction is not None or len(writers[version.name]) != 1 or s.name in removed:
            continue
        names, producer = readers.get(version.name, []), _Producer(s, own[s.name], version, ranges, target)
        cycle = next((c for c in cycles if s.name in c), set[str]())
        if 0 < len(cycle.intersection(names)) < len(names) and any(
            w.name in cycle and w.reduction is not None for r in reads(s.value) for w in writers.get(r.tensor, ())
        ):
            producer.reason = "its recurrence makes it of sums, and others read it"
        uses = {n: producer.use(statements[n], own[n]) for n in names}
        reason, into = producer.choose(uses)
        if reason is not None and not into:
            remarks.setdefault(s.name, Remark("missed", "inline", f"{version.base} is stored: {reason}", s.name, s.span))
            continue
        for name in into:
            statements[name], own[name] = producer.inline(statements[name], own[name])
        readers[version.name] = [n for n in names if n not in into]
        gone = {s.name} if reason is None else set[str]()
        for tensor in dict.fromkeys(r.tensor for r in all_reads(s)):
            known = readers[tensor]
            readers[tensor] = [n for n in known if n not in gone] + [n for n in into if n not in known]
            if any(uses[n].is_chosen for n in into):  # data chooses of what these are computed from, too
                queue += [w.name for w in writers.get(tensor, ())]
        removed |= gone
        where = "where it is read" if reason is None else f"by {', '.join(into)}, and stored for others: {reason}"
        remarks[s.name] = Remark("passed", "inline", f"{version.base} is computed {where}", s.name, s.span)
    if all(r.kind == "missed" for r in remarks.values()):
        return program, ranges, list(remarks.values())
    builder.statements = [statements[s.name] for s in program.statements if s.name not in removed]
    return (*builder.finish(), list(remarks.values()))


class _Producer:
    """A statement that may be computed where others read the `version` of a tensor that it assigns."""

    def __init__(self, s: Statement, own: StatementRanges, version: Tensor, ranges: Ranges, target: Machine) -> None:
        self.s, self.own, self.version, self.ranges, self.target = s, own, version, ranges, target
        self.indices = [e.name for e in s.subscripts if isinstance(e, Index)]
        self.weight, self.look_ups = operation_weight(s.value), look_up_weight(s)
        # Lanes that data names are loaded and put together one by one, or by an instruction that takes as many loads.
        self.look_up = target.lanes(version.dtype.itemsize) * (1 if target.has_fast_gather else 2)
        self.reason: str | None = None
        """Why no consumer computes it."""
        if own.guards:
            self.reason = "it has run-time guards"
        elif not s.has_plain_left:
            self.reason = "its left side is computed"
        elif any(r.tensor == s.target for r in reads(s.value)):
            self.reason = "it is defined by its own elements"

    def choose(self, uses: Mapping[str, _Use]) -> tuple[str | None, list[str]]:
        """Why it is stored, if it is, and the consumers that compute what they read of it."""
        reason = self.reason or next((use.reason for use in uses.values() if use.reason is not None), None)
        times, most = (of([0.0, *(use.times for use in uses.values())]) for of in (sum, max))
        # Consumers of the same elements share a pass, in which each is looked up once.
        again = sum(use.weight for use in uses.values()) - self.weight + self.look_ups * max(0.0, most - 1)
        shared = set(self.indices).intersection(*(use.along for use in uses.values()))
        stored = pass_operations(self.s, self.own, self.version.dtype, shared, self.ranges.typical, self.target)
        bound = max(MAX_REPEATED_WEIGHT, stored) if most <= 1 and self.weight < FUNCTION_WORK else MAX_REPEATED_WEIGHT
        if reason is None and again > bound:
            reason = f"{self.weight + self.look_ups} operations would be computed {times:.0f} times"
        if reason is None:
            return None, list(uses)
        # Beside what is stored for others: few elements, and no more loads than of these.
        few = [n for n, use in uses.items() if use.is_chosen and use.loads <= 1]
        few = [n for n in few if uses[n].weight <= MAX_REPEATED_WEIGHT]
        return reason, few if len(few) < len(uses) else []

    def use(self, consumer: Statement, own: StatementRanges) -> _Use:
        if self.reason is not None:
            return _Use(self.reason)
        s, ranges = self.s, self.ranges
        if any(r.tensor == s.target for e in consumer.subscripts for r in reads(e)):
            return _Use(f"it says where {consumer.name} writes")
        expressions = [consumer.value] + ([] if consumer.reduction is None else [consumer.reduction.init])
        is_padded = any(isinstance(n, Pad) and n.read.tensor == s.target for e in expressions for n in walk(e))
        is_whole_copy = _is_whole_copy(s, ranges)
        if is_padded and not is_whole_copy:
            return _Use("it is read with padding")
        found = [r for e in expressions for r in reads(e) if r.tensor == s.target]
        total = sum(1 for e in expressions for _ in walk(e)) + sum(1 for _ in walk(s.value)) * len(found)
        is_named = any(is_data_dependent(e) for r in found for e in r.subscripts)
        if total > MAX_NODES * (2 if is_named else 1):  # less is computed in all, as a rule
            return _Use(f"{consumer.name} would grow to {total} nodes")
        has_borders = any(isinstance(n, Pad) and n.mode != "value" for n in walk(s.value))
        trips = {i: max(1, trip_count(own.indices[i].extent)) for i in consumer.indices}
        times, chosen, along = 0.0, list[set[str]](), {*self.indices}  # by read, the indices that data names
        for read in dict.fromkeys(found):
            repeats, named, part = float(prod(trips.values())), set[str](), 1
            along &= {i for i, e in zip(self.indices, read.subscripts, strict=True) if mentions(e, *consumer.left_indices)}
            for index, sub in zip(self.indices, read.subscripts, strict=True):
                linear = index_coefficients(sub)
                if linear is not None:
                    part *= 1 if linear else max(1, trip_count(self.own.indices[index].extent))
                    # Windows that overlap come to the same element several times.
                    repeats /= 1 + sum(abs(c) * (trips.get(i, 1) - 1) for i, c in linear.items())
                elif not is_whole_copy and is_data_dependent(sub):
                    named.add(index)
                    repeats /= max(1, trip_count(self.own.indices[index].extent))
                elif not is_whole_copy:
                    return _Use(f"{consumer.name} reads it at data-dependent places")
            if has_borders and consumer.reduction is not None and repeats > 1:
                return _Use(f"{consumer.name} would find elements beyond borders {repeats:.0f} times")
            chosen.append(named)
            # Of several planes, one that is read once is a part of the tensor.
            times += repeats if named or repeats > 1 else 1 / part
        names = set[str]().union(*chosen)
        loads = len({r for r in reads(s.value) if mentions(r, *names)})
        if names and not (times * loads <= 1 and self._is_read_anywhere(names)):
            return _Use(f"{consumer.name} reads it at data-dependent places")
        if any(not self._held(g.dimension) for g in own.guards if g.read.tensor == s.target):
            return _Use(f"{consumer.name} checks at run time where it reads it")
        saved = self.look_up if all(chosen) and not loads and self._is_looked_up(consumer, found) else 0
        return _Use(None, times, times * max(0, self.weight - saved), all(chosen), loads, frozenset(along))

    def _is_looked_up(self, consumer: Statement, found: Collection[Read]) -> bool:
        """Whether lanes of a consumer are looked up apart: not rows that data names, nor one element after the other."""
        along = index_names(*consumer.subscripts[-1:])
        is_apart = all(any(reads(e) and not along.isdisjoint(index_names(e)) for e in r.subscripts) for r in found)
        return is_apart and consumer.has_plain_left and all(r.tensor != consumer.target for r in reads(consumer.value))

    @cached_property
    def _value(self) -> Expr:
        """The value with borders written out, as places of the nearest elements rather than tests, so that one read does;
        none is on an index of its own, which data may name."""
        holds = points_of(self.s, self.own).satisfy

        def rule(node: Expr) -> Expr | None:
            if not isinstance(node, Pad):
                return None
            found = write_out_pad(node, self.ranges.tensors[node.read.tensor], holds, is_in_tile=True)
            return found.other if isinstance(found, Select) and node.mode != "value" else found

        return rewrite(self.s.value, rule)

    @cached_property
    def _is_whole(self) -> bool:
        """Whether all elements of the tensor are assigned."""
        return is_box(self.own.domain, self.own.indices, self.s.indices)

    def _is_read_anywhere(self, names: Collection[str]) -> bool:
        """Whether what moves with these indices is read whatever their values, and all of the tensor is assigned."""
        sites = [site for site in find_sites(self._value, "value") if mentions(site.read, *names)]
        return self._is_whole and not any(mentions(c, *names) for site in sites for c, _ in site.conditions)

    def _held(self, dimension: int) -> Sequence[tuple[Read, int]]:
        """The reads that move with a dimension, each with the one of its dimensions in which a place is inside just where it is
        in that one; none where there are others."""
        index, whole = self.indices[dimension], self.ranges.tensors[self.s.target][dimension]
        found = list[tuple[Read, int]]()
        for r in dict.fromkeys(r for r in reads(self._value) if mentions(r, index)):
            moving = [d for d, e in enumerate(r.subscripts) if mentions(e, index)]
            if any(r.subscripts[d] != Index(index) or self.ranges.tensors[r.tensor][d] != whole for d in moving):
                return ()
            found += [(r, d) for d in moving]
        return found if self._is_whole else ()

    def inline(self, consumer: Statement, own: StatementRanges) -> tuple[Statement, StatementRanges]:
        """A consumer that computes what it reads."""

        def places(read: Read) -> dict[str, Expr]:
            return dict(zip(self.indices, read.subscripts, strict=True))

        is_named = any(is_data_dependent(e) for r in all_reads(consumer) if r.tensor == self.s.target for e in r.subscripts)
        is_checked = any(g.read.tensor == self.s.target for g in own.guards)
        value = self._value if is_named or is_checked else self.s.value

        def computed(read: Read) -> Expr:
            return substitute(value, places(read))

        def change(expr: Expr) -> Expr:
            return map_reads(expr, computed, self.s.target)

        def move(g: GuardedSubscript) -> Iterator[GuardedSubscript]:
            if g.read.tensor != self.s.target:
                yield g.map(change)
                return
            there = {i: change(e) for i, e in places(g.read).items()}
            condition = None if g.condition is None else change(g.condition)
            for r, d in self._held(g.dimension):
                moved = substitute(r, there)
                assert isinstance(moved, Read)
                shown = g.shown or (self.version.base, g.dimension)
                yield GuardedSubscript(replace(moved, span=g.read.span), d, condition, shown)

        guards = tuple(dict.fromkeys(moved for g in own.guards for moved in move(g)))
        return map_statement(consumer, change), replace(own, guards=guards)


def _is_whole_copy(producer: Statement, ranges: Ranges) -> bool:
    """Whether a tensor is another one, element by element: what lies beyond its borders is the same, too."""
    value = producer.value
    if not isinstance(value, Read) or value.subscripts != producer.subscripts:
        return False
    return ranges.tensors[value.tensor] == ranges.tensors[producer.target]
