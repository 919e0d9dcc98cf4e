"""The Operator: a program for any sizes, which finds or makes a Kernel for the arguments of each call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from polyc import driver, recall
from polyc.api.bind import bound_error, describe_bound, own_inputs
from polyc.api.call_signature import CallSignature, describe_formals
from polyc.api.chunked import Chunked
from polyc.api.dynamic import DynamicSizes
from polyc.api.gradients import Differentiable
from polyc.api.kernels import Kernels, Wanted
from polyc.api.layouts import Layout, array_layout, declared_layouts, describe_argument, has_value
from polyc.api.result_shapes import ResultShapes
from polyc.api.sources import ArrayType, call_key, number_places, possible_sizes, program_formals
from polyc.config import Options
from polyc.diagnostics import Remark
from polyc.ir.expr import Expr, Size
from polyc.ir.number_checks import NumberCheck
from polyc.ir.program import Program
from polyc.records import replace
from polyc.runtime import fastcalls
from polyc.runtime.arguments import Call, convert_inputs, find_aliases, sort_arguments, sort_outputs
from polyc.runtime.arrays import argument_error, check_element_type, has_chunks
from polyc.runtime.kernel import Kernel
from polyc.runtime.plain import PlainArguments
from polyc.runtime.plan_table import PlanTable, Replans, unpack
from polyc.runtime.sizes import Formal, missing_sizes, number_sizes, solve_sizes
from polyc.runtime.weak import is_weak, without_weakness

if TYPE_CHECKING:
    from polyc import jobs
    from polyc.api.kernels import Compilable
    from polyc.api.matrices import Matrices
    from polyc.api.measure import Measurement
    from polyc.api.sources import ProgramSource


class Operator(Differentiable, Chunked):
    """A tensor operator for any sizes, layouts and (where its source leaves them open) element types.

    Call it with its inputs by position or name::

        y = op(x, w)                     # results are allocated; one is an array, several a tuple
        op(x, w, out=y)                  # or given: an array, a tuple, or a dict by name
        op(x, w, K=3)                    # sizes that no array determines, and compile-time constants

    Inputs are NumPy arrays or anything with DLPack support; Python numbers serve as scalars.  A result of rank 0 is an
    array of shape ``()``.  The first call with new sizes, element types or layouts compiles a `Kernel`, later ones reuse
    it.  Errors are `polyc.PolycError`s in the names of the source.

    `bind` fixes inputs that do not change (weights): they are copied, and packed once instead of at every call.

    Sizes that keep changing become symbolic: one kernel then serves all of them (`dynamic` of `polyc.op`, by the rule that
    `polyc.api.dynamic` states).  Every compilation is in `remarks`, and in the log ``polyc``.
    """

    __signature__ = CallSignature()

    def __init__(
        self,
        source: ProgramSource,
        name: str,
        options: Options,
        sizes: Mapping[str, int] | None = None,
        function: Any = None,
        bound: Mapping[str, np.ndarray] | None = None,
        dynamic: bool | str | tuple[str, ...] = "auto",
        matrices: Mapping[str, Any] | None = None,
    ) -> None:
        self._source = source
        self._options = options
        self._fixed_sizes = dict(sizes or {})
        self._plain = PlainArguments(source.formals, [r.name for r in source.fixed.returns] if source.fixed is not None else ())
        self._bound = dict(bound or {})
        self._bound_matrices = dict(matrices or {})
        places = number_places(source.formals, source.fixed)
        self._plans = PlanTable(self._plain.numbers, [self._bound.get(f.name) for f in source.formals], places)
        self._doors = self._plans.doors
        self.remarks_source: Callable[[], tuple[Remark, ...]] | None = None
        inputs = tuple(f.name for f in source.formals if f.name not in self._bound)
        self._matrices: Matrices | None = None
        if source.compressed:
            from polyc.api import matrices as m  # only now: other operators do without

            self._matrices = m.Matrices(source, inputs, self._bound_matrices, self._plans, self._execute_arrays)
        self._input_names = inputs if self._matrices is None else self._matrices.names
        defaults = {f.name: self._fixed_sizes.get(f.name, f.default) for f in source.formals if f.name not in self._bound}
        self._defaults = {n: v for n, v in defaults.items() if v is not None}
        formals = [f for f in source.formals if f.name in self._bound]
        numbers = number_sizes(source.sizes, formals, self._bound)
        constant = self._solve_sizes(formals, {n: a.shape for n, a in self._bound.items()}, numbers)
        self._dynamic = DynamicSizes(dynamic, constant)
        self._shapes = ResultShapes(name)
        owned = {n: without_weakness(a) for n, a in self._bound.items()}
        self._replans = Replans(self._plans, self._plain)
        self._kernels = Kernels(name, options, owned, self._dynamic, self._shapes, self._replans.forget)
        self.__name__ = name
        self.__doc__ = Operator.__doc__
        if function is not None:
            functools.update_wrapper(self, function)
        known = possible_sizes(source)
        unknown = [n for n in self._fixed_sizes if n not in known]
        if unknown:
            listing = ", ".join(known) or "none"
            raise argument_error("argument-name", f"{name} has no size named {unknown[0]}", None, f"its sizes are: {listing}")

    @property
    def name(self) -> str:
        return self.__name__

    @property
    def formals(self) -> tuple[Formal, ...]:
        """Inputs in the order of the source, bound ones included, as far as they are declared."""
        return self._source.formals

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs of a call."""
        return self._input_names

    @property
    def bound_names(self) -> frozenset[str]:
        """Those of `formals` that no call gives."""
        return frozenset(self._bound)

    @property
    def size_names(self) -> tuple[str, ...]:
        """Names of the sizes, as far as they are declared."""
        return self._source.sizes

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What was decided: for einsum, how `polyc.einsum` computes each shape and why; every compilation and every kernel
        that was forgotten, with the reason; then what passes said of the kernels that there are."""
        calls = () if self.remarks_source is None else self.remarks_source()
        return (*calls, *self._dynamic.events, *dict.fromkeys(r for k in self._kernels for r in k.remarks))

    def run_planned(self, inputs: Sequence[Any], out: np.ndarray | None = None) -> Any:
        """The result (of several a tuple) where a call with arrays of these layouts was made before, else None."""
        return self._plans.call(*inputs) if out is None else self._plans.call_into(*inputs, out)

    @property
    def options(self) -> Options:
        return self._options

    @property
    def program(self) -> Program:
        """The Program; an error where it depends on the types of the arguments (then use ``op.lower(...).program``)."""
        if self._source.fixed is None:
            raise argument_error(
                "argument-program-open",
                f"the program of {self.name} depends on its arguments, whose types are not declared",
                None,
                "use op.lower(*arrays).program, or annotate every parameter",
            )
        return self._source.fixed

    def bind(self, /, **inputs: Any) -> Operator:
        """This operator with `inputs` fixed: it is called with the others only.

        The arrays are copied: later changes of theirs have no effect.  Where a kernel wants an input packed, or where part
        of the program depends on bound inputs only, that is computed once and kept, not at each call::

            layer = linear_relu.bind(W=w, b=b)
            y = layer(x)
        """
        given = inputs
        if self._matrices is not None:
            inputs = self._matrices.expand_bound(self.name, inputs, self._source.formals)
        owned = own_inputs(self.name, self._source.formals, self._bound, inputs)
        matrices = {} if self._matrices is None else self._matrices.keep(given, owned)
        merged = self._bound | owned
        bound = {f.name: merged[f.name] for f in self._source.formals if f.name in merged}
        # Sizes that do not fit each other are found here, not at the first call.
        fixed, choice = self._fixed_sizes, self._dynamic.dynamic
        operator = Operator(self._source, self.name, self._options, fixed, None, bound, choice, matrices)
        function = getattr(self, "__wrapped__", None)
        if function is not None:
            functools.update_wrapper(operator, function)
        return operator

    def __copy__(self) -> Operator:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Operator:
        """The operator itself, as for functions: nothing of it that calls see ever changes."""
        return self

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By name where a module has it under its name, as functions are pickled; else by its program, without kernels."""
        from polyc.api.pickling import find_name, fix_source, restore_operator

        found = find_name(self)
        if found is not None:
            return found
        source, bound = fix_source(self.name, self._source), {n: np.asarray(a) for n, a in self._bound.items()}
        rest = (self._options, self._fixed_sizes, bound, self._dynamic.dynamic, self._bound_matrices)
        return restore_operator, (source, self.name, *rest)

    def __repr__(self) -> str:
        inputs = ", ".join(describe_formals(self._source, self._bound))
        program = self._source.fixed
        results = "" if program is None else f" -> ({', '.join(r.name for r in program.returns)})"
        bound = f" with {describe_bound(self._bound, self._bound_matrices)}" if self._bound else ""
        return f"<polyc operator {self.name}({inputs}){results}{bound}>"

    def __call__(self, /, *inputs: Any, out: Any = None, **named: Any) -> Any:
        """Run on `inputs`; see the class."""
        # The fast path: arrays in a layout that was seen before, or what makes such.  Anything else goes through `_execute`.
        arrays: tuple[Any, ...] | None = inputs
        if self._defaults and len(inputs) < len(self._input_names):
            arrays = self._with_defaults(inputs, named)
        elif named:
            # Names that are the missing inputs and nothing else; `get` gives None, which has no layout, for any other.
            is_complete = len(inputs) + len(named) == len(self._input_names)
            arrays = (*inputs, *[named.get(n) for n in self._input_names[len(inputs) :]]) if is_complete else None
        if arrays is not None and self._bound:
            arrays = self._plans.with_bound(arrays)
        if arrays is not None:
            plans = self._plans.at(arrays)
            if out is None:
                result = plans.call(*arrays)
            elif type(out) is np.ndarray:
                result = plans.call_into(*arrays, out)
            else:
                result = plans.call_into_all(arrays, out) if type(out) is tuple else None
            if result is None:
                result = plans.call_converted(self._plain, arrays, out)
            if result is not None:
                return result
        return self._execute(inputs, out, named)

    _call_slowly = __call__

    def specialize(self, /, *arrays: Any, **named: Any) -> Kernel:
        """The Kernel for these arguments, without running it.

        `arrays` are arrays, objects with ``dtype`` and ``shape``, or pairs ``(dtype, shape)``; none at all where the
        declared types and the sizes in `named` say enough.  Sizes that stay open make a kernel for any of them.
        """
        return self._kernels.find(self._describe(arrays, named))

    def compile_meanwhile(self, arrays: Sequence[np.ndarray]) -> jobs.Errand:
        """Have a worker compile the kernel for arrays of these layouts, and keep it when it is there; nothing is bound."""
        from polyc import jobs  # only now: it brings `subprocess`

        # Of the same layout, but nothing keeps the user's memory alive.
        layouts = [as_strided(np.empty(1, a.dtype), a.shape, a.strides, writeable=False) for a in arrays]
        wanted: list[Wanted] = []

        def prepare() -> jobs.Job:
            wanted.append(self._describe(layouts, {}))

            return jobs.Job(wanted[0].program, wanted[0].sizes, self._kernels.known_strides(wanted[0]), self._options)

        return jobs.Errand(prepare, lambda lowered: self._kernels.adopt(wanted[0], lowered))

    def lower(self, /, *arrays: Any, **named: Any) -> driver.Lowered:
        """The stages of the compilation for arguments as in `specialize`: ``.as_text("loops")``, ``.explain()``."""
        return self._kernels.lower(driver.lower, self._describe(arrays, named))

    def explain(self, /, *arrays: Any, **named: Any) -> str:
        """What was decided for arguments as in `specialize`, and which number decided: ``print(op.explain(x, w))``."""
        return self.lower(*arrays, **named).explain()

    def compiled(self, /, *arrays: Any, **named: Any) -> Compilable:
        """As `lower`, from the disk cache where it is there: ``.object_code()``, ``.c_header()``; texts are made anew."""
        return self._kernels.lower(recall.compile_program, self._describe(arrays, named))

    def measure(self, /, *arrays: Any, out: Any = None, **named: Any) -> Measurement:
        """Run on `arrays` until the time is known, on one thread and on all of them: ``print(op.measure(x, w))``.

        Arguments are those of a call.  Results that are accumulated into change."""
        from polyc.api.measure import measure

        return measure(self, arrays, named, out)

    def _describe(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> Wanted:
        source = self._source
        is_open = not arrays and bool(self._input_names)
        if is_open and not any(n in self._input_names and n not in source.sizes for n in named):
            call = sort_arguments(self.name, (), source.sizes, source.constants, (), named)
            if any(f.shape is None for f in source.formals):
                self.sort_call((), {})  # raises: inputs are missing
            program = source.program_for([], call.constants)
            formals = program_formals(program)
            shapes = {n: a.shape for n, a in self._bound.items()}
            known = [f for f in formals if f.name in shapes]
            numbers = number_sizes(program.sizes, known, self._bound)
            sizes = self._solve_sizes(known, shapes, {**call.sizes, **numbers}, None, program.defined_sizes)
            return self._want(program, sizes, declared_layouts(formals, sizes))
        call = self.sort_call(arrays, named)
        layouts = tuple(describe_argument(a, f) for a, f in zip(call.inputs, source.formals, strict=True))
        program = source.program_for([ArrayType(a.dtype, a.shape, a.is_weak) for a in layouts], call.constants)
        formals = program_formals(program)
        layouts = tuple(describe_argument(without_weakness(a), f) for a, f in zip(call.inputs, formals, strict=True))
        shapes = {f.name: a.shape for f, a in zip(formals, layouts, strict=True)}
        ordered = self._bound_first(formals)
        given = zip(formals, call.inputs, strict=True)
        values = {f.name: np.asarray(a) for f, a in given if f.name in program.sizes and has_value(a)}
        numbers = number_sizes(program.sizes, formals, values)
        sizes = self._solve_sizes(ordered, shapes, {**call.sizes, **numbers}, call.shapes, program.defined_sizes)
        return self._want(program, sizes, layouts)

    def _want(self, program: Program, sizes: Mapping[str, int], inputs: tuple[Layout, ...] | None) -> Wanted:
        return Wanted(program, sizes, inputs, self._shapes.layouts(program, sizes, inputs))

    def sort_call(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> Call:
        """A call with its inputs in the order of `formals`, bound ones included."""
        for name in named:
            if name in self._bound or name in self._bound_matrices:
                raise bound_error(self.name, name)
        source = self._source
        call = sort_arguments(self.name, self._input_names, source.sizes, source.constants, inputs, named, self._defaults)
        if self._matrices is not None:
            call = self._matrices.expand(call)
        return replace(call, inputs=self._plans.with_bound(call.inputs) or call.inputs) if self._bound else call

    def _with_defaults(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """The inputs of a call in order; None where one is missing, or where a name is none of theirs."""
        rest = self._input_names[len(inputs) :]
        values = [named[n] if n in named else self._defaults.get(n) for n in rest]
        if any(n not in rest for n in named) or any(v is None for v in values):
            return None
        return (*inputs, *values)

    def _execute(self, inputs: Sequence[Any], out: Any, named: Mapping[str, Any]) -> Any:
        if any(map(has_chunks, (*inputs, *named.values()))):
            return self._call_in_blocks(inputs, out, named)
        run = self._execute_arrays if self._matrices is None else self._matrices.run
        return run(inputs, out, named)

    def _execute_arrays(self, inputs: Sequence[Any], out: Any, named: Mapping[str, Any]) -> Any:
        source = self._source
        call = self.sort_call(inputs, named)
        plans = self._plans.at(call.inputs).under(call_key(call))
        if named or call.shapes:  # again, now that names are sorted out
            result = plans.call_converted(self._plain, call.inputs, out)
            if result is not None:
                return result
        is_plain = out is None and call_key(call) is None
        result = self._replans.call(call.inputs) if is_plain else None
        if result is not None:
            return result
        given_inputs = convert_inputs(source.formals, call.inputs)
        arrays = tuple(without_weakness(a) for a in given_inputs)
        types = [check_element_type(a, f.name, f.dtype, f.span) for a, f in zip(arrays, source.formals, strict=True)]
        given_types = [ArrayType(t, a.shape, is_weak(a)) for t, a in zip(types, given_inputs, strict=True)]
        with driver.compiling():
            program = source.program_for(given_types, call.constants)
        formals = program_formals(program)
        arrays = convert_inputs(formals, arrays)
        names = tuple(r.name for r in program.returns)
        given = sort_outputs(names, {r.name for r in program.returns if r.initial is not None}, out)
        kept = given
        if self._matrices is not None:
            given = self._matrices.take_outputs(program, call, given, arrays)
        sizes = self._solve(program, formals, arrays, names, given, call)
        self._check_numbers(source.number_checks(program), formals, arrays, sizes)
        outputs = self._shapes.check_outputs(program, sizes, given)
        aliases = find_aliases([f.name for f in formals], arrays, names, outputs)
        layouts = tuple(array_layout(a, t) for a, t in zip(arrays, types, strict=True))
        result_layouts = self._shapes.layouts(program, sizes, layouts, outputs)
        wanted = Wanted(program, sizes, layouts, result_layouts, aliases)
        plan, checked = self._kernels.plan(wanted, arrays, given)
        if self._options.verify:
            from polyc.api.verify import run_verified

            results: tuple[Any, ...] = run_verified(program, plan, arrays, outputs, sizes)
        else:
            results = plan.run(arrays, checked)
            if len(checked) in (0, len(names)):
                places = number_places(formals, program)
                plans = self._plans.keep_apart(places, [sizes[formals[p].name] for p in places], arrays)
                plans.under(call_key(call)).remember(plan, given_inputs, checked)
                if is_plain and not source.number_checks(program):
                    self._replans.record(plan, [formals[p].name for p in places], given_inputs)
        return unpack(tuple(r if value is None else value for r, value in zip(results, kept, strict=True)))

    def _check_numbers(
        self, checks: Sequence[NumberCheck], formals: Sequence[Formal], arrays: Sequence[np.ndarray], sizes: Mapping[str, int]
    ) -> None:
        """Ask `checks` of this call.  Planned calls ask nothing: from now on they take only integers that surely pass."""
        if not checks:
            return
        names = [f.name for f in formals]
        values = {n: int(a) for n, a in zip(names, arrays, strict=True) if any(n in check.names for check in checks)}
        for check in checks:
            check.ask({**sizes, **values})
            is_plain = isinstance(check.value, Size)
            for name in (n for n in check.names if n in values):
                least, largest = check.limits if is_plain else (1, 0)
                if self._plain.take_fewer_integers(names.index(name), least, largest):
                    self._plans.read_numbers_again()

    def _bound_first(self, formals: Sequence[Formal]) -> list[Formal]:
        """Bound inputs first: a size that does not fit is then an error of the array that was given at the call."""
        return sorted(formals, key=lambda f: f.name not in self._bound)

    def _solve(
        self,
        program: Program,
        formals: Sequence[Formal],
        arrays: Sequence[np.ndarray],
        names: Sequence[str],
        given: Sequence[Any],
        call: Call,
    ) -> dict[str, int]:
        """All sizes of a call; an output with a declared shape may determine one too."""
        given_arrays = {f.name: a for f, a in zip(formals, arrays, strict=True)}
        shapes = {n: a.shape for n, a in given_arrays.items()}
        declared = self._bound_first(formals)
        for result, name, value in zip(program.returns, names, given, strict=True):
            tensor = program.tensor(result.version)
            if tensor.shape is not None and value is not None and len(getattr(value, "shape", ())) == len(tensor.shape):
                declared.append(Formal(name, tensor.dtype, tensor.shape, tensor.span))
                shapes[name] = tuple(value.shape)
        known = {**call.sizes, **number_sizes(program.sizes, formals, given_arrays)}
        values = self._solve_sizes(declared, shapes, known, call.shapes, program.defined_sizes)
        problem = missing_sizes(program.sizes, values, self._fixed_sizes)
        if problem is not None:
            raise problem
        return values

    def _solve_sizes(
        self,
        formals: Sequence[Formal],
        shapes: Mapping[str, tuple[int, ...]],
        given: Mapping[str, int],
        matrices: Mapping[str, tuple[int, ...]] | None = None,
        defined: Sequence[tuple[str, Expr]] = (),
    ) -> dict[str, int]:
        """`solve_sizes`, with the shapes of `matrices` and of those that are bound."""
        if self._matrices is not None:
            formals, shapes = self._matrices.declare(formals, shapes, matrices or {})
        return solve_sizes(formals, shapes, given, self._fixed_sizes, defined)


fastcalls.answer_calls(Operator)
