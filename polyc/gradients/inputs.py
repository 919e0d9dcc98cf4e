"""What derivatives are taken by and of, and the names of what they add to a program."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from itertools import chain, count

from polyc.diagnostics import ArgumentError, Diagnostic, suggest_name
from polyc.gradients.rules import is_differentiable
from polyc.ir.expr import Expr, Read, reads, rewrite
from polyc.ir.program import Program, Return, map_expressions, statement_expressions
from polyc.ir.simplify import simplify
from polyc.poly.infer import infer_ranges
from polyc.records import replace


def differentiable_inputs(program: Program) -> tuple[str, ...]:
    """The floating-point and complex inputs, in order."""
    return tuple(p for p in program.parameters if is_differentiable(program.tensor(p).dtype))


def differentiable_results(program: Program) -> tuple[Return, ...]:
    """The floating-point and complex results, in order."""
    return tuple(r for r in program.returns if is_differentiable(program.tensor(r.version).dtype))


def shown_name(program: Program, version: str) -> str:
    """What a user calls an input: of the entries of a matrix, the name of that."""
    return next((m.name for m in program.compressed if m.data == version), version)


def check_inputs(program: Program, wrt: Sequence[str]) -> tuple[str, ...]:
    """Those of `wrt`; ArgumentError ``argument-gradient`` for what is no floating-point input, or where there is none."""
    known = differentiable_inputs(program)
    listing = f"its floating-point inputs are: {', '.join(known) or 'none'}"
    for name in wrt:
        if name not in program.parameters:
            raise _error(f"{program.name} has no input named {name}", suggest_name(name, known) or listing)
        if name not in known:
            message = f"{program.name} has no derivative by {name}, which is {program.tensor(name).dtype}"
            raise _error(message, listing, program, name)
    if not wrt:
        raise _error(f"there is nothing to differentiate {program.name} by", listing)
    if len(set(wrt)) < len(wrt):
        twice = next(n for n in wrt if list(wrt).count(n) > 1)
        raise _error(f"{twice} is named twice in wrt", f"name it once: wrt={tuple(dict.fromkeys(wrt))}")
    return tuple(wrt)


def take_initial_values(program: Program, keep: Sequence[str] = ()) -> tuple[Program, dict[str, str]]:
    """The program with an input ``Y_in`` for what each result Y that is accumulated into holds before, those of `keep`
    excepted; and the names of these inputs by result."""
    found = [r for r in program.returns if r.initial is not None and r.name not in keep]
    if not found:
        return program, {}
    boxes, names = infer_ranges(program).tensors, Names(program)
    new = {r.name: names.add(f"{r.name}_in") for r in found}
    versions = {r.initial: (new[r.name], boxes[r.initial]) for r in found if r.initial is not None}

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Read) or node.tensor not in versions:
            return None
        name, box = versions[node.tensor]
        return Read(name, tuple(simplify(e - b.lower) for e, b in zip(node.subscripts, box, strict=True)), node.span)

    inputs = []
    for r in found:
        assert r.initial is not None
        t, shape = program.tensor(r.initial), tuple(simplify(b.extent) for b in boxes[r.initial])
        inputs.append(replace(t, name=new[r.name], base=new[r.name], role="input", shape=shape))
    taken = map_expressions(program, lambda e: rewrite(e, rule))
    own = tuple(t for t in taken.tensors if t.name not in versions)
    returns = tuple(replace(r, initial=None) if r.name in new else r for r in taken.returns)
    parameters = (*taken.parameters, *new.values())
    return replace(taken, tensors=(*own, *inputs), returns=returns, parameters=parameters), new


def drop_unread(program: Program, inputs: Collection[str]) -> Program:
    """The program without those of some inputs that nothing reads."""
    read = {r.tensor for s in program.statements for e in statement_expressions(s) for r in reads(e)}
    gone = {n for n in inputs if n not in read}
    tensors = tuple(t for t in program.tensors if t.name not in gone)
    return replace(program, tensors=tensors, parameters=tuple(p for p in program.parameters if p not in gone))


def check_results(program: Program, of: Sequence[str] | None = None) -> tuple[Return, ...]:
    """The results named by `of`, by default all that have derivatives; ArgumentError ``argument-gradient``."""
    results = {r.name: r for r in differentiable_results(program)}
    listing = f"its floating-point results are: {', '.join(results) or 'none'}"
    if of is None:
        if not results:
            raise _error(f"no result of {program.name} has a derivative", listing)
        return tuple(results.values())
    for name in of:
        if name not in results:
            raise _error(f"{program.name} has no floating-point result named {name}", suggest_name(name, results) or listing)
    return tuple(results[n] for n in of)


def _error(message: str, help: str, program: Program | None = None, name: str = "") -> ArgumentError:
    span = None if program is None else program.tensor(name).span
    return ArgumentError(Diagnostic("argument-gradient", message, span, help))


class Names:
    """Names that nothing in a program has; a number is behind those that something has."""

    def __init__(self, program: Program) -> None:
        self.taken = {s.name for s in program.statements} | {n for n, _ in program.defined_sizes} | {*program.sizes}
        self.taken |= {n for t in program.tensors for n in (t.name, t.base)} | {r.name for r in program.returns}
        self.taken |= {m.name for m in program.compressed}

    def add(self, wanted: str) -> str:
        """`wanted`, or with the least number behind it that makes it new."""
        name = add_number(wanted, self.taken)
        self.taken.add(name)
        return name


def add_number(wanted: str, taken: Set[str]) -> str:
    """`wanted`, or with the least number from 2 behind it that none of `taken` has."""
    return next(n for n in chain([wanted], (f"{wanted}{k}" for k in count(2))) if n not in taken)
