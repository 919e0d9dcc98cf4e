"""How far a correct kernel may be from the reference, and the comparison itself.

A sum of n terms in any order has an error of at most ``(n - 1) u sum|x|``, u being half the distance from 1 to the next number
(Higham, Accuracy and Stability of Numerical Algorithms, 4.2); with random rounding errors it stays below ``8 sqrt(n) u
sum|x|`` except with a probability below 1e-13 (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis,
2019).  `tolerance` uses the smaller of both with n = `operation_count`, the roundings on the longest path to one element,
twice (kernel and reference round apart), relative to the element and to the largest element of the result.

That says nothing about cancellation inside a program (a variance from two moments), nor about recurrences that amplify
errors.  `expect_results` measures it, element by element: the same program is interpreted with f32 and with f64 arithmetic,
and with random rounding errors (`rounding.Noise`) where these two do not settle it.  As it has that measure, it takes the
typical (median) element in place of the largest, so that one large element hides no others.  Where the results move by a
part of themselves, no comparison can tell a wrong kernel from a right one: `find_undecided` names such elements.

Elements stored as 16-bit floats are rounded there, by kernel and reference alike, but not always to the same side.  Such
roundings are counted apart (`of_storage`): each weighs one unit of its type, and summing many of them in f32 adds none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import prod, sqrt

import numpy as np

from polyc.diagnostics import PolycError
from polyc.ir.components import order_components
from polyc.ir.expr import Call, Cast, Expr, Read, type_of, walk
from polyc.ir.halves import is_bfloat16, narrow, widen
from polyc.ir.interpret import bind_sizes, interpret
from polyc.ir.interpret_ranges import ConcreteRanges, solve_ranges
from polyc.ir.program import Program, Statement
from polyc.ir.rounding import Noise, is_rounded, roundings_of
from polyc.ir.types import BF16, C64, F16, F32, DType, from_numpy
from polyc.records import dataclass

_SPREAD_FACTOR = 8
"""The errors seen are samples; a kernel may be this much further off than the largest of them."""
_FIRST_SAMPLES = 2
_ALL_SAMPLES = 10
"""Interpretations with random errors: where a result is not within the bounds that need none, or to say what is undecided; and
before a kernel is called wrong."""
_RARE = 50
"""For so many elements that are nothing but rounding error there may be one that is, too, and did not move in the samples."""
_DECIDABLE = 0.25
"""The largest tolerance by measured errors, as a part of an element, at which agreement still says something."""


@dataclass(slots=True)
class Expectation:
    """What a kernel should give: `values` (in f64 where the results are floating point), `plain` (in the element types),
    the tolerances per result name or element, and the index of each result's element 0 in the user's coordinates."""

    values: dict[str, np.ndarray]
    plain: dict[str, np.ndarray]
    rtol: float
    atol: dict[str, float]
    typical: dict[str, float]
    """Median magnitude of the elements of each result."""
    spread: dict[str, np.ndarray]
    """How far the samples are from each element: infinite where some are finite and some are not, or where integers differ."""
    sample: Callable[[int], dict[str, np.ndarray]]
    """Results with the random errors of a seed."""
    n_samples: int
    """Samples with random errors that `spread` has seen.  They widen the tolerances, and are drawn where that is asked for."""
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
    terms = _terms(s, ranges)
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


def _terms(s: Statement, ranges: ConcreteRanges) -> int:
    """How many values a reduction combines into one element, at most."""
    box = ranges.statements[s.name]
    if not s.has_plain_left:  # any instance may meet any element
        return prod(max(upper - lower, 0) for lower, upper in box.values())
    return prod(max(box[i][1] - box[i][0], 0) for i in s.reduction_indices)


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
            case Call() if is_rounded(type_of(node, types)):
                total += roundings_of(node)
            case Cast() if is_rounded(node.dtype):
                total += 1
    return deepest + total


def tolerance(program: Program, sizes: Mapping[str, int], dtype: DType) -> tuple[float, float]:
    """``(rtol, scale)``: an element x of a result whose largest element is m may be off by ``rtol*|x| + scale*m``.

    `dtype` is the element type of the arithmetic; integers give ``(0, 0)``."""
    if not is_rounded(dtype):
        return 0.0, 0.0
    ranges = solve_ranges(program, sizes)
    counts, rounded = _count(program, ranges), _count(program, ranges, of_storage=True)
    bound = _bound(max((counts[r.version] for r in program.returns), default=0), dtype.part.computed)
    bound += _storage_bound(max((rounded[r.version] for r in program.returns), default=0), program)
    return bound, bound


def _wide(array: np.ndarray) -> np.ndarray:
    """In double precision."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _bound(n: int, dtype: DType) -> float:
    return float(np.finfo(dtype.numpy).eps) * (4 + min(n, 8 * sqrt(n)))


_STORAGE_EPSILON = {F16: 2.0**-10, BF16: 2.0**-7}


def _storage_bound(n: int, program: Program) -> float:
    """The error of `n` roundings to the coarsest 16-bit float of a program."""
    return n * max((_STORAGE_EPSILON[t] for t in _types(program) if t.is_storage), default=0.0)


def _types(program: Program) -> set[DType]:
    casts = {node.dtype for s in program.statements for node in walk(s.value) if isinstance(node, Cast)}
    return casts | {t.dtype for t in program.tensors}


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
        message = _compare_one(name, got.get(name), reference, rtol, atol, (origins or {}).get(name), 0, None, None, 0)
        if message is not None:
            return message
    return None


def _compare_one(
    name: str,
    got: np.ndarray | None,
    expected: np.ndarray,
    rtol: float,
    atol: float,
    origin: tuple[int, ...] | None,
    integer_slack: int,
    unsure: np.ndarray | None,
    spread: np.ndarray | None,
    n_lost: int,
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
            relative = rtol * np.abs(expected)
            allowed = relative + atol if spread is None else np.maximum(relative, np.maximum(atol, spread))
            close = (difference <= allowed) & np.isfinite(got) & np.isfinite(reference)
            good = (got == reference) | (np.isnan(got) & np.isnan(reference)) | close
        elif integer_slack and expected.dtype.kind in "iu":
            good = (got == expected) | (np.abs(got.astype(np.float64) - expected.astype(np.float64)) <= integer_slack)
        else:
            good = got == expected
    if unsure is not None:
        good = good | unsure
    bad = np.logical_not(good)
    count = int(bad.sum())
    if count == 0 or count * _RARE <= n_lost:
        return None
    first, place = _first(name, bad, origin)
    more = f" ({count} of {bad.size} elements differ)" if count > 1 else ""
    return f"{place} is {got[first]}, expected {expected[first]}{more}"


def _first(name: str, chosen: np.ndarray, origin: tuple[int, ...] | None) -> tuple[tuple[np.intp, ...], str]:
    """The first of the chosen elements: where it is in the array, and what the user calls it."""
    first = np.unravel_index(int(np.argmax(chosen)), chosen.shape)
    place = ", ".join(str(int(p) + o) for p, o in zip(first, origin or (0,) * chosen.ndim, strict=True))
    return first, f"{name}[{place}]"


def expect_results(
    program: Program,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int] | None = None,
    out: Mapping[str, np.ndarray] | None = None,
) -> Expectation:
    """Interpret `program` with f32 and f64 arithmetic, and derive what a kernel may give."""
    plain = interpret(program, arrays, sizes, out)
    is_single = any(t.computed in (F32, C64) for t in _types(program))
    wide = interpret(program, arrays, sizes, out, float_as=np.float64) if is_single else plain
    values = bind_sizes(program, arrays, sizes or {}, out)
    ranges = solve_ranges(program, values)
    counts, rounded = _count(program, ranges), _count(program, ranges, of_storage=True)
    terms = {s.name: _terms(s, ranges) for s in program.statements if s.reduction is not None}
    arrays, out = ({n: np.array(a) for n, a in (given or {}).items()} for given in (arrays, out))  # kernels may overwrite them

    def sample(seed: int) -> dict[str, np.ndarray]:
        return interpret(program, arrays, sizes, out, np.float64 if is_single else None, Noise(seed, terms))

    rtol = 0.0
    atol, typical, spread = dict[str, float](), dict[str, float](), dict[str, np.ndarray]()
    for result in program.returns:
        expected = wide[result.name]
        atol[result.name] = typical[result.name] = 0.0
        spread[result.name] = np.zeros(expected.shape)
        if expected.dtype.kind not in "fc":
            continue
        lowest = min((t.dtype.part.computed for t in program.tensors if is_rounded(t.dtype)), key=lambda d: d.bits)
        bound = _bound(counts[result.version], lowest) + _storage_bound(rounded[result.version], program)
        rtol = max(rtol, bound)
        # a clamp at zero says nothing about the sums behind it
        magnitudes = np.abs(expected[np.isfinite(expected) & (expected != 0)])
        typical[result.name] = float(np.median(magnitudes)) if magnitudes.size else 0.0
        atol[result.name] = bound * typical[result.name]
    makes_integers = any(
        isinstance(node, Cast) and node.dtype.is_integer and type_of(node.value, program.types).is_float
        for s in program.statements
        for node in walk(s.value)
    )
    origins = {r.name: tuple(lower for lower, _ in ranges.tensors[r.version]) for r in program.returns}
    types = {r.name: program.types[r.version] for r in program.returns}
    n_samples = 0 if any(is_rounded(t) for t in _types(program)) else _ALL_SAMPLES  # all would be the same
    found = Expectation(wide, plain, rtol, atol, typical, spread, sample, n_samples, origins, types, int(makes_integers))
    _add_sample(found, plain)
    return found


def _draw(expected: Expectation, n_samples: int) -> None:
    """Samples with random errors until there are so many."""
    for seed in range(expected.n_samples, n_samples):
        with suppress(PolycError):  # a subscript made of rounded numbers may leave its array
            _add_sample(expected, expected.sample(seed))
    expected.n_samples = max(expected.n_samples, n_samples)


def _add_sample(expected: Expectation, results: Mapping[str, np.ndarray]) -> None:
    for name, reference in expected.values.items():
        sample, spread = widen(results[name]), expected.spread[name]
        with np.errstate(all="ignore"):
            if reference.dtype.kind in "fc":
                is_finite = np.isfinite(reference)
                own = _STORAGE_EPSILON.get(expected.types[name], 0.0) * np.abs(reference)  # the storing counts apart
                off = np.where(is_finite, np.maximum(np.abs(_wide(sample) - _wide(reference)) - own, 0), 0)
                off = np.where(np.isfinite(sample) == is_finite, off, np.inf)
            else:
                off = np.where(sample == reference, 0, np.inf)
        np.maximum(spread, off, out=spread)


def check_results(got: Mapping[str, np.ndarray], expected: Expectation) -> str | None:
    """As `compare_results`, with the measured tolerances.  Elements that one precision overflows and the other does not are
    unsure and pass."""
    message = _check(got, expected)
    for n_samples in (_FIRST_SAMPLES, _ALL_SAMPLES):
        if message is None:
            break
        _draw(expected, n_samples)
        message = _check(got, expected)
    return message


def _check(got: Mapping[str, np.ndarray], expected: Expectation) -> str | None:
    for name, reference in expected.values.items():
        message = _compare_one(
            name,
            got.get(name),
            reference,
            expected.rtol,
            expected.atol[name],
            expected.origins[name],
            expected.integer_slack,
            _find_unsure(name, expected) | (_is_lost(name, expected) & _is_infinite(got.get(name), reference)),
            _bound_spread(name, expected),
            int(_is_lost(name, expected).sum()),
        )
        if message is not None:
            return message
    return None


def _bound_spread(name: str, expected: Expectation) -> np.ndarray:
    """How far rounding errors may move each element.  Elements that are nothing but rounding error, and then divide each other,
    have no variance that a few samples show: all of these together give their size."""
    is_lost = _is_lost(name, expected)
    bound = _SPREAD_FACTOR * expected.spread[name]
    return np.where(is_lost, bound[is_lost].max(initial=0.0), bound)


def _is_lost(name: str, expected: Expectation) -> np.ndarray:
    """Elements that are rounding error alone."""
    spread = expected.spread[name]
    return np.isfinite(spread) & _exceeds_elements(spread, name, expected)


def _is_infinite(got: np.ndarray | None, reference: np.ndarray) -> np.ndarray | bool:
    """Where a kernel divided by what rounding made zero."""
    return got is not None and got.shape == reference.shape and np.logical_not(np.isfinite(widen(got)))


def _exceeds_elements(bound: np.ndarray, name: str, expected: Expectation) -> np.ndarray:
    """Where errors of this size leave nothing to compare."""
    return bound > _DECIDABLE * np.maximum(np.abs(expected.values[name]), expected.typical[name])


def _find_unsure(name: str, expected: Expectation) -> np.ndarray:
    """Elements that rounding may make anything."""
    reference, plain, unsure = expected.values[name], expected.plain[name], np.isinf(expected.spread[name])
    if reference.dtype.kind in "fc":
        with np.errstate(all="ignore"):
            stored = expected.types[name]
            same = widen(narrow(reference, stored)) if stored.is_storage else reference.astype(plain.dtype)
            unsure = unsure | (np.isfinite(same) != np.isfinite(widen(plain)))
            if reference.dtype.kind == "c":  # beyond an overflow one part may be NaN or not, by the order of products
                unsure = unsure | (np.isfinite(reference) & np.logical_not(np.isfinite(same)))
    return unsure


def find_undecided(got: Mapping[str, np.ndarray], expected: Expectation) -> str | None:
    """What `check_results` let pass because rounding errors are as large as the elements, in words; None: nothing.

    An element that agrees with the interpreter to the last bit is decided all the same."""
    found = []
    for name, reference in expected.values.items():
        with np.errstate(all="ignore"):
            values, plain = widen(got[name]), widen(expected.plain[name])
            unclear = (values != plain) & np.logical_not((values != values) & (plain != plain))
            if not unclear.any():
                continue
            _draw(expected, _FIRST_SAMPLES)
            bound = _SPREAD_FACTOR * expected.spread[name]
            unclear = unclear & (_find_unsure(name, expected) | _exceeds_elements(bound, name, expected))
        if unclear.any():
            first, place = _first(name, unclear, expected.origins[name])
            size = f"{bound[first]:.2g}" if np.isfinite(bound[first]) else "any number"
            found.append(
                f"{int(unclear.sum())} of {unclear.size} elements of {name} ({place} is {got[name][first]}, "
                f"the reference {reference[first]}, rounding errors reach {size})"
            )
    return ", ".join(found) or None
