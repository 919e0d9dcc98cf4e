"""The scheduler: rows one dimension at a time over all statements of a group.

Without recurrences the rows are classes of a union-find; recurrences get theirs by integer linear programming (`recurrence`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from polyc.code_limits import MAX_ITEMS
from polyc.diagnostics import Diagnostic, UnsupportedError
from polyc.machine import Machine
from polyc.poly.dependences import Dependences
from polyc.poly.farkas import Piece
from polyc.poly.rows import Node
from polyc.poly.scop import Scop
from polyc.scheduler.rows.groups import NoRow, RowFinder
from polyc.scheduler.rows.merge import Merger
from polyc.scheduler.rows.model import Model, build_model
from polyc.scheduler.rows.solver import Budget
from polyc.scheduler.rows.union_find import ClassFinder


def schedule_statements(
    scop: Scop,
    dependences: Dependences,
    *,
    sizes: Mapping[str, int] | None = None,
    make_finder: Callable[[Model], RowFinder] = ClassFinder,
    most_together: int = MAX_ITEMS,
    target: Machine | None = None,
) -> Node:
    """Rows for all statements of a Scop, `most_together` of which at most share a loop unless they need each other.

    `sizes`: numbers for footprints where sizes are symbolic (by default the typical ones; unknown ones count as 64).
    `make_finder`: finds the rows that statements may share.  `target`: whose caches say where sums are carried through a loop
    in order; None: nowhere.  Recurrences get skewed bands by HiGHS.  Raises `UnsupportedError` where there is no legal row.
    """
    model = build_model(scop, dependences, sizes or scop.ranges.typical)
    pieces = tuple(Piece(flow.source, flow.sink, flow.relation) for flow in dependences.flows)
    used: dict[str, frozenset[int]] = {name: frozenset() for name in model.statements}
    try:
        return Merger(model, make_finder, pieces, Budget(), most_together, target).schedule(list(model.statements), used)
    except NoRow as error:
        first = scop.statement(error.names[0])
        tensors = ", ".join(dict.fromkeys(scop.tensors[scop.statement(name).target].base for name in error.names))
        raise UnsupportedError(
            Diagnostic(
                "unsupported-recurrence",
                f"no order of loops was found that computes every element of {tensors} before it is read",
                first.origin.span,
                "check the subscripts and ranges of the recurrence: an element may need itself through others",
            )
        ) from error
