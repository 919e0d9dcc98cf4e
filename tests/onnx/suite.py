"""ONNX's own backend suite, case by case: how polyc runs each, and what went wrong where it does not.

``python -m tests.onnx.suite NAMES…`` runs the cases whose names contain one of the words and prints how; without words, all of
them.  ``--write`` runs all and writes ``docs/onnx_support.md`` and ``tests/onnx/cases.txt``, the list that `test_backend` holds
polyc to.
"""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.connection
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

import polyc.onnx
from polyc.diagnostics import PolycError

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
CASES = Path(__file__).with_name("cases.txt")
PAGE = Path(__file__).parents[2] / "docs" / "onnx_support.md"
PLAIN = frozenset("float double int32 int64 uint32 uint64 bool".split())
"""Element types of the cases that the bars of the project count, beside domain, control flow and functions."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One case of the suite."""

    name: str
    kind: str
    test: Any

    @property
    def model(self) -> onnx.ModelProto:
        if self.test.model is not None:
            return self.test.model
        return onnx.load(str(Path(self.test.model_dir) / "model.onnx"))

    def data(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Inputs and expected outputs."""
        if self.test.data_sets is not None:
            for inputs, outputs in self.test.data_sets:
                yield [_as_value(v) for v in inputs], [_as_value(v) for v in outputs]
            return
        model = self.model
        for folder in sorted(Path(self.test.model_dir).glob("test_data_set_*")):
            yield _read_values(folder, "input", model.graph.input), _read_values(folder, "output", model.graph.output)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a case went: "compiled" (with strict=True), "fallback" or "failed", with the reason for the last two."""

    name: str
    way: str
    reason: str
    operators: tuple[str, ...]
    is_counted: bool
    """Whether it is one of the cases that the project's bars count."""
    seconds: float


def _as_value(value: Any) -> Any:
    """A case's value, which is a protobuf where NumPy has no such element type."""
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _read_values(folder: Path, prefix: str, ports: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    values: list[Any] = []
    for number, port in enumerate(ports):
        path = folder / f"{prefix}_{number}.pb"
        if not path.exists():
            break
        content = path.read_bytes()
        match port.type.WhichOneof("value"):
            case "sequence_type":
                values.append(onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(content)))
            case "optional_type":
                values.append(onnx.numpy_helper.to_optional(onnx.OptionalProto.FromString(content)))
            case _:
                values.append(onnx.numpy_helper.to_array(onnx.TensorProto.FromString(content)))
    return values


@cache
def load_cases() -> dict[str, Case]:
    """All cases by name; making their data takes some ten seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {t.name: Case(t.name, kind, t) for kind in KINDS for t in load_model_tests(kind=kind)}


def run_case(case: Case, *, strict: bool) -> None:
    """Run and compare as the suite does; raises what goes wrong."""
    session = polyc.onnx.load(case.model, strict=strict)
    names = [p.name for p in session.get_inputs()]
    for inputs, expected in case.data():
        feed = {n: v for n, v in zip(names, inputs, strict=False) if v is not None}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = session.run(None, feed)
            assert len(found) == len(expected)
            for value, wanted in zip(found, expected, strict=True):
                rtol = case.test.rtol
                if isinstance(wanted, np.ndarray) and wanted.dtype.kind == "V":  # not all releases of NumPy compare these
                    assert value.dtype == wanted.dtype
                    rtol = max(rtol, 2**-6) if wanted.dtype.name == "bfloat16" else rtol
                    value, wanted = value.astype(np.float32), wanted.astype(np.float32)
                Runner.assert_similar_outputs([wanted], [value], rtol, case.test.atol)


def judge_case(case: Case) -> Outcome:
    """Run a case compiled, else with the fallback, and say how it went."""
    start = time.perf_counter()
    way, reason = "failed", ""
    try:
        run_case(case, strict=True)
        way = "compiled"
    except Exception as error:
        reason = _describe(error)
        try:
            run_case(case, strict=False)
            way = "fallback"
        except Exception as second:
            reason = _describe(second)
    model = case.model
    return Outcome(case.name, way, reason, operators(model.graph), is_counted(case, model), time.perf_counter() - start)


def _describe(error: Exception) -> str:
    if isinstance(error, PolycError):
        return f"[{error.code}] {error.diagnostics[0].message}"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"


def operators(graph: onnx.GraphProto) -> tuple[str, ...]:
    """Operators of a graph and its subgraphs, without those that only hold constants."""
    found: dict[str, None] = {}
    for node in graph.node:
        if node.op_type != "Constant":
            found[f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type] = None
        for a in node.attribute:
            for inner in (*([a.g] if a.HasField("g") else []), *a.graphs):
                found |= dict.fromkeys(operators(inner))
    return tuple(found)


def is_counted(
    case: Case,
    model: onnx.ModelProto,
    *,
    any_outputs: bool = False,
    old_expansions: bool = False,
    plain: frozenset[str] = PLAIN,
) -> bool:
    """Whether a case has dense tensors of 32 and 64 bits (and booleans) only, operators of the default domain, no control flow,
    and is no expansion of a function.

    The rule can be read in other ways, which `count_readings` counts: by the types of inputs alone (`any_outputs`), with the
    expansions for older operator sets (`old_expansions`, ``…_expanded_ver18``), or with other `plain` types."""
    if case.name.endswith("_expanded") or ("_expanded_ver" in case.name and not old_expansions):
        return False
    nodes = list(model.graph.node)
    if any(
        n.domain not in ("", "ai.onnx") or a.HasField("g") or a.graphs
        for n in nodes
        for a in (*n.attribute, onnx.AttributeProto())
    ):
        return False
    return all(_is_plain(p.type, plain) for p in (*model.graph.input, *(() if any_outputs else model.graph.output)))


def _is_plain(proto: onnx.TypeProto, plain: frozenset[str]) -> bool:
    if proto.WhichOneof("value") != "tensor_type":
        return False
    return onnx.TensorProto.DataType.Name(proto.tensor_type.elem_type).lower() in plain


def count_readings() -> Iterator[str]:
    """A line for each way to read the rule of `is_counted`: cases, how many are held to run compiled, and to pass at all."""
    listed, models = read_list(), [(c, c.model) for c in load_cases().values()]
    for plain in (PLAIN, PLAIN - {"uint32", "uint64"}, PLAIN - {"bool"}):
        for any_outputs in (False, True):
            for old_expansions in (False, True):
                names = [
                    c.name
                    for c, m in models
                    if is_counted(c, m, any_outputs=any_outputs, old_expansions=old_expansions, plain=plain)
                ]
                ways = Counter(listed.get(n, "unlisted") for n in names)
                rule = f"types of {'inputs' if any_outputs else 'inputs and outputs'}"
                rule += ", expansions for older operator sets" if old_expansions else ""
                passed = len(names) - ways["unlisted"]
                yield f"{len(names)} cases, {ways['compiled']} compiled, {passed} pass: {' '.join(sorted(plain))}; {rule}"


# --- All of them -----------------------------------------------------------------------------------------------------


def judge(names: Sequence[str], *, processes: int = 1, seconds: float = 120) -> Iterator[Outcome]:
    """Outcomes as they come.  Cases run in other processes: one that crashes or hangs is a failure of its case alone."""
    load_cases()  # before the fork, so that it is done once
    context = multiprocessing.get_context("fork")
    shares = [list(names[k::processes]) for k in range(processes)]
    running: dict[Any, tuple[Any, list[str], float]] = {}

    def start(share: list[str]) -> None:
        if share:
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_judge_share, args=(sender, share), daemon=False)
            process.start()
            sender.close()
            running[receiver] = (process, share, time.monotonic())

    for share in shares:
        start(share)
    while running:
        ready = set(multiprocessing.connection.wait(list(running), 1))
        for receiver, (process, share, since) in list(running.items()):
            if receiver in ready:
                try:
                    yield receiver.recv()
                    running[receiver] = (process, share[1:], time.monotonic())
                    continue
                except EOFError:
                    process.join()
                    reason = f"the process ended with code {process.exitcode}"
            elif time.monotonic() - since > seconds:
                process.kill()
                process.join()
                reason = f"no answer within {seconds:g} s"
            else:
                continue
            del running[receiver]
            if share:
                yield Outcome(share[0], "failed", reason, (), False, time.monotonic() - since)
            start(share[1:])


def _judge_share(sender: Any, names: Sequence[str]) -> None:
    cases = load_cases()
    for name in names:
        sender.send(judge_case(cases[name]))


def read_list() -> dict[str, str]:
    """The cases that polyc is held to, and how each runs."""
    lines = [line.split() for line in CASES.read_text().splitlines() if line and not line.startswith("#")]
    return {name: way for name, way, *_ in lines}


def summarize(outcomes: Iterable[Outcome]) -> str:
    """One line with the numbers that count."""
    found = list(outcomes)
    counted = Counter(o.way for o in found if o.is_counted)
    every = Counter(o.way for o in found)
    n = sum(counted.values())
    of_these = f"{counted['compiled']} compiled, {counted['fallback']} with the fallback, {counted['failed']} failed"
    return (
        f"{len(found)} cases: {every['compiled']} compiled, {every['fallback']} with the fallback, {every['failed']} failed; "
        f"of {n} that count, {of_these}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.onnx.suite", description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of names of cases")
    parser.add_argument("--write", action="store_true", help="write the support page and the list of cases")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--count", action="store_true", help="count the listed cases by each reading of the project's rule")
    options = parser.parse_args(arguments)
    if options.count:
        print(*count_readings(), sep="\n")
        return 0
    words = [w.replace("-", "_") for w in options.words]
    names = [n for n in load_cases() if not words or any(w in n for w in words)]
    outcomes = []
    for outcome in judge(names, processes=options.jobs):
        outcomes.append(outcome)
        mark = {"compiled": " ", "fallback": "~", "failed": "!"}[outcome.way]
        print(
            f"{mark} {outcome.name} {outcome.seconds:.2f} s {'' if outcome.way == 'compiled' else outcome.reason}", flush=True
        )
    print(summarize(outcomes))
    if options.write:
        from tests.onnx.support_page import write_page

        write_page(outcomes)
    return 0


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main())
