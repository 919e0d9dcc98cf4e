"""Functions of two ways: a fast one in line, and one for unusual operands behind a branch that is hardly ever taken."""

from __future__ import annotations

from collections.abc import Callable

from polyc.codegen.writer.builder import Function, Val
from polyc.codegen.writer.vectors import is_any


def is_defined(fn: Function, name: str) -> bool:
    """Whether the module of `fn` has the function of that name already."""
    return any(f'@"{name}"(' in f.header for f in fn.module.functions)


def define_choice(
    fn: Function,
    name: str,
    parameters: tuple[Val, ...],
    fast: Callable[[Function], tuple[Val, Val]],
    slow: Callable[[Function], Val],
) -> None:
    """A function of `name`: the value of `fast`, unless its second value is false in some lane; then that of `slow`, which is
    kept out of the way.  Both write code over `parameters`, the first of which has the result's type."""
    module, like = fn.module, parameters[0]
    full = like.full_type
    header = ", ".join(map(str, parameters))
    cold = Function(module, f'define internal {full} @"{name}.slow"({header}) noinline cold')
    cold.current.terminator = f"ret {slow(cold)}"
    inline = Function(module, f'define internal {full} @"{name}"({header}) alwaysinline')
    value, usual = fast(inline)
    module.declare("llvm.expect.i1", "i1", ["i1", "i1"])
    unusual = inline.pure(f"call i1 @llvm.expect.i1({is_any(inline, inline.not_(usual))}, i1 false)", "i1")
    before, other, done = inline.current, inline.new_block("slow"), inline.new_block("done")
    inline.branch_if(unusual, other, done)
    inline.place(other)
    exact = inline.effect_value(f'call {full} @"{name}.slow"({header})', like.type, like.lanes)
    inline.branch(done)
    inline.place(done)
    phi = f"phi {full} [ {value.ref}, %{before.label} ], [ {exact.ref}, %{other.label} ]"
    inline.current.terminator = f"ret {inline.effect_value(phi, like.type, like.lanes)}"
