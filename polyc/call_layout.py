"""Tables that compiled calls read (`polyc_call`) and the runtime fills: names of their fields in order, each one word.

The code generator and the runtime, which do not know each other, have them from here.
"""

from __future__ import annotations

MAX_ARRAYS, MAX_WORDS, MAX_ADDRESSES = 64, 500, 128
"""Arrays of a call, words of their layouts, and addresses handed to the code: calls with more go the long way."""

TABLE = ("slots", "n_outputs", "types", "numbers")
"""Of the calls of one object: by hash the records, the number of results among the arguments, and the tables for numbers."""

RECORD = (
    "n_words words misaligned bounds owner touched n_constants constants n_allocated allocators "
    "team block workspace place entry fail known_team known_area"
).split()
"""Of a planned call."""

ALLOCATOR = ("allocator", "rank", "extents", "element_type")
"""Of each result that is allocated: the function that makes it, 0 for NumPy's own; its shape and type."""

DOORS = ("allocating", "filling", "bound")
"""Of an object: the tables for calls that have results allocated and that give one, and what is bound of their inputs."""

BOUND = ("n_free", "n_inputs")
"""In front of the arrays that are bound."""

TEAM = ("requested", "limited_below", "limit_function")
"""How many threads a call gets (`runtime.threads.known_team`)."""

AREA = ("known_thread", "known_bytes", "known_place")
"""The memory that a thread keeps for workspaces (`runtime.memory.known_area`)."""

NUMBER = ("float_word", "float_bytes", "integer_word", "integer_kind", "least", "largest")
"""What Python's numbers become at one position (`runtime.scalar_tables`)."""

ERROR = ("status", "index", "bound", "step")
"""What kernels write of a subscript out of bounds, and which of several steps failed."""
