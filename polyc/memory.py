"""Memory that polyc keeps for calls to come.

Results that nobody references any more are used again by later calls of about the same size, which spares the system the
work of clearing pages::

    polyc.memory.held()               # bytes kept now
    polyc.memory.release()            # give them back to the system
    polyc.memory.set_limit(64 << 20)  # keep at most 64 MiB; 0: nothing

A result, or anything made of it (a view, a memoryview, a tensor through DLPack), keeps its memory as long as it is referenced.
"""

from polyc.runtime.memory import held, limit, release, set_limit

__all__ = ["held", "limit", "release", "set_limit"]
