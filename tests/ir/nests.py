"""Small loop nests for tests."""

from polyc.ir.expr import Call, Const, Expr, Index, Read, Size, int_const
from polyc.ir.loops import Buffer, Loop, LoopNest, Node, Store, Update
from polyc.ir.types import F32, DType


def argument(name: str, shape: tuple[Expr, ...], position: int, dtype: DType = F32) -> Buffer:
    strides = tuple(Size(f"{name}.stride{d}") for d in range(len(shape)))
    return Buffer(name, dtype, shape, strides, "argument", position)


def nest_of(body: tuple[Node, ...], buffers: tuple[Buffer, ...], sizes: tuple[str, ...] = (), name: str = "nest") -> LoopNest:
    """A nest with the stride parameters that its arguments need."""
    strides = tuple(s.name for b in buffers if b.space == "argument" for s in b.strides if isinstance(s, Size))
    return LoopNest(name, sizes + strides, buffers, body)


def loop(var: str, upper: Expr, *body: Node, **options: object) -> Loop:
    defaults: dict = {"lower": int_const(0), "step": 1, "kind": "serial"} | options
    return Loop(var=var, upper=upper, body=body, **defaults)


def matmul_nest() -> LoopNest:
    m, n, k = Index("m"), Index("n"), Index("k")
    a, b = Read("A", (m, k)), Read("B", (k, n))
    buffers = (
        argument("A", (Size("M"), Size("K")), 0),
        argument("B", (Size("K"), Size("N")), 1),
        argument("C", (Size("M"), Size("N")), 2),
        Buffer("acc", F32, (Size("N"),), (int_const(4),), "thread"),
    )
    body = loop(
        "m",
        Size("M"),
        loop("n", Size("N"), Store("acc", (n,), Const(0.0, F32)), kind="vector", lanes=8),
        loop(
            "k",
            Size("K"),
            loop("n", Size("N"), Update("acc", (n,), "add", Call("mul", (a, b)), "S0"), kind="vector", lanes=8, interleave=2),
        ),
        loop("n", Size("N"), Store("C", (m, n), Read("acc", (n,)))),
        kind="parallel",
        parallel_if=Call("gt", (Size("M"), int_const(4))),
    )
    return nest_of((body,), buffers, ("M", "N", "K"), "matmul")
