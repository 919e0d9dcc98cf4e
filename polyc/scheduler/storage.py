"""Array contraction: fold each temporary to the part of it that is alive inside the loops around all its accesses.

Before: ``T[i, j]`` of full size.  After: ``T[i mod 1, j mod 32]`` in a buffer of each thread, where all accesses sit under
the same iteration of loop i and the same tile of j.  The proof by storage decides whether the folding stands.

Of a tensor that steps of a sequential loop pass on (``H[t]`` from ``H[t - 1]``) only the last few steps may be alive, and so
where the steps are statements in a row (``H[3]`` from ``H[2]``): `fold_steps` finds how many by proving it, exactly.
"""

from __future__ import annotations

from polyc.code_limits import MAX_CARRIED
from polyc.diagnostics import Remark
from polyc.ir.expr import Const, Expr, Index, index_names
from polyc.poly.dependences import Dependences
from polyc.poly.instances import Known
from polyc.poly.isl import Schedule
from polyc.poly.legality import prove_storage
from polyc.poly.scop import Scop, ScopStatement
from polyc.poly.storage import Folding
from polyc.poly.tree import Plan, PlanLoop, PlanSequence, plan_statements
from polyc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class _Scope:
    """The loops around all accesses of a tensor."""

    loops: tuple[PlanLoop, ...]

    @property
    def is_parallel(self) -> bool:
        return any(loop.mark is not None and loop.mark.kind in ("parallel", "pipeline") for loop in self.loops)


def fold_storage(plan: Plan, scop: Scop) -> dict[str, Folding]:
    """A folding for every tensor version: arguments as they are, temporaries as small as their scope allows."""
    storage: dict[str, Folding] = {}
    for t in scop.tensors.values():
        whole = (None,) * len(t.shape)
        if t.role == "accumulated":
            storage[t.name] = Folding(_returned_version(t.base, scop), whole, "argument")
        elif t.role in ("input", "output"):
            storage[t.name] = Folding(t.name, whole, "argument")
        else:
            scope = _common_scope(plan, t.name, scop)
            moduli = tuple(_modulus(d, t.name, scope, scop) for d in range(len(t.shape)))
            moduli = tuple(_shrink(m, t.shape[d]) for d, m in enumerate(moduli))
            storage[t.name] = Folding(t.name, moduli, "thread" if scope.is_parallel else "shared")
    return storage


def fold_steps(
    scop: Scop, dependences: Dependences, schedule: Schedule, plan: Plan, storage: dict[str, Folding], known: Known
) -> tuple[dict[str, Folding], list[Remark]]:
    """Fold temporaries along sequential loops to the steps that are alive together, as far as the proof by storage allows.

    `storage` is proved: each trial changes one buffer, so that is the only one to be looked at again.  `known`: what the proofs
    of the tree keep for each other."""
    remarks: list[Remark] = []
    for name, dimension in dict.fromkeys((*_step_dimensions(plan, scop), *_plane_dimensions(scop))):
        whole = storage[name]
        extent = scop.tensors[name].shape[dimension]
        if whole.moduli[dimension] is not None:
            continue
        for steps in range(1, MAX_CARRIED + 1):
            if isinstance(extent, Const) and int(extent.value) <= steps:
                break
            moduli = tuple(steps if d == dimension else m for d, m in enumerate(whole.moduli))
            trial = {**storage, name: replace(whole, moduli=moduli)}
            at = whole.buffer
            if prove_storage(scop, dependences, schedule, trial, buffer=at, known=known, is_doubtful=True) is None:
                storage = trial
                base = scop.tensors[name].base
                remarks.append(Remark("passed", "storage", f"{base} keeps {steps} steps of dimension {dimension}", None))
                break
    return storage, remarks


def _step_dimensions(plan: Plan, scop: Scop) -> list[tuple[str, int]]:
    """Dimensions of temporaries that a sequential loop moves along, where the same loop reads what it wrote."""
    found: dict[tuple[str, int], None] = {}

    def visit(node: Plan) -> None:
        if isinstance(node, PlanSequence):
            for child in node.children:
                visit(child)
        elif isinstance(node, PlanLoop):
            if node.kind == "S" and (node.mark is None or node.mark.kind != "scan"):
                collect(node)
            visit(node.child)

    def collect(loop: PlanLoop) -> None:
        statements = [scop.statement(n) for n in plan_statements(loop) if not n.startswith("init_")]
        read = {a.tensor for s in statements for a in (*s.accesses, *s.init_accesses)}
        for s in statements:
            if s.target not in read or scop.tensors[s.target].role != "temporary":
                continue
            moving = {i for i, c in zip(s.indices, loop.rows[s.name].coefficients, strict=True) if c}
            for d, subscript in enumerate(s.subscripts):
                if moving & index_names(subscript):
                    found[s.target, d] = None

    visit(plan)
    return list(found)


def _plane_dimensions(scop: Scop) -> list[tuple[str, int]]:
    """Dimensions of temporaries along which statements at constants read each other: steps of a loop that is written out."""
    places: dict[tuple[str, int], set[Expr]] = {}
    passed_on: dict[tuple[str, int], None] = {}
    for s in scop.statements:
        reads = [a.read for a in (*s.accesses, *s.init_accesses)]
        for tensor, subscripts in ((s.target, s.subscripts), *((r.tensor, r.subscripts) for r in reads)):
            for d, subscript in enumerate(subscripts):
                places.setdefault((tensor, d), set()).add(subscript)
                if tensor == s.target and subscript != s.subscripts[d]:
                    passed_on[tensor, d] = None
    return [
        (tensor, d)
        for tensor, d in passed_on
        if scop.tensors[tensor].role == "temporary" and all(isinstance(e, Const) for e in places[tensor, d])
    ]


def _returned_version(base: str, scop: Scop) -> str:
    return next(r.version for r in scop.program.returns if r.name == base)


def _shrink(modulus: int | None, extent: object) -> int | None:
    if modulus is not None and isinstance(extent, Const) and int(extent.value) <= modulus and modulus > 1:
        return None
    return modulus


def _users(version: str, scop: Scop) -> set[str]:
    """Names of plan leaves that touch a version."""
    names: set[str] = set()
    for s in scop.statements:
        if s.target == version:
            names.add(s.name)
            if s.is_reduction:
                names.add(f"init_{s.name}")
        if any(a.tensor == version for a in s.accesses):
            names.add(s.name)
        if any(a.tensor == version for a in s.init_accesses):
            names.add(f"init_{s.name}")
    return names


def _common_scope(plan: Plan, version: str, scop: Scop) -> _Scope:
    users, loops = _users(version, scop), []
    node = plan
    while True:
        if isinstance(node, PlanLoop):
            loops.append(node)
            node = node.child
        elif isinstance(node, PlanSequence):
            inside = [c for c in node.children if users & set(plan_statements(c))]
            if len(inside) != 1:
                break
            node = inside[0]
        else:
            break
    # Loops between the last branching and a single leaf hold one access only; any prefix is a valid scope.
    return _Scope(tuple(loops))


def _modulus(dimension: int, version: str, scope: _Scope, scop: Scop) -> int | None:
    """The period of element coordinate `dimension` inside one iteration of the scope's loops; None: the whole extent."""
    best: int | None = None
    rank = len(scop.tensors[version].shape)
    for loop in scope.loops:
        if loop.kind == "S" and not any(
            all(_runs_over(loop, name, d, version, scop) for name in loop.rows) for d in range(rank)
        ):
            break  # its iterations pass values on: inside of it all elements of one are alive until the next has read them
        # Lanes of a vector loop are alive together, and so are the points of a tile.
        if loop.part == "point" or (loop.mark is not None and loop.mark.kind == "vector"):
            continue
        if not all(_runs_over(loop, name, dimension, version, scop) for name in loop.rows):
            continue
        period = 1 if loop.part == "whole" else loop.size
        best = period if best is None else min(best, period)
    return best


def _runs_over(loop: PlanLoop, name: str, dimension: int, version: str, scop: Scop) -> bool:
    """Whether every access of plan leaf `name` to `version` has exactly the loop's row as coordinate `dimension`."""
    s = scop.statement(name.removeprefix("init_"))
    is_init = name.startswith("init_")
    row = loop.rows[name]
    for subscripts in _subscripts(s, is_init, version):
        position = row.unit_index()
        names = s.elements if is_init else s.indices
        if position is None or subscripts[dimension] != Index(names[position]):
            return False
    return True


def _subscripts(s: ScopStatement, is_init: bool, version: str) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    if s.target == version:
        found.append(tuple(Index(e) for e in s.elements) if is_init else s.subscripts)
    for access in s.init_accesses if is_init else s.accesses:
        if access.tensor == version:
            found.append(access.read.subscripts)
    return found
