"""How far a correct kernel may be from the reference, and the comparison itself.

A sum of n terms in any order has an error of at most ``(n - 1) u sum|x|``, u being half the distance from 1 to the next number
(Higham, Accuracy and Stability of Numerical Algorithms, 4.2); with random rounding errors it stays below ``8 sqrt(n) u
sum|x|`` except with a probability below 1e-13 (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis,
2019).  `tolerance` uses the smaller of both with n = `operation_count`, the roundings on the longest path to one element,
twice (kernel and reference round apart), relative to the element and to the largest element of the result.

That says nothing about cancellation inside a program (a variance from two moments).  `expect_results` measures it: the same
program is interpreted with f32 and with f64 arithmetic, and a difference beyond rounding widens the tolerance.  As it has
that measure, it takes the typical (median) element in place of the largest, so that one large element hides no others.
Cancellation inside one sum shows in neither; inputs changed by a hair, interpreted once more, give its size.

Elements stored as 16-bit floats are rounded there, by kernel and reference alike, but not always to the same side.  Such
roundings are counted apart (`of_storage`): each weighs one unit of its type, and summing many of them in f32 adds none.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod, sqrt

import numpy as np

from polyc.ir.components import order_components
from polyc.ir.expr import OPERATORS, Call, Cast, Expr, Read, type_of, walk
from polyc.ir.halves import is_bfloat16, narrow, widen
from polyc.ir.interpret import bind_sizes, interpret
from polyc.ir.interpret_ranges import ConcreteRanges, solve_ranges
from polyc.ir.program import Program, Statement
from polyc.ir.types import BF16, F16, F32, DType, from_numpy
from polyc.records import dataclass

_EXACT = frozenset("max min fmax fmin neg abs ceil floor round rint trunc copysign".split())
_FUNCTION_ULPS = 8
"""Roundings that a mathematical function counts for: the stated error bounds of inline polynomials are below it."""
_POWER_ULPS = 32
_MEASURED_FACTOR = 32
"""The error seen between f32 and f64 arithmetic is one sample; a kernel with another order may be this much further."""

_NUDGE = 2.0**-22
"""Relative change of the inputs by which the condition of a program is measured."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a kernel should give: `values` (in f64 where the results are floating point), `plain` (in the element types),
    the tolerances per result name or element, and the index of each result's element 0 in the user's coordinates."""

    values: dict[str, np.ndarray]
    plain: dict[str, np.ndarray]
    rtol: float
    atol: dict[str, float | np.ndarray]
    origins: dict[str, tuple[int, ...]]
    types: dict[str, DType]
    """Element types of the results."""
    integer_slack: int
    """1 where integers are made from rounded numbers, else 0."""


def operation_count(program: Program, sizes: Mapping[str, int]) -> dict[str, int]:
    """Roundings on the longest path to one element of each tensor version, at the given sizes (all symbols)."""
    return _count(program, solve_ranges(program, sizes))


def _count(program: Program, ranges: ConcreteRanges, of_storage: bool = False) -> dict[str, int]:
    """Roundings in arithmetic, or those to 16-bit floats alone."""
    counts = {t.name: 0 for t in program.tensors}
    for component in order_components(program):
        found = {s.name: _count_statement(s, program, ranges, counts, of_storage) for s in component.statements}
        for version in component.versions:
            counts[version] = max(found[s.name] for s in component.statements if s.target == version)
        if component.is_recurrence:  # a path goes through each statement once per step, and steps along each dimension
            steps = sum(upper - lower for v in component.versions for lower, upper in ranges.tensors[v])
            counts |= dict.fromkeys(component.versions, sum(found.values()) * max(steps, 1))
    return counts


def _count_statement(
    s: Statement, program: Program, ranges: ConcreteRanges, counts: Mapping[str, int], of_storage: bool
) -> int:
    total = _roundings(s.value, program.types, counts, of_storage)
    stored = int(of_storage and program.types[s.target].is_storage)
    if s.reduction is None:
        return total + stored
    box = ranges.statements[s.name]
    terms = prod(box[i][1] - box[i][0] for i in s.reduction_indices)
    if not s.has_plain_left:  # any instance may meet any element
        terms = prod(upper - lower for lower, upper in box.values())
    total = max(total, _roundings(s.reduction.init, program.types, counts, of_storage))
    if s.reduction.monoid is not None:
        monoid = s.reduction.monoid
        total += max(terms, 1) * sum(
            _roundings(r, monoid.types, dict.fromkeys(monoid.types, 0), of_storage) for r in monoid.results
        )
    if s.reduction.op in ("add", "mul") and not of_storage:
        total += max(terms, 1)
    if s.reduction.op == "mul":
        total += max(terms, 1) * _roundings(s.value, program.types, counts, of_storage)
    return total + stored


def _roundings(expr: Expr, types: Mapping[str, DType], counts: Mapping[str, int], of_storage: bool) -> int:
    """Roundings on all paths of one evaluation: a bound for the longest one of any shape of tree."""
    total = 0
    deepest = 0
    for node in walk(expr):
        match node:
            case Read():
                deepest = max(deepest, counts[node.tensor])
            case _ if of_storage:
                total += int(isinstance(node, Cast) and node.dtype.is_storage)
            case Call() if OPERATORS[node.op].result != "bool" and node.op not in _EXACT and _is_rounded(type_of(node, types)):
                infix = OPERATORS[node.op].infix or node.op == "fma"
                total += 1 if infix else _POWER_ULPS if node.op == "pow" else _FUNCTION_ULPS
            case Cast() if _is_rounded(node.dtype):
                total += 1
    return deepest + total


def tolerance(program: Program, sizes: Mapping[str, int], dtype: DType) -> tuple[float, float]:
    """``(rtol, scale)``: an element x of a result whose largest element is m may be off by ``rtol*|x| + scale*m``.

    `dtype` is the element type of the arithmetic; integers give ``(0, 0)``."""
    if not _is_rounded(dtype):
        return 0.0, 0.0
    ranges = solve_ranges(program, sizes)
    counts, rounded = _count(program, ranges), _count(program, ranges, of_storage=True)
    bound = _bound(max((counts[r.version] for r in program.returns), default=0), dtype.part.computed)
    bound += _storage_bound(max((rounded[r.version] for r in program.returns), default=0), program)
    return bound, bound


def _is_rounded(dtype: DType) -> bool:
    return dtype.is_float or dtype.is_complex


def _wide(array: np.ndarray) -> np.ndarray:
    """In double precision."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _bound(n: int, dtype: DType) -> float:
    return float(np.finfo(dtype.numpy).eps) * (4 + min(n, 8 * sqrt(n)))


_STORAGE_EPSILON = {F16: 2.0**-10, BF16: 2.0**-7}


def _storage_bound(n: int, program: Program) -> float:
    """The error of `n` roundings to the coarsest 16-bit float of a program."""
    types = {t.dtype for t in program.tensors}
    types |= {node.dtype for s in program.statements for node in walk(s.value) if isinstance(node, Cast)}
    return n * max((_STORAGE_EPSILON[t] for t in types if t.is_storage), default=0.0)


def compare_results(
    got: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    tolerance: tuple[float, float],
    origins: Mapping[str, tuple[int, ...]] | None = None,
) -> str | None:
    """None where all results agree, else a message naming result, element (shifted by its origin) and both values.

    NaN agrees with NaN, an infinity with itself; integers and bools must be equal."""
    rtol, scale = tolerance
    for name, reference in expected.items():
        reference = widen(reference)
        finite = np.abs(reference[np.isfinite(reference)]) if reference.dtype.kind in "fc" else reference[:0]
        atol = scale * float(finite.max()) if finite.size else 0.0
        message = _compare_one(name, got.get(name), reference, rtol, atol, (origins or {}).get(name), 0, None)
        if message is not None:
            return message
    return None


def _compare_one(
    name: str,
    got: np.ndarray | None,
    expected: np.ndarray,
    rtol: float,
    atol: float | np.ndarray,
    origin: tuple[int, ...] | None,
    integer_slack: int,
    unsure: np.ndarray | None,
) -> str | None:
    if got is None:
        return f"there is no result {name}"
    if got.shape != expected.shape:
        return f"{name} has the shape {got.shape}, expected {expected.shape}"
    stored = from_numpy(got.dtype) or (BF16 if is_bfloat16(got.dtype) else F32)
    with np.errstate(all="ignore"):
        if expected.dtype.kind in "fc":
            # what overflows the element type is an infinity there
            reference = widen(narrow(expected, stored)) if stored.is_storage else expected.astype(got.dtype)
            got = widen(got)
            difference = np.abs(_wide(got) - _wide(expected))
            close = (difference <= rtol * np.abs(expected) + atol) & np.isfinite(got) & np.isfinite(reference)
            good = (got == reference) | (np.isnan(got) & np.isnan(reference)) | close
        elif integer_slack and expected.dtype.kind in "iu":
            good = (got == expected) | (np.abs(got.astype(np.float64) - expected.astype(np.float64)) <= integer_slack)
        else:
            good = got == expected
    if unsure is not None:
        good = good | unsure
    bad = np.logical_not(good)
    if not bad.any():
        return None
    first = np.unravel_index(int(np.argmax(bad)), bad.shape)
    place = ", ".join(str(int(p) + o) for p, o in zip(first, origin or (0,) * got.ndim, strict=True))
    count = int(bad.sum())
    more = f" ({count} of {bad.size} elements differ)" if count > 1 else ""
    return f"{name}[{place}] is {got[first]}, expected {expected[first]}{more}"


def expect_results(
    program: Program,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int] | None = None,
    out: Mapping[str, np.ndarray] | None = None,
) -> Expectation:
    """Interpret `program` twice, with f32 and with f64 arithmetic, and derive what a kernel may give."""
    plain = interpret(program, arrays, sizes, out)
    wide = interpret(program, arrays, sizes, out, float_as=np.float64)
    nudged = interpret(program, _nudge(arrays), sizes, _nudge(out or {}), float_as=np.float64)
    values = bind_sizes(program, arrays, sizes or {}, out)
    ranges = solve_ranges(program, values)
    counts, rounded = _count(program, ranges), _count(program, ranges, of_storage=True)
    rtol = 0.0
    atol: dict[str, float | np.ndarray] = {}
    for result in program.returns:
        expected, sample = wide[result.name], _wide(widen(plain[result.name]))
        if expected.dtype.kind not in "fc":
            atol[result.name] = 0.0
            continue
        lowest = min((t.dtype.part.computed for t in program.tensors if _is_rounded(t.dtype)), key=lambda d: d.bits)
        bound = _bound(counts[result.version], lowest) + _storage_bound(rounded[result.version], program)
        rtol = max(rtol, bound)
        with np.errstate(all="ignore"):
            # what rounding relative to the element itself does not explain: cancellation
            excess = np.abs(expected - sample) - bound * np.abs(expected)
            finite = np.isfinite(excess)
            magnitudes = np.abs(expected[finite & (expected != 0)])  # a clamp at zero says nothing about the sums behind it
            typical = float(np.median(magnitudes)) if magnitudes.size else 0.0
            shift = np.abs(nudged[result.name] - expected)
            shift = np.where(np.isfinite(shift), shift, 0)
            # Sums round as if each term had been changed a little: how much that moves the results, and each one, is measured.
            usual = float(np.median(shift[shift != 0])) if shift.any() else 0.0
            moved = np.maximum(shift, usual) * bound / _NUDGE
        atol[result.name] = bound * typical + moved + _MEASURED_FACTOR * float(excess[finite].max(initial=0.0))
    makes_integers = any(
        isinstance(node, Cast) and node.dtype.is_integer and type_of(node.value, program.types).is_float
        for s in program.statements
        for node in walk(s.value)
    )
    origins = {r.name: tuple(lower for lower, _ in ranges.tensors[r.version]) for r in program.returns}
    types = {r.name: program.types[r.version] for r in program.returns}
    return Expectation(wide, plain, rtol, atol, origins, types, int(makes_integers))


def _nudge(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Floating-point arrays with each element changed by one part in 2**22, up or down; the same every time."""
    rng = np.random.default_rng(0)
    result = {}
    with np.errstate(all="ignore"):
        for name, a in arrays.items():
            a = widen(a)
            factor = 1 + _NUDGE * rng.choice((-1.0, 1.0), a.shape) if a.dtype.kind in "fc" else 1
            result[name] = _wide(a * factor) if a.dtype.kind in "fc" else np.asarray(a * factor, a.dtype)
    return result


def check_results(got: Mapping[str, np.ndarray], expected: Expectation) -> str | None:
    """As `compare_results`, with the measured tolerances.  Elements that one precision overflows and the other does not are
    unsure and pass."""
    for name, reference in expected.values.items():
        plain = expected.plain[name]
        unsure = None
        if reference.dtype.kind in "fc":
            with np.errstate(all="ignore"):
                stored = expected.types[name]
                same = widen(narrow(reference, stored)) if stored.is_storage else reference.astype(plain.dtype)
                unsure = np.isfinite(same) != np.isfinite(widen(plain))
                if reference.dtype.kind == "c":  # beyond an overflow one part may be NaN or not, by the order of products
                    unsure = unsure | (np.isfinite(reference) & np.logical_not(np.isfinite(same)))
        elif expected.integer_slack:
            unsure = reference != plain
        message = _compare_one(
            name,
            got.get(name),
            reference,
            expected.rtol,
            expected.atol[name],
            expected.origins[name],
            expected.integer_slack,
            unsure,
        )
        if message is not None:
            return message
    return None
