"""Where an operator's Program comes from: fixed text, a function read once per element types, an einsum per shapes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from polyc import driver
from polyc.crash import name_crashes
from polyc.diagnostics import Diagnostic, PolycError, PolycWarning, SemanticError, merge_contexts, user_stacklevel
from polyc.ir.number_checks import NumberCheck, find_number_checks
from polyc.ir.program import Compressed, Program, integer_parameters
from polyc.ir.ragged import Ragged, make_ragged
from polyc.ir.types import DType
from polyc.live import write_number
from polyc.records import dataclass, replace
from polyc.runtime.arguments import Call
from polyc.runtime.sizes import Formal

_MAX_PROGRAMS = 1024
"""Programs that an einsum keeps, one per shapes; beyond it all are read again when wanted (kernels keep their own)."""


@dataclass(frozen=True, slots=True)
class ArrayType:
    """Element type and shape of an argument, and whether it is a Python number, which adapts to what it meets."""

    dtype: DType
    shape: tuple[int, ...]
    is_weak: bool = False


def issue_warnings(found: Iterable[Diagnostic]) -> None:
    """Front ends' findings as `PolycWarning`s that point at the user's line."""
    for diagnostic in merge_contexts(tuple(found)):
        warnings.warn(PolycWarning(diagnostic), stacklevel=user_stacklevel())


if TYPE_CHECKING:
    from typing import Protocol

    class ProgramSource(Protocol):
        """What an `Operator` needs to know of its source before and after the arguments are known."""

        @property
        def formals(self) -> tuple[Formal, ...]:
            """Inputs in order, as far as they are declared."""

        @property
        def sizes(self) -> tuple[str, ...]:
            """Size symbols that may be given by keyword."""

        @property
        def constants(self) -> tuple[str, ...]:
            """Compile-time constants that may be given by keyword."""

        @property
        def fixed(self) -> Program | None:
            """The Program where one serves all calls without constants."""

        @property
        def compressed(self) -> tuple[Compressed | Ragged, ...]:
            """Matrices that a call gives for three of the inputs each."""

        def program_for(self, types: Sequence[ArrayType], constants: Mapping[str, Any]) -> Program:
            """The Program for arguments of these types; the same object for the same arguments."""

        def number_checks(self, program: Program) -> tuple[NumberCheck, ...]:
            """What calls of one of these programs must ask of Python's integers."""


def program_formals(program: Program) -> tuple[Formal, ...]:
    tensors = [program.tensor(name) for name in program.parameters]
    return tuple(Formal(t.base, t.dtype, t.shape, t.span) for t in tensors)


def split_matrices(formals: tuple[Formal, ...], matrices: Sequence[Compressed | Ragged]) -> tuple[Formal, ...]:
    """The declarations of three arrays for each matrix."""
    found: list[Formal] = []
    by_name = {m.name: m for m in matrices}
    for f in formals:
        matrix = by_name.get(f.name)
        if matrix is None:
            found.append(f)
        else:
            arrays = zip(matrix.parts, matrix.part_shapes, strict=True)
            found += [Formal(name, f.dtype if name == matrix.data else None, shape, f.span) for name, shape in arrays]
    return tuple(found)


def leave_subscripts_open(formals: tuple[Formal, ...], matrices: Sequence[Compressed | Ragged]) -> tuple[Formal, ...]:
    """Declarations without the element types of what holds subscripts of matrices: calls tell (`polyc.ir.compressed`)."""
    opened = {name for m in matrices for name in m.subscripts}
    return tuple(replace(f, dtype=None) if f.name in opened else f for f in formals) if opened else formals


def fit_subscripts(program: Program, types: Sequence[ArrayType], known: dict[Any, Program]) -> Program:
    """The program for calls with subscripts of the element types that are given; `known` are those made so far."""
    if not program.compressed or not types:
        return program
    from polyc.ir.compressed import retype_subscripts
    from polyc.runtime.compressed import check_subscripts

    by_name = {n: t.dtype for n, t in zip(program.parameters, types, strict=True)}
    found: dict[str, DType] = {}
    for matrix in program.compressed:
        for name in matrix.subscripts:
            found[name] = by_name[name]
            check_subscripts(matrix, name, by_name[name])
    key = id(program), *found.values()
    return known[key] if key in known else known.setdefault(key, retype_subscripts(program, found))


def possible_sizes(source: ProgramSource) -> tuple[str, ...]:
    """Names of sizes, and of inputs that may be sizes as well, where their types are not known yet."""
    opened = [
        f.name
        for f in (source.formals if source.fixed is None else ())
        if f.shape is None or (f.shape == () and f.dtype is not None and f.dtype.is_integer)
    ]
    return tuple(dict.fromkeys((*source.sizes, *opened)))


def number_places(formals: Sequence[Formal], program: Program | None) -> list[int]:
    """Positions of inputs that are sizes as well."""
    names = {program.tensor(n).base for n in integer_parameters(program)} if program is not None else ()
    return [p for p, f in enumerate(formals) if f.name in names] if names else []


def constants_key(constants: Mapping[str, Any]) -> Hashable:
    """Constants by type and text: 1, 1.0 and True are equal but give different programs, and a list has no hash."""
    return tuple(sorted((n, type(v).__name__, write_number(v)) for n, v in constants.items()))


def call_key(call: Call) -> Hashable:
    """Sizes and constants given by keyword, and the shapes of matrices; None for none."""
    if not call.sizes and not call.constants:
        return shapes_key(call.shapes) if call.shapes else None
    return tuple(call.sizes.items()), constants_key(call.constants), shapes_key(call.shapes)


def shapes_key(shapes: Mapping[str, tuple[int, ...]]) -> Hashable:
    """The same where nothing is given by keyword."""
    return tuple(shapes.values()) if shapes else None


@dataclass(frozen=True, slots=True)
class FixedSource:
    """One Program for all calls: a ``.tc`` def, or a ready Program."""

    program: Program
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Of scalars, by name."""
    _fitted: dict[Any, Program] = field(default_factory=dict, compare=False)

    @property
    def formals(self) -> tuple[Formal, ...]:
        formals = leave_subscripts_open(program_formals(self.program), self.program.compressed)
        return tuple(replace(f, default=self.defaults.get(f.name)) for f in formals)

    @property
    def compressed(self) -> tuple[Compressed | Ragged, ...]:
        return self.program.compressed

    @property
    def sizes(self) -> tuple[str, ...]:
        return self.program.sizes

    @property
    def constants(self) -> tuple[str, ...]:
        return ()

    @property
    def fixed(self) -> Program:
        return self.program

    def program_for(self, types: Sequence[ArrayType], constants: Mapping[str, Any]) -> Program:
        return fit_subscripts(self.program, types, self._fitted)

    def number_checks(self, program: Program) -> tuple[NumberCheck, ...]:
        return ()


@dataclass(slots=True)
class FunctionSource:
    """An einsum-style Python function, or its text: a Program per open element types and constants."""

    function: Callable[..., Any] | str
    name: str
    formals: tuple[Formal, ...]
    sizes: tuple[str, ...]
    constants: tuple[str, ...]
    fixed: Program | None = None
    compressed: tuple[Compressed | Ragged, ...] = ()
    _fitted: dict[Any, Program] = field(default_factory=dict)
    _programs: dict[Any, Program] = field(default_factory=dict)
    _checks: dict[int, tuple[NumberCheck, ...]] = field(default_factory=dict)
    """By the identity of the program, which is kept in `_programs`."""

    def program_for(self, types: Sequence[ArrayType], constants: Mapping[str, Any]) -> Program:
        if not constants and self.fixed is not None:
            return fit_subscripts(self.fixed, types, self._fitted)
        opened = {f.name: t for f, t in zip(self.formals, types, strict=False) if f.dtype is None and f.shape is None}
        dtypes = {name: (t.dtype, len(t.shape)) for name, t in opened.items()}
        weak = frozenset(name for name, t in opened.items() if t.is_weak)
        key = (tuple(dtypes.values()), weak, constants_key(constants))
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = self._read(dtypes, constants, weak)
            checks = find_number_checks(program, weak)
            if checks:
                self._checks[id(program)] = checks
        fitted = fit_subscripts(program, types, self._fitted)
        if fitted is not program and id(program) in self._checks:
            self._checks[id(fitted)] = self._checks[id(program)]
        return fitted

    def number_checks(self, program: Program) -> tuple[NumberCheck, ...]:
        return self._checks.get(id(program), ())

    def _read(
        self, dtypes: Mapping[str, tuple[DType, int]], constants: Mapping[str, Any], weak: frozenset[str] = frozenset()
    ) -> Program:
        from polyc.recall.functions import read_function

        with driver.compiling(), name_crashes("reading the function"):  # calls infer ranges, and isl is not thread-safe
            program, found = read_function(self.function, dtypes, constants, weak)
        issue_warnings(found)
        return program


def make_function_source(function: Callable[..., Any] | str) -> FunctionSource:
    """Read a function's signature, and its body too where no argument types are needed for it."""
    from polyc.recall.functions import read_signature  # only now: texts and einsums do without

    with driver.compiling(), name_crashes("reading the function"):
        try:
            declared = read_signature(function)
        except SemanticError as error:
            raise _with_errors_of_body(function, error) from None
    formals = tuple(
        Formal(name, dtype, shape, span, takes_weak=dtype is None, default=default)
        for name, dtype, shape, span, default in declared.parameters
    )
    source = FunctionSource(function, declared.name, formals, declared.sizes, tuple(name for name, _ in declared.constants))
    if declared.matrices:
        axes = dict(declared.matrices)
        found: list[Compressed | Ragged] = []
        for f in (f for f in formals if f.name in axes):
            shape, axis = f.shape or (), axes[f.name]
            found.append(Compressed(f.name, shape, f.span, axis) if axis < 2 else make_ragged(f.name, shape, f.span, found))
        source.compressed = tuple(found)
        source.formals = split_matrices(formals, source.compressed)
    if declared.is_complete:
        source.fixed = source.program_for([], {})
        source.sizes = tuple(dict.fromkeys((*source.sizes, *source.fixed.sizes)))  # integer parameters, too
    return source


def _with_errors_of_body(function: Callable[..., Any] | str, error: SemanticError) -> PolycError:
    """The errors of a signature together with those of the body, all at once."""
    try:
        driver.read_function(function)
    except PolycError as more:
        # Without annotations the body is read at the first call: that none is there is no mistake.
        found = [d for d in more.diagnostics if d.code != "semantic-annotation-missing"]
        if all(d in found for d in error.diagnostics):
            return SemanticError(*found)
    return error


@dataclass(slots=True)
class EinsumSource:
    """An einsum: a Program per shapes and element types, since extents of 1 broadcast."""

    subscripts: str
    dtype: DType | None = None
    """What operands are cast to; None: their common type."""
    path: tuple[tuple[int, ...], ...] | None = None
    """The order of contraction; None: the best that is found."""
    formals: tuple[Formal, ...] = ()
    sizes: tuple[str, ...] = ()
    compressed: tuple[Compressed | Ragged, ...] = ()
    constants: tuple[str, ...] = ()
    fixed: Program | None = None
    _programs: dict[Any, Program] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = driver.count_operands(self.subscripts)  # raises for what is no subscript string, before operands are counted
        self.formals = tuple(Formal(f"operand{i}", None, None) for i in range(n))

    def program_for(self, types: Sequence[ArrayType], constants: Mapping[str, Any]) -> Program:
        key = tuple(types)
        program = self._programs.get(key)
        if program is None:
            shapes, dtypes = [t.shape for t in types], [t.dtype for t in types]
            with name_crashes("reading the subscripts"):
                found: Program = driver.read_einsum(self.subscripts, shapes, dtypes, self.path, self.dtype)
            if len(self._programs) >= _MAX_PROGRAMS:
                self._programs.clear()
            self._programs[key] = program = found
        return program

    def number_checks(self, program: Program) -> tuple[NumberCheck, ...]:
        return ()
