"""Sums over segments in short vectors that read on behind the end of their segment, where the next one lies.

    before  ``for i { vector (1 x 4) p in ptr[i]:ptr[i + 1] { y[i] += v[p] * x[k[p]] } }``
    after   ``for i { for p = ptr[i]; p < ptr[i + 1]; p += 4 { vector (4) l { t = v[p + l] * x[k[p + l]] ;
            if (p + l < ptr[i + 1]) y[i] += t } } }``, in blocks whose last vector ends where the arrays do, or before

Single loads have no mask: apart they would take a branch each.  What lanes behind the end load is there, and what they add is
left out.  So there is one branch for a vector instead of two loops, and terms go from registers into sums; `strips` take no
branch that depends on how long a segment is, and store what they sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from polyc.code_limits import CHAINS
from polyc.codegen.emission.context import Context, State
from polyc.codegen.emission.expressions import eval_value
from polyc.codegen.writer.builder import Val, int_val
from polyc.ir.expr import Expr, Index, Read, children, index_names, minimum, reads, substitute
from polyc.ir.loops import Guard, Loop, Prefetch
from polyc.ir.walk import map_nodes, node_expressions
from polyc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Overread:
    """A loop over a segment in vectors, how many entries the arrays have that it reads along, and which its checks read."""

    loop: Loop
    entries: Expr
    checked: tuple[str, ...]

    @property
    def ahead(self) -> Index:
        """How many entries ahead the segments of the next block are."""
        return Index(f"{self.loop.var}·ahead")

    @property
    def requests(self) -> tuple[Prefetch, ...]:
        """Software prefetch, in front of each segment, of what the checks of the next block wait for."""
        return tuple(Prefetch(name, (self.loop.lower + self.ahead,), 1) for name in self.checked)

    def extend(self, state: State, ctx: Context, end: Val) -> Val:
        """Where the lanes behind `end` end, in the arrays."""
        return state.fn.intrinsic(
            "smin", state.fn.binary("add", end, int_val(CHAINS - 1)), eval_value(state, ctx, self.entries)
        )

    def fits(self, state: State, ctx: Context, end: Val) -> Val:
        """Whether all of these lanes lie in the arrays."""
        last = state.fn.binary("add", end, int_val(CHAINS - 1))
        return state.fn.compare("icmp sle", last, eval_value(state, ctx, self.entries))


def find_overread(state: State, loop: Loop, checks: Iterable[Guard], number: int) -> Overread | None:
    """The loop in vectors, if what it reads is there for every entry of the arrays: along these, or at checked places.

    It has a variable of its own: loops beside it may have the same one, and do not load behind their ends."""
    expressions = [e for n in (*loop.body, *checks) for e in node_expressions(n)]
    found = [r for e in expressions for r in reads(e) if loop.var in index_names(r)]
    along = dict.fromkeys(r for r in found if r.subscripts == (Index(loop.var),))
    if not along or any(_names(e, loop.var) for r in found if r not in along for e in r.subscripts):
        return None
    entries = minimum(*dict.fromkeys(state.by_name[r.tensor].shape[0] for r in along))
    own = Index(f"{loop.var}·over{number}")
    body = map_nodes(loop.body, lambda e: substitute(e, {loop.var: own}))
    checked = dict.fromkeys(r.tensor for n in checks for e in node_expressions(n) for r in reads(e) if r in along)
    wide = replace(loop, var=own.name, lanes=CHAINS, interleave=1, body=body)
    return Overread(wide, entries, tuple(checked))


def _names(expr: Expr, variable: str) -> bool:
    """Whether an index stands in an expression, outside of reads."""
    return any(isinstance(node, Index) and node.name == variable for node in _outside_reads(expr))


def _outside_reads(expr: Expr) -> Iterator[Expr]:
    yield expr
    if not isinstance(expr, Read):
        for child in children(expr):
            yield from _outside_reads(child)
