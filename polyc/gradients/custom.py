"""Rules of the user in the place of derivatives: which of a program's count, and their statements in a derivative of it.

The statements of a call with a rule are not differentiated.  In their place stand those of the rule, which read its inputs and
results, and the cotangents of the results (``vjp``) or the tangents of the inputs (``jvp``) in tensors of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from polyc.diagnostics import ArgumentError, Diagnostic
from polyc.gradients.inputs import Names, differentiable_inputs, differentiable_results
from polyc.gradients.rules import refuse
from polyc.ir.custom_rules import Rule, rename_rule
from polyc.ir.expr import Expr, Index, Size, identity_of, int_const, substitute
from polyc.ir.program import Program, RangeClause, Statement
from polyc.ir.simplify import simplify
from polyc.poly.infer import infer_ranges
from polyc.records import replace


def make_rule(program: Program, given: Program, mode: str) -> Rule:
    """The rule that `given` is for `program`: its parameters are inputs and results of that, by their names, and ``d_Y`` for
    the results (``t_X`` for the inputs) that have derivatives; it returns one for each such input (result), in order.

    Raises ArgumentError ``argument-gradient`` where that does not fit."""
    what = f"the {mode} of {program.name}"
    if program.compressed or given.compressed or any(r.initial for p in (program, given) for r in p.returns):
        raise refuse(
            f"{what}: rules for sparse matrices and results that are accumulated into are not supported", None, "pass arrays"
        )
    inputs = differentiable_inputs(program)
    results = {r.name: r.version for r in differentiable_results(program)}
    own, letter = (results, "d") if mode == "vjp" else ({n: n for n in inputs}, "t")
    directions = {f"{letter}_{n}": n for n in own}
    versions = {p: p for p in program.parameters} | {r.name: r.version for r in program.returns}
    boxes, sizes = infer_ranges(program).tensors, dict[str, Expr]()
    shapes = {n: program.tensor(v).shape or tuple(b.extent for b in boxes[v]) for n, v in versions.items()}
    if any(b.lower != int_const(0) for r in program.returns for b in boxes[r.version]):
        raise refuse(f"{what}: results whose elements do not begin at 0 are not supported", None, "shift their subscripts")
    for p in given.parameters:
        t = given.tensor(p)
        name = directions.get(p, p)
        if name not in versions:
            known = ", ".join((*versions, *directions))
            raise _error(f"{what} takes {p}, which is none of {program.name}", f"its parameters are some of: {known}")
        wanted = program.tensor(versions[name])
        if (t.dtype, t.rank) != (wanted.dtype, wanted.rank):
            message = f"{what}: {p} is {t.dtype} of rank {t.rank}, and {name} is {wanted.dtype} of rank {wanted.rank}"
            raise _error(message, "declare both in the same way")
        for extent, there in zip(t.shape or (), shapes[name], strict=True):
            if isinstance(extent, Size):
                sizes.setdefault(extent.name, there)
    derived = [f"d_{n}" for n in inputs] if mode == "vjp" else [f"t_{n}" for n in results]
    origins = [program.tensor(n) for n in inputs] if mode == "vjp" else [program.tensor(v) for v in results.values()]
    if len(given.returns) != len(derived):
        raise _error(f"{what} returns {len(given.returns)} results", f"return one for each of: {', '.join(derived)}")
    for r, name, origin in zip(given.returns, derived, origins, strict=True):
        t = given.tensor(r.version)
        if (t.dtype, t.rank) != (origin.dtype, origin.rank):
            message = f"{what}: {r.name} is {t.dtype} of rank {t.rank}, where {name} is {origin.dtype} of rank {origin.rank}"
            raise _error(message, f"return {name} in the type and shape of {origin.base}")
    missing = [n for n in given.sizes if n not in sizes and n not in program.sizes]
    if missing:
        raise _error(f"{what} has a size {missing[0]} of its own", "take it from the extents of an input or a result")

    def change_size(expr: Expr) -> Expr:
        return simplify(substitute(expr, {}, sizes))

    tensors = [replace(t, role="temporary") for t in given.tensors if t.name not in versions]
    absent = [n for n in directions if n not in given.types]
    tensors += [replace(program.tensor(versions[directions[n]]), name=n, role="temporary") for n in absent]
    draft = Rule(
        "vjp" if mode == "vjp" else "jvp",
        program.name,
        inputs,
        tuple(results.values()),
        tuple(t.name for t in program.tensors if t.role in ("output", "temporary")),
        tuple(directions),
        tuple(r.version for r in given.returns),
        tuple(tensors),
        tuple(given.statements),
        given.rules,
    )
    own_names = {t.name for t in draft.tensors}
    names = {n: v for n, v in versions.items() if n not in own_names} | {n: f"{mode} of {program.name}.{n}" for n in own_names}
    renamed = rename_rule(draft, {n: v for n, v in names.items() if n in own_names or n in given.types}, change_size)
    extents = {f"{mode} of {program.name}.{d}": shapes[n] for d, n in directions.items()}
    shaped = tuple(replace(t, shape=extents.get(t.name, t.shape)) for t in renamed.tensors)
    return replace(renamed, inputs=draft.inputs, results=draft.results, inside=draft.inside, tensors=shaped)


def rules_of(program: Program, mode: str, moving: Iterable[str]) -> list[Rule]:
    """The rules that count in a derivative by inputs on which `moving` versions depend.

    Raises UnsupportedError where one is given for the other mode alone."""
    known = program.types
    present = [r for r in program.rules if all(n in known for n in r.inputs) and any(n in known for n in r.results)]
    chosen = [r for r in present if r.mode == mode]
    covered, reached = {n for r in chosen for n in r.inside}, set(moving)
    for r in present:
        if r.mode != mode and not covered.issuperset(r.inside) and not reached.isdisjoint(r.results):
            other = "forward" if mode == "jvp" else "reverse"
            message = f"{r.name} has a rule of its own for its derivative, and none for the {other} mode"
            raise refuse(message, None, f"give one with @{r.name}.def{mode}")
    return [r for r in chosen if not any(set(r.inside) < set(o.inside) for o in chosen)]


class Spliced:
    """One rule in a derivative: its tensors, statements and own rules under names that are free there."""

    def __init__(self, rule: Rule, names: Names) -> None:
        own = {t.name: names.add(t.name) for t in rule.tensors}
        renamed = rename_rule(rule, own)
        self.names, self.tensors = names, list(renamed.tensors)
        self.directions, self.derived = renamed.directions, renamed.derived
        self.statements = [replace(s, name=names.add(f"S_{s.target}")) for s in renamed.statements]
        self.rules = renamed.rules

    def direct(self, name: str, value: Callable[[tuple[Expr, ...]], Expr | None] | None) -> None:
        """Say what a direction is at each element; None: zero."""
        t = next(t for t in self.tensors if t.name == name)
        element = tuple(Index(f"i{d}") for d in range(t.rank))
        found = (None if value is None else value(element)) or identity_of("add", t.dtype)
        ranges = tuple(RangeClause(i.name, int_const(0), e) for i, e in zip(element, t.shape or (), strict=True))
        order = tuple(i.name for i in element)
        self.statements.append(Statement(self.names.add(f"S_{name}"), name, element, order, found, None, ranges, t.span))


def _error(message: str, help: str) -> ArgumentError:
    return ArgumentError(Diagnostic("argument-gradient", message, None, help))
