"""The heat equation over several steps, on a grid in chunks; beyond its borders the nearest point counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.blocks.row import Chunk, Inputs, Noise, Row, Sizes

AT_ONCE = 4
"""Steps of `CHAIN`."""

STEP = """0.5 * S{a}(y, x) + 0.125 * (pad(S{a}(y - 1, x), clamp) + pad(S{a}(y + 1, x), clamp)
      + pad(S{a}(y, x - 1), clamp) + pad(S{a}(y, x + 1), clamp))"""
RECURRENCE = """def heat(float(H, W) X, int64 T) -> (Y) {
  S(0, y, x) = X(y, x)
  S(t, y, x) = 0.5 * S(t - 1, y, x) + 0.125 * (pad(S(t - 1, y - 1, x), clamp) + pad(S(t - 1, y + 1, x), clamp)
      + pad(S(t - 1, y, x - 1), clamp) + pad(S(t - 1, y, x + 1), clamp)) where t in 1:T + 1, y in 0:H, x in 0:W
  Y(y, x) = S(T, y, x)
}"""
STATEMENTS = "\n  ".join(f"S{n + 1}(y, x) = {STEP.format(a=n)}" for n in range(AT_ONCE))
CHAIN = f"def heat(float(H, W) S0) -> (S{AT_ONCE}) {{\n  {STATEMENTS}\n}}"

SIZES = {
    "small": {"H": 90, "W": 100, "T": 8, "chunk": 32},
    "full": {"H": 8192, "W": 8192, "T": 32, "chunk": 2048},
    "large": {"H": 16_384, "W": 16_384, "T": 200, "chunk": 2048},
}


def make_grid(sizes: Sizes) -> dict[str, Any]:
    return {"X": Noise((sizes["H"], sizes["W"]), (sizes["chunk"], sizes["chunk"]))}


def chunk_of_grid(sizes: Sizes) -> Chunk:
    return (sizes["chunk"], sizes["chunk"])


def step_block(block: np.ndarray) -> np.ndarray:
    around = block[:-2, 1:-1] + block[2:, 1:-1] + block[1:-1, :-2] + block[1:-1, 2:]
    return block.dtype.type(0.5) * block[1:-1, 1:-1] + block.dtype.type(0.125) * around


def step_by_step(block: Any, inputs: Inputs, sizes: Sizes) -> Any:
    """One exchange of halos for each step."""
    x = inputs["X"]
    for _ in range(sizes["T"]):
        x = x.map_overlap(block, depth=1, boundary="nearest", trim=False, meta=x._meta)
    return x


def in_numpy(inputs: Inputs, sizes: Sizes) -> Any:
    return step_by_step(step_block, inputs, sizes)


def in_numba(inputs: Inputs, sizes: Sizes) -> Any:
    from benchmarks.blocks import numba_loops

    return step_by_step(numba_loops.heat, inputs, sizes)


def call_for_several_steps(operator: Any, inputs: Inputs, sizes: Sizes) -> Any:
    """One exchange of halos for `AT_ONCE` steps."""
    x = inputs["X"]
    for _ in range(sizes["T"] // AT_ONCE):
        x = operator.blocks(x)
    return x


PEERS = {"dask": in_numpy, "numba": in_numba}
ROWS = (
    Row(
        "heat",
        "T steps as one recurrence",
        SIZES,
        RECURRENCE,
        lambda s: make_grid(s) | {"T": s["T"]},
        PEERS,
        chunk_of_grid,
    ),
    Row(
        "heat_chain",
        f"T steps as calls of an operator that makes {AT_ONCE} steps",
        SIZES,
        CHAIN,
        make_grid,
        PEERS,
        chunk_of_grid,
        call=call_for_several_steps,
    ),
)
