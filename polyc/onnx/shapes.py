"""Which clusters are compiled for their shapes, and which for any: kernels that serve shapes that keep changing.

A plan is made for the shapes of a run.  The first shapes that a cluster is met with (`FIRST` under ``dynamic="auto"``) get
code of their own; with the next one, what varies between them becomes symbolic (`ir.generalize`), and that kernel serves all
shapes that differ in the same places.  A kernel is used for a cluster only where its program, with sizes put in, is the
cluster's program, so nothing depends on a guess.
"""

from __future__ import annotations

import threading
from dataclasses import field
from typing import Literal

from polyc.api.dynamic import typical_sizes
from polyc.diagnostics import PolycError, Remark
from polyc.frontends.onnx.clusters import Cluster
from polyc.ir.expr import Expr, evaluate
from polyc.ir.generalize import Generalized, Numbers, generalize, generalize_traced, take_numbers
from polyc.ir.program import Program
from polyc.ir.traced import is_traced, plain
from polyc.log import logger
from polyc.records import dataclass
from polyc.runtime.sizes import size_names

Dynamic = Literal["auto"] | bool
FIRST = 2
"""Shapes of a cluster that get code of their own: two are common and final (training and evaluation, a shorter last batch)."""
MOST_GENERAL = 4
"""General programs of one cluster; what fits none of them gets code of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What is compiled for a cluster: its own program, or a general one with values for its sizes."""

    program: Program
    constants: tuple[str, ...]
    """Parameters that are bound."""
    sizes: dict[str, int] = field(default_factory=dict)
    typical: dict[str, int] = field(default_factory=dict)

    @property
    def is_general(self) -> bool:
        return bool(self.sizes)


@dataclass(slots=True, eq=False)
class _History:
    """Of one cluster: the numbers it has had code of its own for, and the general programs."""

    own: list[Numbers] = field(default_factory=list)
    general: list[tuple[Generalized, dict[str, int]]] = field(default_factory=list)
    is_refused: bool = False
    """Whether no code for any sizes can be made."""


class Shapes:
    """What a session knows of the shapes of its clusters."""

    def __init__(self, dynamic: Dynamic = "auto") -> None:
        self._first = {"auto": FIRST, True: 1, False: None}[dynamic]
        self._known: dict[tuple[tuple[str, ...], Program], _History] = {}
        self._lock = threading.Lock()
        self._tried: list[tuple[Cluster, _History, Generalized, dict[str, int]]] = []
        self._notes: dict[tuple[Literal["analysis", "missed"], str], list[str]] = {}

    @property
    def template_from(self) -> int | None:
        """How many shapes are run before plans become templates (`onnx.templates`); None: they never do."""
        return self._first

    def choose(self, cluster: Cluster) -> Choice:
        """The program to compile for `cluster`."""
        exact = Choice(cluster.program, cluster.constants)
        if self._first is None:
            return exact
        form, numbers = take_numbers(cluster.program)
        with self._lock:
            history = self._known.setdefault((cluster.labels, form), _History())
            traced = any(map(is_traced, numbers))
            if traced and history.is_refused:
                raise NotTracedError
            if not traced and (history.is_refused or numbers in history.own):
                return exact
            for known, typical in history.general:
                sizes = known.sizes_of(numbers)
                if sizes is not None:
                    return _general(cluster, known, sizes, typical)
            if traced:
                return self._generalize_traced(cluster, numbers, history)
            made = None
            if len(history.own) >= self._first and len(history.general) < MOST_GENERAL:
                made = generalize(cluster.program, [*history.own, numbers])
            sizes = None if made is None else made.sizes_of(numbers)
            if made is None or sizes is None:
                if len(history.own) < 2 * FIRST:
                    history.own.append(numbers)
                return exact
            typical = typical_sizes(sizes, made.names)
            history.general.append((made, typical))
            varies = ", ".join(map(str, sizes.values()))
            why = f"compiled for any sizes in place of {varies}, as {len(history.own) + 1} shapes were seen"
            self._note("analysis", why, cluster)
        return _general(cluster, made, sizes, typical)

    def _generalize_traced(self, cluster: Cluster, numbers: Numbers, history: _History) -> Choice:
        """A general program for numbers that are traced: where it fits, it fits by what they are computed from."""
        made = generalize_traced(cluster.program, numbers) if len(history.general) < MOST_GENERAL else None
        sizes = None if made is None else made.sizes_of(numbers)
        if made is None or sizes is None:
            raise NotTracedError(f"{', '.join(cluster.labels)}: {tuple(map(plain, numbers))}")
        typical = typical_sizes({n: plain(v) for n, v in sizes.items()}, made.names)
        self._tried.append((cluster, history, made, typical))
        return _general(cluster, made, sizes, typical)

    def keep_tried(self, is_right: bool) -> None:
        """What becomes of the general programs that were made of traced numbers since it was asked last."""
        with self._lock:
            for cluster, history, made, typical in self._tried if is_right else ():
                history.general.append((made, typical))
                self._note("analysis", f"compiled for any sizes in place of {', '.join(map(str, typical.values()))}", cluster)
            self._tried.clear()

    def refuse(self, cluster: Cluster, error: PolycError) -> Choice:
        """What is compiled, from now on, instead of a general program that cannot be."""
        form, _ = take_numbers(cluster.program)
        with self._lock:
            self._known[cluster.labels, form].is_refused = True
            reason = error.diagnostics[0].message if error.diagnostics else str(error)
            self._note("missed", f"compiled anew for each shape, as code for any shape cannot be made: {reason}", cluster)
        return Choice(cluster.program, cluster.constants)

    def _note(self, kind: Literal["analysis", "missed"], why: str, cluster: Cluster) -> None:
        self._notes.setdefault((kind, why), []).append(", ".join(cluster.labels))
        logger.info("onnx: %s: %s", ", ".join(cluster.labels), why)

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What became symbolic, and what could not: one remark for all clusters of which the same is to be said."""
        with self._lock:
            notes = list(self._notes.items())
        return tuple(Remark(kind, "shapes", f"{why}: {'; '.join(labels)}") for (kind, why), labels in notes)


class NotTracedError(Exception):
    """The numbers of a cluster follow from sizes in a way that no general program is found for."""


def _general(cluster: Cluster, made: Generalized, sizes: dict[str, int], typical: dict[str, int]) -> Choice:
    """Constants whose own extents vary (tables made for a shape) are inputs of the general program."""
    program = made.program
    fixed = tuple(c for c in cluster.constants if not any(size_names(e) for e in program.tensor(c).shape or ()))
    return Choice(program, fixed, sizes, typical)


def shape_of(program: Program, name: str, sizes: dict[str, int]) -> tuple[int, ...]:
    """Extents of a tensor of `program` for these sizes."""
    extents: tuple[Expr, ...] = program.tensor(name).shape or ()
    return tuple(evaluate(e, sizes) for e in extents)
