"""Derivatives of a program against each other and against differences, in the reference interpreter.

`check_derivatives` compares, for one program and its inputs x, tangents v and cotangents w:

- the results of the forward mode with those of the program itself;
- the tangents J v with central differences (f(x + h v) - f(x - h v)) / 2 h, element by element, where f is smooth within h;
- ⟨w, J v⟩ with ⟨Jᵀ w, v⟩.

All in float64 (complex128), whatever the program's own float types are; inner products of complex numbers are real, and do not
conjugate: ⟨a, b⟩ = Re Σ a b.  `check_exactly` takes whole numbers instead, for which programs of
sums and products are exact: the two inner products are then equal bit for bit.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from polyc.api.operator import Operator
from polyc.api.sources import FixedSource
from polyc.config import Options
from polyc.diagnostics import PolycError, UnsupportedError
from polyc.gradients import jvp, vjp
from polyc.gradients.rules import is_differentiable
from polyc.ir.expr import Call, Cast, Const, reads, type_of, walk
from polyc.ir.interpret import interpret
from polyc.ir.operators import OPERATORS
from polyc.ir.program import Program, all_reads, statement_expressions
from polyc.ir.tolerance import check_results, expect_results
from polyc.poly.infer import infer_ranges

Arrays = dict[str, np.ndarray]

STEP = 1e-6
"""Of differences, for inputs of about 1."""
KINK = 1e-3
"""Relative distance of the differences to both sides from which on an element is not differentiated between them."""
DIFFERENCE_TOLERANCE = 1e-5
PRODUCT_TOLERANCE = 1e-9
"""Of inner products, relative to the sum of the magnitudes of their terms."""
ROUNDED_TOLERANCE = 2e-2
"""The same where values are rounded to 16 bits."""


class Runnable(Protocol):
    """A program at concrete sizes with inputs; `out` is what accumulated results hold before the call."""

    @property
    def program(self) -> Program: ...
    @property
    def sizes(self) -> dict[str, int]: ...
    @property
    def arrays(self) -> Arrays: ...
    @property
    def out(self) -> Arrays: ...


@dataclass(frozen=True, slots=True)
class Case:
    """The plainest of them."""

    program: Program
    sizes: dict[str, int]
    arrays: Arrays
    out: Arrays


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a program: ``right``, the code of the error that refuses it, or why there is nothing to compare."""

    forward: str
    reverse: str


NOTHING = "nothing to differentiate"
NOT_FINITE = "not finite"
REFUSED = "the program itself is refused"
RIGHT = "right"


def float_inputs(program: Program) -> tuple[str, ...]:
    """The parameters that derivatives are taken with respect to by default."""
    return tuple(p for p in program.parameters if is_differentiable(program.tensor(p).dtype))


def float_results(program: Program) -> tuple[str, ...]:
    return tuple(r.name for r in program.returns if is_differentiable(program.tensor(r.version).dtype))


def run(case: Runnable, program: Program | None = None, more: Sequence[np.ndarray] = (), out: Arrays | None = None) -> Arrays:
    """Results of the case's program, or of a derivative of it, which takes `more` inputs, in float64."""
    program = case.program if program is None else program
    held = widen_all(case.out) | (out or {})
    initial, names = split_parameters(case, program)
    given = widen_all(case.arrays) | initial | dict(zip(names, more, strict=True))
    starts = {r.name: held[r.name] for r in program.returns if r.initial is not None}
    return interpret(program, given, case.sizes, starts, float_as=np.float64)


def split_parameters(case: Runnable, program: Program) -> tuple[Arrays, list[str]]:
    """What a derivative takes beside the inputs: what results hold before the call, and the names of directions."""
    names, held = program.parameters[len(case.program.parameters) :], widen_all(case.out)
    initial = {f"{n}_in": value for n, value in held.items() if f"{n}_in" in names}
    return initial, [n for n in names if n not in initial]


def widened(array: np.ndarray) -> np.ndarray:
    """A float array in float64, a complex one in complex128, any other as it is."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array.astype(np.float64) if array.dtype.kind in "fV" or array.dtype.name == "bfloat16" else array


def shifted(case: Runnable, tangents: Arrays, by: float) -> Case:
    """The case at other inputs."""
    arrays = {n: a + by * tangents[n] if n in tangents else a for n, a in widen_all(case.arrays).items()}
    return Case(case.program, case.sizes, arrays, case.out)


def inner(a: Arrays, b: Arrays) -> tuple[float, float]:
    """The sum of the products of all elements, and that of their magnitudes."""
    products = [a[n] * b[n] for n in a]
    return float(sum(p.sum().real for p in products)), float(sum(np.abs(p).sum() for p in products))


def draw_like(rng: np.random.Generator, arrays: Mapping[str, np.ndarray], names: Iterable[str], most: int = 0) -> Arrays:
    """Values in the shapes of some arrays: normal, or whole numbers up to `most`; complex ones for complex arrays."""

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        return (rng.integers(-most, most + 1, shape) if most else rng.standard_normal(shape)).astype(np.float64)

    given = {n: arrays[n] for n in names}
    return {n: draw(a.shape) + 1j * draw(a.shape) if a.dtype.kind == "c" else draw(a.shape) for n, a in given.items()}


def refusal(make: Callable[[], Program]) -> Program | str:
    """The derivative, or what the error says that refuses it."""
    try:
        return make()
    except UnsupportedError as error:
        return f"{error.code}: {error.diagnostics[0].message}"


def check_derivatives(case: Runnable, wrt: tuple[str, ...] | None = None, seed: int = 0) -> Outcome:
    """Both modes of a program against each other and against differences; raises AssertionError where they differ."""
    program, rng = case.program, np.random.default_rng(seed)
    wrt = float_inputs(program) if wrt is None else wrt
    results = float_results(program)
    if not wrt or not results:
        return Outcome(NOTHING, NOTHING)
    try:
        infer_ranges(program)
        values = run(case)
    except PolycError:
        return Outcome(REFUSED, REFUSED)
    if not all(np.isfinite(values[n]).all() for n in results):
        return Outcome(NOT_FINITE, NOT_FINITE)
    tangents, cotangents = draw_like(rng, case.arrays, wrt), draw_like(rng, values, results)
    forward, reverse = refusal(lambda: jvp(program, wrt)), refusal(lambda: vjp(program, wrt))
    moved: Arrays | None = None
    if isinstance(forward, Program):
        moved = run_forward(case, forward, tangents, values)
        if not rounds(program):
            check_differences(case, moved, tangents, values)
    if isinstance(reverse, Program):
        gradients = run_reverse(case, reverse, wrt, cotangents)
        tolerance = ROUNDED_TOLERANCE if rounds(program) else PRODUCT_TOLERANCE
        if moved is None:
            moved, tolerance = differences(case, tangents, results)[0], max(tolerance, DIFFERENCE_TOLERANCE)
        check_products(moved, cotangents, gradients, tangents, tolerance)
    return Outcome(*(RIGHT if isinstance(p, Program) else p for p in (forward, reverse)))


def check_exactly(case: Runnable, wrt: tuple[str, ...] | None = None, seed: int = 0) -> Outcome:
    """⟨w, J v⟩ = ⟨Jᵀ w, v⟩ bit for bit, at small whole numbers; of programs for which `is_polynomial`."""
    program, rng = case.program, np.random.default_rng(seed)
    wrt = float_inputs(program) if wrt is None else wrt
    results = float_results(program)
    whole = case.arrays | draw_like(rng, case.arrays, [n for n in wrt if n not in choosing(program)], 2)
    case = Case(program, case.sizes, whole, {n: np.rint(widened(a)) for n, a in case.out.items()})
    values = run(case)
    tangents, cotangents = draw_like(rng, whole, wrt, 3), draw_like(rng, values, results, 3)
    forward, reverse = refusal(lambda: jvp(program, wrt)), refusal(lambda: vjp(program, wrt))
    if isinstance(forward, Program) and isinstance(reverse, Program):
        moved = run_forward(case, forward, tangents, values)
        gradients = run_reverse(case, reverse, wrt, cotangents)
        (one, size), (other, _) = inner(cotangents, moved), inner(gradients, tangents)
        assert size < 2**52, "too large to be exact"
        assert one == other, f"⟨w, J v⟩ = {one}, ⟨Jᵀ w, v⟩ = {other}"
    return Outcome(*(RIGHT if isinstance(p, Program) else p for p in (forward, reverse)))


def run_forward(case: Runnable, forward: Program, tangents: Arrays, values: Arrays) -> Arrays:
    """The tangents of the results, by the results' names; the results themselves are those of the program."""
    results, names = float_results(case.program), [r.name for r in forward.returns][len(values) :]
    assert len(names) == len(results), f"tangents {names} of the results {results}"
    still = {t: np.zeros_like(values[n]) for t, n in zip(names, results, strict=True)}
    found = run(case, forward, list(tangents.values()), still)
    for name, value in values.items():
        np.testing.assert_array_equal(found[name], value, err_msg=f"{name} of the forward mode")
    moved = {n: found[t] for n, t in zip(results, names, strict=True)}
    for name, tangent in moved.items():
        assert tangent.shape == values[name].shape, f"t_{name} has the shape {tangent.shape}, {name} {values[name].shape}"
    return moved


def run_reverse(case: Runnable, reverse: Program, wrt: tuple[str, ...], cotangents: Arrays) -> Arrays:
    """The gradients, by the inputs' names."""
    found = run(case, reverse, list(cotangents.values()))
    assert len(found) == len(wrt), f"returns {', '.join(found)}"
    gradients = dict(zip(wrt, found.values(), strict=True))
    for name, gradient in gradients.items():
        wanted = case.arrays[name].shape
        assert gradient.shape == wanted, f"d_{name} has the shape {gradient.shape}, {name} {wanted}"
    return gradients


def differences(case: Runnable, tangents: Arrays, results: Iterable[str]) -> tuple[Arrays, Arrays]:
    """Central differences of the results along `tangents`, and where the results are smooth within a step."""
    at = {by: run(shifted(case, tangents, by * STEP)) for by in (-1, 0, 1)}
    central, is_smooth = {}, {}
    for name in results:
        before, here, behind = (at[by][name] for by in (-1, 0, 1))
        with np.errstate(all="ignore"):
            left, right = (here - before) / STEP, (behind - here) / STEP
            central[name] = (behind - before) / (2 * STEP)
            scale = 1 + np.abs(here) + np.abs(left) + np.abs(right)
            is_smooth[name] = np.isfinite(central[name]) & (np.abs(right - left) <= KINK * scale)
    return central, is_smooth


def check_differences(case: Runnable, moved: Arrays, tangents: Arrays, values: Arrays) -> None:
    """Tangents of results are central differences, up to rounding."""
    central, is_smooth = differences(case, tangents, moved)
    for name, tangent in moved.items():
        scale = 1 + np.abs(values[name]) + np.abs(central[name]) + np.abs(central[name][is_smooth[name]]).max(initial=0.0)
        with np.errstate(invalid="ignore"):
            is_off = is_smooth[name] & ~(np.abs(tangent - central[name]) <= DIFFERENCE_TOLERANCE * scale)
        if is_off.any():
            place = tuple(int(i) for i in np.argwhere(is_off)[0])
            raise AssertionError(
                f"t_{name}{list(place)} is {tangent[place]}, the difference quotient {central[name][place]} "
                f"({is_off.sum()} of {is_off.size} elements)"
            )


def check_products(moved: Arrays, cotangents: Arrays, gradients: Arrays, tangents: Arrays, tolerance: float) -> None:
    (one, size), (other, size_2) = inner(cotangents, moved), inner(gradients, tangents)
    assert abs(one - other) <= tolerance * (size + size_2 + 1), f"⟨w, J v⟩ = {one}, ⟨Jᵀ w, v⟩ = {other}"


# --- Programs --------------------------------------------------------------------------------------------------------

POLYNOMIAL = {"add", "sub", "mul", "neg"}
"""Operators whose values, and those of their derivatives, at whole numbers are whole numbers."""


def is_polynomial(program: Program) -> bool:
    """Whether all floating-point arithmetic is sums and products, so that whole numbers stay exact."""
    for s in program.statements:
        if s.reduction is not None and program.types[s.target].is_float and s.reduction.op != "add":
            return False
        for expr in statement_expressions(s):
            for node in walk(expr):
                if isinstance(node, Call) and node.op not in POLYNOMIAL and not _is_of_integers(node, program):
                    return False
                if isinstance(node, Const) and node.dtype.is_float and not float(node.value).is_integer():
                    return False
    return not rounds(program)


def rounds(program: Program) -> bool:
    """Whether values are rounded to 16 bits on the way: neither are differences exact, nor do both modes round alike."""
    casts = (n for s in program.statements for e in statement_expressions(s) for n in walk(e) if isinstance(n, Cast))
    return any(t.dtype.is_storage for t in program.tensors) or any(n.dtype.is_storage for n in casts)


def _is_of_integers(node: Call, program: Program) -> bool:
    return OPERATORS[node.op].result == "bool" or not type_of(node.args[0], program.types).is_float


def choosing(program: Program) -> set[str]:
    """Tensors whose elements stand in subscripts: they are not moved, as they choose elements that have to be there."""
    return {read.tensor for s in program.statements for e in all_reads(s) for sub in e.subscripts for read in reads(sub)}


def perturbed(case: Runnable, seed: int = 0, by: float = 0.01) -> Case:
    """The case with float inputs moved a little, each by another amount: values that were equal are so no longer.

    Inputs that choose elements stay."""
    rng = np.random.default_rng(seed)
    chooses = choosing(case.program)
    arrays = {
        n: a + by * rng.standard_normal(a.shape) if a.dtype.kind in "fc" and n not in chooses else a
        for n, a in widen_all(case.arrays).items()
    }
    return Case(case.program, case.sizes, arrays, widen_all(case.out))


def widen_all(arrays: Mapping[str, np.ndarray]) -> Arrays:
    return {n: widened(a) for n, a in arrays.items()}


def seed_of(name: str) -> int:
    return zlib.crc32(name.encode())


def count_outcomes(found: Mapping[str, Outcome | str]) -> str:
    """How many programs came to what in each mode: right, refused by a code, or wrong."""
    lines = []
    for mode in ("forward", "reverse"):
        counts = Counter("wrong" if isinstance(o, str) else getattr(o, mode) for o in found.values())
        lines.append(f"  {mode}: " + ", ".join(f"{n} {what}" for what, n in counts.most_common()))
    return "\n".join(lines)


# --- Kernels ---------------------------------------------------------------------------------------------------------


def check_kernel(case: Runnable, seed: int = 0) -> str:
    """Whether the kernel of a program's gradient computes what the interpreter does, in the program's own types."""
    program, rng = case.program, np.random.default_rng(seed)
    wrt, results = float_inputs(program), float_results(program)
    gradient = refusal(lambda: vjp(program, wrt)) if wrt and results else NOTHING
    if not isinstance(gradient, Program):
        return gradient
    cotangents = draw_like(rng, run(case), results)
    initial, names = split_parameters(case, gradient)
    found_by_name = case.arrays | initial | dict(zip(names, cotangents.values(), strict=True))
    given = {p: found_by_name[p] for p in gradient.parameters}
    arrays = {n: np.asarray(a).astype(gradient.tensor(n).dtype.numpy) for n, a in given.items()}
    sizes = {n: v for n, v in case.sizes.items() if n in gradient.sizes}
    try:
        found = Operator(FixedSource(gradient), gradient.name, Options())(*arrays.values(), **sizes)
    except UnsupportedError as error:
        return error.code
    got = dict(zip([r.name for r in gradient.returns], found if isinstance(found, tuple) else (found,), strict=True))
    message = check_results(got, expect_results(gradient, arrays, sizes))
    assert message is None, message
    return RIGHT
