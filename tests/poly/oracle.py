"""What a schedule does, by enumerating instances one by one at concrete sizes: no isl beyond listing the points of domains.

Times come from the text of the tree (`trees.parse_tree`), accesses from the expressions of the statements.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import product

import islpy as isl

from polyc.ir.expr import Expr, Read, evaluate, reads
from polyc.poly.legality import instance_domains
from polyc.poly.scop import Scop, ScopStatement
from polyc.poly.storage import Folding
from tests.poly.trees import TBand, TSequence, leaves

Instance = tuple[str | int, ...]
"""Name and coordinates."""
Element = tuple[str | int, ...]


@dataclass
class Step:
    """One instance: the elements it reads, the one it writes, and whether it adds to what is there."""

    reads: list[Element]
    writes: Element
    adds: bool


def points_of(domain: isl.Set) -> list[tuple[int, ...]]:
    found: list[isl.Point] = []
    domain.foreach_point(found.append)
    n = domain.dim(isl.dim_type.set)
    return sorted(tuple(int(p.get_coordinate_val(isl.dim_type.set, d).to_python()) for d in range(n)) for p in found)


def _element(tensor: str, subscripts: tuple[Expr, ...], values: dict[str, int]) -> Element:
    return (tensor, *(evaluate(s, values) for s in subscripts))


def _inside(scop: Scop, element: Element) -> bool:
    shape = [evaluate(e, {}) for e in scop.tensors[str(element[0])].shape]
    return all(0 <= int(c) < n for c, n in zip(element[1:], shape, strict=True))


def steps_of(scop: Scop) -> dict[Instance, Step]:
    """Every instance of the program, at constant sizes."""
    domains = instance_domains(scop)
    steps: dict[Instance, Step] = {}

    def elements(found: list[Read], values: dict[str, int]) -> list[Element]:
        all_of_them = [_element(r.tensor, r.subscripts, values) for r in found]
        return [e for e in all_of_them if _inside(scop, e)]

    for s in scop.statements:
        for point in points_of(domains[s.name]):
            values = dict(zip(s.indices, point, strict=True))
            steps[s.name, *point] = Step(
                elements(reads(s.value), values), _element(s.target, s.subscripts, values), s.is_reduction
            )
        if s.init_domain is not None:
            assert s.init is not None
            for point in points_of(s.init_domain):
                values = dict(zip(s.left, point, strict=True))
                target = (s.target, *point)
                steps[f"init_{s.name}", *point] = Step(elements(reads(s.init), values), target, False)
    return steps


def _is_init(instance: Instance) -> bool:
    return str(instance[0]).startswith("init_")


def flow_pairs(scop: Scop) -> set[tuple[Instance, Instance]]:
    """All pairs (needed, needs) that `compute_dependences` promises, by definition."""
    steps = steps_of(scop)
    writers: dict[Element, list[Instance]] = {}
    for instance, step in steps.items():
        writers.setdefault(step.writes, []).append(instance)
    pairs: set[tuple[Instance, Instance]] = set()
    for instance, step in steps.items():
        for element in step.reads:
            sources = writers.get(element, [])
            real = [p for p in sources if not _is_init(p)]
            pairs |= {(p, instance) for p in real or sources}
            if _is_init(instance):  # what an initial value needs, every instance on the element needs
                pairs |= {(p, i) for p in real for i in writers[step.writes] if not _is_init(i)}
        if step.adds:
            pairs |= {(p, instance) for p in writers[step.writes] if _is_init(p)}
    return pairs


def times_of(scop: Scop, tree: object) -> dict[Instance, tuple[int, ...]]:
    """When each instance runs; position of a member in its band counts as one level, so does a place in a sequence."""
    statements = {s.name: s for s in scop.statements}
    times: dict[Instance, tuple[int, ...]] = {}

    def visit(node: object, name: str, values: dict[str, int]) -> tuple[int, ...]:
        match node:
            case str():
                return ()
            case TSequence():
                (n,) = [n for n, child in enumerate(node.children) if name in leaves(child)]
                return (n, *visit(node.children[n], name, values))
            case TBand():
                rows = [m if isinstance(m, str) else m[name] for m in node.members]
                inner = visit(node.child, name, values)
                return (*(_value(r, values) for r in rows), *inner)
        raise TypeError(node)

    for instance in steps_of(scop):
        name = str(instance[0])
        s: ScopStatement = statements[name.removeprefix("init_")]
        names = s.left if _is_init(instance) else s.indices
        times[instance] = visit(tree, name, dict(zip(names, map(int, instance[1:]), strict=True)))
    depth = max(map(len, times.values()))
    return {i: t + (0,) * (depth - len(t)) for i, t in times.items()}


def _value(row: str, values: dict[str, int]) -> int:
    text = re.sub(r"(\d)([A-Za-z])", r"\1*\2", row)
    return int(eval(text, {}, values))


def runs_by_value(scop: Scop, tree: object) -> bool:
    """Whether every instance runs strictly after all it needs."""
    times = times_of(scop, tree)
    return all(times[a] < times[b] for a, b in flow_pairs(scop))


@dataclass
class Cell:
    """What a cell holds: an element, and how many contributions to it."""

    element: Element | None = None
    n_added: int = 0


@dataclass
class Memory:
    storage: dict[str, Folding]
    cells: dict[tuple[str | int, ...], Cell] = field(default_factory=dict)

    def at(self, element: Element) -> Cell:
        folding = self.storage.get(str(element[0]))
        if folding is None:
            return self.cells.setdefault(("own", *element), Cell())
        place = [int(c) if m is None else int(c) % m for c, m in zip(element[1:], folding.moduli, strict=True)]
        return self.cells.setdefault((folding.buffer, *place), Cell())


def runs_by_storage(scop: Scop, tree: object, storage: dict[str, Folding], inputs_survive: bool = True) -> bool:
    """Run the instances one after the other (their times must differ) and see whether each read finds its element."""
    steps, times = steps_of(scop), times_of(scop, tree)
    memory = Memory(storage)
    at_entry: list[Element] = []
    for t in scop.tensors.values():
        if t.role in ("input", "accumulated"):
            shape = [evaluate(e, {}) for e in t.shape]
            at_entry += [(t.name, *point) for point in product(*(range(n) for n in shape))]
    for element in at_entry:
        memory.at(element).element = element
    totals: dict[Element, int] = {}
    for step in steps.values():
        totals[step.writes] = totals.get(step.writes, 0) + step.adds
    for instance in sorted(steps, key=lambda i: times[i]):
        step = steps[instance]
        for element in step.reads:
            cell = memory.at(element)
            if cell.element != element or cell.n_added != totals.get(element, 0):
                return False
        cell = memory.at(step.writes)
        if step.adds:
            if cell.element != step.writes:
                return False
            cell.n_added += 1
        else:
            cell.element, cell.n_added = step.writes, 0
    kept = [s.writes for s in steps.values() if scop.tensors[str(s.writes[0])].role == "output"]
    kept += [e for e in at_entry if inputs_survive and scop.tensors[str(e[0])].role == "input"]
    return all(memory.at(e).element == e and memory.at(e).n_added == totals.get(e, 0) for e in kept)


def marked_band(tree: object, depth: int = 0) -> tuple[TBand, int] | None:
    """The band below the mark and the number of levels above it."""
    match tree:
        case TBand():
            return (tree, depth) if tree.mark else marked_band(tree.child, depth + len(tree.members))
        case TSequence():
            return next((found for c in tree.children if (found := marked_band(c, depth + 1))), None)
    return None


def meets_in_parallel(scop: Scop, tree: object, storage: dict[str, Folding]) -> bool:
    """Whether two iterations of the marked loop touch one cell of common memory, one of them writing, or whether a value in
    private memory is made in one iteration (or outside) and used in another."""
    found = marked_band(tree)
    if found is None:
        return False
    band, depth = found
    inside = set(leaves(band))
    steps, times = steps_of(scop), times_of(scop, tree)
    private = {name for name, f in storage.items() if f.space == "thread"}
    touched: dict[Element, list[tuple[Instance, bool]]] = {}
    for instance, step in steps.items():
        touched.setdefault(step.writes, []).append((instance, True))
        for element in set(step.reads):
            touched.setdefault(element, []).append((instance, False))
    for element, uses in touched.items():
        for (a, writes), (b, _) in product(uses, uses):
            if not writes or (str(a[0]) not in inside and str(b[0]) not in inside):
                continue
            both = str(a[0]) in inside and str(b[0]) in inside
            outer, same = times[a][:depth] == times[b][:depth], times[a][depth] == times[b][depth]
            if element[0] in private:
                if a != b and not (both and outer and same):
                    return True
            elif both and outer and not same:
                return True
    return False
