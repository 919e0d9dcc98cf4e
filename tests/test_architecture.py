"""The rules that keep the house in order: layers, who may import what, error codes and options against their pages."""

from __future__ import annotations

import ast
import fnmatch
import importlib.util
import re
import subprocess
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from polyc.config import ENVIRONMENT, Options

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "polyc"
OWNERS = {
    "islpy": ("polyc/poly/",),
    "llvmlite": ("polyc/codegen/",),
    "highspy": ("polyc/scheduler/",),
    "lark": ("polyc/frontends/tc/",),
    "opt_einsum": ("polyc/ir/contraction_paths.py",),
    "rich": ("polyc/cli/",),
    "click": ("polyc/cli/",),
    "onnx": ("polyc/frontends/onnx/", "polyc/onnx/"),
    "threadpoolctl": ("polyc/runtime/",),
    "dask": ("polyc/api/dask_arrays.py", "polyc/api/block_memory.py"),
}
"""External packages and the only places that may import them."""
CODE = re.compile(r"(syntax|semantic|type|range|argument|bounds|unsupported|budget|internal|threads)(-[a-z0-9]+)+")
PREFIXES = ("argument-type",)
"""Of the form of a code, but only ever the beginning of one."""


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """The syntax tree of a file, all nodes of it; what the tests below read it for, they share."""
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imported_packages(path: Path) -> frozenset[str]:
    """Top-level names of everything a file imports, at any depth of it."""
    found: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return frozenset(found)


@cache
def error_codes() -> dict[str, Path]:
    """Codes in the package: string literals that have the form of a code; ``f"range-{kind}"`` gives the pattern ``range-*``."""
    codes = {}
    for path in sources():
        for node in nodes_of(path):
            match node:
                case ast.Constant(value=str(text)) if CODE.fullmatch(text) and text not in PREFIXES:
                    codes[text] = path.relative_to(ROOT)
                case ast.JoinedStr(values=[ast.Constant(value=str(text)), ast.FormattedValue()]) if CODE.fullmatch(text + "x"):
                    codes[f"{text}*"] = path.relative_to(ROOT)
    return codes


def documented_codes() -> set[str]:
    return set(re.findall(r"^## ([a-z0-9-]+)$", (ROOT / "docs/errors.md").read_text(), re.M))


def table_rows(heading: str) -> dict[str, list[str]]:
    """Rows of the first table under a heading of docs/configuration.md, by the name in their first cell."""
    page = (ROOT / "docs/configuration.md").read_text()
    section = page.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = {}
    for line in section.splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if line.startswith("| `"):
            rows[cells[0].strip("`")] = cells[1:]
    return rows


def test_layers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("package", OWNERS)
def test_external_package_is_imported_by_its_owner_only(package: str) -> None:
    strangers = [
        str(path.relative_to(ROOT))
        for path in sources()
        if package in imported_packages(path) and not str(path.relative_to(ROOT)).startswith(OWNERS[package])
    ]
    assert not strangers


def test_every_error_code_is_documented() -> None:
    missing = {c: str(p) for c, p in error_codes().items() if not fnmatch.filter(documented_codes(), c)}
    assert not missing, "add sections to docs/errors.d/ and run python docs/assemble.py"


def test_every_documented_code_exists() -> None:
    patterns = error_codes()
    assert not {c for c in documented_codes() if not any(fnmatch.fnmatchcase(c, p) for p in patterns)}


def test_error_page_is_assembled() -> None:
    spec = importlib.util.spec_from_file_location("assemble", ROOT / "docs/assemble.py")
    assert spec is not None and spec.loader is not None
    assemble = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(assemble)
    assert (ROOT / "docs/errors.md").read_text() == assemble.assemble(), "run python docs/assemble.py"
    assert (ROOT / "docs/passes.md").read_text() == assemble.tabulate_passes(), "run python docs/assemble.py"


def test_options_are_documented() -> None:
    rows = table_rows("Options")
    assert set(rows) == {f.name for f in fields(Options)}
    defaults = {name: ast.literal_eval(cells[0].strip("`")) for name, cells in rows.items()}
    assert defaults == {f.name: f.default for f in fields(Options)}


def test_environment_variables_are_documented() -> None:
    assert set(table_rows("Environment variables")) == set(ENVIRONMENT)


def test_environment_variables_are_all_declared() -> None:
    used = {name for path in sources() for name in re.findall(r"[\"'](POLYC_[A-Z_]+)[\"']", path.read_text())}
    assert used <= set(ENVIRONMENT)


def test_every_subpackage_is_a_layer() -> None:
    names = {p.stem for p in PACKAGE.glob("*.py")} | {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    contract = (ROOT / "pyproject.toml").read_text().split("[[tool.importlinter.contracts]]", 1)[1]
    assert not {n for n in names - {"__init__", "__main__"} if not re.search(rf"polyc\.{n}\b", contract)}


def test_kinds_are_asked_for_by_tuples() -> None:
    """``isinstance(x, A | B)`` makes a union each time, which takes ten times as long as the question."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources()
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance" and isinstance(node.args[1], ast.BinOp)
    ]
    assert found == []


def test_a_release_has_at_most_a_hundred_lines_of_changes() -> None:
    releases = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]
    assert releases and all(len(r.splitlines()) <= 100 for r in releases)
