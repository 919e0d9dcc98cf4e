"""What an access must be guarded with: the conditions of a context as a scalar and a mask."""

from __future__ import annotations

from polyc.codegen.emission.context import Context, State
from polyc.codegen.emission.linear import index_names
from polyc.codegen.writer import vectors
from polyc.codegen.writer.builder import Val
from polyc.ir.expr import Call, Const, Expr, evaluate, reads
from polyc.records import replace

Conditions = tuple[Val | None, Val | None]
"""A scalar condition and a mask of lanes that hold together; None: what always holds."""


def eval_predicates(state: State, ctx: Context, names: set[str] | None = None) -> Conditions:
    """What an access that depends on the variables `names` must be guarded with: a scalar condition and a mask."""
    scalar: Val | None = None
    mask: Val | None = None
    if not ctx.predicates:
        return None, None
    outer = replace(ctx, predicates=())
    for p in ctx.predicates:
        if p.branched:
            continue
        is_fixed = names is not None and p.variable is not None and p.variable not in names
        if is_fixed and p.first is None:
            continue
        if isinstance(p.condition, Val):
            value = p.condition
        elif is_fixed and p.variable is not None and p.first is not None:
            value = state.evaluate(_at_first(outer, p.variable, p.first), p.condition)
        else:
            value = state.evaluate(outer, p.condition)
        if value.ref == "true":
            continue
        if value.lanes == 1:
            scalar = state.fn.and_(scalar, value)
        else:
            mask = state.fn.and_(mask, value)
    return scalar, mask


def _at_first(ctx: Context, variable: str, first: Expr) -> Context:
    inner = replace(ctx, env={**ctx.env, variable: evaluate(first, {}) if isinstance(first, Const) else first})
    return replace(inner, lane=None, lanes=1) if ctx.lane == variable else inner


def as_scalar(state: State, guard: Conditions) -> Val | None:
    """The guard of something that is the same in all lanes: some lane wants it."""
    scalar, mask = guard
    return state.fn.and_(scalar, None if mask is None else vectors.is_any(state.fn, mask))


def as_mask(state: State, ctx: Context, guard: Conditions) -> Val | None:
    """The guard lane by lane."""
    both = state.fn.and_(*guard)
    return None if both is None else state.fn.splat(both, ctx.lanes)


def chosen_for_all(state: State, ctx: Context, guard: Conditions) -> Val | None:
    """What the choices between values that `guard` is made of ask of all lanes alike; None where they ask nothing."""
    if guard == (None, None) or ctx.lane is None:
        return None
    outer, found = replace(ctx, predicates=()), None
    for p in ctx.predicates:
        if p.branched or p.source is None or not isinstance(p.condition, Val):
            continue
        for term in _conjuncts(p.source):
            if ctx.lane not in index_names(term) and not reads(term):
                value = state.evaluate(outer, term)
                found = found if value.lanes > 1 or value.ref == "true" else state.fn.and_(found, value)
    return found


def _conjuncts(condition: Expr) -> list[Expr]:
    """Conditions that hold together where `condition` does."""
    match condition:
        case Call("and", parts):
            return [term for part in parts for term in _conjuncts(part)]
        case Call("not", (Call("or", parts),)):
            return [term for part in parts for term in _conjuncts(Call("not", (part,)))]
    return [condition]


def always_holds(state: State, ctx: Context, condition: Expr) -> bool:
    """Whether a condition is known to hold in all lanes, whatever the predicates."""
    return state.evaluate(replace(ctx, predicates=()), condition).ref == "true"
