"""Limits of code size and compile time, and what estimates count on of generated code.  No machine changes them.

One limit serves all passes that have the same reason for one.
"""

from __future__ import annotations

MAX_UNROLLED = 80
"""Updates of accumulators in a loop that is unrolled completely, its loops inside included."""

MAX_UNROLLED_OPERATIONS = 4000
"""Operations in all of these updates: long expressions gain nothing where they are written out many times, and keep LLVM busy
(66 copies of a complex exponential took 10 s)."""

MAX_ITEMS = 64
"""Statements of one loop, candidates for one decision, terms or copies that are looked at together: what isl, the proofs and
searches do with them grows with the square of their number."""

MAX_TRIED = 4096
"""Iterations, or values of sizes, that are tried one by one where that settles what isl would take longer for."""

MAX_REMEMBERED = 512
"""Decisions that a process remembers, of each kind."""

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
