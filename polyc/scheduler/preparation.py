"""What was taken out of a program because it never changes: the programs that compute it, and its place among the arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from polyc.ir.expr import Const, Expr, Index, Read, Size, int_const, reads, walk
from polyc.ir.program import Program, Return, Role, Tensor, find_sizes, statement_reads
from polyc.ir.signature import ArraySpec, Signature
from polyc.poly.scop import Scop, ScopStatement
from polyc.poly.storage import Folding, Panel, panel_shape
from polyc.poly.tree import Plan, PlanLeaf, PlanLoop, PlanSequence, plan_statements
from polyc.scheduler.constants import Prepared


def add_constants(signature: Signature, scop: Scop, storage: Mapping[str, Folding]) -> Signature:
    """The signature with the tensors that were prepared and that `scop` still reads, behind the inputs."""
    inputs = [a for a in signature.arrays if a.role == "input"]
    given = {a.name for a in inputs}
    read = {a.tensor for s in scop.statements for a in (*s.accesses, *s.init_accesses)}
    specs = []
    for name in scop.program.parameters:
        if name in given or name not in read:
            continue
        t = scop.tensors[name]
        panel = storage[name].panel
        shape = t.shape if panel is None else panel_shape(t.shape, panel)
        lower = (int_const(0),) * len(shape)
        specs.append(ArraySpec(name, t.dtype, shape, lower, "constant", _contiguous(shape, t.dtype.itemsize)))
    if not specs:
        return signature
    return replace(signature, arrays=(*inputs, *specs, *signature.arrays[len(inputs) :]))


def _contiguous(shape: Iterable[Expr], itemsize: int) -> tuple[int | None, ...]:
    """Byte strides of an array in C order; None where they depend on sizes."""
    strides: list[int | None] = []
    step: int | None = itemsize
    for extent in reversed(list(shape)):
        strides.append(step)
        step = step * max(1, int(extent.value)) if step is not None and isinstance(extent, Const) else None
    return tuple(reversed(strides))


def collect_preparations(
    signature: Signature,
    program: Program,
    from_program: tuple[Prepared, ...],
    refined: Program,
    from_rows: tuple[Prepared, ...],
) -> tuple[Program, ...]:
    """The programs behind the constants of `signature`: of what left `program`, then of what left the rows of `refined`."""
    needed = [a.name for a in signature.arrays if a.role == "constant"]
    made = {p.statement.target for p in from_rows}
    programs = []
    last = tuple(n for n in needed if n in made)
    if last:
        programs.append(build_preparation(refined, from_rows, last))
        needed += programs[0].parameters
    targets = {p.statement.target for p in from_program}
    first = tuple(n for n in dict.fromkeys(needed) if n in targets)
    if first:
        programs.insert(0, build_preparation(program, from_program, first))
    return tuple(programs)


def build_preparation(program: Program, prepared: tuple[Prepared, ...], returned: tuple[str, ...]) -> Program:
    """The program that computes the tensors `returned` from constants; `program` is what they were taken from."""
    targets = {p.statement.target: p for p in prepared}
    needed, names = list(returned), set(returned)
    for name in needed:
        for p in prepared:
            if p.statement.target == name:
                new = [r.tensor for r in statement_reads(p.statement) if r.tensor not in names]
                needed += dict.fromkeys(new)
                names |= set(new)
    statements = tuple(p.statement for p in prepared if p.statement.target in names)
    tensors = [
        replace(t, base=t.name) for t in program.tensors if t.name in names and t.name not in targets and t.role == "input"
    ]
    parameters = tuple(t.name for t in tensors)
    for name in dict.fromkeys(s.target for s in statements):
        p = targets[name]
        role: Role = "output" if name in returned else "temporary"
        tensors.append(Tensor(name, p.dtype, len(p.intervals), None, role, name, p.statement.span))
    used = find_sizes(statements, tensors)
    defined = tuple((n, e) for n, e in program.defined_sizes if n in used)
    used |= {node.name for _, e in defined for node in walk(e) if isinstance(node, Size)}
    return Program(
        name="prepare",  # whatever it is for: equal ones are compiled once
        sizes=tuple(n for n in program.sizes if n in used),
        tensors=tuple(tensors),
        parameters=parameters,
        returns=tuple(Return(name, name) for name in returned),
        statements=statements,
        defined_sizes=defined,
        source=program.source,
    )


def lay_out_panels(
    storage: Mapping[str, Folding], prepared: tuple[Prepared, ...], scop: Scop, plan: Plan
) -> dict[str, Folding]:
    """Give each packed constant panels as wide as the tile of its last dimension, so that a tile reads consecutive memory."""
    result = dict(storage)
    for p in prepared:
        name = p.statement.target
        rank = len(p.intervals)
        if name not in storage or rank < 2:
            continue
        widths = {_tile_width(plan, s, r) for s in scop.statements for r in reads(s.value) if r.tensor == name}
        width = widths.pop() if len(widths) == 1 else None
        if width is not None and width > 1:
            result[name] = replace(storage[name], panel=Panel(rank - 1, width))
    return result


def _tile_width(plan: Plan, s: ScopStatement, read: Read) -> int | None:
    """Size of the innermost tile loop that runs over the last subscript of a read."""
    last = read.subscripts[-1]
    if not isinstance(last, Index) or last.name not in s.indices:
        return None
    position, width = s.indices.index(last.name), None
    node = plan
    while True:
        match node:
            case PlanLeaf():
                return width
            case PlanSequence():
                inside = [c for c in node.children if s.name in set(plan_statements(c))]
                if len(inside) != 1:
                    return None
                node = inside[0]
            case PlanLoop():
                row = node.rows.get(s.name)
                if row is not None and node.part == "tile" and row.unit_index() == position:
                    width = node.size if width is None else min(width, node.size)
                node = node.child
