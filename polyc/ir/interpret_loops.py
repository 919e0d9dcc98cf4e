"""The reference interpreter of a `LoopNest`: its scalar meaning, one iteration after the other, on NumPy buffers.

The nest is translated to one Python function, which is then run.  Subscripts, bounds and everything else made of loop
variables and parameters is computed in Python integers, elements in NumPy scalars of their own type.  Every access is checked
against the buffer's shape; workspace buffers start as garbage (NaN, or the bytes 0x7f), and a thread's private buffers
become garbage again before each iteration of a parallel loop, so that values carried between iterations show.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from polyc.ir.loop_buffers import allocate, check_argument, fail
from polyc.ir.loops import LoopNest
from polyc.ir.loops_in_python import Failure, translate_loops
from polyc.ir.numeric import quiet
from polyc.machine.memory import LINE


def interpret_loops(nest: LoopNest, data: list[np.ndarray], parameters: Mapping[str, int]) -> list[Failure]:
    """Run `nest` on the argument arrays `data` (changed in place) and return the checks that failed, in order of execution.

    `parameters`: values of `nest.parameters`; missing byte strides (``A.stride0``) are taken from `data`.

    Raises InternalError (``internal-invalid-loops``) where an access leaves its buffer or an array does not fit its buffer.
    """
    values = {name: int(value) for name, value in parameters.items()}
    arguments = [b for b in nest.buffers if b.space == "argument"]
    for buffer, array in zip(arguments, data, strict=True):
        for dimension, stride in enumerate(array.strides):
            values.setdefault(f"{buffer.name}.stride{dimension}", stride)
        if buffer.name in nest.offsets:
            values.setdefault(f"{buffer.name}.offset", array.ctypes.data % LINE)
    missing = [p for p in nest.parameters if p not in values]
    if missing:
        fail(f"no value was given for the parameter {missing[0]}")
    arrays = {b.name: check_argument(b, data[b.position], values) for b in arguments if b.position is not None}
    arrays |= allocate([b for b in nest.buffers if b.position is None], values)
    failures: list[Failure] = []
    function = translate_loops(nest)
    with quiet():
        function(arrays, values, failures)
    return failures
