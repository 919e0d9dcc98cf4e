"""Scans: values that combine the element written one iteration before, in a form that can be computed by blocks.

``S[i] = S[i-1] op x[i]`` for an associative `op`, or a linear recurrence ``H[i] = a[i] * H[i-1] + b[i]``: steps are functions
of one value, and compositions of such functions are functions of the same form (Blelloch, "Prefix sums and their
applications", 1990, section 1.4).
"""

from __future__ import annotations

from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Read,
    Select,
    identity_of,
    int_const,
    mentions,
    reads,
    rewrite,
    substitute,
    walk,
)
from polyc.ir.linear import index_coefficients
from polyc.ir.simplify import simplify
from polyc.ir.types import DType
from polyc.records import dataclass

_MONOIDS = frozenset(("add", "mul", "max", "min", "and", "or", "bitand", "bitor", "bitxor"))


@dataclass(frozen=True, slots=True)
class Scan:
    """``value = previous op rest`` or, with op "linear", ``value = factor * previous + rest``; no part reads `previous`.

    With `second`, a recurrence of order two: ``second`` times the element before the previous one is added."""

    op: str
    rest: Expr
    factor: Expr | None = None
    second: Expr | None = None

    @property
    def is_exact(self) -> bool:
        """Whether any grouping gives the same bits, whatever the element type."""
        return self.op in ("max", "min", "and", "or", "bitand", "bitor", "bitxor")


def match_scan(value: Expr, previous: Read, dtype: DType) -> Scan | None:
    """The scan that `value` is as a function of `previous`, for elements of `dtype`; None if it is none."""
    if dtype.is_storage or dtype.kind == "b" or previous == value:
        return None
    if isinstance(value, Call) and value.op in _MONOIDS - {"add", "mul"}:
        rest = _chain_rest(value, value.op, previous)
        return None if rest is None else Scan(value.op, rest)
    found = _as_linear(value, previous, dtype)
    if found is None:
        return None
    factor, rest = found
    if factor is None:
        return None if rest is None else Scan("add", rest)
    return Scan("mul", factor) if rest is None else Scan("linear", rest, factor)


def match_recurrence(value: Expr, previous: Read, second: Read | None, dtype: DType, var: str) -> Scan | None:
    """The scan that `value` is of the element before, or of the two before with factors that stay the same along `var`."""
    if second is None:
        return match_scan(value, previous, dtype)
    scan = match_second_order(value, previous, second, dtype)
    is_fixed = scan is not None and not any(f is not None and mentions(f, var) for f in (scan.factor, scan.second))
    return scan if is_fixed else None


def match_second_order(value: Expr, previous: Read, second: Read, dtype: DType) -> Scan | None:
    """The recurrence ``value = factor * previous + second factor * second + rest`` of floats; None if it is none.

    Whether the factors stay the same from element to element, as they must, is for the caller to see."""
    if dtype.is_storage or not dtype.is_float:
        return None
    found = _as_linear(value, previous, dtype)
    behind = None if found is None or found[1] is None else _as_linear(found[1], second, dtype)
    if found is None or behind is None:
        return None
    one, zero = Const(1.0, dtype), Const(-0.0, dtype)
    factor, second_factor = (one if f is None else f for f in (found[0], behind[0]))
    if _uses(factor, second):
        return None
    return Scan("linear", zero if behind[1] is None else behind[1], factor, second_factor)


def find_scan(target: str, subscripts: tuple[Expr, ...], value: Expr, index: str, step: int, dtype: DType) -> Scan | None:
    """The scan that ``target[subscripts] = value`` is along `index`, which moves by `step` (1 or -1) from point to point."""

    def is_behind(read: Read, distance: int) -> bool:
        before: Expr = Index(index) - distance * step
        pairs = ((r, substitute(e, {index: before})) for r, e in zip(read.subscripts, subscripts, strict=True))
        return read.tensor == target and all(simplify(Call("sub", pair)) == int_const(0) for pair in pairs)

    def is_previous(read: Read) -> bool:
        return is_behind(read, 1)

    def inside(e: Expr) -> Expr | None:
        """Borders are taken out of the loop; only one of the arms goes on from the iteration before, or reads at all, or the
        other one reads nothing else that the loop writes."""
        if not isinstance(e, Select) or reads(e.condition):
            return None
        for is_wanted in (is_previous, bool):
            arms = [a for a in (e.then, e.other) if any(map(is_wanted, reads(a)))]
            if len(arms) == 1:
                return arms[0]
        own = [r for r in reads(e.other) if r.tensor == target]
        return e.then if all(is_previous(r) or _is_elsewhere(r, subscripts, index) for r in own) else None

    value = rewrite(value, inside)
    own = [r for r in dict.fromkeys(reads(value)) if r.tensor == target]
    found = [next((r for r in own if is_behind(r, distance)), None) for distance in (1, 2)]
    first, second = found
    if first is None or not all(_is_elsewhere(r, subscripts, index) for r in own if r not in found):
        return None
    if second is None:
        return match_scan(value, first, dtype)
    scan = match_second_order(value, first, second, dtype)
    factors = () if scan is None else (scan.factor, scan.second)
    return None if any(e == Index(index) for f in factors if f is not None for e in walk(f)) else scan


def _is_elsewhere(read: Read, subscripts: tuple[Expr, ...], index: str) -> bool:
    """Whether the loop over `index` never writes what `read` reads: they differ where the loop does not move."""
    for own, other in zip(subscripts, read.subscripts, strict=True):
        difference = simplify(other - own)
        if isinstance(difference, Const) and difference.value != 0 and index not in (index_coefficients(own) or {index: 1}):
            return True
    return False


def scan_identity(op: str, dtype: DType) -> Const:
    """The value that changes nothing before a scan with the monoid `op`."""
    if op == "add" and dtype.is_float:
        return Const(-0.0, dtype)  # -0.0 + -0.0 stays -0.0
    if op in ("bitor", "bitxor"):
        return Const(0, dtype)
    if op == "bitand":
        return Const(-1 if dtype.kind == "i" else (1 << dtype.bits) - 1, dtype)
    return identity_of(op, dtype)


def _uses(expr: Expr, previous: Read) -> bool:
    return any(node == previous for node in walk(expr))


def _chain_rest(expr: Expr, op: str, previous: Read) -> Expr | None:
    """What `previous` is combined with in a chain of one operator; None where it is not in such a chain, once."""
    if not isinstance(expr, Call) or expr.op != op:
        return None
    first, second = expr.args
    inside = [a for a in (first, second) if _uses(a, previous)]
    if len(inside) != 1:
        return None
    other = second if inside[0] is first else first
    if inside[0] == previous:
        return other
    deeper = _chain_rest(inside[0], op, previous)
    return None if deeper is None else Call(op, (deeper, other))


_Linear = tuple[Expr | None, Expr | None] | None


def _as_linear(expr: Expr, previous: Read, dtype: DType) -> _Linear:
    """`factor` (None: 1) and `rest` (None: nothing) with ``expr = factor * previous + rest``; None if it is not so."""
    if expr == previous:
        return None, None
    if not isinstance(expr, Call):
        return None
    inside = [_uses(a, previous) for a in expr.args]
    if all(inside) and expr.op in ("add", "sub"):
        first, second = expr.args
        return _sum(expr.op, _as_linear(first, previous, dtype), _as_linear(second, previous, dtype), dtype)
    if sum(inside) != 1:
        return None
    match expr:
        case Call("neg", (a,)):
            return _negated(_as_linear(a, previous, dtype), dtype)
        case Call("truediv", (a, b)) if inside[0]:
            found = _as_linear(a, previous, dtype)
            if found is None:
                return None
            factor, rest = found
            factor = Const(1.0, dtype) if factor is None else factor
            return _divided(factor, b, dtype), None if rest is None else _divided(rest, b, dtype)
        case Call("add" | "sub" | "mul", (a, b)):
            found, other = (_as_linear(a, previous, dtype), b) if inside[0] else (_as_linear(b, previous, dtype), a)
            if expr.op == "sub" and inside[1]:
                found = _negated(found, dtype)
        case _:
            return None
    if found is None:
        return None
    factor, rest = found
    if expr.op == "mul":
        scaled = other if factor is None else factor * other
        return scaled, None if rest is None else rest * other
    if expr.op == "sub" and inside[0]:
        return factor, -other if rest is None else rest - other
    return factor, other if rest is None else rest + other


def _sum(op: str, a: _Linear, b: _Linear, dtype: DType) -> _Linear:
    """``a + b`` or ``a - b``, as in ``H[i-1] + g * (x[i] - H[i-1])``."""
    if a is None or b is None:
        return None
    one = Const(1.0 if dtype.is_float else 1, dtype)
    factors = Call(op, (one if a[0] is None else a[0], one if b[0] is None else b[0]))
    if a[1] is None or b[1] is None:
        only = a[1] if b[1] is None else b[1]
        return factors, only if only is None or b[1] is None or op == "add" else -only
    return factors, Call(op, (a[1], b[1]))


def _divided(expr: Expr, by: Expr, dtype: DType) -> Expr:
    """``expr / by``, as a product where `by` is a number whose reciprocal is an ordinary one."""
    if isinstance(by, Const) and 1e-30 < abs(by.value) < 1e30:
        inverse = Const(1.0 / float(by.value), dtype)
        return inverse if isinstance(expr, Const) and expr.value == 1 else expr * inverse
    return Call("truediv", (expr, by))


def _negated(found: _Linear, dtype: DType) -> _Linear:
    if found is None or (dtype.is_integer and dtype.kind != "i"):
        return None
    factor, rest = found
    minus_one = Const(-1.0 if dtype.is_float else -1, dtype)
    return minus_one if factor is None else -factor, None if rest is None else -rest
