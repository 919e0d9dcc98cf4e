"""A model ahead of time: one library with one entry point, for inputs of given shapes."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyc.codegen.objects.aot import c_type, write_header, write_object
from polyc.codegen.objects.elf import rename_symbols
from polyc.codegen.objects.glue import ALIGNMENT, Call, Copy, Place, glue_ir
from polyc.codegen.objects.jit import compile_object
from polyc.codegen.objects.link import find_compiler, link_objects
from polyc.diagnostics import Diagnostic, UnsupportedError
from polyc.driver import select_target
from polyc.frontends.onnx.graph import node_span
from polyc.ir.types import from_numpy
from polyc.onnx.outside import as_contiguous
from polyc.onnx.plan import Plan
from polyc.onnx.segments import Request, Segment
from polyc.onnx.session import Session
from polyc.records import dataclass
from polyc.runtime.memory import GUARD


@dataclass(frozen=True, slots=True)
class _Array:
    """An input or output of the entry point."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


def compile_ahead(session: Session, feed: Mapping[str, np.ndarray], path: Path, *, weights_beside: bool = False) -> list[Path]:
    """Write a shared library (or, for ``*.o``, an object) and its C header; the files that were written.

    The code is for inputs of the types and shapes of `feed`.  With `weights_beside`, the constants are in a file of their own,
    whose contents the caller passes.  Raises UnsupportedError (``unsupported-onnx-ahead``) where a part of the model runs on
    the host, ``unsupported-linker`` where there is no C compiler; nothing is written then."""
    find_compiler()
    results = session.run(None, feed)
    plan = _only_plan(session, feed)
    name = _identifier(path.stem)
    inputs = [_Array(p.name, feed[p.name].dtype, feed[p.name].shape) for p in session.get_inputs()]
    outputs = [_Array(p.name, r.dtype, r.shape) for p, r in zip(session.get_outputs(), results, strict=True)]
    builder = _Builder(session, plan, inputs, outputs)
    calls, objects = builder.calls(name)
    copies = builder.copies()
    arena = 0 if plan is None else plan.arena.size + 2 * GUARD
    target = select_target(session.options)
    weights = bytes(builder.weights)
    with tempfile.TemporaryDirectory(prefix="polyc-weights-") as folder:
        file = Path(folder, "weights")
        file.write_bytes(weights or b"\0")
        ir = glue_ir(name, target.triple, calls, copies, arena, None if weights_beside else str(file))
        objects.append(compile_object(ir, target))
    link_objects(objects, path)
    written = [path, path.with_suffix(".h")]
    if weights_beside:
        written.append(path.with_suffix(".weights"))
        write_object(weights, written[-1])
    write_object(_header(name, inputs, outputs, len(weights) if weights_beside else None).encode(), written[1])
    return written


def _only_plan(session: Session, feed: Mapping[str, np.ndarray]) -> Plan | None:
    """The plan of the whole graph; None where there is nothing to compute."""
    runner = session.runner
    if not runner.graph.nodes:
        return None
    stages: list[Segment] = []
    session.execute({n: as_contiguous(a) for n, a in feed.items()}, Request(1, watch_segment=stages.append))
    problems = []
    for segment in stages:
        node = segment.node or (runner.graph.nodes[segment.stop] if segment.stop < len(runner.graph.nodes) else None)
        if node is not None:
            message = f"{node.label} runs on the host, so the model cannot be one library"
            help = "make what its shape or its course depends on a constant, or run the model in a session"
            problems.append(Diagnostic("unsupported-onnx-ahead", message, node_span(node), help))
    if problems:
        raise UnsupportedError(*problems)
    return stages[0].plan


class _Builder:
    """Gives every array its place."""

    def __init__(self, session: Session, plan: Plan | None, inputs: Sequence[_Array], outputs: Sequence[_Array]) -> None:
        self.session, self.plan = session, plan
        self.inputs = {a.name: Place("input", k) for k, a in enumerate(inputs)}
        self.outputs = list(outputs)
        self.weights = bytearray()
        self._kept: dict[int, tuple[int, np.ndarray]] = {}
        self.direct: dict[str, int] = {}
        """By tensor that kernels write, the output whose memory it is."""
        results = {} if plan is None else plan.results
        for k, a in enumerate(outputs):
            value = results.get(a.name)
            if plan is not None and value is not None and a.name not in plan.constants:
                base = a.name if value.source is None else value.source.name
                if base in plan.fresh:
                    self.direct.setdefault(base, k)

    def calls(self, name: str) -> tuple[list[Call], list[bytes]]:
        """The kernels' calls, and their objects, each with symbols of its own."""
        calls: list[Call] = []
        objects: list[bytes] = []
        symbols: dict[int, str] = {}
        for step in () if self.plan is None else self.plan.steps:
            entry = step.code.signature.name
            if id(step.code) not in symbols:
                symbols[id(step.code)] = symbol = f"{name}_{len(symbols)}_{entry}"
                renamed = {entry: symbol, f"{entry}_workspace": f"{symbol}_workspace"}
                objects.append(rename_symbols(step.code.object_code(), renamed))
            places = tuple(self.place(o) for o in step.operands)
            calls.append(Call(symbols[id(step.code)], places, tuple(step.call.block), step.call.is_parallel))
        return calls, objects

    def copies(self) -> list[Copy]:
        """Outputs that no kernel writes: constants, inputs, and second views of one tensor."""
        found = []
        for k, a in enumerate(self.outputs):
            source = self.source(a.name)
            target = Place("output", k)
            if source != target and a.size:
                found.append(Copy(target, source, a.size))
        return found

    def source(self, name: str) -> Place:
        """Where the contents of an output come from."""
        if self.plan is not None:
            if name in self.plan.constants:
                return self.place(self.plan.constants[name])
            value = self.plan.results.get(name)
            if value is not None:
                return self.place(name if value.source is None else value.source.name)
        if name in self.inputs:
            return self.inputs[name]
        return self.place(self.session.runner.graph.constants[name])

    def place(self, operand: int | str | np.ndarray) -> Place:
        if isinstance(operand, int):
            return Place("arena", GUARD + operand)
        if isinstance(operand, str):
            return Place("output", self.direct[operand]) if operand in self.direct else self.inputs[operand]
        kept = self._kept.get(id(operand))
        if kept is None:
            self.weights += bytes(-len(self.weights) % ALIGNMENT)
            kept = self._kept[id(operand)] = len(self.weights), operand
            self.weights += np.ascontiguousarray(operand).tobytes()
        return Place("weights", kept[0])


def _identifier(stem: str) -> str:
    cleaned = re.sub(r"[^A-Za-z0-9_]", "_", stem)
    return f"model_{cleaned}" if not cleaned or cleaned[0].isdigit() or cleaned in ("main", "_") else cleaned


def _header(name: str, inputs: Sequence[_Array], outputs: Sequence[_Array], weights_size: int | None) -> str:
    lines = [f"/* {name}: a model, compiled by polyc.", " *", " * inputs: addresses of contiguous arrays, in this order"]
    lines += [f" *   [{k}] const {_describe(a)}" for k, a in enumerate(inputs)]
    lines += [" * outputs: the same, of memory that the function writes and that overlaps nothing else"]
    lines += [f" *   [{k}] {_describe(a)}" for k, a in enumerate(outputs)]
    if weights_size is not None:
        lines += [f" * weights: the {weights_size} bytes of {name}.weights, at an address that 64 divides"]
    lines += [
        f" * workspace: {name}_workspace(threads) bytes; they need not be initialised.",
        " * threads: the largest team.",
        " * The result is 0, or the number of the kernel (from 1) that found an index outside of its array.",
        " * Several threads may call the function at once, each with outputs and a workspace of its own.",
    ]
    parameter = "" if weights_size is None else "const void *weights, "
    return write_header(
        name,
        lines,
        [
            f"int32_t {name}(const void *const *inputs, void *const *outputs, {parameter}void *workspace, int32_t threads);",
            f"int64_t {name}_workspace(int32_t threads);",
        ],
    )


def _describe(a: _Array) -> str:
    dtype: Any = from_numpy(a.dtype)
    kind = a.dtype.name if dtype is None else c_type(dtype)
    name = "".join(c if c.isprintable() else "?" for c in a.name).replace("*/", "* /").replace("/*", "/ *")
    return f"{kind} {name}{''.join(f'[{n}]' for n in a.shape)}"
