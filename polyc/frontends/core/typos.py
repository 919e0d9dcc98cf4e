"""Indices that are probably mistyped: summed over alone, beside another that runs over the same size."""

from __future__ import annotations

from collections import Counter

from polyc.diagnostics import Diagnostic, suggest_name
from polyc.ir.expr import Index, Read, Size, index_names, walk
from polyc.ir.program import Condition, Exists, Program, RangeClause, Statement
from polyc.ir.segments import loaded_clauses


def find_lonely_indices(program: Program) -> list[Diagnostic]:
    """A warning for each index that stands once on the right side, nowhere else, and looks like another one."""
    return [warning for s in program.statements for warning in _check_statement(s, program)]


def _check_statement(s: Statement, program: Program) -> list[Diagnostic]:
    uses = Counter(n.name for n in walk(s.value) if isinstance(n, Index))
    spoken = {w.index for w in s.where if isinstance(w, RangeClause)}
    spoken |= index_names(*(e for w in loaded_clauses(s.where) for e in (w.lower, w.upper)))
    for clause in s.where:
        if isinstance(clause, (Condition, Exists)):
            root = clause.condition if isinstance(clause, Condition) else clause.value
            spoken |= index_names(root)
    lonely = [i for i in s.reduction_indices if uses[i] == 1 and i not in spoken]
    places = _places(s, program)
    found: list[Diagnostic] = []
    for index in lonely:
        if index not in places:
            continue
        node, size, read = places[index]
        twins = [
            other
            for other in lonely
            if other != index and other in places and places[other][1] == size and places[other][2] is not read
        ]
        earlier = [t for t in twins if s.indices.index(t) < s.indices.index(index)]
        beside = index_names(read)  # an index and its slip do not stand in one read
        near = suggest_name(index, [i for i in s.indices if i not in beside]) if len(index) > 1 else None
        if not earlier and near is None:
            continue
        message = f"index {index} stands only here: the values are summed over it alone"
        if s.reduction is not None and s.reduction.op != "add":
            message = f"index {index} stands only here: the values are reduced over it alone"
        help = near or f"did you mean {earlier[0]}, which also runs over {size}?"
        found.append(Diagnostic("semantic-lonely-index", message, node.span, f"{help} if not, give it a range", "warning"))
    return found


def _places(s: Statement, program: Program) -> dict[str, tuple[Index, str, Read]]:
    """For each index that is a subscript alone: where it stands, the declared size there, and the read."""
    places: dict[str, tuple[Index, str, Read]] = {}
    for read in (n for n in walk(s.value) if isinstance(n, Read)):
        shape = program.tensor(read.tensor).shape
        for subscript, extent in zip(read.subscripts, shape or (), strict=False):
            if isinstance(subscript, Index) and isinstance(extent, Size):
                places.setdefault(subscript.name, (subscript, extent.name, read))
    return places
