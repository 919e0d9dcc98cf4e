"""Derivatives of operators, as operators: `vjp`, `jvp`, `grad`, `value_and_grad`, `jacobian`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc import driver
from polyc.api.sources import FixedSource
from polyc.crash import name_crashes
from polyc.diagnostics import ArgumentError, Diagnostic
from polyc.ir.program import Program, Return
from polyc.records import replace

if TYPE_CHECKING:
    from polyc.api.kernels import Kernels
    from polyc.api.operator import Operator
    from polyc.api.sources import ProgramSource
    from polyc.config import Options

Names = str | Sequence[str] | None
"""Names of inputs or results: one, several (in order), or all that have derivatives."""

Memory = int | str | None
"""Bytes, as a number or like ``"256 MiB"``; None: as many as it takes."""


class Differentiable:
    """The derivatives of an `Operator`.  Each is an `Operator` like any other: it is called, lowered, bound, and differentiated
    again; the same one for the same arguments.

    `wrt` names the inputs to differentiate by, by default all floating-point and complex ones that are not bound.  Errors are
    ``argument-gradient`` for names that are none of these, ``unsupported-gradient`` for what has no derivative yet, with its
    place, and ``argument-program-open`` where the types of parameters are not declared."""

    if TYPE_CHECKING:
        _source: ProgramSource
        _options: Options
        _fixed_sizes: dict[str, int]
        _bound: dict[str, np.ndarray]
        _bound_matrices: dict[str, Any]
        _dynamic: Any
        _kernels: Kernels

        @property
        def name(self) -> str: ...
        @property
        def program(self) -> Program: ...
        def _describe(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> Any: ...
        def sort_call(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> Any: ...

    def vjp(self, wrt: Names = None, of: Names = None, *, memory: Memory = None) -> Any:
        """Reverse mode: the operator of the products of cotangents with the Jacobian.

        It takes the inputs, then a cotangent ``d_Y`` in the shape of each floating-point result Y (or of those
        that `of` names), and returns ``d_X`` in the shape of each X in `wrt`, in that order::

            d_x, d_w = layer.vjp(wrt=("X", "W"))(x, w, b, d_y)

        `memory`: the most bytes of temporaries (``256 << 20``, ``"256 MiB"``); what a time loop passes on is then stored or
        computed again, as they allow: a `polyc.api.checkpoints.Checkpointed`, which is called like the operator.  Without it
        all steps that the adjoint reads are stored.
        """
        inputs, results = self.name_inputs(wrt), self._results(of)
        return self._reverse("vjp", inputs, results, memory)

    def jvp(self, wrt: Names = None) -> Operator:
        """Forward mode: the operator of the results and of their directional derivatives.

        It takes the inputs, then a tangent ``t_X`` in the shape of each X in `wrt`, and returns the results, then ``t_Y`` in
        the shape of each floating-point result Y::

            y, t_y = layer.jvp(wrt="X")(x, w, b, t_x)
        """
        from polyc.gradients.forward import jvp

        inputs = self.name_inputs(wrt)
        return self._derive("jvp", inputs, (), lambda p: jvp(p, inputs))

    def grad(self, wrt: Names = None, of: str | None = None, *, memory: Memory = None) -> Any:
        """The operator of the gradient of the scalar result `of` (by default the only floating-point one): it takes the inputs
        and returns ``d_X`` for each X in `wrt`.  `memory` as for `vjp`."""
        inputs, loss = self.name_inputs(wrt), self._loss(of)
        return self._reverse("grad", inputs, (loss,), memory, seeded=True)

    def value_and_grad(self, wrt: Names = None, of: str | None = None, *, memory: Memory = None) -> Any:
        """The same, with all results in front of the gradients."""
        inputs, loss = self.name_inputs(wrt), self._loss(of)
        kept = [r.name for r in self.program.returns]
        return self._reverse("value_and_grad", inputs, (loss,), memory, keep=kept, seeded=True)

    def jacobian(self, wrt: Names = None, of: Names = None) -> Operator:
        """The operator of all derivatives of one result (by default the only one) by one input (by default the only one): an
        array with the dimensions of the result, then those of the input.

        In the mode that has fewer directions to go, as far as extents tell: forward where the input has at most as many
        dimensions as the result."""
        from polyc.gradients.jacobian import jacobian

        inputs, results = self.name_inputs(wrt), self._results(of)
        for names, what in ((inputs, "input"), (results, "result")):
            if len(names) != 1:
                message = f"{self.name} has {len(names)} {what}s ({', '.join(names)}) to take a Jacobian by or of"
                raise _error(message, f"name one: {'wrt' if what == 'input' else 'of'}={names[0]!r}")
        return self._derive("jacobian", inputs, results, lambda p: jacobian(p, results[0], inputs[0]))

    def defvjp(self, rule: Any) -> Any:
        """Replace the derivative in reverse mode of this operator, wherever it is called from now on; a decorator.

        `rule` is an operator, or a function or text that one is made of.  Its parameters are inputs and results of this
        operator, by their names, and ``d_Y`` for results Y; it returns a cotangent for each floating-point input, in order::

            @clipped.defvjp
            def clipped_vjp(x: "f64[N]", d_y: "f64[N]"):
                d_x[i] = min(max(d_y[i], -1.0), 1.0)
                return d_x

        Only operators that are read after that know it.  Returns `rule`."""
        return self._add_rule(rule, "vjp")

    def defjvp(self, rule: Any) -> Any:
        """The same in forward mode: parameters are inputs, results and ``t_X`` for inputs X, and it returns a tangent for each
        floating-point result."""
        return self._add_rule(rule, "jvp")

    @property
    def has_rules(self) -> bool:
        """Whether it, or what it calls, has a derivative of its own."""
        fixed = self._source.fixed
        return fixed is not None and bool(fixed.rules)

    def _add_rule(self, rule: Any, mode: str) -> Any:
        from polyc.api import functions
        from polyc.gradients.custom import make_rule

        given = rule if isinstance(rule, Differentiable) else functions.op(rule) if callable(rule) else functions.compile(rule)
        program = self.program
        with driver.compiling(), name_crashes(f"reading the derivative of {self.name}"):
            made = make_rule(program, given.program, mode)
        kept = tuple(r for r in program.rules if r.mode != mode or set(r.inside) < set(made.inside))
        ruled = replace(program, rules=(*kept, made))
        source: Any = self._source
        self._source = replace(source, **{"program" if isinstance(source, FixedSource) else "fixed": ruled})
        self.__dict__.pop("_derivatives", None)
        return rule

    def sizes_of_call(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, int]:
        """The sizes of a call with these arguments."""
        return dict(self._describe(arrays, named).sizes)

    def name_inputs(self, wrt: Names) -> tuple[str, ...]:
        """Parameters of the program: of a sparse matrix its entries."""
        from polyc.gradients.inputs import differentiable_inputs

        entries = {m.name: m.data for m in self.program.compressed}
        if wrt is None:
            return tuple(p for p in differentiable_inputs(self.program) if p not in self._bound)
        names = _as_names(wrt, "wrt")
        for name in names:
            if entries.get(name, name) in self._bound:
                raise _error(f"{name} is bound, and stays the same", "differentiate the operator before it is bound")
        return tuple(entries.get(n, n) for n in names)

    def _results(self, of: Names) -> tuple[str, ...]:
        from polyc.gradients.inputs import check_results

        return tuple(r.name for r in check_results(self.program, None if of is None else _as_names(of, "of")))

    def _loss(self, of: str | None) -> str:
        from polyc.gradients.inputs import check_results

        found: Sequence[Return] = check_results(self.program, None if of is None else _as_names(of, "of"))
        scalars = [r for r in found if self.program.tensor(r.version).rank == 0]
        if len(found) == 1 and len(scalars) == 1 and self.program.tensor(found[0].version).dtype.is_float:
            return found[0].name
        if len(scalars) == 1 and of is None:
            return scalars[0].name
        if len(scalars) > 1:
            listing = ", ".join(r.name for r in scalars)
            raise _error(f"{self.name} has several scalar results: {listing}", f"name one: of={scalars[0].name!r}")
        message = f"{found[0].name} of {self.name} is no real scalar, and a gradient is that of one number"
        raise _error(message, "reduce it to a scalar result, or use vjp, which takes a weight for each element")

    def _reverse(self, mode: str, wrt: tuple[str, ...], of: tuple[str, ...], memory: Memory, **more: Any) -> Any:
        """The derivative in the reverse mode, or, within `memory`, what calls it or its parts."""
        from polyc.gradients.reverse import vjp

        whole = self._derive(mode, wrt, of, lambda p: vjp(p, wrt, of, **more))
        if memory is None:
            return whole
        from polyc.api.checkpoints import Checkpointed, read_bytes

        known: dict[Any, Any] = self.__dict__["_derivatives"]
        key = mode, wrt, of, read_bytes(memory)
        if key not in known:
            known[key] = Checkpointed(whole, self.program, wrt, of, read_bytes(memory), **more)
        return known[key]

    def temporary_bytes(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> int:
        """Bytes that the kernel for the arguments of a call takes beside them and its results."""
        from polyc.api.sources import program_formals
        from polyc.runtime.arguments import convert_inputs
        from polyc.runtime.weak import without_weakness

        wanted, call = self._describe(arrays, named), self.sort_call(arrays, named)
        inputs = tuple(map(without_weakness, convert_inputs(program_formals(wanted.program), call.inputs)))
        return self._kernels.temporary_bytes(wanted, inputs)

    def _derive(self, mode: str, wrt: tuple[str, ...], of: tuple[str, ...], make: Callable[[Program], Program]) -> Operator:
        from polyc.api.operator import Operator

        known: dict[Any, Operator] = self.__dict__.setdefault("_derivatives", {})
        key = mode, wrt, of
        if key not in known:
            with driver.compiling(), name_crashes(f"differentiating {self.name}"):
                program = make(self.program)
            defaults = {f.name: f.default for f in self._source.formals if f.default is not None}
            source = FixedSource(program, defaults)
            choice = self._dynamic.dynamic
            matrices = self._bound_matrices
            known[key] = Operator(source, program.name, self._options, self._fixed_sizes, None, self._bound, choice, matrices)
        return known[key]


def _as_names(names: Any, what: str) -> tuple[str, ...]:
    found = (names,) if isinstance(names, str) else names
    if not isinstance(found, Sequence) or not all(isinstance(n, str) for n in found):
        raise _error(f"{what} is {names!r}", f"give names: {what}=('X', 'W')")
    return tuple(found)


def _error(message: str, help: str) -> ArgumentError:
    return ArgumentError(Diagnostic("argument-gradient", message, None, help))


def vjp(op: Operator, wrt: Names = None, of: Names = None, *, memory: Memory = None) -> Any:
    """`Operator.vjp`."""
    return find_operator(op).vjp(wrt, of, memory=memory)


def jvp(op: Operator, wrt: Names = None) -> Operator:
    """`Operator.jvp`."""
    return find_operator(op).jvp(wrt)


def grad(op: Operator, wrt: Names = None, of: str | None = None, *, memory: Memory = None) -> Any:
    """`Operator.grad`."""
    return find_operator(op).grad(wrt, of, memory=memory)


def value_and_grad(op: Operator, wrt: Names = None, of: str | None = None, *, memory: Memory = None) -> Any:
    """`Operator.value_and_grad`."""
    return find_operator(op).value_and_grad(wrt, of, memory=memory)


def find_operator(op: Any) -> Operator:
    """The operator itself; ArgumentError ``argument-gradient`` for anything else."""
    if isinstance(op, Differentiable):
        return op  # type: ignore[return-value]
    raise _error(f"a {type(op).__name__} is no operator", "make one of a function with @polyc.op, of text with polyc.compile")
