"""`check_grad`: the derivatives of an operator against differences of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from polyc import driver, recall
from polyc.api.gradients import Names, find_operator
from polyc.gradients import jvp, vjp
from polyc.gradients.inputs import differentiable_results
from polyc.gradients.rules import is_differentiable
from polyc.ir.custom_rules import Rule
from polyc.ir.expr import Cast, Const, Expr, rewrite
from polyc.ir.interpret import bind_sizes, interpret
from polyc.ir.program import Program, Statement, Tensor, map_statement
from polyc.ir.types import C128, F64, DType
from polyc.records import dataclass, replace

Arrays = dict[str, np.ndarray]

STEP = 1e-6
"""Of differences, relative to the magnitude of the inputs: about the cube root of float64's precision, times ten."""
TOLERANCE = 1e-5
"""Between derivatives and differences, relative to the magnitudes of both and of the results."""
MOST_PROBED = 64
"""Elements of an input by which differences are taken one by one, to name the one that is worst."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One derivative that is not the difference quotient."""

    mode: str
    element: str
    """In the user's names: ``Y[2, 3]`` along the direction, or ``d_X[0, 1]``."""
    derivative: float
    difference: float

    def __str__(self) -> str:
        return f"{self.mode}: {self.element} is {self.derivative:.9g}, and by differences {self.difference:.9g}"


@dataclass(frozen=True, slots=True)
class GradientCheck:
    """What `check_grad` found; true where both modes agree with differences."""

    forward_error: float
    """The largest distance of a directional derivative to the difference quotient, relative to their magnitude."""
    reverse_error: float
    """The same of ⟨w, J v⟩, for each input alone."""
    n_kinks: int
    """Elements of results that are left out, as differences to both sides disagree: there is no derivative there."""
    worst: tuple[Mismatch, ...] = field(default=())
    """The worst element of each mode that does not agree."""

    def __bool__(self) -> bool:
        return not self.worst

    def __str__(self) -> str:
        errors = f"forward {self.forward_error:.1e}, reverse {self.reverse_error:.1e}"
        kinks = f"; {self.n_kinks} elements have no derivative here" if self.n_kinks else ""
        if self:
            return f"derivatives agree with differences: relative errors {errors}{kinks}"
        return "\n".join(("derivatives differ from differences", *(f"  {m}" for m in self.worst))) + kinks


def check_grad(op: Any, *arrays: Any, wrt: Names = None, seed: int = 0, **named: Any) -> GradientCheck:
    """Compare the derivatives of `op` at these arguments with central differences in float64.

    All arithmetic is that of the reference interpreter in float64, whatever the operator's own types are; so take small arrays.
    Both modes go along a random direction: the forward mode element by element of the results, the reverse mode input by input.
    `print` the result to see the worst element::

        assert (found := polyc.check_grad(layer, x, w, b)), found

    Raises what a call with these arguments raises, and what `Operator.vjp` does."""
    operator = find_operator(op)
    call, program = operator.sort_call(arrays, named), operator.program
    given = {p: np.asarray(a) for p, a in zip(program.parameters, call.inputs, strict=True)}
    with driver.compiling():
        sizes = operator.sizes_of_call(arrays, named)
        return _Check(widen_program(program), given, sizes, operator.name_inputs(wrt), seed).run()


class _Check:
    """One program at one point."""

    def __init__(self, program: Program, given: Arrays, sizes: Mapping[str, int], wrt: Sequence[str], seed: int) -> None:
        self.program, self.wrt = program, wrt
        self.results = tuple(r.name for r in differentiable_results(self.program))
        self.arrays = {n: _widen(a, self.program.tensor(n).dtype) for n, a in given.items()}
        self.sizes = bind_sizes(self.program, self.arrays, sizes)
        self.rng = np.random.default_rng(seed)
        self.step = STEP * max(1.0, *(float(np.abs(self.arrays[n]).max(initial=0.0)) for n in wrt))
        shapes = recall.infer_shapes(self.program, self.sizes)
        self.held = {r.name: np.zeros(shapes[r.name][1]) for r in self.program.returns if r.initial is not None}

    def evaluate(self, program: Program, more: Mapping[str, np.ndarray]) -> Arrays:
        held = {r.name: self.held[r.name] for r in program.returns if r.initial is not None}
        return interpret(program, self.arrays | dict(more), self.sizes, held, float_as=np.float64)

    def shifted(self, directions: Arrays, by: float) -> Arrays:
        return self.evaluate(self.program, {n: self.arrays[n] + by * d for n, d in directions.items()})

    def draw(self, shape: tuple[int, ...], is_complex: bool) -> np.ndarray:
        real = self.rng.standard_normal(shape)
        return real + 1j * self.rng.standard_normal(shape) if is_complex else real

    def differences(self, directions: Arrays) -> tuple[Arrays, Arrays]:
        """Central differences of the results, and where those to both sides agree."""
        before, here, behind = (self.shifted(directions, by * self.step) for by in (-1, 0, 1))
        central, smooth = {}, {}
        for name in self.results:
            with np.errstate(all="ignore"):
                left, right = (here[name] - before[name]) / self.step, (behind[name] - here[name]) / self.step
                central[name] = (behind[name] - before[name]) / (2 * self.step)
                scale = 1 + np.abs(here[name]) + np.abs(left) + np.abs(right)
                smooth[name] = np.isfinite(central[name]) & (np.abs(right - left) <= 1e-3 * scale)
        return central, smooth

    def run(self) -> GradientCheck:
        forward, reverse = jvp(self.program, self.wrt), vjp(self.program, self.wrt)
        n_inputs, n_results = len(self.program.parameters), len(self.program.returns)
        values = self.evaluate(self.program, {})
        tangents = [r.name for r in forward.returns[n_results:]]
        directions = {n: self.draw(self.arrays[n].shape, np.iscomplexobj(self.arrays[n])) for n in self.wrt}
        central, smooth = self.differences(directions)
        found = self.evaluate(forward, dict(zip(forward.parameters[n_inputs:], directions.values(), strict=True)))
        worst: list[Mismatch] = []
        forward_error, n_kinks = 0.0, sum(int((~s).sum()) for s in smooth.values())
        for name, tangent in zip(self.results, tangents, strict=True):
            scale = 1 + np.abs(values[name]) + np.abs(central[name]).max(initial=0.0)
            error = np.where(smooth[name], np.abs(found[tangent] - central[name]) / scale, 0.0)
            error = np.where(np.isnan(error), np.inf, error)
            if error.size and error.max() > forward_error:
                forward_error = float(error.max())
                place = np.unravel_index(int(error.argmax()), error.shape)
                mismatch = Mismatch(
                    "forward", _element(tangent, place), _real(found[tangent][place]), _real(central[name][place])
                )
                worst = [mismatch] if forward_error > TOLERANCE else worst
        reverse_error, mismatch_ = self._check_reverse(reverse, reverse.parameters[n_inputs:], directions, values)
        worst += [mismatch_] if mismatch_ is not None else []
        return GradientCheck(forward_error, reverse_error, n_kinks, tuple(worst))

    def _check_reverse(
        self, reverse: Program, names: Sequence[str], directions: Arrays, values: Arrays
    ) -> tuple[float, Mismatch | None]:
        """⟨w, J v⟩ = ⟨Jᵀ w, v⟩ for each input alone, with w that is 0 where there is no derivative."""
        moved = {n: self.differences({n: d}) for n, d in directions.items()}
        weights = {}
        for name in self.results:
            is_smooth = np.logical_and.reduce([smooth[name] for _, smooth in moved.values()])
            weights[name] = np.where(is_smooth, self.draw(values[name].shape, np.iscomplexobj(values[name])), 0.0)
        held = {f"{n}_in": value for n, value in self.held.items() if f"{n}_in" in names}
        names = [n for n in names if n not in held]
        gradients = self.evaluate(reverse, held | dict(zip(names, weights.values(), strict=True)))
        worst, mismatch = 0.0, None
        for (name, direction), (shown, gradient) in zip(directions.items(), gradients.items(), strict=True):
            one, size = _inner(weights, moved[name][0])
            other, size_2 = _inner({shown: gradient}, {shown: direction})
            error = abs(one - other) / (1 + size + size_2)
            error = float("inf") if np.isnan(error) else error
            worst = max(worst, error)
            if error == worst and error > TOLERANCE:
                mismatch = self._find_worst(name, shown, gradient, weights)
        return worst, mismatch

    def _find_worst(self, name: str, shown: str, gradient: np.ndarray, weights: Arrays) -> Mismatch:
        """The element of a gradient that is farthest from its difference, among some."""
        places = list(np.ndindex(gradient.shape))
        if len(places) > MOST_PROBED:
            places = [places[k] for k in self.rng.choice(len(places), MOST_PROBED, replace=False)]
        found: list[tuple[float, Mismatch]] = []
        for place in places:
            direction = np.zeros_like(gradient)
            direction[place] = 1.0
            central, _ = self.differences({name: direction})
            quotient, derivative = _inner(weights, central)[0], _real(gradient[place])
            distance = abs(derivative - quotient)
            mismatch = Mismatch("reverse", _element(shown, place), derivative, quotient)
            found.append((float("inf") if np.isnan(distance) else distance, mismatch))
        return max(found, key=lambda pair: pair[0])[1]


def widen_program(program: Program) -> Program:
    """The program with all its floating-point types as float64, and complex128."""

    def wide(dtype: DType) -> DType:
        return C128 if dtype.is_complex else F64 if dtype.is_float else dtype

    def change(expr: Expr) -> Expr:
        return rewrite(expr, lambda n: replace(n, dtype=wide(n.dtype)) if isinstance(n, (Const, Cast)) else None)

    def widen(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(replace(t, dtype=wide(t.dtype)) for t in tensors)

    def widen_statement(s: Statement) -> Statement:
        changed = map_statement(s, change)
        if changed.reduction is None or changed.reduction.monoid is None:
            return changed
        monoid = changed.reduction.monoid
        identity = tuple(replace(c, dtype=wide(c.dtype)) for c in monoid.identity)
        monoid = replace(monoid, identity=identity, results=tuple(map(change, monoid.results)))
        return replace(changed, reduction=replace(changed.reduction, monoid=monoid))

    def widen_rule(r: Rule) -> Rule:
        statements, rules = tuple(map(widen_statement, r.statements)), tuple(map(widen_rule, r.rules))
        return replace(r, tensors=widen(r.tensors), statements=statements, rules=rules)

    statements, rules = tuple(map(widen_statement, program.statements)), tuple(map(widen_rule, program.rules))
    return replace(program, tensors=widen(program.tensors), statements=statements, rules=rules)


def _widen(array: np.ndarray, dtype: DType) -> np.ndarray:
    """In float64 or complex128 where it has derivatives, else in the declared type."""
    if is_differentiable(dtype):
        return np.asarray(array).astype(np.complex128 if dtype.is_complex else np.float64)
    return np.asarray(array, dtype.numpy)


def _inner(weights: Arrays, moved: Arrays) -> tuple[float, float]:
    """The sum of the products where weights are not 0, and that of their magnitudes."""
    products = [weights[n] * np.where(weights[n] == 0, 0.0, moved[n]) for n in weights]
    return float(sum(p.sum().real for p in products)), float(sum(np.abs(p).sum() for p in products))


def _element(name: str, place: Sequence[Any]) -> str:
    return f"{name}[{', '.join(str(int(p)) for p in place)}]" if len(place) else name


def _real(value: Any) -> float:
    return float(np.real(value))
