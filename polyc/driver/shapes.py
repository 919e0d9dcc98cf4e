"""Shapes of a program's arguments and results, without compiling it."""

from __future__ import annotations

from collections.abc import Mapping

from polyc.driver.lock import compiling
from polyc.ir.expr import Expr
from polyc.ir.program import Program


def infer_shapes(program: Program, sizes: Mapping[str, int]) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Lower bounds and extents of every return at concrete sizes."""
    from polyc.driver.sized import size_program
    from polyc.poly.infer import concrete_shapes

    with compiling():
        shapes = concrete_shapes(size_program(program, sizes).ranges, sizes)
    result = {}
    for r in program.returns:
        intervals = shapes[r.version]
        result[r.name] = (tuple(low for low, _ in intervals), tuple(extent for _, extent in intervals))
    return result


def infer_extents(program: Program) -> tuple[dict[str, tuple[Expr, ...]], tuple[tuple[str, Expr], ...]]:
    """Extents of every parameter and return, by the name in a signature, over the symbols of sizes; and the definitions
    of those symbols that are computed from others."""
    from polyc.ir.sizes import define_sizes
    from polyc.poly.infer import infer_ranges

    with compiling():
        sized = define_sizes(program)
        ranges = infer_ranges(sized)
    versions = {sized.tensor(n).base: n for n in sized.parameters} | {r.name: r.version for r in sized.returns}
    return {name: tuple(i.extent for i in ranges.tensors[v]) for name, v in versions.items()}, sized.defined_sizes
