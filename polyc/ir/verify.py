"""Well-formedness of Programs: what every later stage may rely on.

Raises InternalError listing everything that is wrong: a malformed Program is a bug of whoever made it, never of the user.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from polyc.diagnostics import Diagnostic, InternalError, Span
from polyc.ir.expr import MONOIDS, Call, Cast, Const, Expr, Index, Pad, Read, Select, Size, children, type_of, walk
from polyc.ir.operators import COMPLEX_OPERATORS, OPERATORS
from polyc.ir.program import Condition, Exists, Program, RangeClause, Statement, Tensor
from polyc.ir.segments import fixed_indices, is_loaded, is_segmented
from polyc.ir.types import BOOL, F32, F64, I32, I64, DType

Problem = tuple[str, Span | None]


def verify_program(program: Program) -> None:
    """Raise InternalError (``internal-invalid-program``) with one diagnostic per fault; return silently where there is none.

    Checked: names are unique and known; ranks and element types agree; subscripts, extents and bounds are ``i64``; only a
    statement's own indices occur in it, each at most once in the list, left ones first; no reduction index without a
    reduction; initial values depend on the element only; inputs are not written, and every other version is; returns are
    outputs.
    """
    problems = [*_check_declarations(program)]
    if not problems:
        for statement in program.statements:
            problems += _check_statement(program, statement)
    if problems:
        raise InternalError(*(Diagnostic("internal-invalid-program", text, span) for text, span in problems))


def _repeated(names: Iterator[str] | tuple[str, ...] | list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _check_declarations(program: Program) -> Iterator[Problem]:
    names = [t.name for t in program.tensors]
    tables = {
        "tensor": names,
        "statement": [s.name for s in program.statements],
        "size": [*program.sizes, *(n for n, _ in program.defined_sizes)],
        "parameter": list(program.parameters),
        "return": [r.name for r in program.returns],
    }
    for kind, table in tables.items():
        for name in _repeated(table):
            yield f"{kind} {name} is declared twice", None
    tensors = {t.name: t for t in program.tensors}
    sizes = set(program.sizes)
    for name, expr in program.defined_sizes:
        yield from _check_size_expression(f"the defined size {name}", expr, sizes, None)
        sizes.add(name)
    for tensor in program.tensors:
        yield from _check_tensor(program, tensor, sizes)
    for name in program.parameters:
        if name not in tensors or tensors[name].role != "input":
            yield f"parameter {name} is no tensor of role input", None
    for result in program.returns:
        for version, role in ((result.version, "output"), (result.initial, "accumulated")):
            if version is None:
                continue
            if version not in tensors:
                yield f"return {result.name} names the unknown tensor {version}", None
            elif tensors[version].role != role:
                yield f"return {result.name} needs {version} to have the role {role}, not {tensors[version].role}", None
    written = Counter(s.target for s in program.statements)
    for name in written:
        if name not in tensors:
            yield f"unknown tensor {name} is written", None
        elif tensors[name].role in ("input", "accumulated"):
            yield f"{tensors[name].role} tensor {name} is written", None
    for tensor in program.tensors:
        if tensor.role in ("output", "temporary") and tensor.name not in written:
            yield f"tensor {tensor.name} is never written", tensor.span


def _check_tensor(program: Program, tensor: Tensor, sizes: Set[str]) -> Iterator[Problem]:
    if tensor.role == "input" and tensor.name not in program.parameters:
        yield f"input {tensor.name} is no parameter", tensor.span
    if tensor.role == "input" and tensor.shape is None:
        yield f"input {tensor.name} has no shape", tensor.span
    if tensor.role == "accumulated" and all(r.initial != tensor.name for r in program.returns):
        yield f"accumulated tensor {tensor.name} belongs to no return", tensor.span
    if tensor.shape is not None:
        if len(tensor.shape) != tensor.rank:
            yield f"tensor {tensor.name} has rank {tensor.rank} but {len(tensor.shape)} extents", tensor.span
        for extent in tensor.shape:
            yield from _check_size_expression(f"an extent of {tensor.name}", extent, sizes, tensor.span)


def _check_size_expression(what: str, expr: Expr, sizes: Set[str], span: Span | None) -> Iterator[Problem]:
    for node in walk(expr):
        if isinstance(node, (Index, Read)):
            yield f"{what} depends on {node.name if isinstance(node, Index) else node.tensor}", span
            return
        if isinstance(node, Size) and node.name not in sizes:
            yield f"{what} has the unknown size {node.name}", span
            return
    yield from check_expression(expr, {}, I64, what, span)


# --- Statements ------------------------------------------------------------------------------------------------------


def _check_statement(program: Program, s: Statement) -> Iterator[Problem]:
    target = program.tensor(s.target)
    sizes = {*program.sizes, *(n for n, _ in program.defined_sizes)}
    indices = set(s.indices)
    for name in _repeated(s.indices):
        yield f"{s.name}: index {name} is listed twice", s.span
    if len(s.subscripts) != target.rank:
        yield f"{s.name}: {s.target} has rank {target.rank} but {len(s.subscripts)} left subscripts", s.span
        return
    left = s.left_indices
    if s.indices[: len(left)] != left:
        yield f"{s.name}: indices of the left side do not come first", s.span
    loose = set(s.reduction_indices) - fixed_indices(s.subscripts, s.where) if is_segmented(s) else set()
    if loose:
        yield f"{s.name}: {', '.join(sorted(loose))} is not on the left and there is no reduction", s.span
    exprs: list[tuple[Expr, DType | None, Set[str], str]] = [(e, I64, indices, "a left subscript") for e in s.subscripts]
    # what is stored to a 16-bit float, or reduced to one, may come unrounded
    is_unrounded = target.dtype.is_storage and s.reduction is not None and _finds_type(s.value, program, target.dtype.computed)
    exprs.append((s.value, target.dtype.computed if is_unrounded else target.dtype, indices, "the value"))
    if s.reduction is not None:
        if s.reduction.monoid is not None:
            yield from _check_monoid(s, target)
        elif s.reduction.op not in MONOIDS:
            yield f"{s.name}: {s.reduction.op} is no monoid", s.span
        elif s.reduction.op in ("and", "or") and target.dtype != BOOL:
            yield f"{s.name}: {s.reduction.op} reduces {target.dtype}, not bool", s.span
        exprs.append((s.reduction.init, target.dtype, set(s.element_names), "the initial value"))
    for clause in s.where:
        match clause:
            case RangeClause():
                if clause.index not in indices:
                    yield f"{s.name}: a range is given for {clause.index}, which is no index of it", clause.span
                for bound in (clause.lower, clause.upper):
                    exprs.append((bound, I64, indices, "a range bound"))
                    if any(is_loaded(e) for node in walk(bound) if isinstance(node, Read) for e in node.subscripts):
                        yield f"{s.name}: a range bound reads where data says", clause.span
            case Condition():
                exprs.append((clause.condition, BOOL, indices, "a condition"))
            case Exists():
                exprs.append((clause.value, None, indices, "an exists clause"))
    for expr, wanted, allowed, what in exprs:
        names = list(_check_names(expr, allowed, sizes, program))
        for text, span in names or check_expression(expr, program.types, wanted, what, s.span):
            yield f"{s.name}: {text if not names else f'{what} {text}'}", span or s.span


def _check_monoid(s: Statement, target: Tensor) -> Iterator[Problem]:
    assert s.reduction is not None
    monoid, k = s.reduction.monoid, s.reduction.component
    assert monoid is not None
    n = len(monoid.identity)
    is_tuple = isinstance(s.value, Call) and s.value.op == "tuple" and len(s.value.args) == n
    if s.reduction.op != "combine" or not is_tuple or not 0 <= k < n or len(monoid.results) != n:
        yield f"{s.name}: {monoid.name} needs {n} components", s.span
        return
    if not s.has_plain_left:
        yield f"{s.name}: {monoid.name} reduces into computed subscripts", s.span
    if s.reduction.init != monoid.identity[k]:
        yield f"{s.name}: the initial value is not the identity of {monoid.name}", s.span
    for constant, result in zip(monoid.identity, monoid.results, strict=True):
        for text, span in check_expression(result, monoid.types, constant.dtype, f"a component of {monoid.name}", s.span):
            yield f"{s.name}: {text}", span


def _finds_type(expr: Expr, program: Program, wanted: DType) -> bool:
    try:
        return type_of(expr, program.types) == wanted
    except LookupError:  # an unknown tensor or operator, which is reported where it stands
        return False


def _check_names(expr: Expr, indices: Set[str], sizes: Set[str], program: Program) -> Iterator[Problem]:
    for node in walk(expr):
        match node:
            case Index() if node.name not in indices:
                yield f"has {node.name}, which is no index that may stand there", node.span
            case Size() if node.name not in sizes:
                yield f"has the unknown size {node.name}", node.span
            case Read() if node.tensor not in program.types:
                yield f"reads the unknown tensor {node.tensor}", node.span
            case Read() if len(node.subscripts) != (rank := program.tensor(node.tensor).rank):
                yield f"reads {node.tensor} of rank {rank} with {len(node.subscripts)} subscripts", node.span


# --- Expressions -----------------------------------------------------------------------------------------------------

_NOT_BOOL = frozenset("sub neg abs truediv floordiv mod pow".split())
_ONLY_COMPLEX = frozenset("conj real imag".split())
_NOT_FLOAT = frozenset("bitand bitor bitxor shl shr".split())


def check_expression(
    expr: Expr, types: dict[str, DType], wanted: DType | None, what: str, span: Span | None
) -> Iterator[Problem]:
    """Faults of element type in an expression whose names are known.  `wanted` None: any type."""
    nodes = list(walk(expr))
    is_typed = not any(isinstance(node, Call) and (node.op not in OPERATORS or not node.args) for node in nodes)
    faults = [fault for node in nodes for fault in _check_node(node, types, is_typed)]
    yield from faults
    if not faults and wanted is not None and (found := type_of(expr, types)) != wanted:
        yield f"{what} is {found} where {wanted} is needed", span


def _check_node(node: Expr, types: dict[str, DType], is_typed: bool) -> Iterator[Problem]:
    """`is_typed`: whether all operators of the expression are known."""
    match node:
        case Call() if node.op not in OPERATORS:
            yield f"unknown operator {node.op}", node.span
            return
        case Call() if len(node.args) != OPERATORS[node.op].arity and not (node.op == "tuple" and node.args):
            yield f"{node.op} has {len(node.args)} operands", node.span
            return
    below = () if is_typed else (c for n in children(node) for c in walk(n))
    if any(isinstance(c, Call) and (c.op not in OPERATORS or not c.args) for c in below):
        return  # reported where it stands; nothing above it has a type
    match node:
        case Const():
            if not _fits(node):
                yield f"the constant {node.value} is no value of {node.dtype}", node.span
        case Read():
            for sub in node.subscripts:
                if (found := type_of(sub, types)) != I64:
                    yield f"a subscript of {node.tensor} is {found}", node.span
        case Pad():
            inner, value = type_of(node.read, types), type_of(node.value, types)
            if inner != value:
                yield f"pad gives {value} around {inner}", node.span
        case Select():
            if (found := type_of(node.condition, types)) != BOOL:
                yield f"a condition is {found}", node.span
            if type_of(node.then, types) != type_of(node.other, types):
                yield f"the arms of ?: are {type_of(node.then, types)} and {type_of(node.other, types)}", node.span
        case Call():
            yield from _check_call(node, [type_of(a, types) for a in node.args])
        case Index() | Size() | Cast():
            pass


def _check_call(node: Call, operands: list[DType]) -> Iterator[Problem]:
    first = operands[0]
    if node.op == "tuple":
        return
    if any(t != first for t in operands):
        yield f"{node.op} mixes {' and '.join(map(str, operands))}", node.span
    elif node.op in ("and", "or", "not"):
        if first != BOOL:
            yield f"{node.op} has operands of type {first}", node.span
    elif first.is_complex or node.op in _ONLY_COMPLEX:
        if not first.is_complex or node.op not in COMPLEX_OPERATORS:
            yield f"{node.op} has operands of type {first}", node.span
    elif node.op == "complex":
        if first not in (F32, F64):
            yield f"complex has operands of type {first}", node.span
    elif (
        (OPERATORS[node.op].result == "float" and not first.is_float)
        or (node.op in _NOT_BOOL and first == BOOL)
        or (node.op in _NOT_FLOAT and first.is_float)
        or (node.op == "dot4u8s8" and first != I32)
    ):
        yield f"{node.op} has operands of type {first}", node.span


def _fits(constant: Const) -> bool:
    if constant.dtype.is_float or constant.dtype.is_complex:
        return True
    low, high = constant.dtype.limits
    return low <= constant.value <= high and int(constant.value) == constant.value
