"""``re[i], im[i] = product(a[i, k], b[i, k])``: reductions by a way to combine that the user defines."""

from __future__ import annotations

import ast
import copy
import math
from typing import Any

import numpy as np

from polyc.diagnostics import Diagnostic, PolycError, SemanticError
from polyc.frontends.core.builder import Version
from polyc.frontends.core.reductions import add_combination
from polyc.frontends.core.values import Fault, Reported
from polyc.frontends.python.expressions import read_expression
from polyc.frontends.python.names import UserMonoid
from polyc.frontends.python.scope import Clauses, Scope
from polyc.frontends.python.source import FunctionText, load_function
from polyc.frontends.python.statements import make_assignment, read_target, target_name
from polyc.frontends.python.values import POISON, convert, make_literal
from polyc.ir.expr import Const, Index, Read, Size, walk
from polyc.ir.program import Monoid
from polyc.ir.types import DType, can_cast

_CODE = "semantic-monoid"


def find_monoid(node: ast.expr, scope: Scope) -> UserMonoid | None:
    """The user's monoid that a whole right side is a call of."""
    if not isinstance(node, ast.Call):
        return None
    found: object = None
    match node.func:
        case ast.Name(name):
            found = scope.text.lookup(name)
        case ast.Attribute(ast.Name(module), name):
            found = getattr(scope.text.lookup(module), name, None)
    return found if isinstance(found, UserMonoid) else None


def read_combination(node: ast.Assign, monoid: UserMonoid, clauses: Clauses, scope: Scope) -> None:
    """Add one statement for each component, and the versions of the targets."""
    assert isinstance(node.value, ast.Call)
    lefts = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else [node.targets[0]]
    targets = [t for t in (read_target(left, scope) for left in lefts) if t is not None]
    try:
        n = len(monoid.identity)
        if node.value.keywords or len(node.value.args) != n or any(isinstance(a, ast.Starred) for a in node.value.args):
            message = f"{monoid.name} combines {n} value{'s' * (n > 1)}, and {len(node.value.args)} are given"
            raise Fault(_CODE, message, f"give one expression for each component of {monoid.name}")
        if len(lefts) != n:
            message = f"{monoid.name} gives {n} result{'s' * (n > 1)}, and {len(lefts)} are assigned"
            raise Fault(_CODE, message, "give one target for each component")
        values = [read_expression(a, scope) for a in node.value.args]
        if len(targets) == n and not any(v is POISON for v in values):
            if len({t.name for t in targets}) < n:
                raise Fault(_CODE, f"two results of {monoid.name} have the same name", "give each result a name of its own")
            if any(v.dtype.is_complex for v in values):
                message = f"{monoid.name} cannot combine complex numbers"
                raise Fault("type-complex", message, "combine their parts, as two components")
            dtypes = [v.dtype.computed if v.dtype.is_storage else v.dtype for v in values]
            assignment = make_assignment(targets, values, monoid.name, clauses, scope.text.span(node))
            add_combination(scope, assignment, read_monoid(monoid, dtypes, scope))
            return
    except Fault as fault:
        scope.report(fault.code, fault.message, node, fault.help)
    except Reported:
        pass
    except PolycError as error:  # in the text of the function that combines
        scope.reporter.add(*error.diagnostics)
    for left in lefts:
        scope.define_unknown(target_name(left))


def read_monoid(monoid: UserMonoid, dtypes: list[DType], scope: Scope) -> Monoid:
    """The function that combines, read for these element types.  Errors in it are raised with their place."""
    text = load_function(monoid.combine)
    sides = _parameters(text, monoid)
    tensors: dict[str, Version] = {}
    for side, name in zip(("left", "right"), sides, strict=True):
        for k, dtype in enumerate(dtypes):
            shown = name if len(dtypes) == 1 else f"{name}[{k}]"
            tensors[shown] = Version(f"{side}.{k}", dtype, 0, False, ())
    inner = scope.inside(text, _constants(text))
    inner.current = tensors
    n_errors = scope.reporter.n_errors
    parts = _result_parts(text, sides, len(dtypes), monoid)
    results = []
    for part, dtype in zip(parts, dtypes, strict=True):
        value = read_expression(part, inner)
        if value is POISON:
            continue
        for found in walk(value.expr):
            if isinstance(found, (Index, Size)) or (isinstance(found, Read) and found.subscripts):
                name = found.tensor if isinstance(found, Read) else found.name
                help = f"the function that combines sees {' and '.join(sides)}, names assigned in it, and numbers"
                inner.report(_CODE, f"{name} has no value in {monoid.name}", found.span or part, help)
        if not value.weak and not can_cast(value.dtype, dtype):
            message = f"{monoid.name} gives {value.dtype} for a component that is {dtype}"
            inner.report("type-monoid", message, part, f"cast it, or what is combined: {value.dtype}(...)")
            continue
        try:
            results.append(convert(value, dtype).expr)
        except Fault as fault:
            inner.report(fault.code, fault.message, part, fault.help)
    if scope.reporter.n_errors > n_errors:
        raise Reported
    identity = tuple(_identity(number, dtype, monoid) for number, dtype in zip(monoid.identity, dtypes, strict=True))
    return Monoid(monoid.name, identity, tuple(results))


def _identity(number: int | float | bool, dtype: DType, monoid: UserMonoid) -> Const:
    if isinstance(number, float) and not dtype.is_float:
        if not math.isfinite(number) or number != int(number):
            help = f"give the identity as a number of {dtype}, or cast what is combined"
            raise Fault("type-monoid", f"the identity of {monoid.name} is {number}, and the values are {dtype}", help)
        number = int(number)
    expr = convert(make_literal(number), dtype).expr
    assert isinstance(expr, Const)
    return expr


def _parameters(text: FunctionText, monoid: UserMonoid) -> tuple[str, str]:
    spec = text.definition.args
    if len(spec.args) != 2 or spec.vararg or spec.kwonlyargs or spec.kwarg or spec.defaults or spec.posonlyargs:
        place = text.definition
        message = f"{monoid.name} combines two values, and takes {len(spec.args)} parameters"
        raise _error(text, _CODE, message, place, "write def combine(a, b): return ...")
    return spec.args[0].arg, spec.args[1].arg


def _constants(text: FunctionText) -> dict[str, Any]:
    names = {n.id for n in ast.walk(text.definition) if isinstance(n, ast.Name)}
    found = {n: text.lookup(n) for n in names}
    return {n: v.item() if isinstance(v, np.generic) else v for n, v in found.items() if isinstance(v, (int, float, np.number))}


def _result_parts(text: FunctionText, sides: tuple[str, str], n: int, monoid: UserMonoid) -> list[ast.expr]:
    """What the function returns, with the names that it assigns replaced by what they stand for."""
    names: dict[str, ast.expr] = {}
    for statement in text.definition.body:
        match statement:
            case ast.Expr(ast.Constant(str())) | ast.Pass():
                pass
            case ast.Assign([target], value):
                _assign(target, value, names, sides, n, text)
            case ast.Return(value) if value is not None:
                value = _replaced(value, names, sides, n)
                parts = list(value.elts) if isinstance(value, ast.Tuple) else [value]
                if len(parts) != n:
                    message = f"{monoid.name} returns {len(parts)} value{'s' * (len(parts) > 1)}, and has {n} in its identity"
                    raise _error(text, _CODE, message, statement, "return one value for each component")
                return parts
            case _:
                message = "a function that combines assigns names and returns what they give"
                raise _error(text, _CODE, message, statement, "write conditions as a if c else b")
    raise _error(text, _CODE, f"{monoid.name} returns nothing", text.definition, "end it with return")


def _assign(
    target: ast.expr, value: ast.expr, names: dict[str, ast.expr], sides: tuple[str, str], n: int, text: FunctionText
) -> None:
    value = _replaced(value, names, sides, n)
    match target:
        case ast.Name(name):
            names[name] = value
        case ast.Tuple(targets):
            parts = list(value.elts) if isinstance(value, ast.Tuple) else None
            if isinstance(value, ast.Name) and value.id in sides and n > 1:
                parts = [ast.copy_location(ast.Name(f"{value.id}[{k}]"), value) for k in range(n)]
            if parts is None or len(parts) != len(targets):
                help = f"write for example x, y = {sides[0]}"
                raise _error(text, _CODE, f"{len(targets)} names are assigned from something else", target, help)
            for inner, part in zip(targets, parts, strict=True):
                _assign(inner, part, names, sides, n, text)
        case _:
            raise _error(text, _CODE, "only names can be assigned here", target, "give the value a name of its own")


def _replaced(value: ast.expr, names: dict[str, ast.expr], sides: tuple[str, str], n: int) -> ast.expr:
    """The expression with names for components, ``a[0]``, and without the names assigned above."""

    class _Replace(ast.NodeTransformer):
        def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
            match node:
                case ast.Subscript(ast.Name(side), ast.Constant(int(k))) if side in sides and n > 1 and 0 <= k < n:
                    return ast.copy_location(ast.Name(f"{side}[{k}]"), node)
            return self.generic_visit(node)

        def visit_Name(self, node: ast.Name) -> ast.AST:
            return names.get(node.id, node)

    result: ast.expr = _Replace().visit(copy.deepcopy(value))
    return result


def _error(text: FunctionText, code: str, message: str, node: ast.AST, help: str) -> PolycError:
    return SemanticError(Diagnostic(code, message, text.span(node), help))
