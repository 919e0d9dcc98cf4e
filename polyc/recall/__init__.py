"""The driver's slow functions, behind the disk cache: what an earlier process worked out is read instead.

Kinds of entries: ``source`` (the programs of a ``.tc`` text), ``signature`` and ``function`` (what a decorated function
declares, and its program) in `functions`, ``shapes`` (of a program's results at given sizes) and
``extents`` (the same over symbols) in `facts`; ``kernel`` in `kernels`; ``host`` and ``self-test`` in `machine`; ``sequence``
and ``call`` in `glue`.  How an entry is read, made and kept is in `entries`."""

from polyc.recall.entries import own_versions
from polyc.recall.facts import infer_extents, infer_shapes, read_tc
from polyc.recall.glue import GLUE, adopt_glue, glue_code, knows_glue, load_sequence
from polyc.recall.kernels import Recalled, Request, adopt, compile_program, find, make_entry
from polyc.recall.machine import adopt_host, check_code_generator, knows_host, plain_host

__all__ = [
    "GLUE",
    "Recalled",
    "Request",
    "adopt",
    "adopt_glue",
    "adopt_host",
    "check_code_generator",
    "compile_program",
    "find",
    "glue_code",
    "infer_extents",
    "infer_shapes",
    "knows_glue",
    "knows_host",
    "load_sequence",
    "make_entry",
    "own_versions",
    "plain_host",
    "read_tc",
]
