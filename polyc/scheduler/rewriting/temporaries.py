"""A part of a statement's value as a temporary: computed by a statement of its own in front, and read instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polyc.ir.expr import Expr, Index, Read, type_of
from polyc.ir.program import Program, Statement, Tensor
from polyc.poly.domains import project_domain
from polyc.poly.ranges import Ranges, StatementRanges
from polyc.scheduler.rewriting.rules.blocks import replace_node


def compute_before(
    program: Program, ranges: Ranges, s: Statement, value: Expr, indices: Sequence[str], names: tuple[str, str], base: str
) -> tuple[Program, Ranges, Statement]:
    """The program with `value`, over some of the indices of `s`, computed in front of it, and that statement.

    `names`: of the tensor and of the statement; `base`: what users are told."""
    target, name = names
    element = tuple(map(Index, indices))
    own = ranges.statements[s.name]
    intervals = {i: own.indices[i] for i in indices}
    span = program.tensor(s.target).span
    tensor = Tensor(target, type_of(value, program.types), len(element), None, "temporary", base, span)
    first = Statement(name, target, element, tuple(indices), value, None, (), s.span)
    stored = StatementRanges(intervals, project_domain(own.domain, s.indices, name, tuple(indices)))
    statements = tuple(x for old in program.statements for x in ((first, old) if old is s else (old,)))
    program = replace(program, statements=statements, tensors=(*program.tensors, tensor))
    ranges = replace(
        ranges,
        statements={**ranges.statements, name: stored},
        tensors={**ranges.tensors, target: tuple(intervals.values())},
    )
    return read_instead(program, s, value, Read(target, element)), ranges, first


def read_instead(program: Program, s: Statement, value: Expr, read: Read) -> Program:
    """The program with `read` in the place of `value` in what `s` computes."""
    redirected = replace(s, value=replace_node(s.value, value, read))
    return replace(program, statements=tuple(redirected if old is s else old for old in program.statements))
