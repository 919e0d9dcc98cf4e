"""How many numbers the scheduler and the code generator keep: what depends on the machine is in `polyc.machine`, what bounds
code and compile time in several passes in `polyc.code_limits` (docs/decisions/0913)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "polyc"
MOST = 160
"""Names of numbers in both, those of codes in object files included."""
MOST_LIMITS = 40
"""Names in `code_limits`, where a number of a pass's own would be as hidden as in the pass."""


def numbers_in(body: list[ast.stmt]) -> Iterator[str]:
    """Names in capitals that a module or a class gives a value with numbers in it; tables, and what functions make, apart."""
    for node in body:
        match node:
            case ast.ClassDef():
                yield from numbers_in(node.body)
            case ast.Assign(targets=targets, value=value) | ast.AnnAssign(target=targets, value=value):
                if isinstance(value, ast.Dict | ast.Call | ast.Set | None):
                    continue
                found = targets if isinstance(targets, list) else [targets]
                names = [n.id for target in found for n in ast.walk(target) if isinstance(n, ast.Name)]
                is_number = any(isinstance(n, ast.Constant) and type(n.value) in (int, float) for n in ast.walk(value))
                if is_number and names and all(name.strip("_").isupper() for name in names):
                    yield from names


def test_numbers_are_few():
    found = {
        path.relative_to(PACKAGE).as_posix(): names
        for folder in ("scheduler", "codegen")
        for path in (PACKAGE / folder).rglob("*.py")
        if (names := list(numbers_in(ast.parse(path.read_text()).body)))
    }
    assert sum(map(len, found.values())) <= MOST, found


def test_limits_are_few():
    assert len(list(numbers_in(ast.parse((PACKAGE / "code_limits.py").read_text()).body))) <= MOST_LIMITS


def test_numbers_hide_in_no_class_and_no_pair():
    text = """
A, _B = 1, (2, 3.0)
C: int = 1 << 4
D = E[0]
F = f"{1}"
class G:
    H = 4
i = 5
J = {1: 2}
K = L
M, O = "n", True
"""
    assert list(numbers_in(ast.parse(text).body)) == ["A", "_B", "C", "D", "F", "H"]
