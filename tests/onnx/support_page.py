"""``docs/onnx_support.md`` and the list of cases that tests hold polyc to, from what the whole suite gave."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import onnx

from polyc.frontends.onnx.registry import registered
from tests.onnx.suite import CASES, KINDS, PAGE, Outcome, load_cases, summarize

HEAD = """# Operators of ONNX

Written by `python -m tests.onnx.suite --write` (onnx {version}); `tests/onnx/test_backend.py` holds polyc to it.

ONNX's own backend suite ({kinds}), {summary}. Those that *count* have
dense tensors of 32 and 64 bits and booleans only, operators of the default domain, no control flow, and are not the expansion
of a function.

*compiled*: every node is compiled (`strict=True`). *fallback*: onnx's reference implementation computes some node. *failed*: no
result, or another one than the suite expects.

| operator | opsets | compiled | fallback | failed |
|---|---|---:|---:|---:|
"""


def write_page(outcomes: Sequence[Outcome]) -> None:
    """Write both files."""
    PAGE.write_text(make_page(outcomes))
    lines = [f"{o.name} {o.way}" for o in sorted(outcomes, key=lambda o: o.name) if o.way != "failed" and _is_stable(o)]
    text = "# Cases of ONNX's backend suite, and how polyc runs each: python -m tests.onnx.suite --write\n"
    CASES.write_text(text + "\n".join(lines) + "\n")


def make_page(outcomes: Sequence[Outcome]) -> str:
    """The text of the page."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for o in outcomes:
        for name in o.operators:
            counts[name][o.way] += 1
    head = HEAD.format(version=onnx.__version__, kinds=", ".join(KINDS), summary=summarize(outcomes))
    rows = [
        f"| {name} | {describe_versions(name)} | {n['compiled'] or ''} | {n['fallback'] or ''} | {n['failed'] or ''} |"
        for name, n in sorted(counts.items(), key=lambda item: ("." in item[0], item[0]))
    ]
    parts = [head + "\n".join(rows)]
    for way, title in (("fallback", "Cases with the fallback"), ("failed", "Cases that fail")):
        reasons: dict[str, list[str]] = defaultdict(list)
        for o in outcomes:
            if o.way == way:
                reasons[_generalize(o.reason)].append(o.name.removeprefix("test_"))
        lines = [f"- {reason} ({len(names)}): {_shorten(sorted(names))}" for reason, names in sorted(reasons.items())]
        parts.append(f"## {title}\n\n" + ("\n".join(lines) or "None."))
    return "\n\n".join(parts) + "\n"


def describe_versions(name: str) -> str:
    """The versions of the operator set that polyc compiles an operator of."""
    domain, _, op = name.rpartition(".")
    found = registered().get((domain, op))
    if found:
        first = min(i.since for i in found)
        return f"{first} to {onnx.defs.onnx_opset_version()}" if not domain else f"from {first}"
    try:
        schema = onnx.defs.get_schema(op, domain=domain)
    except onnx.defs.SchemaError:
        return "–"
    is_function = schema.has_context_dependent_function or bool(getattr(schema, "has_function", False))
    return "by its function" if is_function else "–"


def _is_stable(o: Outcome) -> bool:
    """Whether a case gives the same each time: those that draw random numbers may pass by chance."""
    case = load_cases()[o.name]
    return not any(n in o.name for n in ("bernoulli", "training_dropout")) and case.kind in KINDS


def _generalize(reason: str) -> str:
    """A reason without what belongs to one case: names of values, numbers of elements."""
    reason = re.sub(r"^\[[a-z-]+\] ", "", reason)
    reason = re.sub(r"^([\w.]+) \S+ (is not compiled|cannot be computed|is not known)", r"\1 \2", reason)
    reason = re.sub(r"(Not equal to tolerance \S+ \S+).*", "other values than expected", reason)
    reason = re.sub(r"the input '?\w+'? ", "an input ", reason)
    reason = re.sub(r": \w+ is no tensor of numbers", ": an input is no tensor of numbers", reason)
    return " ".join(reason.replace("|", "/").split())[:200]


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
