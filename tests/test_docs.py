"""Every example of README and docs runs: Python blocks in order, ``.tc`` blocks compile, console lines succeed.

A ``.tc`` block marked ``error=range-`` is refused with a code of that beginning; marked ``entry=f`` that def is compiled;
one marked ``file=op.tc`` is also written to a file for the console lines of the page.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

import polyc

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
    lines: list[str] = []
    for block in blocks(page):
        if block.language == "python":
            lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    module = tmp_path / f"{page.stem}.py"
    module.write_text("\n".join(lines) + "\n")
    runpy.run_path(str(module), run_name=page.stem)


@pytest.mark.parametrize("page", pages_with("tc"))
def test_tc_blocks_compile(page: Path) -> None:
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
                assert polyc.compile(block.text, block.attributes.get("entry")).lower().as_text("sched")


@pytest.mark.parametrize("page", pages_with("console"))
def test_console_lines_succeed(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        if "file" in block.attributes:
            (tmp_path / block.attributes["file"]).write_text(block.text)
        if block.language != "console":
            continue
        for line in block.text.splitlines():
            if line.startswith("$ polyc "):
                command = [sys.executable, "-m", "polyc", *line.removeprefix("$ polyc ").split()]
                done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
                assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
