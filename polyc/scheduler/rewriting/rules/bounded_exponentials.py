"""Exponentials under their maximum have arguments that are not positive: without AVX-512 they need fewer instructions.

before  ``m[i] max= x[i, k]``, ``exp(a * (x[i, k] - m[i]))`` with a literal a > 0
after   ``exp_below(a * (x[i, k] - m[i]))``, the same bits for arguments up to 40

That leaves room for what is rounded: the difference of two products may be a little above 0.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from polyc.ir.expr import Call, Expr, Index, Read, identity_of, reads, rewrite, substitute
from polyc.ir.program import Program, Statement
from polyc.poly.ranges import Ranges
from polyc.scheduler.rewriting.rules.blocks import covers, linear_in, plain_place


def bound_exponentials(program: Program, ranges: Ranges) -> Program:
    """`program` with ``exp_below`` where a maximum over the same values is taken off the argument."""
    writers = program.writers()
    maxima = {s.target: s for s in program.statements if _is_maximum(s, program) and len(writers[s.target]) == 1}

    def mark(s: Statement) -> Statement:
        def rule(node: Expr) -> Expr | None:
            if not isinstance(node, Call) or node.op != "exp":
                return None
            under = (r for r in reads(node.args[0]) if r.tensor in maxima)
            is_bounded = any(_is_below(node.args[0], r, maxima[r.tensor], s, ranges) for r in under)
            return Call("exp_below", node.args, node.span) if is_bounded else None

        return replace(s, value=rewrite(s.value, rule))

    return replace(program, statements=tuple(map(mark, program.statements))) if maxima else program


def _is_maximum(s: Statement, program: Program) -> bool:
    dtype = program.tensor(s.target).dtype
    if s.reduction is None or s.reduction.op != "max" or not dtype.is_float or dtype.is_storage or not s.has_plain_left:
        return False
    return s.reduction.init == identity_of("max", dtype)


def _is_below(argument: Expr, maximum: Read, leader: Statement, s: Statement, ranges: Ranges) -> bool:
    """Whether `argument` is a positive multiple of a value of `leader` less its maximum, at every point of `s`."""
    place = plain_place(maximum, leader.subscripts)
    if place is None or not all(n in s.indices for n in place.values()):
        return False
    free = [i for i in s.indices if i not in place.values()]
    for chosen in permutations(free, len(leader.reduction_indices)):
        whole = place | dict(zip(leader.reduction_indices, chosen, strict=True))
        score = substitute(leader.value, {i: Index(n) for i, n in whole.items()})
        form = linear_in(argument, score, maximum, with_rest=False)
        if form is not None and form[0] == -form[1] > 0 and covers(s, leader, whole, ranges):
            return True
    return False
