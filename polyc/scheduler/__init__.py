"""Decisions: from a Scop to a schedule tree and the storage of every tensor version.

The mid-end, top to bottom: rewrite the program (`rewriting.pipeline`), decide rows (`rows.ilp`, or a rung of `rows.fallback`),
turn rows into planned loops (`pipeline`); `poly.tree` makes the isl schedule tree, which is proved before it is used.
"""
