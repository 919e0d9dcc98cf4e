"""Sums of exponentials in the pass of their maximum: which they are, for arrays in chunks.

A block has ``s = sum of exp(a * (x - t)) * f`` with its own maximum t in the place of the maximum m; the whole sum is that of
``s * exp(a * (t - m))`` over blocks (`polyc.scheduler.rewriting.rules.shifted_exponentials`, which does so for parts of rows).
"""

from __future__ import annotations

from functools import partial

from polyc.blocks.programs import needed_tensors
from polyc.blocks.selections import Combined
from polyc.ir.expr import Const, Expr, Read, Select, eq, reads, rewrite
from polyc.ir.program import Program, Statement
from polyc.ir.types import DType
from polyc.poly.ranges import Ranges
from polyc.records import replace
from polyc.scheduler.rewriting.rules.analysis import is_simple
from polyc.scheduler.rewriting.rules.dependent_reductions import find_dependences, is_maximum
from polyc.scheduler.rewriting.rules.shifted_exponentials import find_exponential


def find_sums(program: Program, ranges: Ranges, leader: Statement) -> list[tuple[Statement, Combined]]:
    """The sums of exponentials under the maximum `leader`, over its points and maybe further dimensions at the end; in their
    values all that is computed of the maximum is written out."""
    if not is_maximum(leader, program) or len(leader.reduction_indices) != 1 or not is_simple(leader, ranges):
        return []
    own, rank = ranges.statements, len(leader.subscripts)
    found: list[tuple[Statement, Combined]] = []
    for d in find_dependences(leader, program, ranges):
        e, s = find_exponential(d, leader, program, ranges), d.statement
        if e is None or e.index not in leader.reduction_indices or s.subscripts[:rank] != leader.subscripts:
            continue
        if any(own[s.name].indices[i] != own[leader.name].indices[i] for i in leader.indices):
            continue
        others = {r.tensor for r in reads(d.value)} - {leader.target}
        if leader.target in needed_tensors(program, sorted(others)):
            continue  # it is of a whole sum that there is after this pass alone
        rule = partial(_refer, d.use, program.types[leader.target])
        found.append((replace(s, value=rewrite(d.value, rule)), Combined("add", scale=e.scale)))
    return found


def _refer(maximum: Read, dtype: DType, node: Expr) -> Expr | None:
    """What is subtracted in the place of a maximum: nothing from values that all are -inf."""
    return Select(eq(maximum, Const(float("-inf"), dtype)), Const(0.0, dtype), maximum) if node == maximum else None
