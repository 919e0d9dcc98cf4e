"""Every example of README and docs runs: Python blocks in order, ``.tc`` blocks (as the interpreter says), console lines.

A ``.tc`` block marked ``error=range-`` is refused with a code of that beginning; marked ``entry=f`` that def is compiled;
one marked ``file=op.tc`` is also written to a file for the console lines of the page.
"""

from __future__ import annotations

import re
import runpy
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import polyc
from polyc.api.samples import draw_array, find_index_limits, join_matrices, result_arrays, sort_segments
from polyc.cli import main
from polyc.ir.expr import evaluate
from polyc.ir.interpret import interpret

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "errors.d" not in p.parts)]


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    attributes: dict[str, str]
    text: str
    line: int
    """Number of its first line of text in the page, from 1."""


def blocks(page: Path) -> list[Block]:
    found = []
    text = page.read_text()
    for match in re.finditer(r"^```(\w+)([^\n]*)\n(.*?)^```$", text, re.S | re.M):
        attributes = dict(item.split("=", 1) for item in match[2].split() if "=" in item)
        found.append(Block(match[1], attributes, match[3], text.count("\n", 0, match.start(3)) + 1))
    return found


def pages_with(language: str) -> list[object]:
    chosen = [page for page in PAGES if any(b.language == language for b in blocks(page))]
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in chosen]


@pytest.mark.parametrize("page", pages_with("python"))
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    """As one module, each line where it stands in the page, so that a traceback shows the page's line."""
    if page.stem == "distributed":
        pytest.importorskip("dask.array")
    lines: list[str] = []
    for block in blocks(page):
        if block.language == "python":
            lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    module = tmp_path / f"{page.stem}.py"
    module.write_text("\n".join(lines) + "\n")
    runpy.run_path(str(module), run_name=page.stem)


@pytest.mark.parametrize("page", pages_with("tc"))
def test_tc_blocks_run_as_the_interpreter_says(page: Path) -> None:
    for block in blocks(page):
        if block.language != "tc":
            continue
        if "error" in block.attributes:
            with pytest.raises(polyc.PolycError) as caught:
                polyc.compile(block.text, block.attributes.get("entry")).lower()
            assert caught.value.code.startswith(block.attributes["error"])
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                operators = [polyc.compile(block.text, block.attributes.get("entry"))]
            for operator in operators:
                run_on_samples(operator)


def run_on_samples(operator: polyc.Operator) -> None:
    """Compare the compiled operator with the reference interpreter, for a size each."""
    program = operator.program
    sizes = {name: max(3, 9 - 2 * n) for n, name in enumerate(program.sizes)}
    limits = find_index_limits(program, sizes)
    inputs: dict[str, np.ndarray] = {}
    for name in program.parameters:
        tensor = program.tensor(name)
        shape = [evaluate(e, sizes) for e in tensor.shape or ()]
        inputs[name] = draw_array(name, tensor.dtype, shape, 0, limits.get(name))
    sort_segments(program, sizes, inputs)
    results = operator(**{**sizes, **join_matrices(program, inputs, sizes)})
    expected = interpret(program, inputs, sizes)
    for result, array in zip(program.returns, result_arrays(results), strict=True):
        np.testing.assert_allclose(array, expected[result.name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("page", pages_with("console"))
def test_console_lines_succeed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(page):
        if "file" in block.attributes:
            (tmp_path / block.attributes["file"]).write_text(block.text)
        if block.language != "console":
            continue
        for line in block.text.splitlines():
            if line.startswith("$ polyc "):
                done = CliRunner().invoke(main, line.removeprefix("$ polyc ").split())
                assert done.exit_code == 0, f"{line}\n{done.stderr}"


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_worked_examples_of_changes_are_short() -> None:
    _, *examples = re.split(r"^## ", (ROOT / "docs" / "contributing.md").read_text(), flags=re.M)
    assert len(examples) == 4 and all(text.count("\n") <= 60 for text in examples)
