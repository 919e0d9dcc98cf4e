"""The session: a model that is run like one of onnxruntime's, compiled for the shapes of its inputs as they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from polyc.config import Options, default_options
from polyc.diagnostics import ArgumentError, ArgumentTypeError, Diagnostic, Remark, SemanticError, UnsupportedError
from polyc.frontends.onnx.element_types import numpy_type
from polyc.frontends.onnx.graph import Graph, Node, Port
from polyc.frontends.onnx.model import read_model
from polyc.frontends.onnx.passes import simplify
from polyc.frontends.onnx.refusals import strict_problem
from polyc.frontends.onnx.registry import find_implementation
from polyc.frontends.onnx.trace import may_expand
from polyc.jobs import Progress
from polyc.onnx.binding import IOBinding
from polyc.onnx.feed import check_feed, check_out, check_output_names, describe_port, is_plain, plain_inputs
from polyc.onnx.iterate import is_driven
from polyc.onnx.profile import Profile, Watch, profile_runs
from polyc.onnx.runner import Runner
from polyc.onnx.samples import draw_feed, run_drawn
from polyc.onnx.segments import Env, Request, Setting
from polyc.onnx.shapes import Dynamic, Shapes
from polyc.onnx.weights import Weights
from polyc.records import dataclass
from polyc.runtime import threads as runtime_threads
from polyc.runtime.arrays import argument_error, shape_label


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a model file says of itself, by onnxruntime's names."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


class Session:
    """A loaded model.

    ``run(output_names, feed)`` gives the outputs as NumPy arrays; `get_inputs` and `get_outputs` tell names, shapes and types.
    The first runs with inputs of new shapes compile for them, those that follow (`dynamic`) for any.  Runs from several threads
    are allowed; of those that need much memory at most as many as there are cores go on at once.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        strict: bool = False,
        threads: int | None = None,
        options: Options | None = None,
        progress: Progress | None = None,
        dynamic: Dynamic = "auto",
    ) -> None:
        if threads is not None:
            runtime_threads.check_num_threads(threads)
        _check_options(options, progress, dynamic)
        self.options = options = options or default_options()
        self.original = graph
        self._threads = threads
        self._inputs = tuple(p for p in graph.inputs if p.name not in graph.constants)
        self._defaults = {p.name: p for p in graph.inputs if p.name in graph.constants}
        self._plain = plain_inputs(self._inputs)
        self._setting = Setting(options, Weights(options), strict, progress, Shapes(dynamic))
        self.runner = Runner(simplify(graph), self._setting, self._defaults, [p.name for p in self._inputs])
        self._names = [p.name for p in graph.outputs]
        self._unconfirmed = {p.name: p for p in graph.outputs if numpy_type(p.type) is not None}
        if strict:
            _require_functions(self.runner.graph)
            problems = self.runner.foresee(self._inputs)
            if problems:
                raise UnsupportedError(*problems)

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(f"{p.name}: {describe_port(p)}" for p in ports) for ports in (self._inputs, self.original.outputs)
        )
        return f"<polyc session ({inputs}) -> ({outputs})>"

    def __reduce__(self) -> NoReturn:
        """Sessions own compiled code and memory."""
        help = "load the model where it is needed: its kernels come from the disk cache"
        raise argument_error("argument-pickle", "a session cannot be pickled or copied", None, help)

    def get_inputs(self) -> list[Port]:
        """The inputs that have no default: `name`, `shape` (a number, a name or None for each dimension) and `type`."""
        return list(self._inputs)

    def get_outputs(self) -> list[Port]:
        """The outputs, described as in `get_inputs`."""
        return list(self.original.outputs)

    def get_overridable_initializers(self) -> list[Port]:
        """The inputs that have a default, described as in `get_inputs`."""
        return list(self._defaults.values())

    def get_modelmeta(self) -> ModelMetadata:
        """Who made the model, and what it says of itself."""
        model = self.original.model
        entries = {p.key: p.value for p in model.metadata_props}
        return ModelMetadata(
            model.producer_name,
            model.graph.name,
            model.domain,
            model.doc_string,
            model.graph.doc_string,
            model.model_version,
            entries,
        )

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What was decided so far: one remark lists all nodes that onnx's reference implementation computes, one the loops
        whose iterations the host runs one by one, others tell what was compiled for any sizes, or could not be."""
        setting = self._setting
        kinds = {"computed by onnx's reference implementation": setting.fallbacks, "iterations run by the host": setting.driven}
        listed = {what: "; ".join(f"{label} ({reason})" for label, reason in n.items()) for what, n in kinds.items() if n}
        return (*(Remark("missed", "onnx", f"{what}: {nodes}") for what, nodes in listed.items()), *setting.shapes.remarks)

    def run(
        self,
        output_names: Sequence[str] | None,
        feed: Mapping[str, Any],
        run_options: object = None,
        *,
        out: Mapping[str, np.ndarray] | None = None,
    ) -> list[Any]:
        """The outputs named (None: all), in order, for inputs by name.

        `out`: arrays by the names of outputs, of their types and shapes, that results are written to (and returned);
        `run_options` is there for onnxruntime's habit and ignored.  Raises ArgumentError or ArgumentTypeError where inputs are
        missing, unknown, or of another type or shape than the model says, and whatever goes wrong in a node."""
        if out is not None and not isinstance(out, Mapping):
            check_out(self.original.outputs, out, feed)  # which says what it should be
        if not out and not self._unconfirmed and (output_names is None or output_names == self._names):
            results = self.runner.run_whole(feed, self._threads)
            if results is not None:
                return results
        names = check_output_names(self.original.outputs, output_names)
        given = dict(feed) if is_plain(self._plain, feed) else check_feed(self._inputs, self._defaults, feed)
        wanted = check_out(self.original.outputs, out, given) if out else {}
        try:
            env = self.execute(given, Request(self._threads, out=wanted))
            return self._results(env, names, given, out or {})
        except MemoryError as error:
            help = "give it inputs of smaller shapes, or more memory"
            message = f"this run of the model needs more memory than there is ({error or 'the system gives no more'})"
            raise ArgumentError(Diagnostic("argument-too-large", message, None, help)) from error

    def io_binding(self) -> IOBinding:
        """Memory for inputs and outputs, to be bound to it by name and used by `run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: object = None) -> None:
        """Run on what is bound; raises as `run`."""
        if not isinstance(iobinding, IOBinding):
            message = f"memory is bound by what io_binding() gives, not {type(iobinding).__name__}"
            help = "write binding = session.io_binding(), and bind inputs and outputs to it"
            raise ArgumentTypeError(Diagnostic("argument-type-onnx-feed", message, None, help))
        iobinding.run()

    def profile(self, feed: Mapping[str, Any] | None = None, n_runs: int = 10) -> Profile:
        """Run the model `n_runs` times, after once for compiling it, and time every kernel.

        Without `feed`, inputs are random (`samples.draw_feed`), with 1 for each dimension that is no number.  Kernels of one
        session are timed one after the other, so nothing else should run meanwhile."""
        if feed is None:
            drawn = draw_feed(self._inputs, {}, 0, {})
            run_drawn(lambda f: self.run(None, f), drawn, drawn)
            feed = drawn
        given = check_feed(self._inputs, self._defaults, feed)
        self.execute(given, Request(self._threads))
        watch = Watch()
        request = Request(self._threads, watch.step, watch.node)
        team = runtime_threads.get_num_threads()
        n_threads = team if self._threads is None else min(team, self._threads)
        return profile_runs(lambda: self.execute(given, request), watch, n_runs, n_threads)

    def execute(self, given: Mapping[str, Any], request: Request) -> Env:
        """All values of the graph that outlive its segments, for checked inputs."""
        return self.runner.run(dict(given), request)

    def _results(self, env: Env, names: Sequence[str], given: Env, out: Mapping[str, np.ndarray]) -> list[Any]:
        """The outputs; arrays of their own, whatever memory a node took them from."""
        kept: list[np.ndarray] = [v for v in given.values() if isinstance(v, np.ndarray)]
        results: list[Any] = []
        for name in names:
            value = env[name] if name in env else self.runner.graph.constants[name]
            if (port := self._unconfirmed.get(name)) is not None:
                _check_declared(port, value)
                self._unconfirmed.pop(name, None)  # the types of a graph are the same in every run
            target = out.get(name)
            if isinstance(value, np.ndarray):
                if target is not None:
                    if target is not value:
                        _copy_to(name, target, value)
                    value = target
                elif name not in env or not value.flags.writeable or any(np.may_share_memory(value, k) for k in kept):
                    value = value.copy()
                kept.append(value)
            results.append(value)
        return results


def load(
    model: Any,
    *,
    strict: bool = False,
    threads: int | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
    dynamic: Dynamic = "auto",
) -> Session:
    """A session of a model: a path, the bytes of a file, or a ``ModelProto``.

    `strict`: an operator that polyc does not compile is an error that lists all such nodes, when the model is loaded as far as
    its declared shapes tell, instead of being left to onnx's reference implementation.
    `threads`: at most so many in each run (None: as `polyc.set_num_threads` says).  `progress` is told how many of how many
    kernels are done while a model is compiled, at its first run.  `dynamic`: what inputs of new shapes do.  "auto": the first
    two shapes of a part of the model get code of their own, then what varies between them becomes symbolic; True: from the
    second shape on; False: every shape gets code of its own.

    Raises `PolycError` for what is no model."""
    return Session(read_model(model), strict=strict, threads=threads, options=options, progress=progress, dynamic=dynamic)


def _check_options(options: object, progress: object, dynamic: object) -> None:
    problem = help = None
    if not isinstance(dynamic, bool) and dynamic != "auto":
        problem, help = f"dynamic cannot be {dynamic!r}", 'it is "auto", True or False'
    elif options is not None and not isinstance(options, Options):
        problem, help = f"options cannot be {options!r}", "pass a polyc.Options"
    elif progress is not None and not callable(progress):
        problem, help = f"progress cannot be {progress!r}", "pass a function of two numbers: kernels done, and all of them"
    if problem is not None:
        raise argument_error("argument-option", problem, None, help)


def _check_declared(port: Port, value: Any) -> None:
    """Raise where a result has another element type than the model says."""
    if isinstance(value, np.ndarray) and value.dtype != numpy_type(port.type):
        message = f"the model declares its output {port.name!r} as {port.type}, and what it computes is {value.dtype}"
        help = "correct the declared type, or put a Cast in front of the output"
        raise SemanticError(Diagnostic("semantic-onnx-type", message, None, help))


def _copy_to(name: str, target: np.ndarray, value: np.ndarray) -> None:
    if target.shape != value.shape or target.dtype != value.dtype:
        message = f"out[{name!r}] is {target.dtype} of shape {shape_label(target.shape)}"
        message += f", but the result is {value.dtype} of shape {shape_label(value.shape)}"
        raise argument_error("argument-onnx-out", message, None, "give an array of that type and shape")
    np.copyto(target, value)


def _require_functions(graph: Graph) -> None:
    """UnsupportedError for all nodes at once whose operators polyc has no function for."""
    missing = _without_function(graph)
    if missing:
        raise UnsupportedError(*(strict_problem(n, "polyc has no function for it") for n in missing))


def _without_function(graph: Graph) -> list[Node]:
    """Nodes that no function covers, without those that depend on shapes alone: planning a run computes these."""
    found = []
    planned = set(graph.constants) - {p.name for p in graph.inputs}
    for node in graph.nodes:
        if node.op in ("Shape", "Size") or (node.inputs and not node.has_subgraphs and planned.issuperset(node.used_names)):
            planned.update(node.outputs)
            continue
        is_known = is_driven(node) or find_implementation(node.domain, node.op, node.version) is not None
        if not is_known and not may_expand(node):
            found.append(node)
        for inner in node.subgraphs:
            found += _without_function(inner)
    return found


__all__ = ["Session", "load"]
