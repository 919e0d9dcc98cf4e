"""A group of fragments → a Program with names of its own, so that equal groups are equal programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from polyc.frontends.onnx.builder import Value
from polyc.frontends.onnx.squeeze import drop_unit_dimensions
from polyc.frontends.onnx.trace import Fragment, rename_statement
from polyc.ir.expr import Expr, int_const, reads
from polyc.ir.program import Program, Return, Statement, Tensor

LONGEST_NAME = 40
"""Characters of a program's name that tell its operators."""


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """A program, and which values of the graph its parameters and results are.

    `constants` are the parameters (names of the program) whose contents are the same in every run."""

    program: Program
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[str, ...]
    labels: tuple[str, ...]
    """The nodes that it computes."""

    @property
    def key(self) -> Program:
        """Clusters with equal keys share code."""
        return self.program


def build_cluster(
    fragments: Sequence[Fragment], values: Mapping[str, Value], needed: Collection[str], constants: Collection[str]
) -> Cluster:
    """The program of `fragments`.  `needed` are tensors that somebody else reads, `constants` those that never change."""
    statements = [s for f in fragments for s in f.statements]
    made = {t.name: t for f in fragments for t in f.tensors}
    read: dict[str, None] = {}
    for s in statements:
        read |= {r.tensor: None for e in _expressions(s) for r in reads(e) if r.tensor not in made}
    varying = [n for n in read if n not in constants]
    fixed = [n for n in read if n in constants]
    results = [t for t in made if t in needed]
    names = {n: f"x{k}" for k, n in enumerate(varying)} | {n: f"w{k}" for k, n in enumerate(fixed)}
    names |= {n: f"y{k}" for k, n in enumerate(results)}
    names |= {n: f"t{k}" for k, n in enumerate(n for n in made if n not in needed)}
    tensors = []
    for n in (*varying, *fixed):
        v = values[n]
        tensors.append(Tensor(names[n], v.dtype, v.rank, tuple(int_const(e) for e in v.shape), "input", names[n]))
    for n, t in made.items():
        role = "output" if n in needed else "temporary"
        tensors.append(Tensor(names[n], t.dtype, t.rank, t.shape, role, names[n]))  # type: ignore[arg-type]
    program = drop_unit_dimensions(
        Program(
            name=_name(fragments),
            sizes=(),
            tensors=tuple(tensors),
            parameters=tuple(names[n] for n in (*varying, *fixed)),
            returns=tuple(Return(names[n], names[n]) for n in results),
            statements=tuple(rename_statement(s, names, f"S{k}") for k, s in enumerate(statements)),
        )
    )
    labels = tuple(dict.fromkeys(f.node.label for f in fragments if f.statements))
    return Cluster(program, (*varying, *fixed), tuple(results), tuple(names[n] for n in fixed), labels)


def _expressions(s: Statement) -> list[Expr]:
    """All expressions of a statement that may read tensors."""
    return [s.value, *s.subscripts, *([] if s.reduction is None else [s.reduction.init])]


def _name(fragments: Sequence[Fragment]) -> str:
    """``conv_add_relu``: the operators in their order, repetitions once."""
    words = list(dict.fromkeys(f.node.op.lower() for f in fragments if f.statements))
    text = "_".join("".join(c if c.isalnum() else "_" for c in w) for w in words)
    return text[:LONGEST_NAME].rstrip("_") or "copy"
