"""Limits of code size and compile time, and what estimates count on of programs and of generated code.

No machine changes them.  One serves all passes that have the same reason for one.
"""

from __future__ import annotations

MAX_UNROLLED = 80
"""Updates of accumulators in a loop that is unrolled completely, its loops inside included."""

MAX_UNROLLED_OPERATIONS = 4000
"""Operations in all of these updates: long expressions gain nothing where they are written out many times, and keep LLVM busy
(66 copies of a complex exponential took 10 s)."""

MAX_OPERATIONS = 400_000
"""Operations of a loop nest, above which it is refused: LLVM would take minutes."""

MAX_NODES = 640
"""Nodes of expressions that are written more than once, in all copies."""

MAX_ACCUMULATORS = 64
"""Vectors (or scalars) that a loop accumulates in registers: of more, most would be spilled."""

MAX_ITEMS = 64
"""Statements of one loop, candidates for one decision, terms or copies that are looked at together: what isl, the proofs and
searches do with them grows with the square of their number."""

MAX_TRIED = 4096
"""Iterations, or values of sizes, that are tried one by one where that settles what isl would take longer for."""

MAX_REMEMBERED = 512
"""Decisions that a process remembers, of each kind."""

MAX_EXPANDED = 16
"""Vectors, or lines, of a short row that is written out: in a row of their own, or each under a mask of its own."""

MAX_READS = 16
"""Different elements that one value is computed of, up to which several such values are computed side by side: of more,
registers do not hold what they share, and code is long."""

MAX_STRIDE = 4
"""Elements between lanes up to which all elements in between are loaded, and those in the lanes picked out by shuffles."""

ROW_PARTS, LANE_PARTS = 3, 2
"""Parts in which the rows and the vectors of a register tile run that the ends of loops leave of it: fewer at a time leave
arithmetic units idle, of more at a time more are dropped, and each part reads all vectors of the other operand anew."""

FEW_VECTORS = 2
"""Vectors of a tile beside which there are registers for masks of as many, where masks are vectors: it does not run in
parts."""

WORD = 4
"""Bytes of the narrowest elements that instructions mask, gather and move among the lanes one by one: narrower ones take more
than one."""

CHAINS = 4
"""Sums of single elements at once, so that an addition waits for a quarter of those before it: chains, or lanes of a vector,
into which single loads go without moves between halves of registers."""

MAX_CARRIED = 4
"""Steps, iterations, or vectors side by side, whose values are kept for later ones in registers or in a window of storage: of
more, the next ones take the place of the first."""

TILE_ROWS = 8
"""Rows that a register tile does at once, about: one load and one store of what streams past for so many."""

STREAM_ROWS = 32
"""Rows of results that rows of a large operand pass by together, at most: of more, register tiles use a strip often enough."""

UNKNOWN_EXTENT = 512
"""Extent that estimates assume of what has no number."""

FUNCTION_WORK = 12
"""Arithmetic operations that one call of a transcendental function counts for."""

SHORT_SUM = 16
"""Terms of a sum up to which memory bounds it, not arithmetic, and are added one by one where vectors of them would wait."""

MINIMUM_ITERATIONS = 8
"""Iterations that balance well over a few threads; a later loop is preferred to one with fewer."""

LONG_MODULE = 3000
"""Lines of a module from which on LLVM does not look for conditions that it could ask outside of loops."""

ENOUGH_TASKS = 2 * MINIMUM_ITERATIONS
"""Pieces that feed the threads of common machines: with so many results, threads take those and leave long sums whole."""

MINIMUM_BLOCKS = 2
"""Blocks that are worth a loop or a stage of their own: another loop between would undo what one is cut for."""

MINIMUM_LANES = 4
"""Elements side by side that are worth a vector: fewer are loaded and stored as fast one by one."""

FEW = 4
"""Iterations, strips, vectors or rows from which one more costs little, or another version of their loop without some test."""

ENOUGH_ROWS = 6
"""Rows that are worth being computed side by side for what they share."""

MUCH = 4
"""Times as large, long or heavy as all else is what decides alone."""

MINIMUM_REUSE = 16
"""Uses of a value, or terms of a sum, from which writing and reading it once more costs little beside them."""

FULL_ROW = 16
"""Elements of a row that are worth vectors of their own."""

LONG_ROW = 32
"""Elements of a row from which what happens at its ends, or before it, costs little."""

SMALL_WORK = 1 << 15
"""Operations below which no other form of a statement is faster."""

MAX_COPIES = 16
"""Statements that one is written as, or terms of a sum that become one expression."""

MAX_PARTS = 4
"""Parts that one statement is taken apart into, where each is a statement with loops of its own."""

CHUNK = 4096
"""Elements of a row that one thread takes at a time: they stay in the first two caches."""

MARGIN = 0.9
"""Part of the estimate as written that another form must not exceed: neither estimate is more precise."""

CLEARLY = 0.8
"""The same of a form that takes a temporary, or another layout, beside what is estimated."""

CLOSE = 0.95
"""Part of the estimated cycles below which a choice has to stay that costs something else: code, copies that are made once, or
another nest.  Of equal ones estimates know no better, and the usual one makes a bound operator as fast as it was before."""


def powers(first: int, last: int, units: tuple[int, ...] = (1,)) -> tuple[int, ...]:
    """Sizes that are tried: powers of two times `units`, from `first` to `last`."""
    return tuple(sorted(n for unit in units for k in range(last.bit_length()) if first <= (n := unit << k) <= last))


ROW_SIZES = powers(128, 2048)
"""Elements of parts of rows that are tried, along memory."""
