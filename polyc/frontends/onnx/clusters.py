"""A group of fragments → a Program with names of its own, so that equal groups are equal programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from polyc.frontends.onnx.builder import Value, reshape_subscripts
from polyc.frontends.onnx.squeeze import drop_unit_dimensions
from polyc.frontends.onnx.terms import Term, as_term
from polyc.frontends.onnx.trace import Fragment, rename_statement
from polyc.ir.expr import Expr, Index, Pad, Read, children, int_const, reads, walk, with_children
from polyc.ir.program import Program, RangeClause, Return, Role, Statement, Tensor
from polyc.ir.types import I64
from polyc.records import dataclass, replace

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
    statements, made = write_bases(fragments, values)
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
        role: Role = "output" if n in needed else "temporary"
        tensors.append(Tensor(names[n], t.dtype, t.rank, t.shape, role, names[n]))
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


def write_bases(
    fragments: Sequence[Fragment], values: Mapping[str, Value], others: Collection[str] = ()
) -> tuple[list[Statement], dict[str, Tensor]]:
    """The statements of `fragments`, and the tensors that they make.  What they read of views of these, and of
    views of `others`, is read of the tensors themselves."""
    made = {t.name: t for f in fragments for t in f.tensors}
    bases = made.keys() | set(others)
    viewed = {n: base_name(n, values) for n in _read_names(fragments) if n not in made}
    views = {n: values[n] for n, base in viewed.items() if n != base and base in bases}
    copied = [v for n, v in views.items() if n in _padded_names(fragments)]
    statements = [_read_bases(s, views) for s in (*map(_copy, copied), *(s for f in fragments for s in f.statements))]
    return statements, made | {v.name: _tensor(v) for v in copied}


def base_name(name: str, values: Mapping[str, Value]) -> str:
    """The tensor whose memory a value is."""
    value = values.get(name)
    return name if value is None or value.source is None else value.source.name


def _read_names(fragments: Sequence[Fragment]) -> dict[str, None]:
    return {r.tensor: None for f in fragments for s in f.statements for e in _expressions(s) for r in reads(e)}


def _padded_names(fragments: Sequence[Fragment]) -> set[str]:
    """Tensors that are read beside their elements: of a view of something made here, that cannot be said of its base."""
    nodes = (n for f in fragments for s in f.statements for e in _expressions(s) for n in walk(e))
    return {n.read.tensor for n in nodes if isinstance(n, Pad)}


def _tensor(v: Value) -> Tensor:
    return Tensor(v.name, v.dtype, v.rank, tuple(int_const(n) for n in v.shape), "temporary", v.name)


def _copy(v: Value) -> Statement:
    """``V[i, …] = base[…]``, the view as a tensor."""
    names = tuple(f"i{d}" for d in range(v.rank))
    ranges = tuple(RangeClause(n, int_const(0), int_const(e)) for n, e in zip(names, v.shape, strict=True))
    indices = tuple(Index(n) for n in names)
    return Statement(f"{v.name}:0", v.name, indices, names, Read(v.name, indices), None, ranges)


def _read_bases(s: Statement, views: Mapping[str, Value]) -> Statement:
    """The statement with reads of `views` as reads of what they are views of."""
    if not views:
        return s

    def rule(node: Expr) -> Expr | None:
        view = views.get(node.tensor) if isinstance(node, Read) else None
        if view is None or view.source is None:
            return None
        assert isinstance(node, Read)
        places = reshape_subscripts([Term(e, I64) for e in node.subscripts], view.shape, view.source.shape)
        return Read(view.source.name, tuple(as_term(p, I64).expr for p in places), node.span)

    def change(e: Expr) -> Expr:
        if isinstance(e, Pad):  # of a view that has been copied
            return replace(e, read=replace(e.read, subscripts=tuple(map(change, e.read.subscripts))), value=change(e.value))
        new = tuple(change(c) for c in children(e))
        e = with_children(e, new) if new else e
        found = rule(e)
        return e if found is None else found

    reduction = s.reduction if s.reduction is None else replace(s.reduction, init=change(s.reduction.init))
    changed = replace(s, subscripts=tuple(map(change, s.subscripts)), value=change(s.value), reduction=reduction)
    # An index of one value may be gone from subscripts that data gives.
    return replace(changed, indices=(*changed.left_indices, *changed.reduction_indices))


def _expressions(s: Statement) -> list[Expr]:
    """All expressions of a statement that may read tensors."""
    return [s.value, *s.subscripts, *([] if s.reduction is None else [s.reduction.init])]


def _name(fragments: Sequence[Fragment]) -> str:
    """``conv_add_relu``: the operators in their order, repetitions once."""
    words = list(dict.fromkeys(f.node.op.lower() for f in fragments if f.statements))
    text = "_".join("".join(c if c.isalnum() else "_" for c in w) for w in words)
    return text[:LONGEST_NAME].rstrip("_") or "copy"
