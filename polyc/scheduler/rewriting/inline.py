"""Inline injective producers into their readers, at statement level, before anything is scheduled.

Before: ``T[i] = X[i] * 2 ; Y[i] = T[i] + 1``.  After: ``Y[i] = X[i] * 2 + 1``.  A producer is inlined where computing it
again costs less than storing and loading it: no reduction, no transcendental computed twice, nothing inside a loop that
would repeat it many times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from polyc.diagnostics import Remark
from polyc.ir.expr import Cast, Expr, Index, Pad, Read, reads, substitute, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Statement, all_reads
from polyc.poly.ranges import Ranges, StatementRanges
from polyc.scheduler.accesses import operation_weight, trip_count
from polyc.scheduler.rewriting.builder import ProgramBuilder
from polyc.scheduler.rewriting.reindexing import change_expressions, map_reads

MAX_NODES = 160
"""Expression nodes beyond which a statement takes no more inlined code."""

MAX_REPEATED_WEIGHT = 7
"""Arithmetic operations per element that may be computed again to save a store and a load (a blur whose rows have four and are
read three times: 2.3 us for 32 x 256 with rows stored, 3.1 without)."""


def inline_producers(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Temporaries are computed where they are read."""
    statements = {s.name: s for s in program.statements}
    remarks: list[Remark] = []
    builder = ProgramBuilder(program, ranges)
    own = builder.own
    readers: dict[str, list[str]] = {}
    for s in program.statements:
        for tensor in dict.fromkeys(r.tensor for r in all_reads(s)):
            readers.setdefault(tensor, []).append(s.name)
    writers = program.writers()
    removed: set[str] = set()
    for producer in program.statements:
        producer = statements[producer.name]
        version = program.tensor(producer.target)
        if version.role != "temporary" or producer.reduction is not None or len(writers[version.name]) != 1:
            continue
        names = readers.get(version.name, [])
        reason = _reason_against(producer, [statements[n] for n in names], own, ranges)
        if reason is not None:
            remarks.append(Remark("missed", "inline", f"{version.base} is stored: {reason}", producer.name, producer.span))
            continue
        for name in names:
            statements[name], own[name] = change_expressions(statements[name], own[name], _inline(producer))
        for read in all_reads(producer):
            known = readers[read.tensor]
            readers[read.tensor] = [n for n in known if n != producer.name] + [n for n in names if n not in known]
        removed.add(producer.name)
        remarks.append(Remark("passed", "inline", f"{version.base} is computed where it is read", producer.name, producer.span))
    builder.statements = [statements[s.name] for s in program.statements if s.name not in removed]
    return (*builder.finish(), remarks) if removed else (program, ranges, remarks)


def _reason_against(
    producer: Statement, consumers: list[Statement], own: Mapping[str, StatementRanges], ranges: Ranges
) -> str | None:
    """Why the producer is not inlined; None if it should be."""
    if own[producer.name].guards:
        return "it has run-time guards"
    if not producer.has_plain_left:
        return "its left side is computed"
    if any(r.tensor == producer.target for r in reads(producer.value)):
        return "it is defined by its own elements"
    weight = operation_weight(producer.value)
    is_copy = weight == 0 and not any(isinstance(n, Cast) for n in walk(producer.value))
    size = sum(1 for _ in walk(producer.value))
    has_borders = any(isinstance(n, Pad) and n.mode != "value" for n in walk(producer.value))
    is_whole_copy, uses = _is_whole_copy(producer, ranges), 0.0
    for consumer in consumers:
        if any(r.tensor == producer.target for e in consumer.subscripts for r in reads(e)):
            return f"it says where {consumer.name} writes"
        expressions = [consumer.value] + ([] if consumer.reduction is None else [consumer.reduction.init])
        is_padded = any(isinstance(n, Pad) and n.read.tensor == producer.target for e in expressions for n in walk(e))
        if is_padded and not is_whole_copy:
            return "it is read with padding"
        found = [r for e in expressions for r in reads(e) if r.tensor == producer.target]
        total = sum(1 for e in expressions for _ in walk(e)) + size * len(found)
        if total > MAX_NODES:
            return f"{consumer.name} would grow to {total} nodes"
        trips = {i: max(1, trip_count(ranges.statements[consumer.name].indices[i].extent)) for i in consumer.indices}
        for read in dict.fromkeys(found):
            repeats = float(prod(trips.values()))
            for sub in read.subscripts:
                linear = index_coefficients(sub)
                if linear is None and is_whole_copy:
                    continue
                if linear is None:
                    return f"{consumer.name} reads it at data-dependent places"
                # Windows that overlap come to the same element several times.
                repeats /= 1 + sum(abs(c) * (trips.get(i, 1) - 1) for i, c in linear.items())
            if has_borders and consumer.reduction is not None and repeats > 1:
                return f"{consumer.name} would find elements beyond borders {repeats:.0f} times"
            uses += max(1.0, repeats)
        if any(g.read.tensor == producer.target for g in own[consumer.name].guards):
            return f"{consumer.name} checks at run time where it reads it"
    if is_copy or (uses <= 1 and weight > 0) or uses == 1:
        return None
    if weight * (uses - 1) > MAX_REPEATED_WEIGHT:
        return f"{weight} operations would be computed {uses:.0f} times"
    return None


def _is_whole_copy(producer: Statement, ranges: Ranges) -> bool:
    """Whether a tensor is another one, element by element: what lies beyond its borders is the same, too."""
    value = producer.value
    if not isinstance(value, Read) or value.subscripts != producer.subscripts:
        return False
    return ranges.tensors[value.tensor] == ranges.tensors[producer.target]


def _inline(producer: Statement) -> Callable[[Expr], Expr]:
    """What computes the elements of a producer where they are read."""
    left = [sub.name for sub in producer.subscripts if isinstance(sub, Index)]

    def computed(read: Read) -> Expr:
        return substitute(producer.value, dict(zip(left, read.subscripts, strict=True)))

    return lambda expr: map_reads(expr, computed, producer.target)
