"""``re[i], im[i] = product(a[i, k], b[i, k])``: reductions by a way to combine that the user defines."""

from __future__ import annotations

import ast
import math

from polyc.diagnostics import PolycError
from polyc.frontends.core.reductions import add_combination
from polyc.frontends.core.values import Fault, Reported, Value
from polyc.frontends.python.element_functions import run_body
from polyc.frontends.python.expressions import read_expression
from polyc.frontends.python.names import UserMonoid
from polyc.frontends.python.scope import Clauses, Scope
from polyc.frontends.python.source import load_function
from polyc.frontends.python.statements import make_assignment, read_target, target_name
from polyc.frontends.python.syntax import positional
from polyc.frontends.python.values import POISON, convert, make_literal
from polyc.ir.expr import Const, Expr, Index, Read, Size, walk
from polyc.ir.program import Monoid
from polyc.ir.types import DType, can_cast

_CODE = "semantic-monoid"


def find_monoid(node: ast.expr, scope: Scope) -> UserMonoid | None:
    """The user's monoid that a whole right side is a call of."""
    match node:
        case ast.Call(ast.Name() | ast.Attribute(ast.Name()) as function):
            found = scope.text.lookup(ast.unparse(function))
            return found if isinstance(found, UserMonoid) else None
    return None


def read_combination(node: ast.Assign, monoid: UserMonoid, clauses: Clauses, scope: Scope) -> None:
    """Add one statement for each component, and the versions of the targets."""
    assert isinstance(node.value, ast.Call)
    lefts = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else [node.targets[0]]
    targets = [t for t in (read_target(left, scope) for left in lefts) if t is not None]
    with scope.reporter.catching(scope.text.span(node), is_whole=True):
        n = len(monoid.identity)
        if len(positional(node.value)) != n:
            message = f"{monoid.name} combines {n} value{'s' * (n > 1)}, and {len(node.value.args)} are given"
            raise Fault(_CODE, message, f"give one expression for each component of {monoid.name}")
        if len(lefts) != n:
            message = f"{monoid.name} gives {n} result{'s' * (n > 1)}, and {len(lefts)} are assigned"
            raise Fault(_CODE, message, "give one target for each component")
        values = [read_expression(a, scope) for a in node.value.args]
        if len(targets) == n and not any(v is POISON for v in values):
            if any(v.dtype.is_complex for v in values):
                message = f"{monoid.name} cannot combine complex numbers"
                raise Fault("type-complex", message, "combine their parts, as two components")
            dtypes = [v.dtype.computed if v.dtype.is_storage else v.dtype for v in values]
            assignment = make_assignment(targets, values, monoid.name, clauses, scope.text.span(node))
            add_combination(scope, assignment, read_monoid(monoid, dtypes, scope))
            return
    for left in lefts:
        scope.define_unknown(target_name(left))


def read_monoid(monoid: UserMonoid, dtypes: list[DType], scope: Scope) -> Monoid:
    """The function that combines, read for these element types.  Raises `Reported` after errors in it."""
    try:
        text = load_function(monoid.combine)
    except PolycError as error:
        scope.reporter.add(*error.diagnostics)
        raise Reported from None
    spec = text.definition.args
    inner = scope.inside(text)
    n_errors = scope.reporter.n_errors
    if len(spec.args) != 2 or spec.vararg or spec.kwonlyargs or spec.kwarg or spec.defaults or spec.posonlyargs:
        message = f"{monoid.name} combines two values, and takes {len(spec.args)} parameters"
        inner.report(_CODE, message, text.definition, "write def combine(a, b): return ...")
        raise Reported
    for side, parameter in zip(("left", "right"), spec.args, strict=True):
        values = [Value(Read(f"{side}.{k}", ()), dtype) for k, dtype in enumerate(dtypes)]
        inner.components[parameter.arg] = values
        inner.values |= {parameter.arg: values[0]} if len(values) == 1 else {}
    try:
        results = run_body(text.definition.body, inner)
    except Fault as fault:
        inner.report(fault.code, fault.message, text.definition, fault.help)
        raise Reported from None
    if results is None:
        inner.report(_CODE, f"{monoid.name} returns nothing", text.definition, "end it with return")
    elif len(results) != len(dtypes) and scope.reporter.n_errors == n_errors:
        n = len(results)
        message = f"{monoid.name} returns {n} value{'s' * (n > 1)}, and has {len(dtypes)} in its identity"
        inner.report(_CODE, message, text.definition, "return one value for each component")
    made = [_convert_result(value, dtype, monoid, inner) for value, dtype in zip(results or (), dtypes, strict=False)]
    if scope.reporter.n_errors > n_errors:
        raise Reported
    identity = tuple(_identity(number, dtype, monoid) for number, dtype in zip(monoid.identity, dtypes, strict=True))
    return Monoid(monoid.name, identity, tuple(made))


def _convert_result(value: Value, dtype: DType, monoid: UserMonoid, inner: Scope) -> Expr:
    """What the function returns for a component, in the component's element type."""
    place = value.expr.span or inner.text.definition
    for found in walk(value.expr):
        if isinstance(found, (Index, Size)) or (isinstance(found, Read) and found.subscripts):
            name = found.tensor if isinstance(found, Read) else found.name
            help = f"the function that combines sees {' and '.join(inner.components)}, names assigned in it, and numbers"
            inner.report(_CODE, f"{name} has no value in {monoid.name}", found.span or place, help)
    if value is not POISON and not value.weak and not can_cast(value.dtype, dtype):
        message = f"{monoid.name} gives {value.dtype} for a component that is {dtype}"
        inner.report("type-monoid", message, place, f"cast it, or what is combined: {value.dtype}(...)")
        return value.expr
    try:
        return convert(value, dtype).expr
    except Fault as fault:
        inner.report(fault.code, fault.message, place, fault.help)
        return value.expr


def _identity(number: int | float | bool, dtype: DType, monoid: UserMonoid) -> Const:
    if isinstance(number, float) and not dtype.is_float:
        if not math.isfinite(number) or number != int(number):
            help = f"give the identity as a number of {dtype}, or cast what is combined"
            raise Fault("type-monoid", f"the identity of {monoid.name} is {number}, and the values are {dtype}", help)
        number = int(number)
    expr = convert(make_literal(number), dtype).expr
    assert isinstance(expr, Const)
    return expr
