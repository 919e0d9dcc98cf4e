"""``n = until e(t) < eps where t in 0:T``: where the recurrence above ends."""

from __future__ import annotations

from polyc.frontends.core.builder import Target
from polyc.frontends.core.endings import end_recurrence, find_steps
from polyc.frontends.core.reductions import position_type
from polyc.frontends.core.values import Fault
from polyc.frontends.tc.definition import Definition
from polyc.frontends.tc.statement import check_target, read_sides
from polyc.frontends.tc.syntax import Name, RangeSyntax, SyntaxStatement, SyntaxTarget
from polyc.frontends.tc.types import spell_type
from polyc.ir.types import BOOL
from polyc.records import replace


def check_until(d: Definition, s: SyntaxStatement) -> None:
    """Let the recurrence end, and the target name its last step.

    The condition is read as what an assignment gives to an element of each step."""
    (target,) = s.targets
    ranges = [clause for clause in s.where if isinstance(clause, RangeSyntax)]
    index = ranges[0].index if ranges else "t"
    count = Target(target.name or f"{index}.until", (), target.span if target.name else s.op_span)
    is_good = not target.name or check_target(d, target.name, target.span, len(target.subscripts))
    with d.reporter.catching(s.span):
        if target.subscripts:
            message = f"the last step is one number, and {target.name} has subscripts"
            raise Fault("semantic-until", message, f"write {target.name} = until …", target.span)
        if not ranges:
            message = "until has no range, which tells over which index the recurrence steps, and how far at most"
            raise Fault("semantic-until", message, "write until e(t) < eps where t in 0:T")
        place = SyntaxTarget(count.name, (Name(index, ranges[0].index_span),), count.span)
        _, _, condition = read_sides(d, replace(s, targets=(place,), op="="))
        if condition is not None and condition.values[0].dtype != BOOL:
            message = f"expected boolean but found {spell_type(condition.values[0].dtype)}"
            raise Fault("type-not-boolean", message, f"compare with something: until e({index}) < eps", s.value.span)
        if condition is not None and is_good and not d.reporter.n_errors:  # else statements may be missing
            end_recurrence(d, condition, find_steps(d, condition), count, position_type(d, count))
            return
    if target.name and is_good:
        d.define(target.name, 0, target.span, None)
