"""islpy wrapped once: constructors from expressions, expressions from isl, quotas, error translation.

All isl objects live in islpy's default context, which is not thread-safe: the driver holds one lock around compiling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import islpy as isl
from islpy import Aff as Aff
from islpy import AstBuild as AstBuild
from islpy import AstNode as AstNode
from islpy import Map as Map
from islpy import MultiPwAff as MultiPwAff
from islpy import MultiUnionPwAff as MultiUnionPwAff
from islpy import PwAff as PwAff
from islpy import Schedule as Schedule
from islpy import Set as Set
from islpy import Space as Space
from islpy import UnionMap as UnionMap
from islpy import UnionSet as UnionSet
from islpy import ast_node_type as ast_node_type
from islpy import dim_type as dim_type

from polyc.diagnostics import CompileBudgetError, Diagnostic
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Select, Size, int_const
from polyc.ir.types import BOOL

AST_FOR, AST_IF = ast_node_type.__members__["for_"], ast_node_type.__members__["if_"]
"""Node types whose names end in an underscore, which type stubs do not know."""


class NotAffine(Exception):
    """The expression is no quasi-affine function of indices and sizes (a tensor read, a product of indices)."""


def _exhausted(limit: int, what: str) -> CompileBudgetError:
    help = "split the operator into several, or give sizes as numbers"
    return CompileBudgetError(Diagnostic("budget-isl", f"{what} needs more than {limit} isl operations", None, help))


@contextmanager
def operation_quota(limit: int, what: str) -> Iterator[None]:
    """Bound the isl operations of a block; an overrun is a `CompileBudgetError`.  Always resets the context."""
    context = isl.DEFAULT_CONTEXT
    context.reset_operations()  # isl counts outside quotas too
    context.set_max_operations(limit)
    try:
        yield
    except isl.Error as error:
        if "operations" in str(error) or _is_exhausted():  # isl's parser reports an overrun as a syntax error
            raise _exhausted(limit, what) from error
        raise
    except TypeError as error:  # what islpy makes of a failed conversion to text, as in `Val.to_python`
        if _is_exhausted():
            raise _exhausted(limit, what) from error
        raise
    finally:
        context.set_max_operations(0)
        context.reset_operations()


def _is_exhausted() -> bool:
    """Every operation fails once the quota is used up."""
    try:
        isl.Set.universe(isl.Space.params_alloc(isl.DEFAULT_CONTEXT, 1)).complement().is_empty()
    except isl.Error:
        return True
    return False


def set_space(parameters: Sequence[str], name: str | None, dims: Sequence[str]) -> isl.Space:
    """The space ``[parameters] -> { name[dims] }``."""
    space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=list(dims), params=list(parameters))
    return space.set_tuple_name(isl.dim_type.set, name) if name else space


def big_val(value: int) -> isl.Val:
    """An isl integer of any size (islpy converts only what fits a C long)."""
    return isl.Val(value if -(1 << 62) < value < 1 << 62 else str(value))


class Affine:
    """Turns expressions into piecewise affine functions on one set space.

    `names` maps index names to positions of set dimensions; sizes are parameters of the space.
    """

    def __init__(self, space: isl.Space, names: Mapping[str, int]) -> None:
        self.space = space
        self.names = dict(names)
        self.local = isl.LocalSpace.from_space(space)
        self.parameters = {space.get_dim_name(isl.dim_type.param, p): p for p in range(space.dim(isl.dim_type.param))}
        self._known: dict[int | Index | Size, isl.PwAff] = {}

    def constant(self, value: int) -> isl.PwAff:
        value = int(value)
        found = self._known.get(value)
        if found is None:
            found = isl.PwAff.from_aff(isl.Aff.zero_on_domain(self.local).set_constant_val(big_val(value)))
            self._known[value] = found
        return found

    def _variable(self, expr: Index | Size, kind: isl.dim_type, position: int) -> isl.PwAff:
        found = self._known.get(expr)
        if found is None:
            found = self._known[expr] = isl.PwAff.from_aff(isl.Aff.var_on_domain(self.local, kind, position))
        return found

    def pw_aff(self, expr: Expr) -> isl.PwAff:
        """The value of an integer expression; raises `NotAffine`."""
        match expr:
            case Const() if not expr.dtype.is_float:
                return self.constant(int(expr.value))
            case Index() if expr.name in self.names:
                return self._variable(expr, isl.dim_type.set, self.names[expr.name])
            case Size() if expr.name in self.parameters:
                return self._variable(expr, isl.dim_type.param, self.parameters[expr.name])
            case Cast() if expr.dtype.is_integer and expr.dtype.bits >= 32:
                return self.pw_aff(expr.value)
            case Select():
                condition = self.condition(expr.condition)
                then, other = self.pw_aff(expr.then), self.pw_aff(expr.other)
                return then.intersect_domain(condition).union_add(other.subtract_domain(condition))
            case Call():
                return self._call(expr)
        raise NotAffine

    def _call(self, expr: Call) -> isl.PwAff:
        operands = [self.pw_aff(arg) for arg in expr.args]
        match expr.op, operands:
            case "add", [a, b]:
                return a.add(b)
            case "sub", [a, b]:
                return a.sub(b)
            case "neg", [a]:
                return a.neg()
            case "mul", [a, b] if a.is_cst() or b.is_cst():
                return a.mul(b)
            case "floordiv", [a, b] if _positive_constant(expr.args[1]):
                return a.div(b).floor()
            case "mod", [a, b] if _positive_constant(expr.args[1]):
                return a.mod_val(isl.Val(_int_value(expr.args[1])))
            case (("max" | "fmax"), [a, b]):
                return a.max(b)
            case (("min" | "fmin"), [a, b]):
                return a.min(b)
            case "abs", [a]:
                return a.max(a.neg())
        raise NotAffine

    def condition(self, expr: Expr) -> isl.Set:
        """The set of points where a boolean expression over affine operands holds; raises `NotAffine`."""
        if isinstance(expr, Const) and expr.dtype == BOOL:
            return isl.Set.universe(self.space) if expr.value else isl.Set.empty(self.space)
        if not isinstance(expr, Call):
            raise NotAffine
        match expr.op:
            case "and":
                return self.condition(expr.args[0]).intersect(self.condition(expr.args[1]))
            case "or":
                return self.condition(expr.args[0]).union(self.condition(expr.args[1]))
            case "not":
                return self.condition(expr.args[0]).complement()
            case "lt" | "le" | "gt" | "ge" | "eq" | "ne":
                a, b = self.pw_aff(expr.args[0]), self.pw_aff(expr.args[1])
                return getattr(a, f"{expr.op}_set")(b)
        raise NotAffine

    def may_hold(self, condition: Expr, holds: bool = True) -> tuple[isl.Set, bool]:
        """Points where `condition` may be true (`holds`) or false, and whether they are exactly these: of what depends on data
        nothing is known."""
        try:
            where = self.condition(condition)
            return where if holds else where.complement(), True
        except NotAffine:
            pass
        match condition:
            case Call("not", (a,)):
                return self.may_hold(a, not holds)
            case Call("and" | "or" as op, (a, b)):
                x, y = self.may_hold(a, holds)[0], self.may_hold(b, holds)[0]
                return x.intersect(y) if (op == "and") == holds else x.union(y), False
        return isl.Set.universe(self.space), False


def _int_value(expr: Expr) -> int:
    while isinstance(expr, Cast):
        expr = expr.value
    assert isinstance(expr, Const)
    return int(expr.value)


def _positive_constant(expr: Expr) -> bool:
    while isinstance(expr, Cast):
        expr = expr.value
    return isinstance(expr, Const) and not expr.dtype.is_float and int(expr.value) > 0


_OPERATORS: dict[object, str] = {
    isl.ast_expr_op_type.add: "add",
    isl.ast_expr_op_type.sub: "sub",
    isl.ast_expr_op_type.mul: "mul",
    isl.ast_expr_op_type.div: "floordiv",
    isl.ast_expr_op_type.fdiv_q: "floordiv",
    isl.ast_expr_op_type.pdiv_q: "floordiv",
    isl.ast_expr_op_type.pdiv_r: "mod",
    isl.ast_expr_op_type.zdiv_r: "mod",
    isl.ast_expr_op_type.max: "max",
    isl.ast_expr_op_type.min: "min",
    isl.ast_expr_op_type.minus: "neg",
    isl.ast_expr_op_type.eq: "eq",
    isl.ast_expr_op_type.lt: "lt",
    isl.ast_expr_op_type.le: "le",
    isl.ast_expr_op_type.gt: "gt",
    isl.ast_expr_op_type.ge: "ge",
    isl.ast_expr_op_type.__members__["and_"]: "and",
    isl.ast_expr_op_type.__members__["or_"]: "or",
    isl.ast_expr_op_type.and_then: "and",
    isl.ast_expr_op_type.or_else: "or",
}


def expr_of_ast(node: isl.AstExpr, loop_variables: set[str]) -> Expr:
    """An isl AST expression as ours: identifiers in `loop_variables` become `Index`, others `Size`."""
    kind: object = node.get_type()
    if kind == isl.ast_expr_type.int:
        return int_const(int(node.get_val().to_python()))
    if kind == isl.ast_expr_type.id:
        name = node.get_id().get_name()
        return Index(name) if name in loop_variables else Size(name)
    op: object = node.get_op_type()
    args = [expr_of_ast(node.get_op_arg(i), loop_variables) for i in range(node.get_op_n_arg())]
    if op in (isl.ast_expr_op_type.cond, isl.ast_expr_op_type.select):
        return Select(args[0], args[1], args[2])
    name = _OPERATORS[op]
    result = args[0]
    if len(args) == 1:
        return Call(name, (result,))
    for arg in args[1:]:
        result = Call(name, (result, arg))
    return result
