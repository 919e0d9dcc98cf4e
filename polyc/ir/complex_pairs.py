"""Complex numbers written out as pairs of real ones: what makes them types of tensors only below this pass.

    before  ``O:c64[m] = A:c64[m] * B:c64[m]``
    after   ``O:f32[m, 0] = A[m, 0] * B[m, 0] - A[m, 1] * B[m, 1]  ;  O[m, 1] = A[m, 0] * B[m, 1] + A[m, 1] * B[m, 0]``

Arguments and results hold their pairs side by side, as NumPy and C do, so they get one dimension more, of extent 2.  A
temporary becomes two tensors, ``T.re`` and ``T.im``, with the statements of the original twice over, so that a recurrence,
a scan or a condition is for later passes what it would be on real numbers.

A sum of products is *one* real sum, twice as deep and twice as wide, which the contraction engine takes as it is:

    before  ``O:c64[m, n] += A:c64[m, k] * B:c64[k, n]``
    after   ``B.turn:f32[k, p, n, c] = p == c ? B[k, n, 0] : …  ;  O:f32[m, n, c] += A[m, k, p] * B.turn[k, p, n, c]``
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from polyc.diagnostics import CompileBudgetError, Diagnostic, UnsupportedError
from polyc.ir.complex_functions import Pair, apply_complex, divide_pairs, is_zero, multiply_pairs
from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Pad,
    Read,
    Select,
    children,
    identity_of,
    int_const,
    substitute,
    type_of,
    walk,
    with_children,
)
from polyc.ir.program import (
    Condition,
    Exists,
    Monoid,
    Program,
    Reduction,
    Statement,
    Tensor,
    Where,
    element_names,
    order_components,
)
from polyc.ir.read_sites import ReadSite, collect_reads, find_sites, is_data_dependent, keep_reads, mention
from polyc.ir.segments import is_segmented
from polyc.ir.types import DType

RE, IM = int_const(0), int_const(1)
MAX_NODES = 2000
"""Nodes of the real part of one product."""


def has_complex(program: Program) -> bool:
    """Whether anything in `program` is a complex number."""
    if any(t.is_complex for t in program.types.values()):
        return True
    roots = [e for s in program.statements for e in (s.value, *s.subscripts)]
    roots += [c.condition for s in program.statements for c in s.where if isinstance(c, Condition)]
    return any(isinstance(n, (Cast, Const)) and n.dtype.is_complex for e in roots for n in walk(e)) or any(
        isinstance(n, Call) and n.op == "complex" for e in roots for n in walk(e)
    )


def split_complex(program: Program) -> Program:
    """`program` with all complex numbers as pairs of real ones; any other program as it is."""
    return _Splitter(program).split() if has_complex(program) else program


@dataclass(slots=True)
class _Splitter:
    program: Program
    types: Mapping[str, DType] = field(init=False)
    paired: set[str] = field(init=False)
    """Complex versions whose parts lie side by side in one tensor; of the others each part is a tensor."""
    tensors: list[Tensor] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    names: set[str] = field(init=False)

    def __post_init__(self) -> None:
        program = self.program
        self.types = program.types
        self.names = {t.name for t in program.tensors}
        writers = program.writers()
        self.paired = {
            t.name
            for t in program.tensors
            if t.dtype.is_complex and (t.role in ("input", "accumulated") or self._are_pairs(writers[t.name]))
        }

    def split(self) -> Program:
        for t in self.program.tensors:
            self._declare(t)
        last = {s.target: s.name for s in self.program.statements}
        for s in self.program.statements:
            self._split_statement(s)
            if last[s.target] == s.name and self._is_joined(s.target):
                self._join(s)
        return replace(self.program, tensors=tuple(self.tensors), statements=tuple(self.statements))

    # -- tensors -------------------------------------------------------------------------------------------------
    def _is_joined(self, name: str) -> bool:
        """Whether a result is computed in parts and put together at the end."""
        t = self.program.tensor(name)
        return t.dtype.is_complex and t.role == "output" and name not in self.paired

    def _are_pairs(self, writers: Sequence[Statement]) -> bool:
        """Whether all statements of a version can write both parts where they belong; several of them if nothing is summed."""
        if len(writers) != 1 and any(s.reduction is not None for s in writers):
            return False
        return bool(writers) and all(self._writes_pairs(s) for s in writers)

    def _writes_pairs(self, s: Statement) -> bool:
        """Whether the statement can write both parts of each element where they belong."""
        if any(isinstance(n, Read) and n.tensor == s.target for n in walk(s.value)):
            return False
        if s.reduction is not None:
            return self._find_product(s) is not None
        return self.program.tensor(s.target).role == "output" and not is_segmented(s)

    def _declare(self, t: Tensor) -> None:
        if not t.dtype.is_complex:
            self.tensors.append(t)
            return
        pairs = replace(t, dtype=t.dtype.part, rank=t.rank + 1, shape=None if t.shape is None else (*t.shape, int_const(2)))
        if t.name in self.paired:
            self.tensors.append(pairs)
            return
        if t.role == "output":
            self.tensors.append(pairs)
        for part in ("re", "im"):
            self.tensors.append(replace(t, name=f"{t.name}.{part}", dtype=t.dtype.part, role="temporary"))

    def _temporary(self, s: Statement, name: str, dtype: DType, rank: int) -> str:
        while name in self.names:
            name += "_"
        self.names.add(name)
        self.tensors.append(Tensor(name, dtype, rank, None, "temporary", self.program.tensor(s.target).base, s.span))
        return name

    # -- statements ----------------------------------------------------------------------------------------------
    def _split_statement(self, s: Statement) -> None:
        dtype = self.types[s.target]
        s = replace(s, where=tuple(self._clause(w) for w in s.where))
        if not dtype.is_complex:
            reduction = s.reduction
            if reduction is not None and reduction.monoid is None:
                reduction = replace(reduction, init=self._real(reduction.init))
            subscripts = tuple(self._real(e) for e in s.subscripts)
            real = replace(s, subscripts=subscripts, value=self._real(s.value), reduction=reduction)
            self.statements.append(self._keep_reads(real, s.value))
            return
        found = self._find_product(s) if s.target in self.paired and s.reduction is not None else None
        if found is not None:
            self._write_product(s, *found)
            return
        original, value = s.value, self._pair(s.value)
        subscripts = tuple(self._real(e) for e in s.subscripts)
        if s.reduction is not None and s.reduction.op == "mul":
            self._multiply(replace(s, subscripts=subscripts), value, s.reduction.init)
            return
        init = (None, None) if s.reduction is None else self._pair(s.reduction.init)
        for part, position, expr, start in zip(("re", "im"), (RE, IM), value, init, strict=True):
            target, place = (
                (s.target, (*subscripts, position)) if s.target in self.paired else (f"{s.target}.{part}", subscripts)
            )
            reduction = s.reduction
            if reduction is not None and start is not None:
                renamed = zip(s.element_names, element_names(target, place), strict=False)
                reduction = replace(reduction, init=substitute(start, {old: Index(new) for old, new in renamed}))
            made = replace(s, name=f"{s.name}.{part}", target=target, subscripts=place, value=expr, reduction=reduction)
            self.statements.append(self._keep_reads(made, original))

    def _keep_reads(self, made: Statement, original: Expr) -> Statement:
        """The statement with `Exists` clauses for what `original` reads of which its real value reads neither part."""
        known = {_site_key(site) for site in collect_reads(made)}
        lost: list[Expr] = []
        for mentioned in mention(original):
            sites = find_sites(self._real(mentioned), "exists")
            if sites and known.isdisjoint(_site_key(site) for site in sites):
                lost.append(self._real(mentioned))
        return keep_reads(made, lost)

    def _join(self, s: Statement) -> None:
        """``O[i, 0] = O.re[i]  ;  O[i, 1] = O.im[i]`` for all elements of a result."""
        indices = tuple(f"i{d}" for d in range(self.program.tensor(s.target).rank))
        element: tuple[Expr, ...] = tuple(Index(i, s.span) for i in indices)
        for part, position in (("re", RE), ("im", IM)):
            value = Read(f"{s.target}.{part}", element, s.span)
            subscripts = (*element, position)
            self.statements.append(Statement(f"{s.name}.join.{part}", s.target, subscripts, indices, value, None, (), s.span))

    def _multiply(self, s: Statement, value: Pair, init: Expr) -> None:
        """A product over indices: pairs are multiplied by a monoid of two components."""
        assert s.reduction is not None
        part = self.types[s.target].part
        starts_at_one = isinstance(init, Const) and init.value == 1
        if not s.has_plain_left or (not starts_at_one and len(self.program.writers()[s.target]) > 1):
            message = "a product of complex numbers is written to part of a tensor"
            help = "multiply into a tensor of its own, with plain indices on the left, and copy it"
            raise UnsupportedError(Diagnostic("unsupported-complex", message, s.span, help))
        monoid = _product(part)
        targets = [f"{s.target}.re", f"{s.target}.im"]
        if not starts_at_one:
            targets = [self._temporary(s, f"{s.target}.product.{p}", part, len(s.subscripts)) for p in ("re", "im")]
        for k, target in enumerate(targets):
            reduction = Reduction("combine", monoid.identity[k], monoid, k)
            tuples = Call("tuple", order_components(value, k), s.span)
            self.statements.append(replace(s, name=f"{s.name}.{k}", target=target, value=tuples, reduction=reduction))
        if not starts_at_one:
            left = s.left_indices
            made = [Read(t, s.subscripts, s.span) for t in targets]
            where = tuple(w for w in s.where if not isinstance(w, (Condition, Exists)) and w.index in left)
            for part_name, result in zip(("re", "im"), multiply_pairs(self._pair(init), (made[0], made[1])), strict=True):
                self.statements.append(
                    Statement(
                        f"{s.name}.{part_name}", f"{s.target}.{part_name}", s.subscripts, left, result, None, where, s.span
                    )
                )

    # -- sums of products ----------------------------------------------------------------------------------------
    def _find_product(self, s: Statement) -> tuple[Read, bool, Read, bool] | None:
        """The two factors of a sum of products of plain elements, and whether each is conjugated; the first one is not."""
        assert s.reduction is not None
        if s.reduction.op != "add" or s.where or not s.has_plain_left or not s.reduction_indices:
            return None
        init, value = s.reduction.init, s.value
        if not (isinstance(init, Const) and init.value == 0):
            return None
        if not isinstance(value, Call) or value.op != "mul":
            return None
        factors = [self._plain_factor(a) for a in value.args]
        if factors[0] is None or factors[1] is None:
            return None
        (a, a_turned), (b, b_turned) = factors[0], factors[1]
        shared = {e for e in a.subscripts if e in b.subscripts}
        left = {Index(i) for i in s.left_indices}
        # Without an index of its own on either side there is no tile: the parts are summed apart.
        if not shared - left or not set(a.subscripts) & left - shared or not set(b.subscripts) & left - shared:
            return None
        if a_turned:
            return (b, False, a, True) if not b_turned else None
        return a, False, b, b_turned

    def _plain_factor(self, expr: Expr) -> tuple[Read, bool] | None:
        is_conjugated = isinstance(expr, Call) and expr.op == "conj"
        if isinstance(expr, Call) and is_conjugated:
            expr = expr.args[0]
        if not isinstance(expr, Read) or not self.types[expr.tensor].is_complex:
            return None
        distinct = len(set(expr.subscripts)) == len(expr.subscripts) and all(isinstance(e, Index) for e in expr.subscripts)
        return (expr, is_conjugated) if distinct and expr.subscripts else None

    def _write_product(self, s: Statement, a: Read, _: bool, b: Read, is_conjugated: bool) -> None:
        part = self.types[s.target].part
        p, c = self._fresh_index(s, "p"), self._fresh_index(s, "c")
        left = set(s.left_indices)
        outer = [e for e in b.subscripts if isinstance(e, Index) and e.name not in left]
        inner = [e for e in b.subscripts if isinstance(e, Index) and e.name in left]
        turned = self._temporary(s, f"{s.name}.{b.tensor}.turn", part, len(b.subscripts) + 2)
        re, im = self._pair(Call("conj", (b,), b.span) if is_conjugated else b)
        cells = (((RE, RE), re), ((RE, IM), im), ((IM, RE), Call("neg", (im,), s.span)), ((IM, IM), re))
        names = tuple(e.name for e in (*outer, *inner))
        for k, ((row, column), value) in enumerate(cells):
            element: tuple[Expr, ...] = (*outer, row, *inner, column)
            self.statements.append(Statement(f"{s.name}.turn.{k}", turned, element, names, value, None, (), s.span))
        straight = Read(a.tensor, (*a.subscripts, Index(p)), a.span)
        if a.tensor not in self.paired:
            together = self._temporary(s, f"{s.name}.{a.tensor}.pairs", part, len(a.subscripts) + 1)
            own = tuple(e.name for e in a.subscripts if isinstance(e, Index))
            for k, (position, value) in enumerate(zip((RE, IM), self._pair(a), strict=True)):
                pair: tuple[Expr, ...] = (*a.subscripts, position)
                self.statements.append(Statement(f"{s.name}.pairs.{k}", together, pair, own, value, None, (), s.span))
            straight = replace(straight, tensor=together)
        value = Call("mul", (straight, Read(turned, (*outer, Index(p), *inner, Index(c)), b.span)), s.span)
        indices = (*s.left_indices, c, *s.reduction_indices, p)
        reduction = Reduction("add", identity_of("add", part))
        subscripts = (*s.subscripts, Index(c))
        self.statements.append(replace(s, subscripts=subscripts, indices=indices, value=value, reduction=reduction))

    def _fresh_index(self, s: Statement, name: str) -> str:
        while name in s.indices:
            name += "_"
        return name

    # -- expressions ---------------------------------------------------------------------------------------------
    def _clause(self, clause: Where) -> Where:
        match clause:
            case Condition():
                return replace(clause, condition=self._real(clause.condition))
            case Exists() if type_of(clause.value, self.types).is_complex:
                return replace(clause, value=self._pair(clause.value)[0])
            case Exists():
                return replace(clause, value=self._real(clause.value))
            case _:
                return clause

    def _real(self, expr: Expr) -> Expr:
        """`expr`, of another type than a complex one, without complex numbers in it."""
        match expr:
            case Call("real" | "imag", (inner,)):
                return self._pair(inner)[0 if expr.op == "real" else 1]
            case Call("eq" | "ne", (a, b)) if type_of(a, self.types).is_complex:
                (x, y), (u, v) = self._pair(a), self._pair(b)
                parts = (Call(expr.op, (x, u), expr.span), Call(expr.op, (y, v), expr.span))
                return Call("and" if expr.op == "eq" else "or", parts, expr.span)
        old = children(expr)
        new = tuple(self._real(child) for child in old)
        return with_children(expr, new) if any(a is not b for a, b in zip(old, new, strict=True)) else expr

    def _pair(self, expr: Expr) -> Pair:
        """Real and imaginary part of a complex `expr`."""
        span = expr.span
        match expr:
            case Const():
                part = expr.dtype.part
                return replace(expr, dtype=part), Const(0.0, part, span)
            case Read():
                subscripts = tuple(self._real(e) for e in expr.subscripts)
                if expr.tensor in self.paired:
                    return replace(expr, subscripts=(*subscripts, RE)), replace(expr, subscripts=(*subscripts, IM))
                return (
                    Read(f"{expr.tensor}.re", subscripts, span),
                    Read(f"{expr.tensor}.im", subscripts, span),
                )
            case Pad():
                inner, values = self._pair(expr.read), self._pair(expr.value)
                made = [
                    replace(expr, read=read, value=value)
                    for read, value in zip(inner, values, strict=True)
                    if isinstance(read, Read)
                ]
                return made[0], made[1]
            case Select():
                condition = self._real(expr.condition)
                (a, b), (c, d) = self._pair(expr.then), self._pair(expr.other)
                return Select(condition, a, c, span), Select(condition, b, d, span)
            case Cast():
                source, part = type_of(expr.value, self.types), expr.dtype.part
                if not source.is_complex:
                    return _convert(self._real(expr.value), source, part), Const(0.0, part, span)
                re, im = self._pair(expr.value)
                return _convert(re, source.part, part), _convert(im, source.part, part)
            case Call():
                return self._pair_of_call(expr)
        raise AssertionError(f"{type(expr).__name__} is no complex number")

    def _pair_of_call(self, expr: Call) -> Pair:
        if expr.op == "complex":
            return self._real(expr.args[0]), self._real(expr.args[1])
        args = [self._pair(a) for a in expr.args]
        re, im = args[0]
        match expr.op:
            case "add" | "sub" if is_zero(args[1][1]):
                return Call(expr.op, (re, args[1][0]), expr.span), im
            case "add" | "sub":
                return Call(expr.op, (re, args[1][0]), expr.span), Call(expr.op, (im, args[1][1]), expr.span)
            case "neg":
                return Call("neg", (re,), expr.span), Call("neg", (im,), expr.span)
            case "conj":
                return re, Call("neg", (im,), expr.span)
            case "mul":
                return self._limited(multiply_pairs(args[0], args[1]), expr)
            case "truediv":
                return self._limited(divide_pairs(args[0], args[1], type_of(expr, self.types).part), expr)
        return self._limited(apply_complex(expr.op, args, type_of(expr, self.types).part), expr)

    def _limited(self, pair: Pair, expr: Expr) -> Pair:
        """Each factor stands twice in a product, so towers of products grow without bound."""
        if any(sum(1 for _ in islice(walk(e), MAX_NODES)) >= MAX_NODES for e in pair):
            message = "written out in real numbers this expression is too large"
            help = "assign parts of it to names of their own first"
            raise CompileBudgetError(Diagnostic("budget-expression", message, expr.span, help))
        return pair


def _site_key(site: ReadSite) -> tuple[object, ...]:
    """A read and what guards it in the text; functions of complex numbers choose by values besides."""
    return site.read, frozenset(c for c in site.conditions if not is_data_dependent(c[0])), site.is_padded


def _convert(expr: Expr, source: DType, target: DType) -> Expr:
    return expr if source == target else Cast(expr, target, expr.span)


def _product(part: DType) -> Monoid:
    a = Read("left.0", ()), Read("left.1", ())
    b = Read("right.0", ()), Read("right.1", ())
    return Monoid("the product of complex numbers", (Const(1.0, part), Const(0.0, part)), multiply_pairs(a, b))
