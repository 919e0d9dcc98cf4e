"""Read a decorated Python function into a Program.

What a body may hold, and what it means, is the docstring of `read_function`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyc.diagnostics import Span, suggest_name
from polyc.frontends.core.budget import find_excess, find_excess_rank
from polyc.frontends.core.builder import Version
from polyc.frontends.core.calls import drop_unused_calls
from polyc.frontends.core.forward import find_forward_reads
from polyc.frontends.core.reports import Reporter, raise_errors
from polyc.frontends.core.typos import find_lonely_indices
from polyc.frontends.core.values import Fault
from polyc.frontends.python.callees import find_callee, find_results, find_targets
from polyc.frontends.python.calls import ReadResult, read_call
from polyc.frontends.python.control import choose_branch, find_breaks, unroll_loop
from polyc.frontends.python.declarations import declare_parameters, declare_results, find_result_formats
from polyc.frontends.python.element_calls import read_element_call
from polyc.frontends.python.forward import describe_assignment, find_assignments
from polyc.frontends.python.monoid import find_monoid, read_combination
from polyc.frontends.python.ranges import read_where
from polyc.frontends.python.reductions import find_selection, read_selection
from polyc.frontends.python.returned import name_returned
from polyc.frontends.python.scope import Clauses, Retyped, Scope
from polyc.frontends.python.signature import PythonSignature, read_parameters
from polyc.frontends.python.source import FunctionText, load_function, make_nesting_error
from polyc.frontends.python.statements import bound_indices, read_assignment, target_name
from polyc.frontends.python.syntax import unturn
from polyc.frontends.python.wording import NOTATION
from polyc.ir.expr import index_names
from polyc.ir.program import Return, Statement
from polyc.ir.types import DType
from polyc.records import replace

_STATEMENTS = (
    "a body may hold T[i] = e, T[i] += e, with polyc.where(...), for and if over constants, "
    "a docstring and one return at the end"
)


def read_signature(
    function_or_source: Callable[..., Any] | str, constants: Mapping[str, object] | None = None
) -> PythonSignature:
    """Name, parameters with their annotations, and compile-time constants of a function; needs no element types.

    Raises SyntaxErrorInSource or SemanticError, with all errors of the signature at once.
    """
    text = load_function(function_or_source)
    reporter = Reporter()
    signature = read_parameters(text, constants, reporter.add, needs_values=False)
    raise_errors(reporter.errors)
    return signature


def read_function(
    function_or_source: Callable[..., Any] | str,
    dtypes: Mapping[str, tuple[DType, int]] | None = None,
    constants: Mapping[str, object] | None = None,
    weak: frozenset[str] = frozenset(),
) -> ReadResult:
    """The Program of an einsum-style function, read from its source (the function is never called).

    `dtypes` gives element type and rank of each parameter that has no annotation; its sizes are then fresh symbols
    ``X_0, X_1, …``.  `constants` replace the defaults of keyword-only parameters.  Those in `weak` are given Python numbers.

    ``T[i, j] += e`` sums over the indices that are absent on the left, from zero on where T is new, else onto T; ``*=``
    multiplies; ``T[i] = max(e)`` (min, sum, prod, any, all) reduces with another operator.  Without absent indices ``=``
    assigns.  ``s = e`` and ``s[()] += e`` write a tensor of rank 0.  The name ``T`` means the latest version above.

    A name is, in this order: a parameter, an assigned tensor, a size of an annotation, a `polyc.Index` of the closure or
    the globals, a keyword-only parameter (a compile-time constant), else an index.

    A return annotation (``-> "f32[M, N]"``, or a tuple of them) declares the extents of the results, which the statements must
    then cover exactly.

    Element types follow NumPy 2.  Literals, compile-time constants, extents (``X.shape[0]``, ``len(X)``), parameters in `weak`,
    and tensors assigned from such only, are weakly typed as Python scalars are.  Indices and size symbols used as values are
    i64 arrays as ``np.arange`` gives: with an f32 X, ``X[i] * i`` and ``X[i] / N`` are f64, ``X[i] / f32(N)`` and
    ``X[i] / X.shape[0]`` f32.  ``/`` of integers is f64.  A tensor has the type of its right side, and keeps it under ``+=``.
    Sums and products accumulate in the type of their operand (NumPy widens small integers), those of booleans in i64.

    Raises SyntaxErrorInSource, SemanticError or UnsupportedError, with all errors of the function at once.
    """
    found = _read_program(load_function(function_or_source), dtypes or {}, constants, weak, ())
    return replace(found, warnings=(*found.warnings, *find_lonely_indices(found.program)))


def _read_program(
    text: FunctionText,
    dtypes: Mapping[str, tuple[DType, int]],
    constants: Mapping[str, object] | None,
    weak: frozenset[str],
    callers: tuple[FunctionText, ...],
) -> ReadResult:
    text = name_returned(text)
    hints: dict[str, tuple[DType, bool]] = {}
    while True:
        try:
            return _read_text(text, dtypes, constants, weak, hints, callers)
        except Retyped as found:
            assert found.hint != hints.get(found.version), "a hint that changes nothing"
            hints[found.version] = found.hint


def _read_text(
    text: FunctionText,
    dtypes: Mapping[str, tuple[DType, int]],
    constants: Mapping[str, object] | None,
    weak: frozenset[str],
    hints: dict[str, tuple[DType, bool]],
    callers: tuple[FunctionText, ...],
) -> ReadResult:
    reporter = Reporter()
    signature = read_parameters(text, constants, reporter.add)
    tensors, sizes = declare_parameters(text, signature, dict(dtypes), reporter)
    numbers = {c.name: c.value for c in signature.constants}
    scope = Scope(reporter, NOTATION, sizes, text=text, read_call=read_element_call, constants=numbers)
    scope.type_hints, scope.callers = hints, callers
    events = [e for node in find_assignments(text.definition.body) if (e := describe_assignment(node)) is not None]
    results = find_results(scope)  # whole before they are read, and so in no recurrence
    forward = find_forward_reads(events, frozenset(p.name for p in signature.parameters))
    scope.forward = {name: rank for name, rank in forward.items() if name not in results}
    formats = {p.name: p.annotation.format for p in signature.parameters if p.annotation is not None}
    for tensor in tensors:
        scope.add_parameter(tensor, tensor.name in weak, formats.get(tensor.name, ""))
    for parameter in signature.parameters:
        scope.current.setdefault(parameter.name, Version(parameter.name, None, None, is_parameter=True))
    if scope.compressed:
        scope.result_formats = find_result_formats(text)
    scope.assigned_names = _find_assigned_names(text.definition)
    returns: tuple[Return, ...] = ()
    try:
        returns = _read_body(text.definition.body, scope)
    except RecursionError:
        reporter.add(make_nesting_error(Span(text.source, 0, 3)))
    declare_results(scope, returns)
    reporter.add(*find_excess(signature.name, [s.span for s in scope.statements]))
    raise_errors(reporter.errors)
    program = scope.build(signature.name, [p.name for p in signature.parameters], returns, text.source)
    reporter.add(*find_excess_rank(program))
    raise_errors(reporter.errors)
    program = drop_unused_calls(scope, program)
    weak_results = tuple(any(v.name == r.version and v.is_weak for v in scope.current.values()) for r in returns)
    return ReadResult(program, tuple(reporter.warnings), weak_results)


def _find_assigned_names(definition: ast.FunctionDef) -> frozenset[str]:
    nodes = [n for n in ast.walk(definition) if isinstance(n, (ast.Assign, ast.AugAssign))]
    lefts = [left for n in nodes for left in (n.targets if isinstance(n, ast.Assign) else [n.target])]
    parts = [p for left in lefts for p in (left.elts if isinstance(left, ast.Tuple) else [left])]
    return frozenset(name for p in parts if (name := target_name(p)) is not None)


def _read_body(body: list[ast.stmt], scope: Scope) -> tuple[Return, ...]:
    returns: tuple[Return, ...] | None = None
    for node in body:
        if returns is not None:
            scope.report("semantic-statement", "nothing can follow the return", node, "move the return to the end")
            break
        if isinstance(node, ast.Return):
            returns = _read_return(node, scope)
        else:
            _read_statement(node, Clauses(), scope)
    if returns is None:
        place = scope.text.start(scope.text.definition, "def")
        scope.report(
            "semantic-return", "the function returns nothing", place, "end it with 'return Y', naming assigned tensors"
        )
    return returns or ()


def _read_statement(node: ast.stmt, clauses: Clauses, scope: Scope) -> None:
    match node:
        case ast.Assign(targets) if len(targets) != 1:
            scope.report("semantic-statement", "one assignment per statement", node, "write the assignments below each other")
        case ast.Assign():
            callee, names = find_callee(node.value, scope), find_targets(node)
            if callee is not None and names is not None:
                _read_call(node, names, callee, clauses, scope)
            elif (monoid := find_monoid(node.value, scope)) is not None:
                read_combination(node, monoid, clauses, scope)
            elif (selection := find_selection(node)) is not None:
                read_selection(node, selection, clauses, scope)
            else:
                read_assignment(_spell_extents(node, scope), clauses, scope)
        case ast.AugAssign():
            read_assignment(node, clauses, scope)
        case ast.With(items, body):
            inner = read_where(items, clauses, scope)
            n_statements = len(scope.written)
            _read_block(body, inner, scope)
            if not scope.reporter.n_errors:  # else statements may be missing that would use them
                _check_ranges_used(inner, clauses, scope.written[n_statements:], scope)
        case ast.Expr(ast.Constant(str())) | ast.Pass():
            pass
        case ast.For() if any(find_breaks(node.body)):
            from polyc.frontends.python.breaks import read_recurrence  # which few functions need

            read_recurrence(node, clauses, scope, lambda body, inner: _read_block(body, inner, scope))
        case ast.For():
            unroll_loop(node, scope, lambda body: _read_block(body, clauses, scope))
        case ast.If():
            _read_block(choose_branch(node, scope), clauses, scope)
        case ast.While():
            help = "indices stand for loops; one that ends by a condition: for t in range(1, T): ... if e[t] < eps: break"
            scope.report("semantic-statement", "'while' has no meaning here", scope.text.start(node, "while"), help)
        case ast.Break() | ast.Continue():
            help = "put the statements that are meant into an if over numbers: if k != 1: ..."
            scope.report("semantic-statement", "break and continue have no meaning here", node, help)
        case ast.AnnAssign():
            help = "the type is that of the right side: cast it, as in T[i] = polyc.f32(e)"
            scope.report("semantic-statement", "assignments have no annotation", node, help)
        case ast.Return():
            scope.report("semantic-statement", "return cannot stand inside a block", node, "move it to the end of the function")
        case _:
            scope.report("semantic-statement", "this Python statement has no meaning here", node, _STATEMENTS)


def _spell_extents(node: ast.Assign, scope: Scope) -> ast.Assign:
    """``n, m = x.shape`` as ``n, m = x.shape[0], x.shape[1]``; any other assignment as it is."""
    match node:
        case ast.Assign([ast.Tuple()], ast.Attribute(inner, "shape") as value):
            tensor = unturn(inner)
            if tensor is None or tensor[0] not in scope.current:
                return node
            dimensions = range(scope.current[tensor[0]].rank or 0)
            parts = [ast.Subscript(value, ast.copy_location(ast.Constant(d), value), ast.Load()) for d in dimensions]
            extents = ast.copy_location(ast.Tuple([ast.copy_location(p, value) for p in parts], ast.Load()), value)
            return ast.copy_location(ast.Assign(node.targets, extents), node)
    return node


def _read_call(node: ast.Assign, targets: list[ast.Name], callee: object, clauses: Clauses, scope: Scope) -> None:
    with scope.reporter.catching(scope.text.span(node)):
        if clauses != Clauses():
            raise Fault("semantic-call", "a call computes whole tensors, whatever the block around it says", "move it out")
        read_call(node, targets, callee, scope, _read_program)
        return
    for target in targets:
        scope.define_unknown(target.id)


def _read_block(body: Sequence[ast.stmt], clauses: Clauses, scope: Scope) -> None:
    for node in body:
        _read_statement(node, clauses, scope)


def _check_ranges_used(inner: Clauses, outer: Clauses, statements: list[Statement], scope: Scope) -> None:
    used = {index for s in statements for index in s.indices}
    for index, clause in inner.ranges.items():
        if outer.ranges.get(index) is not clause and index not in used:
            help = "use the index inside, or drop the condition"
            message = f"no statement of this block uses the index {index}"
            scope.reporter.error("semantic-unused-index", message, clause.span, help)
    told = [(index_names(c.condition), c.span) for c in inner.conditions[len(outer.conditions) :]]
    told += [(bound_indices(c), c.span) for c in inner.loaded[len(outer.loaded) :]]
    told += [(index_names(c.value), c.span) for c in inner.entries[len(outer.entries) :]]
    for names, span in told:
        if span is not None and not any(names <= set(s.indices) for s in statements):
            help = "a condition holds for the statements that use all its indices: use them, or drop the condition"
            listed = " and ".join(sorted(names))
            scope.report("semantic-unused-index", f"no statement of this block uses {listed}", span, help)


def _read_return(node: ast.Return, scope: Scope) -> tuple[Return, ...]:
    parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] if node.value is not None else []
    if not parts:
        scope.report("semantic-return", "the function returns nothing", node, "end it with 'return Y', naming assigned tensors")
    result: list[Return] = []
    for part in parts:
        name = part.id if isinstance(part, ast.Name) else None
        version = scope.current.get(name) if name is not None else None
        if name is None:
            scope.report(
                "semantic-return",
                "only tensors and scalars can be returned",
                part,
                "return names and scalar expressions: return Y, a / b",
            )
        elif version is None and name in scope.assigned_names and scope.reporter.n_errors:
            pass  # its assignment has an error of its own
        elif version is None:
            later = "is not assigned" if name not in scope.assigned_names else "is no tensor here"
            close = suggest_name(name, [n for n, v in scope.current.items() if not v.is_parameter])
            help = close or f"assign {name}[...] above, or return another tensor"
            scope.report("semantic-return", f"{name} {later}", part, help)
        elif version.is_parameter:
            indices = ", ".join("ijklmnpq"[: version.rank or 0])
            help = f"copy it: Y[{indices}] = {name}[{indices}]" if version.rank else f"copy it: Y = {name}"
            scope.report("semantic-return", f"{name} is a parameter, and results are new arrays", part, help)
        elif any(r.name == name for r in result):
            scope.report("semantic-return", f"{name} is returned twice", part, "return it once")
        else:
            result.append(Return(name, version.name))
    return tuple(result)
