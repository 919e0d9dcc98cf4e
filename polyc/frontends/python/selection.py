"""``v[i], p[i] = argmax(X[i, j])``: the greatest value and where it stands."""

from __future__ import annotations

import ast

from polyc.frontends.python.expressions import read_expression
from polyc.frontends.python.scope import Clauses, Scope, Version
from polyc.frontends.python.statements import Target, index_names, read_target, target_name
from polyc.frontends.python.syntax import call_name
from polyc.frontends.python.values import POISON, Fault, Value, convert
from polyc.frontends.selection import SELECTIONS, build_selection, compared_type
from polyc.ir.expr import Index, Read
from polyc.ir.program import Statement, Tensor, Where
from polyc.ir.read_sites import keep_reads
from polyc.ir.types import I64, DType

_CODE = "semantic-selection"


def find_selection(node: ast.Assign) -> str | None:
    """``argmax`` or ``argmin`` where a whole right side is a call of it, and the left side names tensors or plain elements: a
    part that it computes (``p[N - 1] = argmax(e)``) is assigned as from any expression."""
    found = call_name(node.value.func) if isinstance(node.value, ast.Call) else None
    if found is None or found[1] not in SELECTIONS:
        return None
    match node.targets[0]:
        case ast.Subscript(_, ast.BinOp() | ast.UnaryOp() | ast.Constant()):
            return None
        case ast.Subscript(_, ast.Tuple(parts)) if any(not isinstance(part, ast.Name) for part in parts):
            return None
    return found[1]


def read_selection(node: ast.Assign, op: str, clauses: Clauses, scope: Scope, statements: list[Statement]) -> None:
    """Add the statements that `polyc.frontends.selection` describes, and the versions of the targets."""
    assert isinstance(node.value, ast.Call)
    lefts = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else [node.targets[0]]
    targets = [read_target(left, scope) for left in lefts]
    value = POISON
    if len(node.value.args) == 1 and not node.value.keywords and not isinstance(node.value.args[0], ast.Starred):
        value = read_expression(node.value.args[0], scope)
    else:
        help = f"the indices that are not on the left side are chosen from: p[i] = {op}(X[i, j])"
        scope.report(_CODE, f"{op} takes one expression, and no axis", node.value, help)
    good = [t for t in targets if t is not None]
    if value is not POISON and len(good) == len(targets):
        try:
            statements += select_positions(node, op, good, value, clauses, scope)
            return
        except Fault as fault:
            scope.report(fault.code, fault.message, node, fault.help)
    for left in lefts:
        name = target_name(left)
        if name is not None and name not in scope.sizes and name not in scope.constants:
            known = scope.tensors.get(name)
            if known is None or not known.is_parameter:
                scope.tensors[name] = Version(name, None, None)


def select_positions(
    node: ast.Assign, op: str, targets: list[Target], value: Value, clauses: Clauses, scope: Scope
) -> list[Statement]:
    """The statements of ``p[i] = argmax(e)``, or of several targets, and their versions.  Raises `Fault`."""
    span = scope.text.span(node)
    left = tuple(e for e in targets[0].subscripts if isinstance(e, Index))
    if len({t.name for t in targets}) < len(targets):
        raise Fault(_CODE, f"two results of {op} have the same name", "give each result a name of its own")
    if len(left) < len(targets[0].subscripts) or any(t.subscripts != left for t in targets):
        message = f"{op} needs the same plain indices on the left of all its results"
        raise Fault(_CODE, message, f"write for example v[i], p[i] = {op}(X[i, j])")
    names = tuple(i.name for i in left)
    others = tuple(n for n in dict.fromkeys(value.index_names) if n not in names)
    if not others:
        message = f"{op} has no index to choose from: all indices of the value are on the left side"
        raise Fault(_CODE, message, "leave out the index on the left side whose positions are wanted")
    n_values = len(targets) - len(others)
    if n_values not in (0, 1):
        listed = ", ".join(others)
        message = f"{op} over {listed} gives {len(others)} position{'s' * (len(others) > 1)}, and {len(targets)} are assigned"
        raise Fault(_CODE, message, f"give one target for each of {listed}, and one more in front for the value")
    indices = (*names, *others)
    where: list[Where] = [clauses.ranges[i].as_range() for i in indices if i in clauses.ranges]
    where += [c for c in clauses.conditions if set(index_names(c.condition)) <= set(indices)]
    draft = keep_reads(Statement("", "", left, indices, value.expr, None, tuple(where), span), value.unread)
    for target in targets:
        previous = scope.tensors.get(target.name)
        if previous is not None and draft.writes_part:
            message = f"{op} cannot assign a part of {target.name}, which is assigned above"
            raise Fault(_CODE, message, f"assign another name, and copy it to the part of {target.name}")
    if value.dtype.is_complex:
        raise Fault("type-complex", "complex numbers have no order", f"compare a part, or the size: {op}(abs(z[i]))")
    dtype = compared_type(value.dtype)
    kept = value.dtype
    best = f"{scope.next_version(targets[-1].name)}.best"
    if n_values and kept == dtype:
        best = _add_version(targets[0], kept, scope)
    else:
        base = targets[0].name if n_values else targets[-1].name
        scope.versions.append(Tensor(best, dtype, len(left), None, "temporary", base, span))
    positions = [(_add_version(t, I64, scope), I64) for t in targets[n_values:]]
    made = build_selection(op, convert(value, dtype).expr, dtype, best, positions, left, others, draft.where, span)
    if n_values and kept != dtype:
        read = convert(Value(Read(best, left, span), dtype), kept).expr
        made.append(Statement("", _add_version(targets[0], kept, scope), left, names, read, None, (), span))
    for statement in made:
        for version in scope.tensors.values():
            if version.name == statement.target:
                version.writers.append(statement)
    return made


def _add_version(target: Target, dtype: DType, scope: Scope) -> str:
    name = scope.next_version(target.name)
    scope.n_versions[target.name] = scope.n_versions.get(target.name, 0) + 1
    rank = len(target.subscripts)
    scope.versions.append(Tensor(name, dtype, rank, None, "temporary", target.name, target.span))
    scope.tensors[target.name] = Version(name, dtype, rank, False, None, False, target.span, [])
    return name
