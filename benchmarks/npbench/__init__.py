"""NPBench: the programs of a suite in which compilers for Python are compared, by name.

Program list, sizes and meaning are those of github.com/spcl/npbench; the formulations are our own, and so are the inputs where
results could not be compared otherwise.
"""

from __future__ import annotations

from benchmarks.npbench import data, elements, grids, polybench, tensors
from benchmarks.npbench.program import SIZES, Program
from benchmarks.workload import Workload

MODULES = (
    data,
    elements,
    grids,
    tensors,
    polybench,
)

PROGRAMS: dict[str, Program] = {
    p.name: p for p in sorted((p for module in MODULES for p in module.PROGRAMS), key=lambda p: p.name)
}


def find_workload(name: str) -> Workload:
    """The workload that `Program.make_workload` calls so."""
    program, _, size = name.removeprefix("npbench_").rpartition("_")
    return PROGRAMS[program].make_workload(size)


__all__ = ["PROGRAMS", "SIZES", "Program", "find_workload", "polybench"]
