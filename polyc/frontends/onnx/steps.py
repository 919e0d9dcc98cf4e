"""Several iterations of a `Loop` as one fragment: the statements of its body over a dimension of steps.

before::

    s, ys = Loop(n, c, s0) <body(k, c, s): …; return c', s', y>

after, for T steps from iteration k on, which the host repeats until the loop has ended (`onnx/iterate.py`)::

    S[0] = s0;  ended[0] = false
    y[t] = …S[t]…                                       and so each statement of the body that needs a state, or the iteration
    ended[t + 1] = ended[t] || !c'[t] || k + t + 1 >= n
    S[t + 1] = ended[t] ? S[t] : s'[t]
    count += ended[t] ? 0 : 1

These are the statements that `until` and `break` stand for (`polyc.frontends.core.endings`).  Behind the end nothing is looked
up: a place that no iteration should have had may lie outside of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.clusters import write_bases
from polyc.frontends.onnx.graph import Graph, Node, Port
from polyc.frontends.onnx.partition import extents
from polyc.frontends.onnx.registry import Unsupported
from polyc.frontends.onnx.terms import Operand, Term, as_term, constant, index, select
from polyc.frontends.onnx.trace import Fragment, name_outputs
from polyc.ir.expr import Call, Expr, Index, Read, Select, evaluate, int_const, reads, rewrite, substitute
from polyc.ir.loaded_bounds import combine_where
from polyc.ir.program import RangeClause, Statement, Tensor, element_names, statement_reads
from polyc.ir.types import BOOL, I64
from polyc.records import dataclass, replace

if TYPE_CHECKING:
    from polyc.frontends.onnx.lowering import Lowered

FIRST_STEPS, MOST_STEPS = 16, 128
"""Iterations that one call makes: the first one of a loop, which may end early, and those that follow."""
MOST_POINTS, MOST_BYTES = 1 << 22, 1 << 20
"""Of what all steps of a call compute, and store as if each step had memory of its own: beside more a call costs little, and
steps behind the end much."""
MOST_STATEMENTS = 24
"""Of the body, and of the recurrence it becomes, as in a cluster (`partition`): the time to compile grows faster than their
number, and all of one recurrence share the problem of a row."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The attribute `steps` of the nodes that `make_steps` makes, which no file can have."""

    carried: tuple[int, ...]
    """Which results of the body the next iteration begins with, in the order of its inputs."""
    most: int


def find_steps(node: Node) -> Steps | None:
    """What makes `node` one of `make_steps`."""
    found = node.attributes.get("steps")
    return found if isinstance(found, Steps) else None


def steps_limit(node: Node, body: Graph) -> str:
    """The name of the trip count that steps of a loop are given."""
    return f"{_prefix(node, body)}/limit"


def _prefix(node: Node, body: Graph) -> str:
    """What the names of values start with that no value of the body has."""
    own = {*(p.name for p in body.inputs), *body.constants, *body.captures, *(o for n in body.nodes for o in n.outputs)}
    prefix = next((o for o in node.outputs if o), node.op)
    while any(name.startswith(f"{prefix}/") for name in own):
        prefix += "'"
    return prefix


def make_steps(node: Node, body: Graph, carried: Sequence[int], n_steps: int, constants: Mapping[str, np.ndarray]) -> Graph:
    """A graph that makes up to `n_steps` iterations of `node`.

    Its inputs are the iteration to begin with, the trip count, the carried values and what the body takes from around it; its
    results how many iterations it made, whether the loop goes on, and those of the body behind its condition: the `carried`
    ones (by number) as the last iteration leaves them, others with a dimension of `n_steps` or fewer in front."""
    first = next((o for o in node.outputs if o), node.op)
    inputs = (body.inputs[0].name, steps_limit(node, body), *(p.name for p in body.inputs[2:]), *body.captures)
    outputs = tuple(f"{_prefix(node, body)}/{what}" for what in ("count", "goes_on", *range(1, len(body.outputs))))
    attributes = {"body": body, "steps": Steps(tuple(carried), n_steps)}
    steps = replace(
        node, op=f"Steps of {node.op}", name=node.name or first, inputs=inputs, outputs=outputs, attributes=attributes
    )

    def ports(names: Sequence[str]) -> tuple[Port, ...]:
        return tuple(Port(n, "", None) for n in names)

    known = {n: constants[n] for n in body.captures if n in constants}
    return replace(body, inputs=ports(inputs), outputs=ports(outputs), nodes=(steps,), constants=known)


def trace_steps(node: Node, values: Mapping[str, Value], inner: Lowered) -> Fragment:
    """The statements of a node of `make_steps`, whose body was lowered to `inner`.  Raises `Unsupported`."""
    body: Graph = node.attributes["body"]
    results = []
    for port in body.outputs:
        if port.name not in inner.values:
            raise Unsupported(f"{port.name} is no tensor of numbers")
        results.append(inner.values[port.name])
    if results[0].size != 1 or results[0].dtype != BOOL:
        raise Unsupported("its condition is no single truth value")
    states = [p.name for p in body.inputs[2:]]
    steps: Steps = node.attributes["steps"]
    for name, k in zip(states, steps.carried, strict=True):
        before, after = values[name], results[k]
        if before.dtype != after.dtype or before.shape != after.shape:
            shown = [f"{v.dtype.label}{list(v.shape)}" for v in (before, after)]
            raise Unsupported(f"{name} is {shown[0]} before an iteration and {shown[1]} behind it")
    statements, made = write_bases(inner.fragments, inner.values, values)
    if len(statements) > MOST_STATEMENTS:
        raise Unsupported(f"its body has {len(statements)} statements, {MOST_STATEMENTS} are the most")
    moving = _find_moving(statements, {node.inputs[0], *states})
    step_bytes = sum(prod(_shape(made[n])) * made[n].dtype.itemsize for n in moving)
    points = sum(prod(extents(s).values()) for s in statements if s.target in moving)
    n_steps = min(steps.most, MOST_BYTES // max(step_bytes, 1), MOST_POINTS // max(points, 1))
    if n_steps < 2:
        raise Unsupported(f"an iteration computes {step_bytes} bytes from {points} points, beside which a call costs little")
    return _Writer(node, values, inner, n_steps).write(statements, made, moving, results)


def _shape(t: Tensor) -> tuple[int, ...]:
    return tuple(evaluate(e, {}) for e in t.shape or ())


def _find_moving(statements: Sequence[Statement], moving: set[str]) -> set[str]:
    """Tensors that statements make which are another one in each step, as they need `moving` values."""
    found = set(moving)
    while True:
        more = {s.target for s in statements if any(r.tensor in found for r in statement_reads(s))} - found
        if not more:
            return found - moving
        found |= more


def _looks_up(s: Statement) -> bool:
    """Whether a statement touches elements that data chooses."""
    return any(reads(e) for r in statement_reads(s) for e in r.subscripts) or any(map(reads, s.subscripts))


@dataclass(slots=True)
class _Writer:
    node: Node
    values: Mapping[str, Value]
    inner: Lowered
    n_steps: int
    b: Builder = field(init=False)
    new: dict[str, Value] = field(init=False)
    """What stands for a tensor of the body; with the step as its first dimension where `stepped` has it."""
    kept: dict[str, Value] = field(init=False)
    """What stands for one that is a result of each iteration, behind the statements that make it."""
    stepped: set[str] = field(init=False)
    ended: Value = field(init=False)

    def write(
        self, statements: Sequence[Statement], made: Mapping[str, Tensor], moving: set[str], results: Sequence[Value]
    ) -> Fragment:
        self.b = b = Builder(self.node)
        states = [p.name for p in self.node.attributes["body"].inputs[2:]]
        carried = dict(zip(self.node.attributes["steps"].carried, states, strict=True))
        self.stepped = moving | set(states)
        self.new = {n: b.declare((self.n_steps, *_shape(t)) if n in moving else _shape(t), t.dtype) for n, t in made.items()}
        for name in states:
            self.new[name] = b.declare((self.n_steps + 1, *self.values[name].shape), self.values[name].dtype)
        stacked = {v.name for k, v in enumerate(results) if k and k not in carried and v.source is None}
        self.kept = {n: b.declare(self.new[n].shape, self.new[n].dtype) for n in made if n in moving & stacked}
        self.ended = b.declare((self.n_steps + 1,), BOOL)
        self._begin(states)
        for s in statements:
            b.statements.append(self._take(s, s.target in moving))
        for name, kept in self.kept.items():
            b.write(kept, kept.shape, lambda *i: i, self._until_end(self.new[name]))
        for k, name in carried.items():
            self._carry(name, results[k])
        self._end(results[0])
        if len(b.statements) > MOST_STATEMENTS:
            raise Unsupported(f"its iterations are {len(b.statements)} statements, {MOST_STATEMENTS} are the most")
        count = b.reduce("add", (), (self.n_steps,), I64, lambda t: select(self.ended[t], constant(0, I64), 1))
        goes_on = b.map((), BOOL, lambda: ~self.ended[self.n_steps])
        rest = [self._last(carried[k]) if k in carried else self._all(v) for k, v in enumerate(results) if k]
        return name_outputs(b, dict(zip(self.node.outputs, (count, goes_on, *rest), strict=True)), self.node.outputs)

    def _begin(self, states: Sequence[str]) -> None:
        """``S[0] = s0`` and ``ended[0] = false``."""
        for name in states:
            before = self.values[name]
            self.b.write(self.new[name], (1, *before.shape), lambda _, *i: (0, *i), lambda _, *i, s=before: s[i])
        self.b.write(self.ended, (1,), lambda _: (0,), lambda _: constant(False, BOOL))

    def _carry(self, name: str, result: Value) -> None:
        """``S[t + 1] = ended[t] ? S[t] : s'[t]``."""
        states = self.new[name]

        def step(t: Term, *i: Term) -> Operand:
            return select(self.ended[t], states[(t, *i)], self._element(result, t, i))

        self.b.write(states, (self.n_steps, *states.shape[1:]), lambda t, *i: (t + 1, *i), step)

    def _end(self, condition: Value) -> None:
        """``ended[t + 1] = ended[t] || !c'[t] || k + t + 1 >= n``."""
        first, limit = (self.values[n] for n in self.node.inputs[:2])

        def step(t: Term) -> Operand:
            goes_on = self._element(condition, t, (0,) * condition.rank)
            return self.ended[t] | (~goes_on | (first[()] + t + 1 >= limit[()]))

        self.b.write(self.ended, (self.n_steps,), lambda t: (t + 1,), step)

    def _last(self, name: str) -> Value:
        states = self.new[name]
        return self.b.map(states.shape[1:], states.dtype, lambda *i: states[(self.n_steps, *i)])

    def _all(self, result: Value) -> Value:
        """A result of each step, with zeros behind the end, so that nothing has to be computed for it there."""
        if result.source is None and result.name in self.kept:
            return self.kept[result.name]
        shape = (self.n_steps, *result.shape)
        return self.b.map(shape, result.dtype, lambda t, *i: select(self.ended[t], 0, self._element(result, t, i)))

    def _until_end(self, made: Value) -> Callable[..., Operand]:
        return lambda t, *i: select(self.ended[t], 0, made[(t, *i)])

    def _element(self, value: Value, t: Term, subscripts: Sequence[Operand]) -> Term:
        """An element of a value of the body in step t."""
        element = value[tuple(subscripts)]
        return Term(rewrite(element.expr, self._rule(t.expr, "")), element.dtype)

    def _rule(self, t: Expr, target: str) -> Callable[[Expr], Expr | None]:
        """What stands for reads in step t, in a statement that makes `target`."""

        def rule(node: Expr) -> Expr | None:
            if not isinstance(node, Read):
                return None
            if node.tensor == self.node.inputs[0]:
                return Call("add", (node, t))
            if node.tensor not in self.new and node.tensor not in self.values:
                self.new[node.tensor] = self.b.array(self.inner.constants[node.tensor])
            new = self.kept.get(node.tensor) if node.tensor != target else None
            new = new or self.new.get(node.tensor)
            if new is None:
                return None
            lead = (t,) if node.tensor in self.stepped else ()
            return replace(node, tensor=new.name, subscripts=(*lead, *node.subscripts))

        return rule

    def _take(self, s: Statement, is_moving: bool) -> Statement:
        """A statement of the body at all steps."""
        step, target = index("step").expr, self.new[s.target]
        rule = self._rule(step, s.target)
        own = tuple(rewrite(e, rule) for e in s.subscripts)
        subscripts = (step, *own) if is_moving else own
        reduction = s.reduction
        if reduction is not None:
            names = zip(
                element_names(s.target, s.subscripts), element_names(target.name, subscripts)[-len(own) :], strict=False
            )
            init = substitute(reduction.init, {old: Index(new) for old, new in names if own})
            reduction = replace(reduction, init=rewrite(init, rule))
        s = replace(
            s,
            name=f"{target.name}:{len(self.b.statements)}",
            target=target.name,
            subscripts=subscripts,
            value=rewrite(s.value, rule),
            reduction=reduction,
        )
        if not is_moving:
            return s
        clause = RangeClause("step", int_const(0), int_const(self.n_steps))
        s = replace(s, indices=("step", *s.indices), where=(clause, *s.where))
        return self._look_nothing_up(s, target) if _looks_up(s) else s

    def _look_nothing_up(self, s: Statement, target: Value) -> Statement:
        """The statement with nothing in the place of what it would look up behind the end."""
        ended = self.ended[index("step")].expr
        if s.reduction is None:
            nothing = Builder.narrow(as_term(0, target.dtype), target.dtype)
            return replace(s, value=Select(ended, nothing, s.value))
        s = replace(s, subscripts=tuple(Select(ended, int_const(0), e) if reads(e) else e for e in s.subscripts))
        types = {t.name: t.dtype for t in self.b.tensors} | {n: v.dtype for n, v in self.values.items()}
        types |= {v.name: v.dtype for v in self.new.values()}
        return combine_where(s, Call("not", (ended,)), types)
