"""Ranges at concrete sizes: the table of Tensor Comprehensions' own tests, and agreement with the symbolic inference."""

import pytest
from hypothesis import HealthCheck, given, settings

from polyc.diagnostics import PolycError
from polyc.ir.expr import evaluate
from polyc.ir.interpret_ranges import complete_sizes, solve_ranges
from polyc.ir.sizes import define_sizes
from polyc.ir.text import format_program
from polyc.ir.text_reader import parse_program
from polyc.poly.infer import concrete_shapes, infer_ranges
from tests.property.strategies import Case, cases


def ranges_of(statement: str, indices: str, shape: str, **sizes: int) -> dict[str, tuple[int, int]]:
    """[lower, extent] of each index of one statement that reads ``I``."""
    names = ", ".join(sizes)
    text = f"program p(I: f32[{shape}]) -> (O) sizes {names} output O: f32[?] S0({indices}): O[i] += {statement}"
    text = text.replace(" where", " init 0.0 where") if " where" in text else text + " init 0.0"
    box = solve_ranges(parse_program(text), sizes).statements["S0"]
    return {name: (lower, upper - lower) for name, (lower, upper) in box.items()}


@pytest.mark.parametrize(
    ("statement", "indices", "shape", "sizes", "expected"),
    [
        ("I[i]", "i", "N", {"N": 9}, {"i": (0, 9)}),
        ("I[123 * i]", "i", "N", {"N": 300}, {"i": (0, 3)}),
        ("I[i - 1]", "i", "N", {"N": 9}, {"i": (1, 9)}),
        ("I[i + 5]", "i", "N", {"N": 9}, {"i": (-5, 9)}),
        ("I[10 - i]", "i", "N", {"N": 4}, {"i": (7, 4)}),
        ("I[j, i + j]", "i, j", "N, M", {"N": 4, "M": 9}, {"i": (0, 6), "j": (0, 4)}),
        ("I[i + k] where k in 0:3", "i, k", "N", {"N": 9}, {"i": (0, 7), "k": (0, 3)}),
        ("I[2 * i] + I[2 * i + 1]", "i", "N", {"N": 9}, {"i": (0, 4)}),
        ("I[2 * i + k] where k in 0:2", "i, k", "N", {"N": 9}, {"i": (0, 4), "k": (0, 2)}),
        ("I[10 + i - j, i + j] where i in 0:10", "i, j", "N, M", {"N": 15, "M": 17}, {"i": (0, 10), "j": (5, 3)}),
        ("I[i // 3]", "i", "N", {"N": 4}, {"i": (0, 12)}),
        ("I[(i + k) // 2] where k in 0:2", "i, k", "N", {"N": 4}, {"i": (0, 7), "k": (0, 2)}),
        ("I[max(min(i, N - 1), 0)] where i in -2:N + 2", "i", "N", {"N": 4}, {"i": (-2, 8)}),
        ("I[min(i, 2)]", "i", "N", {"N": 4}, None),
        ("i < 2 ? I[i + 5] : I[i] where i in 0:N", "i", "N", {"N": 4}, {"i": (0, 4)}),
        ("i < 2 ? I[i] : I[i - 1]", "i", "N", {"N": 4}, {"i": (1, 3)}),
    ],
)
def test_table(statement: str, indices: str, shape: str, sizes: dict[str, int], expected: dict | None) -> None:
    if expected is None:
        with pytest.raises(PolycError):
            ranges_of(statement, indices, shape, **sizes)
    else:
        assert ranges_of(statement, indices, shape, **sizes) == expected


@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(cases(smallest_size=0))
def test_symbolic_inference_gives_the_same_ranges(case: Case) -> None:
    program = define_sizes(case.program)
    concrete = solve_ranges(program, case.sizes)
    symbolic = infer_ranges(program)
    values = complete_sizes(program, case.sizes)
    text = format_program(program)
    assert all(evaluate(check.condition, values) for check in symbolic.checks), text
    shapes = concrete_shapes(symbolic, values)
    for name, intervals in concrete.tensors.items():
        if name in shapes:
            assert shapes[name] == tuple((lower, upper - lower) for lower, upper in intervals), text
    for name, box in concrete.statements.items():
        found = symbolic.statements[name].indices
        for index, (lower, upper) in box.items():
            assert (evaluate(found[index].lower, values), evaluate(found[index].extent, values)) == (lower, upper - lower), text
