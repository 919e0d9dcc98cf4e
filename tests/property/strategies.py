"""Hypothesis strategies: random valid Programs with sizes and inputs.

`cases()` draws a `Case`: a program that `verify_program` accepts and that the reference interpreter runs at the case's sizes,
inputs for it, and arrays to accumulate into.  Statements are drawn one by one; one whose ranges do not work out at the drawn
sizes is dropped, so nothing is filtered out afterwards.  Floating-point values stay small and comparisons only look at
indices and inputs, so that a correct kernel differs from the reference by rounding alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from polyc.diagnostics import PolycError
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, Size, evaluate, identity_of, int_const, reads
from polyc.ir.halves import widen
from polyc.ir.interpret import interpret
from polyc.ir.interpret_ranges import solve_ranges
from polyc.ir.program import Exists, Program, RangeClause, Reduction, Return, Statement, Tensor, Where
from polyc.ir.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType

ALL_DTYPES: tuple[DType, ...] = (F32, F64, F16, BF16, I32, I64, I8, I16, U8, U16, U32, U64, BOOL)
SIZES = ("N", "M", "K")


@dataclass(frozen=True)
class Case:
    """A program to run: `arrays` by parameter, `out` by the name of each accumulated return (what it holds at entry)."""

    program: Program
    sizes: dict[str, int]
    arrays: dict[str, np.ndarray]
    out: dict[str, np.ndarray]


@dataclass
class _Draft:
    """A program under construction."""

    sizes: dict[str, int]
    tensors: list[Tensor] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    returns: list[Return] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def finish(self) -> Program:
        """Every tensor not read by a later statement is returned; sizes and parameters as a front end would order them."""
        parameters = tuple(t.name for t in self.tensors if t.role == "input")
        rest = [t for t in self.tensors if t.role != "input"]
        tensors = [t for t in self.tensors if t.role == "input"] + rest
        used = list(dict.fromkeys(n.name for t in tensors for e in t.shape or () for n in _sizes_in(e)))
        return Program("case", tuple(used), tuple(tensors), parameters, tuple(self.returns), tuple(self.statements))


def _sizes_in(expr: Expr) -> list[Size]:
    if isinstance(expr, Size):
        return [expr]
    return [s for a in expr.args for s in _sizes_in(a)] if isinstance(expr, Call) else []


@st.composite
def cases(
    draw: st.DrawFn,
    max_statements: int = 4,
    dtypes: Sequence[DType] = ALL_DTYPES,
    smallest_size: int = 1,
    largest_size: int = 6,
) -> Case:
    """A random `Case` of 1 to `max_statements` statements over element types `dtypes`."""
    sizes = {name: draw(st.integers(smallest_size, largest_size)) for name in SIZES}
    draft = _Draft(sizes)
    for k in range(draw(st.integers(1, 3))):
        rank = draw(st.integers(0 if k else 1, 3))
        shape = tuple(draw(_extents()) for _ in range(rank))
        tensor = Tensor(f"A{k}", draw(st.sampled_from(list(dtypes))), rank, shape, "input", f"A{k}")
        draft.tensors.append(tensor)
        draft.arrays[tensor.name] = draw(_arrays(tensor, _bind(shape, sizes)))
    for k in range(draw(st.integers(1, max_statements))):
        _add_statement(draw, draft, k, dtypes)
    if not draft.statements:
        source = draft.tensors[0]
        indices = tuple(f"i{d}" for d in range(source.rank))
        _try_statement(
            draft,
            Statement("S0", "T0", tuple(map(Index, indices)), indices, Read(source.name, tuple(map(Index, indices)))),
            source.dtype,
            None,
        )
    program = _choose_returns(draw, draft)
    out = {
        r.name: draw(_arrays(program.tensor(r.initial), _interval_shape(program, sizes, r.initial)))
        for r in program.returns
        if r.initial is not None
    }
    used = {name: value for name, value in sizes.items() if name in program.sizes}
    return Case(program, used, {p: draft.arrays[p] for p in program.parameters}, out)


def _bind(shape: tuple[Expr, ...], sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(e, sizes) for e in shape)


def _interval_shape(program: Program, sizes: dict[str, int], tensor: str) -> tuple[int, ...]:
    return tuple(upper - lower for lower, upper in solve_ranges(program, sizes).tensors[tensor])


def _extents() -> st.SearchStrategy[Expr]:
    plain: list[Expr] = [Size(name) for name in SIZES]
    composed: list[Expr] = [
        Call("add", (Size("N"), int_const(1))),
        Call("mul", (int_const(2), Size("M"))),
        Call("add", (Size("N"), Size("K"))),
        int_const(3),
    ]
    # a composed extent gives its symbols no value, but the arrays decide sizes: plain ones first, sizes are given anyway
    return st.sampled_from(plain * 3 + composed)


@st.composite
def _arrays(draw: st.DrawFn, tensor: Tensor, shape: tuple[int, ...]) -> np.ndarray:
    """Small values, floats with few bits; seeded by one drawn integer so that shrinking stays fast."""
    generator = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    if tensor.dtype == BOOL:
        values = generator.integers(0, 2, shape)
    elif tensor.dtype.is_float:
        values = generator.integers(-16, 17, shape) / 8
    else:
        values = generator.integers(-9 if tensor.dtype.is_signed else 0, 10, shape)
    return np.asarray(values).astype(tensor.dtype.numpy)


# --- Statements ------------------------------------------------------------------------------------------------------


def _add_statement(draw: st.DrawFn, draft: _Draft, number: int, dtypes: Sequence[DType]) -> None:
    sources = [t for t in draft.tensors if t.role != "accumulated"]
    main = draw(st.sampled_from(sources))
    indices: list[str] = []
    where: list[Where] = []
    subscripts = tuple(draw(_subscripts(indices, where)) for _ in range(main.rank))
    allowed = [d for d in dtypes if not (main.dtype.is_float and not d.is_float and main.role != "input")]
    dtype = draw(st.sampled_from([main.dtype] * 3 + list(allowed)))
    value = _convert(Read(main.name, subscripts), main.dtype, dtype)
    for _ in range(draw(st.integers(0, 2))):
        other = draw(st.sampled_from(sources))
        if other.dtype.is_float and not dtype.is_float and other.role != "input":
            continue
        read = _convert(draw(_secondary_read(other, indices, sources)), other.dtype, dtype)
        value = draw(_combine(value, read, dtype))
    value = draw(_finish(value, dtype, indices, draft))
    if indices and draw(st.integers(0, 7)) == 0:
        witness = draw(st.sampled_from(sources))
        where.append(Exists(Read(witness.name, tuple(Index(draw(st.sampled_from(indices))) for _ in range(witness.rank)))))
    left = draw(st.permutations(indices))
    n_left = draw(st.integers(0, len(left)))
    kept = tuple(left[:n_left])
    ordered = kept + tuple(i for i in indices if i not in kept)
    reduction = None
    initial = None
    if n_left < len(indices) or draw(st.integers(0, 4)) == 0:
        op = draw(st.sampled_from(["and", "or"] if dtype == BOOL else ["add", "add", "max", "min", "mul"]))
        init: Expr = identity_of(op, dtype)
        kind = draw(st.integers(0, 5))
        if kind == 0 and dtype != BOOL:
            init = Const(2.0 if dtype.is_float else 2, dtype)
        elif kind == 1:
            initial = Tensor(f"T{number}.in", dtype, n_left, None, "accumulated", f"T{number}")
            init = Read(initial.name, tuple(map(Index, kept)))
        reduction = Reduction(op, init)
    statement = Statement(f"S{number}", f"T{number}", tuple(map(Index, kept)), ordered, value, reduction, tuple(where))
    _try_statement(draft, statement, dtype, initial)


def _try_statement(draft: _Draft, s: Statement, dtype: DType, initial: Tensor | None) -> None:
    """Keep the statement if the program still runs at the drawn sizes."""
    target = Tensor(s.target, dtype, len(s.subscripts), None, "output", s.target)
    trial = replace(draft, tensors=[*draft.tensors, *([initial] if initial else []), target])
    trial.statements = [*draft.statements, s]
    trial.returns = [*draft.returns, Return(s.target, s.target, initial.name if initial else None)]
    result = _run_trial(trial, draft.sizes)
    limit = 3e4 if dtype == F16 else 1e6
    if result is None or (dtype.is_float and not (np.abs(widen(result).astype(np.float64)) < limit).all()):
        return
    if not any(_has_points(trial, sizes) for sizes in _GENEROUS):
        return  # valid only because nothing is ever computed: a compiler may refuse it
    draft.tensors, draft.statements, draft.returns = trial.tensors, trial.statements, trial.returns


_GENEROUS = tuple(dict(zip(SIZES, values, strict=True)) for values in ((9, 9, 9), (7, 8, 9), (9, 8, 7)))


def _run_trial(draft: _Draft, sizes: dict[str, int]) -> np.ndarray | None:
    """What the last statement computes on the draft's inputs (on zeros at other sizes), or None where it is refused."""
    program = draft.finish()
    arrays = draft.arrays
    if sizes != draft.sizes:
        shapes = {p: _bind(program.tensor(p).shape or (), sizes) for p in program.parameters}
        arrays = {p: np.zeros(shape, program.tensor(p).dtype.numpy) for p, shape in shapes.items()}
    try:
        out = {
            r.name: np.zeros(_interval_shape(program, sizes, r.initial), program.tensor(r.initial).dtype.numpy)
            for r in program.returns
            if r.initial is not None
        }
        return interpret(program, arrays, sizes, out)[program.statements[-1].target]
    except PolycError:
        return None


def _has_points(draft: _Draft, sizes: dict[str, int]) -> bool:
    """Every statement runs and computes something at `sizes`."""
    if _run_trial(draft, sizes) is None:
        return False
    boxes = solve_ranges(draft.finish(), sizes).statements.values()
    return all(upper > lower for box in boxes for lower, upper in box.values())


def _choose_returns(draw: st.DrawFn, draft: _Draft) -> Program:
    """Tensors that nothing reads are returned, and any others that are drawn; the rest are temporaries."""
    program = draft.finish()
    text = {n.tensor for s in program.statements for n in _reads_of(s)}
    kept = tuple(r for r in program.returns if r.version not in text or r.initial is not None or draw(st.booleans()))
    names = {r.version for r in kept}
    tensors = tuple(replace(t, role="temporary") if t.role == "output" and t.name not in names else t for t in program.tensors)
    return replace(program, tensors=tensors, returns=kept)


def _reads_of(s: Statement) -> tuple[Read, ...]:
    return reads(s.value) + (reads(s.reduction.init) if s.reduction else ())


# --- Expressions -----------------------------------------------------------------------------------------------------


@st.composite
def _subscripts(draw: st.DrawFn, indices: list[str], where: list[Where]) -> Expr:
    """A subscript over a new index (now and then over known ones): plain, shifted, strided, reversed, a window, a constant."""
    kind = draw(st.sampled_from("plain plain plain plain shift stride reverse window repeat constant divide given".split()))
    if kind == "constant":
        return int_const(0)
    if kind == "repeat" and indices:
        return Index(draw(st.sampled_from(indices)))
    name = f"i{len(indices)}"
    indices.append(name)
    i = Index(name)
    match kind:
        case "shift":
            return Call("add", (i, int_const(draw(st.integers(-2, 2)))))
        case "stride":
            return Call("add", (Call("mul", (int_const(draw(st.integers(2, 3))), i)), int_const(draw(st.integers(0, 1)))))
        case "reverse":
            return Call("sub", (int_const(draw(st.integers(0, 5))), i))
        case "divide":
            return Call("floordiv", (i, int_const(2)))
        case "given":
            lower = draw(st.integers(0, 2))
            where.append(RangeClause(name, int_const(lower), int_const(lower + draw(st.integers(1, 3)))))
        case "window":
            window = f"i{len(indices)}"
            indices.append(window)
            where.append(RangeClause(window, int_const(0), int_const(draw(st.integers(1, 3)))))
            return Call("add", (i, Index(window)))
    return i


@st.composite
def _secondary_read(draw: st.DrawFn, tensor: Tensor, indices: list[str], sources: Sequence[Tensor]) -> Expr:
    """A read over known indices: direct, padded, guarded by a condition, clamped, or at places that another tensor holds;
    broadcast where a subscript is constant."""
    subscripts: list[Expr] = []
    for _ in range(tensor.rank):
        index = Index(draw(st.sampled_from(indices))) if indices else None
        shift = draw(st.sampled_from([0, 0, 0, 1, -1]))
        if index is None or draw(st.integers(0, 5)) == 0:
            subscripts.append(int_const(0))
        else:
            subscripts.append(Call("add", (index, int_const(shift))) if shift else index)
    read = Read(tensor.name, tuple(subscripts))
    zero = identity_of("add" if tensor.dtype != BOOL else "or", tensor.dtype)
    tables = [t for t in sources if t.dtype.is_integer and t.rank == 1]
    match draw(st.sampled_from(["direct", "pad", "guard", "clamp", "gather"])):
        case "gather" if tensor.shape is not None and tables and subscripts:
            table = draw(st.sampled_from(tables))
            found: Expr = Read(table.name, (subscripts[0],))
            place = found if table.dtype == I64 else Cast(found, I64)
            last = Call("sub", (tensor.shape[0], int_const(1)))
            subscripts[0] = Call("max", (Call("min", (place, last)), int_const(0)))
            return Read(tensor.name, tuple(subscripts))
        case "pad":
            return Pad(read, zero)
        case "guard" if tensor.shape is not None and subscripts:
            condition: Expr | None = None
            for sub, extent in zip(subscripts, tensor.shape, strict=True):
                inside = Call("and", (Call("ge", (sub, int_const(0))), Call("lt", (sub, extent))))
                condition = inside if condition is None else Call("and", (condition, inside))
            assert condition is not None
            return Select(condition, read, zero)
        case "clamp" if tensor.shape is not None:
            last = [Call("sub", (extent, int_const(1))) for extent in tensor.shape]
            clamped = [Call("max", (Call("min", (sub, top)), int_const(0))) for sub, top in zip(subscripts, last, strict=True)]
            return Read(tensor.name, tuple(clamped))
    return read


def _convert(expr: Expr, source: DType, target: DType) -> Expr:
    """A cast, defined for every value: negative numbers have no meaning as unsigned ones where they are floating point."""
    if source.is_float and target.kind == "u":
        expr = Call("abs", (expr,))
    return expr if source == target else Cast(expr, target)


@st.composite
def _combine(draw: st.DrawFn, a: Expr, b: Expr, dtype: DType) -> Expr:
    if dtype == BOOL:
        return Call(draw(st.sampled_from(["and", "or"])), (a, b))
    ops = ["add", "sub", "mul", "max", "min"]
    if dtype.is_float:
        ops += ["fmax", "fmin", "quotient"]
    else:
        ops += ["floordiv", "mod", "bitand", "bitor", "bitxor", "shl", "shr"]
    op = draw(st.sampled_from(ops))
    if op == "quotient":  # a denominator away from zero
        return Call("truediv", (a, Call("add", (Call("abs", (b,)), Const(1.5, dtype)))))
    return Call(op, (a, b))


@st.composite
def _finish(draw: st.DrawFn, value: Expr, dtype: DType, indices: list[str], draft: _Draft) -> Expr:
    """Perhaps a function or a condition around the value."""
    kind = draw(st.integers(0, 5))
    if kind == 0 and dtype.is_float:
        op = draw(st.sampled_from(["exp", "tanh", "sigmoid", "neg", "abs", "sqrt", "erf"]))
        if op == "exp":
            return Call("exp", (Call("min", (value, Const(2.0, dtype))),))
        return Call("sqrt", (Call("abs", (value,)),)) if op == "sqrt" else Call(op, (value,))
    if kind == 1 and dtype == BOOL:
        return Call("not", (value,))
    if kind == 2 and indices:
        one = Index(draw(st.sampled_from(indices)))
        other: Expr = Index(draw(st.sampled_from(indices))) if draw(st.booleans()) else int_const(1)
        op = draw(st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]))
        zero = identity_of("or", BOOL) if dtype == BOOL else identity_of("add", dtype)
        return Select(Call(op, (one, other)), value, zero)
    if kind == 3 and indices and dtype != BOOL:
        index = Cast(Index(draw(st.sampled_from(indices))), dtype)
        return Call("add", (value, index))
    scalars = [t for t in draft.tensors if t.rank == 0 and t.role == "input" and t.dtype.is_signed]
    if kind == 4 and scalars:
        scalar = draw(st.sampled_from(scalars))
        condition = Call("gt", (Read(scalar.name, ()), identity_of("add", scalar.dtype)))
        zero = identity_of("or", BOOL) if dtype == BOOL else identity_of("add", dtype)
        return Select(condition, value, zero)
    return value


def draw_cases(count: int, drawn: st.SearchStrategy[Case]) -> list[Case]:
    """So many random programs, the same ones at every run."""
    found: list[Case] = []

    @settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn)
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return found
