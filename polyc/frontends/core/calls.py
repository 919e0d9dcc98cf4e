"""Calls between operators: the statements of one Program become part of another, under new names.

Both notations use it.  A called Program is spliced in where the call stands, so that range inference, the scheduler and the
proofs see one program:

    before  ``h = linear(x, w)``    with ``def linear(float(M, K) X, float(N, K) W) -> (H) { H(m, n) +=! X(m, k) * W(n, k) }``
    after   ``linear.1.H(m, n) +=! x(m, k) * w(n, k)``    and ``h`` names ``linear.1.H``

Parameters become the tensors that are given, size symbols the extents of those, and everything else gets a name that no user
can write.  Where an extent has to equal another, or a tensor does not start at 0, the tensor is copied into one of the
declared shape: range inference then checks the extents as it does for every declaration, and the copy is inlined again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from polyc.diagnostics import PolycError, Span
from polyc.frontends.core.builder import Interval, ProgramBuilder, count_dimensions
from polyc.frontends.core.extents import find_intervals, infer_intervals
from polyc.frontends.core.integers import Integers, single_values
from polyc.frontends.core.values import Fault, Reported, Value
from polyc.ir.custom_rules import rename_rule
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Read, Size, int_const, rewrite, substitute, walk
from polyc.ir.program import (
    Compressed,
    Program,
    RangeClause,
    Statement,
    Tensor,
    map_expressions,
    place_statement,
    statement_reads,
)
from polyc.ir.simplify import simplify
from polyc.ir.text import format_expr
from polyc.ir.types import DType
from polyc.records import dataclass, replace

MAX_STATEMENTS = 2048
"""Statements that a program may have after calls are read in place: f that calls g twice, that calls h twice, doubles."""


MAX_DEPTH = 64
"""Calls inside each other."""


def check_depth(n_callers: int, what: str = "operators") -> None:
    """Raise `Fault` where a call would be nested too deeply."""
    if n_callers >= MAX_DEPTH:
        raise Fault("budget-calls", f"calls are nested more than {MAX_DEPTH} deep", f"call the inner {what} from one")


def describe_recursion(chain: Sequence[str], what: str, example: str, span: Span | None = None) -> Fault:
    """The fault of a definition that calls itself, through those of `chain`, which begins and ends with it."""
    through = f": {' → '.join(chain)}" if len(chain) > 2 else ""
    help = f"{what} are read in place, so that none can call itself; a recurrence is written {example}"
    return Fault("semantic-recursion", f"{chain[-1]} calls itself{through}", help, span)


@dataclass(frozen=True, slots=True)
class Argument:
    """A tensor version of the caller that stands for a parameter, and the user's name of it."""

    version: str
    shown: str
    span: Span
    is_weak: bool = False
    """Made of literals only: it takes the parameter's element type."""


def find_parameter(callee: Program, name: str) -> Tensor:
    """What is declared of one of `call_parameters`."""
    for m in callee.compressed:
        if m.name == name:
            return replace(callee.tensor(m.data), name=name, rank=len(m.shape), shape=m.shape, base=name)
    return callee.tensor(name)


def call(b: ProgramBuilder, callee: Program, arguments: Mapping[str, Argument], span: Span) -> tuple[Tensor, ...]:
    """Add the statements of `callee` for `arguments` (of `call_parameters`); its results as versions of tensors of the caller.

    Raises `Fault` where the arguments do not fit; `Reported` where an error stands in the caller's statements, or where ranges
    of these, or of the callee, cannot be inferred."""
    b.n_calls += 1
    try:
        return _inline(b, callee, arguments, span)
    except PolycError as error:
        b.reporter.add(*error.diagnostics)
        raise Reported from None


def _inline(b: ProgramBuilder, callee: Program, arguments: Mapping[str, Argument], span: Span) -> tuple[Tensor, ...]:
    if len(b.statements) + len(callee.statements) > MAX_STATEMENTS:
        message = f"with {callee.name} the calls of this program grow to more than {MAX_STATEMENTS} statements"
        raise Fault("budget-calls", message, "call operators that call others fewer times, or compile the parts apart")
    accumulated = next((r for r in callee.returns if r.initial is not None), None)
    if accumulated is not None:
        message = f"{callee.name} adds to what its result {accumulated.name} holds before, and a call has no such array"
        raise Fault("semantic-call", message, f"let {callee.name} set the starting value of {accumulated.name} itself")
    matrices = {m.name: _find_matrix(b, callee, m.name, arguments[m.name]) for m in callee.compressed}
    arguments = dict(arguments)
    for m in callee.compressed:  # the arrays that hold it
        given = arguments.pop(m.name)
        arguments |= {part: Argument(v, v, given.span) for part, v in zip(m.parts, matrices[m.name].parts, strict=True)}
    for p in callee.parameters:
        _check_argument(b, callee, callee.tensor(p), arguments[p])
    extents = {p: find_intervals(b, arguments[p].version, arguments[p].span) for p in callee.parameters}
    before, taken = set(b.tensors), {*b.sizes, *(t.base for t in b.tensors.values())}
    prefix = f"{callee.name}.{b.n_calls}"
    own = [t for t in callee.tensors if t.role not in ("input", "accumulated")]
    versions = {t.name: f"{prefix}.{t.name}" for t in own}
    context = f"{callee.name} called in line {span.line_column()[0]}{', ' if span.context else ''}{span.context}"
    names = _Names(prefix, taken, _bind_sizes(b, callee, arguments, extents, matrices), versions, context)
    for p in callee.parameters:
        versions[p] = _fit_argument(b, callee, callee.tensor(p), arguments[p], extents[p], names)
    for t in own:
        shape = None if t.shape is None else tuple(names.size(e) for e in t.shape)
        b.tensors[versions[t.name]] = replace(t, name=versions[t.name], shape=shape, role="temporary")
    b.add(*names.rename(callee))
    b.rules += [
        rename_rule(r, {**{t.name: f"{prefix}.{t.name}" for t in r.tensors}, **versions}, names.size) for r in callee.rules
    ]
    if id(callee) not in b.callees:
        b.callees[id(callee)] = callee, infer_intervals(callee)
    results: list[Tensor] = []
    for r in callee.returns:
        result = b.tensors[versions[r.version]]
        if r.pattern is not None:
            stored = replace(matrices[r.pattern], name=result.name.removesuffix(".data"), owner=matrices[r.pattern].pattern)
            b.compressed[stored.name] = stored
            b.intervals[stored.name] = tuple(Interval(int_const(0), e) for e in stored.shape)
            results.append(replace(result, name=stored.name, rank=2, shape=stored.shape))
            continue
        intervals = [Interval(names.size(i.lower), names.size(i.extent)) for i in b.callees[id(callee)][1][r.version]]
        if any(i.lower != int_const(0) for i in intervals):
            b.add_tensor(f"{result.name}.0", result.dtype, result.rank, result.base, span)
            copied = b.tensors[f"{result.name}.0"]
            b.add(copy_tensor(result.name, copied, span, taken, [i.lower for i in intervals]))
            result = copied
        b.intervals[result.name] = tuple(Interval(int_const(0), i.extent) for i in intervals)
        results.append(result)
    b.made |= {name: callee.name for name in b.tensors if name not in before}
    return tuple(results)


def add_scalar(b: ProgramBuilder, version: str, base: str, dtype: DType, value: Value, span: Span) -> Argument:
    """A tensor of rank 0 that holds the value of an argument."""
    b.add_tensor(version, dtype, 0, base, span, ())
    b.add(Statement("", version, (), (), b.notation.convert(value, dtype), None, (), span))
    return Argument(version, "the argument", span, value.weak and value.dtype == dtype)


def copy_tensor(
    source: str, target: Tensor, span: Span, taken: Collection[str], origin: Sequence[Expr] | None = None
) -> Statement:
    """``target[i, …] = source[i + origin, …]``, with indices that have no name of `taken`."""
    indices = tuple(Index(find_free(f"i{d}", taken)) for d in range(target.rank))
    places = tuple(
        i if low == int_const(0) else simplify(Call("add", (i, low)))
        for i, low in zip(indices, origin or [int_const(0)] * target.rank, strict=True)
    )
    names = tuple(i.name for i in indices)
    return Statement("", target.name, indices, names, Read(source, places, span), None, (), span)


def drop_unused_calls(b: ProgramBuilder, program: Program) -> Program:
    """The program without statements of calls that nothing needs; results that are not used are warned of."""
    reading: dict[str, set[str]] = {}
    for s in program.statements:
        reading.setdefault(s.target, set()).update(r.tensor for r in statement_reads(s))
    live = {r.version for r in program.returns} | {t for t in reading if t not in b.made}
    stack = list(live)
    while stack:
        fresh = reading.get(stack.pop(), set()) - live
        live |= fresh
        stack.extend(fresh)
    unused = {t for t in b.made if t not in live}
    if not unused:
        return program
    help = "return it or read it; a result that is not wanted is given a name with _ in front"
    for version, r in b.results.items():
        if version in unused and not r.name.startswith("_"):
            b.reporter.warn("semantic-unused-result", f"{r.name}, a result of {r.callee}, is not used", r.span, help)
    statements = tuple(s for s in program.statements if s.target not in unused)
    return replace(
        program,
        statements=tuple(replace(s, name=f"S{n}") for n, s in enumerate(statements)),
        tensors=tuple(t for t in program.tensors if t.name not in unused),
    )


def _find_matrix(b: ProgramBuilder, callee: Program, name: str, argument: Argument) -> Compressed:
    """The matrix in compressed rows that is given for one."""
    found = b.compressed.get(argument.version)
    format = next(m.format for m in callee.compressed if m.name == name)
    if format == "ragged":
        message = f"{name} of {callee.name} is ragged, and calls pass no sequences"
        raise Fault("semantic-ragged", message, f"write the statements of {callee.name} here", argument.span)
    if found is None:
        message = f"{name} of {callee.name} is {format}, and {argument.shown} is a dense tensor"
        raise Fault("semantic-call", message, f"give a matrix that is {format}, too", argument.span)
    if found.format != format:
        message = f"{name} of {callee.name} is {format}, and {argument.shown} is {found.format}"
        raise Fault("semantic-call", message, "declare both in the same way", argument.span)
    wanted, given = callee.tensor(f"{name}.data").dtype, b.tensors[found.data].dtype
    if wanted != given:
        message = f"{name} of {callee.name} is {b.notation.spell(wanted)}, and {argument.shown} is {b.notation.spell(given)}"
        raise Fault("type-call", message, "declare both with one element type", argument.span)
    assert isinstance(found, Compressed)
    return found


def _check_argument(b: ProgramBuilder, callee: Program, parameter: Tensor, argument: Argument) -> None:
    if argument.version in b.compressed:
        format = b.compressed[argument.version].format
        message = f"{argument.shown} is {format}, and {parameter.base} of {callee.name} is a dense tensor"
        help = f"declare {parameter.base} of {callee.name} {format}, too"
        help = f"write the statements of {callee.name} here" if format == "ragged" else help
        raise Fault("semantic-call", message, help, argument.span)
    given = b.tensors[argument.version]
    if given.rank != parameter.rank:
        wanted, found = count_dimensions(parameter.rank), count_dimensions(given.rank)
        message = f"{parameter.base} of {callee.name} has {wanted}, and {argument.shown} has {found}"
        help = "give a tensor with one dimension for each, or read the elements that are meant into one first"
        raise Fault("semantic-rank", message, help, argument.span)
    if given.dtype != parameter.dtype and not argument.is_weak:
        wanted, found = b.notation.spell(parameter.dtype), b.notation.spell(given.dtype)
        message = f"{parameter.base} of {callee.name} is {wanted}, and {argument.shown} is {found}"
        raise Fault("type-call", message, f"cast it first, in a tensor of its own: {wanted}(…)", argument.span)


def _bind_sizes(
    b: ProgramBuilder,
    callee: Program,
    arguments: Mapping[str, Argument],
    extents: Mapping[str, tuple[Interval, ...]],
    matrices: Mapping[str, Compressed],
) -> dict[str, Expr]:
    """The extent that each size symbol of the callee stands for; first those of matrices, inferred ones last."""
    sizes = {p: _number(b, callee, arguments[p]) for p in callee.parameters if p in callee.sizes}
    pairs = [(m, e, own) for m in callee.compressed for e, own in zip(m.shape, matrices[m.name].shape, strict=True)]
    for _, extent, own in pairs:
        if isinstance(extent, Size):
            sizes.setdefault(extent.name, own)
    is_declared = {p: b.tensors[arguments[p].version].shape is not None for p in callee.parameters}
    for p in sorted(callee.parameters, key=lambda p: not is_declared[p]):
        for extent, interval in zip(callee.tensor(p).shape or (), extents[p], strict=True):
            if isinstance(extent, Size):
                sizes.setdefault(extent.name, interval.extent)
    for p in callee.parameters:
        for d, (extent, interval) in enumerate(zip(callee.tensor(p).shape or (), extents[p], strict=True)):
            wanted = simplify(substitute(extent, {}, sizes))
            if isinstance(wanted, Const) and isinstance(interval.extent, Const) and wanted != interval.extent:
                shown = f"dimension {d} of {arguments[p].shown}"
                message = f"{shown} has extent {interval.extent.value}, and {p} of {callee.name} has {wanted.value} there"
                raise Fault("semantic-call", message, "give a tensor of that extent", arguments[p].span)
    for m, extent, own in pairs:
        wanted = simplify(substitute(extent, {}, sizes))
        if wanted != simplify(own):
            there, here = f"{m.name} of {callee.name} has {format_expr(wanted)}", f"has the extent {format_expr(own)}"
            message = f"{matrices[m.name].name} {here} where {there}, and they are not known to be equal"
            raise Fault("semantic-call", message, "declare both with the same sizes", arguments[m.data].span)
    return sizes


def _number(b: ProgramBuilder, callee: Program, argument: Argument) -> Expr:
    """What is given for a parameter that is a size of the callee, over sizes of the caller."""
    number = Integers(b.integers, single_values(b.statements)).index_form(Read(argument.version, ()))
    if number is None:
        message = f"{callee.name} bounds ranges by {argument.shown}, which depends on data"
        help = "give it a number, a size, or an integer parameter"
        raise Fault("semantic-call", message, help, argument.span)
    return number


def _fit_argument(
    b: ProgramBuilder, callee: Program, parameter: Tensor, argument: Argument, intervals: Sequence[Interval], names: _Names
) -> str:
    """The version that the parameter stands for: the argument's, or a copy where that has another origin, extent or type."""
    shape = tuple(names.size(e) for e in parameter.shape or ())
    origin = [i.lower for i in intervals]
    has_shape = shape == tuple(simplify(i.extent) for i in intervals) and all(low == int_const(0) for low in origin)
    if has_shape and b.tensors[argument.version].dtype == parameter.dtype:
        return argument.version
    name, base = f"{names.prefix}.{parameter.name}", f"{parameter.base} of {callee.name}"
    b.add_tensor(name, parameter.dtype, parameter.rank, base, argument.span, shape)
    statement = copy_tensor(argument.version, b.tensors[name], argument.span, names.taken, origin)
    if argument.is_weak:
        statement = replace(statement, value=Cast(statement.value, parameter.dtype, argument.span))
    b.add(statement)
    return name


def find_free(name: str, taken: Collection[str]) -> str:
    """`name`, with as many _ behind it as make it new."""
    while name in taken:
        name += "_"
    return name


@dataclass(frozen=True, slots=True)
class _Names:
    """What the callee's names are in the caller's program."""

    prefix: str
    taken: Collection[str]
    """Names of the caller that indices must not have."""
    sizes: Mapping[str, Expr]
    versions: dict[str, str]
    context: str
    """Which call it is, for errors that its statements have in it."""

    def size(self, expr: Expr) -> Expr:
        """An expression over sizes of the callee, over those of the caller."""
        return simplify(substitute(expr, {}, self.sizes))

    def rename(self, callee: Program) -> list[Statement]:
        """The statements of the callee."""
        own = {i: f"{self.prefix}.{i}" for s in callee.statements for i in s.indices if i in self.taken}
        elements = ((f"{t.name}.d{d}", f"{self.versions[t.name]}.d{d}") for t in callee.tensors for d in range(t.rank))
        indices = {**own, **dict(elements)}  # those of elements in initial values, too

        def rule(node: Expr) -> Expr | None:
            match node:
                case Read():
                    return replace(node, tensor=self.versions[node.tensor])
                case Size():
                    return self.sizes[node.name]
                case Index() if node.name in indices:
                    return replace(node, name=indices[node.name])
            return None

        def change(expr: Expr) -> Expr:
            return rewrite(expr, rule) if any(isinstance(n, (Read, Index, Size)) for n in walk(expr)) else expr

        def finish(s: Statement) -> Statement:
            where = (replace(w, index=own.get(w.index, w.index)) if isinstance(w, RangeClause) else w for w in s.where)
            renamed = tuple(own.get(i, i) for i in s.indices)
            named = replace(s, target=self.versions[s.target], indices=renamed, where=tuple(where))
            return place_statement(named, self.context)

        return [finish(s) for s in map_expressions(callee, change).statements]
