"""Statements over sequences of different lengths, written out over their packed values and the offsets of the sequences.

    before  ``S(b, d) +=! X(b, l, d) * u(b, l)``    with ``ragged float(B, L*, D) X``, ``ragged float(B, L*) u``
    after   ``S(b, d) +=! X.values(l, d) * u.values(l) where l in X.offsets(b):X.offsets(b + 1)``

An index that is read along L* runs over the sequence that is read, and is the position in the packed values afterwards; where
its own value counts it is that less the offset.  A tensor that is assigned along it is packed like what it is read from
(`Ragged.owner`).  Where nothing says which sequence an element is in, the statement is one over all positions:

    before  ``Y(b, l, e) +=! X(b, l, d) * W(d, e)``
    after   ``Y.values(l, e) +=! X.values(l, d) * W(d, e)``
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from polyc.diagnostics import Span, in_notation
from polyc.frontends.core.builder import ProgramBuilder, Target, Version
from polyc.frontends.core.known_signs import follows, implied_by
from polyc.frontends.core.padding import unpadded_reads
from polyc.frontends.core.values import Fault, Value
from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Pad,
    Read,
    Select,
    Size,
    all_hold,
    identity_of,
    index_names,
    int_const,
    le,
    lt,
    map_children,
    reads,
    rewrite,
    substitute,
    type_of,
)
from polyc.ir.program import Condition, Exists, RangeClause, Statement, Tensor, Where, map_statement, statement_reads
from polyc.ir.ragged import Ragged, make_ragged, varying_axes
from polyc.ir.simplify import linear_form
from polyc.ir.types import I32, I64
from polyc.records import dataclass, replace

CODE = "semantic-ragged"

Sequence = tuple[str, Expr]
"""``L*``, and which sequence along it."""


def check_ragged(name: str, shape: tuple[Expr, ...], span: Span | None) -> None:
    """Raise `Fault` where a parameter that is declared so has no sequences."""
    axes = [k for k, axis in enumerate(varying_axes(shape)) if axis]
    if len(axes) == 1 and axes[0]:
        return
    message = f"{name} is ragged and has {len(axes) or 'no'} dimension{'s' * (len(axes) != 1)} of varying length"
    if axes == [0]:
        message = f"the first dimension of {name} varies, and counts the sequences"
    help = in_notation(span, f"ragged float(B, L*, D) {name}", f'{name}: "ragged[f32[B, L*, D]]"')
    raise Fault(CODE, message, f"give the number of sequences first, and one length with a star: {help}", span)


def declare_ragged(b: ProgramBuilder, tensor: Tensor) -> None:
    """Let the parameter `tensor` be ragged, and add the arrays that hold it and the lengths.  Raises `Fault`."""
    shape = tensor.shape or ()
    check_ragged(tensor.name, shape, tensor.span)
    found = make_ragged(tensor.name, shape, tensor.span, b.compressed.values())
    lengths = found.lengths_name
    if lengths in b.sizes or (not found.shares and lengths in b.current):
        message = f"{lengths} names the lengths of the sequences of {tensor.name}, and something else"
        raise Fault(CODE, message, f"rename one of them: {lengths}({'b'}) is the length of sequence b", tensor.span)
    b.compressed[tensor.name] = found
    for part, dtype, extents in zip(found.parts, (tensor.dtype, I32), found.part_shapes, strict=False):
        b.tensors[part] = Tensor(part, dtype, len(extents), extents, "input", part, tensor.span)
    if not found.shares:
        b.tensors[lengths] = Tensor(lengths, I64, 1, shape[:1], "input", lengths, tensor.span)
        b.current[lengths] = Version(lengths, I64, 1, True, shape[:1], True, tensor.span)


def lengths_names(b: ProgramBuilder) -> set[str]:
    """The names by which a definition reads lengths."""
    return {m.lengths_name for m in b.compressed.values() if isinstance(m, Ragged)}


def expand_ragged(
    b: ProgramBuilder, draft: Statement, target: Target, value: Value, op: str | None, init: Expr | None
) -> tuple[Statement, Target, Value, Expr | None, Ragged | None, str | None] | None:
    """A statement over the positions of the sequences that it reads; None where it reads none.  Raises `Fault`."""
    own = lengths_names(b)
    if not own:
        return None
    read = statement_reads(replace(draft, value=value.expr))
    found = [r for r in read if isinstance(b.compressed.get(r.tensor), Ragged)]
    is_declared = b.result_formats.get(target.name) == "ragged"
    if not found and not is_declared and not any(r.tensor in own for r in read):
        return None
    other = next((r for r in read if r.tensor in b.compressed and r not in found), None)
    if other is not None:
        message = f"{other.tensor} is {b.compressed[other.tensor].format}, and this statement has ragged operands as well"
        raise Fault(CODE, message, f"sum over {other.tensor} into a dense tensor first, and read that", other.span)
    draft = map_statement(replace(draft, value=value.expr), lambda e: rewrite(e, lambda n: _plain_length(n, own)))
    body = _Body(b, {m.axes[m.axis]: m for m in reversed(b.compressed.values()) if isinstance(m, Ragged) and not m.owner})
    body.bind(draft, own, () if init is None else reads(init))
    stored = body.check_target(target)
    if is_declared and stored is None:
        message = f"{target.name} is declared ragged, and is not assigned along a length that varies"
        raise Fault(CODE, message, "assign it at the sequence and the position that an operand is read at", target.span)
    if stored is not None and init is None and b.joins_version(target, draft):
        message = f"{target.name} is assigned at other elements above, and a ragged tensor is assigned as a whole"
        raise Fault(CODE, message, "write one statement for it", target.span)
    guards, kept = body.restrict(draft.where)
    changed = body.change(draft.value)
    if guards:
        if op is None:
            raise _leaves_out(target)
        nothing = identity_of(op, type_of(changed, {n: t.dtype for n, t in b.tensors.items()}))
        changed = Select(all_hold(guards), changed, nothing, value.expr.span)
    if op is None and stored is not None:
        whole = (int_const(0), body.patterns[next(filter(None, stored.axes))].shape[0])
        ranges = [w for w in kept if isinstance(w, RangeClause) and Index(w.index) == target.subscripts[0]]
        if any(isinstance(w, Condition) for w in kept) or any((w.lower, w.upper) != whole for w in ranges):
            raise _leaves_out(target)
    subscripts = tuple(map(body.change, target.subscripts)) if stored is None else target.subscripts[1:]
    if init is not None:
        init = _continue(b, init, target, stored)
    # Which sequence an element is in
    told = {index_names(seq).pop() for _, seq in body.bound.values() if index_names(seq)}
    needed = index_names(changed, *subscripts, *(e for w in kept for e in w.expressions), *([init] if init else []))
    needed |= {w.index for w in kept if isinstance(w, RangeClause)}
    single = [n for n, (_, seq) in body.bound.items() if isinstance(seq, Index) and seq.name not in needed]
    single = [n for n in single if sum(body.bound[m][1] == body.bound[n][1] for m in body.bound) == 1]
    dropped = {index_names(body.bound[n][1]).pop() for n in single}
    where = [*(body.segment(n) for n in body.bound if n not in single), *(body.range(n) for n in body.unread), *kept]
    names = [n for n in (*draft.indices, *sorted(told)) if n not in dropped]
    left = index_names(*subscripts)
    indices = tuple(dict.fromkeys((*(n for n in names if n in left), *(n for n in names if n not in left))))
    if op is None and stored is not None and sum(map(bool, stored.axes)) > 1:
        op = "add" if value.dtype.is_complex else "or" if value.dtype.kind == "b" else "max"
    draft = replace(draft, indices=indices, where=tuple(where), subscripts=subscripts, value=changed)
    target = replace(target, subscripts=subscripts)
    return draft, target, replace(value, expr=changed), init, stored, op


def define_positions(b: ProgramBuilder, stored: Ragged, target: Target, value: Value) -> str:
    """A new version of a name, which is packed as `stored` says; the tensor that holds its values."""
    stored = replace(stored, name=b.next_version(target.name), span=target.span)
    rank = len(stored.axes)
    declared = b.declared_shape(target.name, rank)
    if declared is not None and varying_axes(declared) != stored.axes:
        message = f"{target.name} is declared with other varying lengths than it is assigned along"
        raise Fault(CODE, message, f"it varies along {', '.join(a for a in stored.axes if a)}", target.span)
    shape = None if declared is None else replace(stored, shape=declared).part_shapes[0]
    b.compressed[stored.name] = stored
    b.add_tensor(stored.data, value.dtype, rank - 1, target.name, target.span, shape)
    b.rename(target.name, Version(stored.name, value.dtype, rank, value.weak, None, False, target.span))
    return stored.data


def refuse_ragged(b: ProgramBuilder, s: Statement) -> None:
    """Raise `Fault` where what is left of a statement still reads a ragged tensor, or lengths."""
    own = lengths_names(b)
    for read in statement_reads(s):
        if isinstance(b.compressed.get(read.tensor), Ragged) or read.tensor in own:
            name = next((n for n, v in b.current.items() if v.name == read.tensor), read.tensor)
            message = f"{name} belongs to ragged sequences, and neither positions, monoids, recurrences nor calls read these"
            help = in_notation(read.span, "Y(b, d) +=! X(b, l, d)", "Y[b, d] += X[b, l, d]")
            raise Fault(CODE, message, f"assignments and reductions such as {help} do", read.span)


def _leaves_out(target: Target) -> Fault:
    message = f"{target.name} is ragged, and an assignment gives each of its elements a value"
    example = in_notation(target.span, "l > 0 ? X(b, l) : 0", "X[b, l] if l > 0 else 0")
    return Fault(CODE, message, f"leave out ranges and conditions, and choose among values: {example}", target.span)


def _plain_length(node: Expr, names: set[str]) -> Expr | None:
    match node:
        case Cast(Read(tensor) as read, dtype) if dtype == I64 and tensor in names:
            return read
    return None


def _continue(b: ProgramBuilder, init: Expr, target: Target, stored: Ragged | None) -> Expr:
    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Read):
            return None
        before = b.compressed.get(node.tensor)
        if (before is None) != (stored is None) or (isinstance(before, Ragged) and stored and before.axes != stored.axes):
            message = f"{target.name} is ragged here or above, and not in the same way"
            help = "give the result a name of its own"
            if node.tensor == f"{target.name}.in":  # what a call gives as `out`
                message = f"{target.name} is ragged, and holds nothing before this statement"
                help = "write the operator with !, as in +=!, or assign with ="
            raise Fault(CODE, message, help, target.span)
        return Read(before.data, node.subscripts[1:], node.span) if before is not None else None

    return rewrite(init, rule)


@dataclass(slots=True, eq=False)
class _Body:
    """How one statement is written out."""

    b: ProgramBuilder
    patterns: Mapping[str, Ragged]
    """By ``L*``, the parameter that has the offsets."""
    bound: dict[str, Sequence] = field(default_factory=dict)
    """The indices that run over positions."""
    unread: list[str] = field(default_factory=list)
    """Those at which nothing is read, so that nothing tells how many positions there are."""
    facts: list[Expr] = field(default_factory=list)
    """What is at least 0, over the indices and lengths that the user has written."""

    # -- which indices run over positions
    def bind(self, draft: Statement, own: set[str], before: Iterable[Read]) -> None:
        """Find them: what is read along a varying length, then what a range up to such a length bounds."""
        roots = [draft.value, *(e for w in draft.where for e in w.expressions)]
        for read in (*(r for e in roots for r in unpadded_reads(e)), *before):
            m = self.b.compressed.get(read.tensor)
            if not isinstance(m, Ragged):
                continue
            seq = read.subscripts[0]
            for axis, subscript in zip(m.axes, read.subscripts, strict=True):
                if axis and isinstance(subscript, Index):
                    self._bind_index(subscript, (axis, seq), read.tensor)
        for clause in draft.where:
            match clause:
                case RangeClause(index, lower, upper) if index not in self.bound and not follows(-1 - lower, ()):
                    for length in (r for r in reads(upper) if r.tensor in own and follows(r - upper, ())):
                        self._bind_index(Index(index, clause.span), (f"{length.tensor}*", length.subscripts[0]), length.tensor)
                        self.unread.append(index)
        ranged = {w.index for w in draft.where if isinstance(w, RangeClause)}
        unpadded = [r for e in roots for r in unpadded_reads(e)]
        dense = index_names(*(e for r in unpadded if r.tensor not in {*self.b.compressed, *own} for e in r.subscripts))
        for read in (r for e in roots for r in reads(e)):  # shifted, where nothing else tells the range
            m = self.b.compressed.get(read.tensor)
            told = ranged if any(read is r for r in unpadded) else ranged | dense
            for axis, subscript in zip(m.axes, read.subscripts, strict=True) if isinstance(m, Ragged) else ():
                form = linear_form(subscript) if axis and not reads(subscript) else None
                terms = [t for t in form or () if not isinstance(t, int)]
                for i in terms if len(terms) == 1 else ():
                    if isinstance(i, Index) and i.name not in {*self.bound, *told}:
                        self._bind_index(i, (axis, read.subscripts[0]), read.tensor)
                        self.unread.append(i.name)
        for name, (axis, seq) in self.bound.items():
            self.facts += [Index(name), self._length(axis, seq) - 1 - Index(name)]
        for clause in draft.where:
            match clause:
                case RangeClause(index, lower, upper):
                    self.facts += [Index(index) - lower, upper - 1 - Index(index)]
                case Condition(condition):
                    self.facts += implied_by(condition, True, self.facts)

    def _bind_index(self, index: Index, sequence: Sequence, tensor: str) -> None:
        axis, seq = sequence
        self._check_sequence(seq, tensor, index.span)
        if index.name in index_names(seq):
            message = f"{index.name} counts sequences of {tensor}, and cannot run over one of them as well"
            raise Fault(CODE, message, "use two indices", index.span)
        before = self.bound.setdefault(index.name, sequence)
        if before[0] != axis:
            message = f"{index.name} runs along {before[0]} and along {axis}, whose lengths need not be equal"
            raise Fault(CODE, message, f"use an index for each, or declare both with {before[0]}", index.span)
        if before[1] != seq:
            message = f"{index.name} runs over two sequences, whose lengths need not be equal"
            raise Fault(CODE, message, "use an index for each, or read one of them with pad(…, value)", index.span)

    def _check_sequence(self, seq: Expr, tensor: str, span: Span | None) -> None:
        is_plain = isinstance(seq, (Index, Const, Size))
        if not is_plain or (isinstance(seq, Index) and seq.name in self.bound):
            message = f"which sequence of {tensor} is read is calculated"
            raise Fault(CODE, message, "sequences are read at an index or a number", span)

    def check_target(self, target: Target) -> Ragged | None:
        """How the target is packed, where it is assigned along positions.  Raises `Fault`."""
        mentioned = [e for e in target.subscripts if index_names(e) & self.bound.keys()]
        if not mentioned:
            return None
        axes = tuple(self.bound[e.name][0] if isinstance(e, Index) and e.name in self.bound else "" for e in target.subscripts)
        sequences = [self.bound[n][1] for e in mentioned for n in sorted(index_names(e) & self.bound.keys())]
        first = target.subscripts[0]
        if sum(map(bool, axes)) < len(mentioned) or not isinstance(first, Index) or any(s != first for s in sequences):
            name, index = target.name, mentioned[0]
            told = index.name if isinstance(index, Index) else "an index"
            message = f"{name} is assigned at positions of sequences, {told}, and not at the sequence and the position alone"
            example = in_notation(target.span, f"{name}(b, l, …)", f"{name}[b, l, …]")
            raise Fault(CODE, message, f"name the sequence first, and plain positions: {example}", target.span)
        others = [e.name for e in target.subscripts if isinstance(e, Index)]
        if len(set(others)) < len(others):
            raise Fault(CODE, f"an index stands twice on the left side of {target.name}", "use each index once", target.span)
        axis = next(a for a in axes if a)
        return Ragged(target.name, axes, owner=self.patterns[axis].name)

    # -- clauses
    def segment(self, name: str) -> RangeClause:
        """The range of the positions of a sequence."""
        axis, seq = self.bound[name]
        seq = rewrite(seq, lambda node: replace(node, span=None))
        return RangeClause(name, self._offset(axis, seq), self._offset(axis, _next(seq)), seq.span)

    def range(self, name: str) -> RangeClause:
        """That of all positions."""
        return RangeClause(name, int_const(0), self.patterns[self.bound[name][0]].n_entries)

    def restrict(self, where: tuple[Where, ...]) -> tuple[list[Expr], list[Where]]:
        """Conditions on data that clauses make, and the clauses that are left."""
        guards: list[Expr] = []
        kept: list[Where] = []
        for clause in where:
            match clause:
                case RangeClause(index, lower, upper) if index in self.bound:
                    i, length = Index(index, clause.span), self._length(*self.bound[index])
                    told = [le(lower, i)] * (lower != int_const(0)) + [lt(i, upper)] * (upper != length)
                    conditions = [self.change(c) for c in told]
                case Condition(condition):
                    conditions = [self.change(condition)]
                case RangeClause():
                    kept.append(replace(clause, lower=self.change(clause.lower), upper=self.change(clause.upper)))
                    continue
                case Exists():
                    kept.append(replace(clause, value=self.change(clause.value)))
                    continue
            guards += [c for c in conditions if reads(c)]
            kept += [Condition(c, clause.span) for c in conditions if not reads(c)]
        return guards, kept

    # -- expressions
    def change(self, expr: Expr) -> Expr:
        """An expression over positions."""
        found = self._rule(expr)
        return map_children(expr, self.change) if found is None else found

    def _rule(self, node: Expr) -> Expr | None:
        match node:
            case Read(tensor) if isinstance(self.b.compressed.get(tensor), Ragged):
                return self._read(node, None)
            case Pad(Read(tensor)) if isinstance(self.b.compressed.get(tensor), Ragged):
                return self._read(node.read, node)
            case Read(tensor, (seq,)) if f"{tensor}*" in self.patterns:
                self._check_sequence(seq, tensor, node.span)
                return self._offset(f"{tensor}*", _next(seq)) - self._offset(f"{tensor}*", seq)
            case Read(_, subscripts):
                return replace(node, subscripts=tuple(map(self._subscript, subscripts)))
            case Index(name) if name in self.bound:
                return node - self._offset(*self.bound[name])
            case Select(condition, then, other):
                arms = [self._under(condition, holds, arm) for holds, arm in ((True, then), (False, other))]
                return replace(node, condition=self.change(condition), then=arms[0], other=arms[1])
            case Call("lt" | "le" | "gt" | "ge" | "eq" | "ne", (a, b)) if self._is_balanced(a - b):
                return node
            case Call("add" | "sub" | "mul") if self._is_balanced(node):
                return node
        return None

    def _subscript(self, expr: Expr) -> Expr:
        """A subscript of a dense tensor.  Offsets do not cancel there: positions of two sequences may be farther apart."""
        found = {n: Index(n) - self._offset(*self.bound[n]) for n in index_names(expr) & self.bound.keys()}
        return self.change(expr) if reads(expr) else substitute(expr, found)

    def _under(self, condition: Expr, holds: bool, arm: Expr) -> Expr:
        known = self.facts
        self.facts = [*known, *implied_by(condition, holds, known)]
        try:
            return self.change(arm)
        finally:
            self.facts = known

    def _is_balanced(self, expr: Expr) -> bool:
        """Whether offsets cancel each other in an index expression over positions."""
        return self._offset_factors(expr) == {}

    def _offset_factors(self, expr: Expr) -> dict[Sequence, int] | None:
        """How often each offset is in a linear expression over positions; None where it is none, or has no positions."""
        form = linear_form(expr) if not reads(expr) and index_names(expr) & self.bound.keys() else None
        if form is None or any(not isinstance(t, (Index, Size, int)) for t in form):
            return None
        factors: dict[Sequence, int] = {}
        for term, factor in form.items():
            if isinstance(term, Index) and term.name in self.bound:
                sequence = self.bound[term.name]
                factors[sequence] = factors.get(sequence, 0) + factor
        return {s: f for s, f in factors.items() if f}

    def _read(self, read: Read, pad: Pad | None) -> Expr:
        m, seq = self.b.compressed[read.tensor], read.subscripts[0]
        assert isinstance(m, Ragged)
        self._check_sequence(seq, read.tensor, read.span)
        if pad is not None and pad.mode != "value":
            message = f"{read.tensor} is ragged, and reads beyond a sequence have a number"
            raise Fault(
                CODE, message, in_notation(read.span, "write pad(X(b, l - 1), 0)", "write pad(X[b, l - 1], 0)"), read.span
            )
        guards: list[Expr] = []
        places: list[Expr] = []
        is_inside = True
        for axis, subscript in list(zip(m.axes, read.subscripts, strict=True))[1:]:
            if not axis:
                places.append(self.change(subscript))
            elif isinstance(subscript, Index) and self.bound.get(subscript.name) == (axis, seq):
                places.append(subscript)
            else:
                is_inside = False
                is_shifted = self._offset_factors(subscript) == {(axis, seq): 1}
                place = subscript if is_shifted else self._offset(axis, seq) + self.change(subscript)
                places.append(place)
                if pad is not None:
                    guards += [le(self._offset(axis, seq), place), lt(place, self._offset(axis, _next(seq)))]
                else:
                    self._prove_inside(read, axis, seq, subscript)
        new = Read(m.data, tuple(places), read.span)
        if pad is None:
            dtype = self.b.tensors[m.data].dtype
            return new if is_inside else Pad(new, Const(False if dtype.kind == "b" else 0, dtype), read.span)
        fill = self.change(pad.value)
        padded = replace(pad, read=new, value=fill)
        return Select(all_hold(guards), padded, fill, read.span) if guards else padded

    def _prove_inside(self, read: Read, axis: str, seq: Expr, subscript: Expr) -> None:
        for needed in (subscript, self._length(axis, seq) - 1 - subscript):
            if not follows(needed, self.facts):
                message = f"{read.tensor} is read outside of its sequences at this position"
                length = axis.removesuffix("*")
                choice = in_notation(read.span, f"where l in 1:{length}(b)", f"for l in range(1, {length}[b])")
                help = f"read it with pad(..., value), or restrict positions: {choice}"
                raise Fault(CODE, message, help, read.span)

    def _offset(self, axis: str, seq: Expr) -> Expr:
        return Cast(Read(self.patterns[axis].indptr, (seq,), seq.span), I64, seq.span)

    def _length(self, axis: str, seq: Expr) -> Expr:
        return Read(axis.removesuffix("*"), (seq,))


def _next(seq: Expr) -> Expr:
    return int_const(int(seq.value) + 1) if isinstance(seq, Const) else Call("add", (seq, int_const(1)))
