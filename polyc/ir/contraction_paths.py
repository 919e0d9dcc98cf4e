"""The order in which the operands of a product are combined (opt_einsum's, by the number of multiplications)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

Path = Sequence[Sequence[int]]
"""Positions of the operands of each step; its result is put behind those that are left."""


def find_path(operands: Sequence[Sequence[str]], result: Collection[str], extents: Mapping[str, int]) -> Path:
    """The path for operands given by the names of their indices; two of them make one step."""
    if len(operands) <= 2:
        return [tuple(range(len(operands)))]
    import opt_einsum  # takes a while to import, and only long products need it

    symbols = {name: opt_einsum.get_symbol(n) for n, name in enumerate(extents)}
    equation = ",".join("".join(symbols[i] for i in labels) for labels in operands)
    shapes = [tuple(max(1, extents[i]) for i in labels) for labels in operands]
    equation += "->" + "".join(symbols[i] for i in result)
    path, _ = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize="auto")
    return [tuple(step) for step in path]
