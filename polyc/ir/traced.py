"""Whole numbers that remember how they follow from the sizes of inputs.

Python code that works on sizes is run once on `Traced` numbers: arithmetic on them gives Traced ones, every decision that is
taken by their value (a comparison, a truth value, a use as a plain number) is noted as a *condition*.  For other sizes that
meet all conditions the same code would have gone the same way, so what it has made is right for them with the numbers
computed anew (`Trace.function`).  Where a number leaves unnoticed is impossible: all that is no arithmetic asks `__index__`,
`__int__`, `__hash__` or `__str__`, and these note that the number is what it is.

A number is a polynomial in *atoms*: the sizes, and quotients and remainders of other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeGuard, cast

import numpy as np

from polyc.records import dataclass

Monomial = tuple[int, ...]
"""Atoms, ascending, with repetitions."""
Polynomial = Mapping[Monomial, int]


@dataclass(slots=True, eq=False)
class Trace:
    """The sizes of one run, what is computed of them, and the conditions under which all went as it did."""

    sizes: tuple[int, ...]
    atoms: list[str] = field(default_factory=list)
    """Text of each atom behind the sizes, over those before it."""
    conditions: dict[str, None] = field(default_factory=dict)
    _known: dict[str, Traced] = field(default_factory=dict)

    def numbers(self) -> tuple[Traced, ...]:
        """The sizes as traced numbers."""
        return tuple(Traced(self, n, {(k,): 1}) for k, n in enumerate(self.sizes))

    def divide(self, a: Traced, b: Traced, op: str) -> Traced:
        """``a // b`` or ``a % b`` as an atom."""
        text = f"{a.text} {op} {b.text}"
        found = self._known.get(text)
        if found is None:
            value = a.value // b.value if op == "//" else a.value % b.value
            self.atoms.append(text)
            found = self._known[text] = Traced(self, value, {(len(self.sizes) + len(self.atoms) - 1,): 1})
        return found

    def function(self, numbers: Iterable[Any]) -> Callable[[Sequence[int]], tuple[int, ...] | None]:
        """For other sizes: `numbers` as they are then, or None where the conditions do not hold."""
        wanted = [n.text if isinstance(n, _NUMBER) else repr(int(n)) for n in numbers]
        lines = ["def at(s):"]
        lines += [f" v{k} = s[{k}]" for k in range(len(self.sizes))]
        checks = list(self.conditions)
        n_sizes, done = len(self.sizes), 0
        for k, atom in enumerate(self.atoms):  # an atom's divisor is checked before it divides
            last = f"v{n_sizes + k}"
            ready = [c for c in checks[done:] if _last_atom(c) < n_sizes + k]
            lines += [f" if not ({c}): return None" for c in ready]
            checks = checks[:done] + [c for c in checks[done:] if c not in set(ready)]
            lines.append(f" {last} = {atom}")
        lines += [f" if not ({c}): return None" for c in checks]
        lines.append(f" return ({', '.join(wanted)}{',' if wanted else ''})")
        scope: dict[str, Any] = {}
        exec(compile("\n".join(lines), "<traced sizes>", "exec"), scope)  # made of polynomials only
        function: Callable[[Sequence[int]], tuple[int, ...] | None] = scope["at"]
        return function


def _last_atom(condition: str) -> int:
    return max(
        (int(word[1:]) for word in condition.replace("*", " ").replace("(", " ").replace(")", " ").split() if word[0] == "v"),
        default=-1,
    )


class Traced:
    """A whole number; see the module.  To `isinstance` it is an int."""

    __slots__ = ("polynomial", "trace", "value")

    def __init__(self, trace: Trace, value: int, polynomial: Polynomial) -> None:
        self.trace = trace
        self.value = value
        self.polynomial = polynomial

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # type: ignore[override]
        return int

    @property
    def text(self) -> str:
        """As Python computes it."""
        terms = []
        for monomial, factor in sorted(self.polynomial.items()):
            words = [f"v{a}" for a in monomial]
            terms.append("*".join(([str(factor)] if factor != 1 or not words else []) + words))
        return f"({' + '.join(terms) or '0'})"

    # --- Arithmetic ----------------------------------------------------------------------------------------------------

    def _combine(self, other: Any, factor: int) -> Any:
        polynomial = dict(self.polynomial)
        if type(other) is Traced:
            value = self.value + factor * other.value
            for m, c in other.polynomial.items():
                polynomial[m] = polynomial.get(m, 0) + factor * c
        elif isinstance(other, (int, np.integer)):
            value = self.value + factor * int(other)
            polynomial[()] = polynomial.get((), 0) + factor * int(other)
        else:
            return NotImplemented
        return _number(self.trace, value, polynomial)

    def __add__(self, other: Any) -> Any:
        return self._combine(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._combine(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return (-self)._combine(other, 1)

    def __neg__(self) -> Any:
        return _number(self.trace, -self.value, {m: -c for m, c in self.polynomial.items()})

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __mul__(self, other: Any) -> Any:
        if type(other) is Traced:
            polynomial: dict[Monomial, int] = {}
            for m, c in self.polynomial.items():
                for n, d in other.polynomial.items():
                    key = tuple(sorted((*m, *n)))
                    polynomial[key] = polynomial.get(key, 0) + c * d
            return _number(self.trace, self.value * other.value, polynomial)
        if isinstance(other, (int, np.integer)):
            return _number(self.trace, self.value * int(other), {m: c * int(other) for m, c in self.polynomial.items()})
        return NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return _divide(self, other, "//")

    def __rfloordiv__(self, other: Any) -> Any:
        return _divide(other, self, "//")

    def __mod__(self, other: Any) -> Any:
        return _divide(self, other, "%")

    def __rmod__(self, other: Any) -> Any:
        return _divide(other, self, "%")

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    # --- Decisions -----------------------------------------------------------------------------------------------------

    def _compare(self, other: Any, yes: str, no: str, decide: Callable[[int], bool]) -> Any:
        difference = self - other
        if difference is NotImplemented:
            return NotImplemented
        if type(difference) is not Traced:
            return decide(difference)
        held = decide(difference.value)
        self.trace.conditions[f"{difference.text} {yes if held else no} 0"] = None
        return held

    def __eq__(self, other: Any) -> Any:
        if type(other) is not Traced and not isinstance(other, (int, np.integer)):
            return NotImplemented
        return self._compare(other, "==", "!=", lambda d: d == 0)

    def __ne__(self, other: Any) -> Any:
        found = self.__eq__(other)
        return found if found is NotImplemented else not found

    def _ordered(self, other: Any, yes: str, no: str, decide: Callable[[int], bool]) -> Any:
        if isinstance(other, (float, np.floating)):
            return decide(self.pin() - other)  # type: ignore[arg-type]
        if type(other) is not Traced and not isinstance(other, (int, np.integer)):
            return NotImplemented
        return self._compare(other, yes, no, decide)

    def __lt__(self, other: Any) -> Any:
        return self._ordered(other, "<", ">=", lambda d: d < 0)

    def __le__(self, other: Any) -> Any:
        return self._ordered(other, "<=", ">", lambda d: d <= 0)

    def __gt__(self, other: Any) -> Any:
        return self._ordered(other, ">", "<=", lambda d: d > 0)

    def __ge__(self, other: Any) -> Any:
        return self._ordered(other, ">=", "<", lambda d: d >= 0)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def pin(self) -> int:
        """The plain number; from here on it is part of the conditions."""
        self.trace.conditions[f"{(self - self.value).text} == 0"] = None
        return self.value

    def __hash__(self) -> int:
        return hash(self.pin())

    def __index__(self) -> int:
        return self.pin()

    __int__ = __trunc__ = __floor__ = __ceil__ = __round__ = __index__  # type: ignore[assignment]

    def __float__(self) -> float:
        return float(self.pin())

    def __truediv__(self, other: Any) -> Any:
        return self.pin() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.pin()

    def __pow__(self, other: Any) -> Any:
        return self.pin() ** other

    def __rpow__(self, other: Any) -> Any:
        return other ** self.pin()

    def __str__(self) -> str:
        return str(self.pin())

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(self.pin(), spec)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a question of a protocol, which ints do not answer either
            raise AttributeError(name)
        return getattr(self.pin(), name)

    def __reduce__(self) -> Any:
        return int, (self.pin(),)


_NUMBER = Traced


def is_traced(value: object) -> bool:
    """Whether a number is one of these."""
    return type(value) is Traced


def is_same(a: int, b: int) -> bool:
    """Whether two numbers are equal for all sizes; nothing is noted."""
    difference = a - b
    return not is_traced(difference) and difference == 0


def weight(n: int) -> tuple[int, ...]:
    """By this, what a number follows from by `combine` comes before it."""
    polynomial = _traced_terms(n)
    return len(polynomial), max((len(m) for m in polynomial), default=0), sum(abs(c) for m, c in polynomial.items() if m)


def combine(free: Sequence[int], n: int) -> tuple[tuple[tuple[int, int], ...], int] | None:
    """Positions in `free` with factors, and an offset, whose sum is `n` for all sizes: one of `free`, or one for each of its
    monomials."""
    for k, other in enumerate(free):
        p, q = _traced_terms(other), _traced_terms(n)
        first = next((m for m in p if m), None)
        if first is not None and first in q and q[first] % p[first] == 0:
            rest: Any = n - q[first] // p[first] * other
            if not is_traced(rest):
                return ((k, q[first] // p[first]),), rest
    singles: dict[Monomial, int] = {}
    for k, other in enumerate(free):
        monomials = [m for m in _traced_terms(other) if m]
        if len(monomials) == 1:
            singles.setdefault(monomials[0], k)
    rest, terms = n, []
    for m, c in _traced_terms(n).items():
        if m:
            position = singles.get(m)
            factor = 0 if position is None else _traced_terms(free[position])[m]
            if position is None or c % factor:
                return None
            terms.append((position, c // factor))
            rest = rest - c // factor * free[position]
    return None if is_traced(rest) else (tuple(terms), rest)


def _traced_terms(n: Any) -> Polynomial:
    return n.polynomial if type(n) is Traced else {(): int(n)}


def whole(value: Any) -> int:
    """`value` as a whole number that stays traced where it is."""
    return cast("int", value) if type(value) is Traced else int(value)


def plain(value: Any) -> int:
    """The number alone, for what decides nothing: nothing is noted."""
    return value.value if type(value) is Traced else int(value)


def whole_array(values: Sequence[Any]) -> np.ndarray:
    """int64 numbers as an array; one of objects where some are traced."""
    if any(type(v) is Traced for v in values):
        array = np.empty(len(values), object)
        array[:] = values
        return array
    return np.array(values, np.int64)


def plain_array(array: np.ndarray) -> np.ndarray:
    """An array of whole numbers, traced or not, as one of int64; nothing is noted."""
    return np.array([plain(v) for v in array.reshape(-1)], np.int64).reshape(array.shape)


def has_traced(array: object) -> TypeGuard[np.ndarray]:
    """Whether an array holds traced numbers."""
    return isinstance(array, np.ndarray) and array.dtype == object and any(is_traced(v) for v in array.reshape(-1))


def _number(trace: Trace, value: int, polynomial: Mapping[Monomial, int]) -> Any:
    kept = {m: c for m, c in polynomial.items() if c}
    return value if not kept or kept.keys() == {()} else Traced(trace, value, kept)


def _divide(a: Any, b: Any, op: str) -> Any:
    for operand in (a, b):
        if type(operand) is not Traced and not isinstance(operand, (int, np.integer)):
            return NotImplemented
    trace = a.trace if type(a) is Traced else b.trace
    if b == 0:
        return plain(a) // 0  # as for any number
    a, b = _traced(trace, a), _traced(trace, b)
    exact = _quotient(a.polynomial, b.polynomial)
    if exact is not None:
        return _number(trace, a.value // b.value, exact) if op == "//" else 0
    return trace.divide(a, b, op)


def _traced(trace: Trace, n: Any) -> Traced:
    return n if type(n) is Traced else Traced(trace, int(n), {(): int(n)} if n else {})


def _quotient(a: Polynomial, b: Polynomial) -> dict[Monomial, int] | None:
    """a / b where b is one monomial that divides every term of a."""
    if len(b) != 1:
        return {(): 1} if a == b else None
    ((divisor, factor),) = b.items()
    result: dict[Monomial, int] = {}
    for m, c in a.items():
        rest = list(m)
        for atom in divisor:
            if atom not in rest:
                return None
            rest.remove(atom)
        if c % factor:
            return None
        result[tuple(rest)] = c // factor
    return result
