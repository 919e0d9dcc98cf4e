"""Tiles of time: small caches make them appear at sizes that the interpreter can follow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from heapq import heappop, heappush
from itertools import product
from typing import Any

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.codegen.objects.host import host_target
from polyc.config import default_options
from polyc.ir.interpret import interpret
from polyc.machine import X86_64_V4, Machine, is_runnable, select_model
from polyc.poly.tree import Plan, PlanLoop, PlanSequence
from polyc.scheduler.loops.time_tiling import BLOCKS, _candidates, _cost, _pipeline_time, _Space, _Tiles

Array = np.ndarray[Any, Any]

LINE = """def f(double(N) x, double(T) steps) -> (B) {
  A(0, i) = x(i)
  A(t, i) = i == 0 || i == N-1 ? A(t-1, i) : 0.25 * (A(t-1, i-1) + A(t-1, i)) + 0.5 * A(t-1, i+1) where t in 1:T+1, i in 0:N
  B(i) = A(T, i)
}"""
PLANE = """def f(double(N, M) x, double(T) steps) -> (B) {
  A(0, i, j) = x(i, j)
  A(t, i, j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? A(t-1, i, j)
    : 0.25 * (A(t-1, i-1, j) + A(t-1, i+1, j) + A(t-1, i, j-1)) + 0.125 * A(t-1, i, j+1) + x(i, j)
    where t in 1:T+1, i in 0:N, j in 0:M
  B(i, j) = A(T, i, j)
}"""
CUBE = """def f(double(N, M, K) x, double(T) steps) -> (B) {
  A(0, i, j, k) = x(i, j, k)
  A(t, i, j, k) = i == 0 || i == N-1 || j == 0 || j == M-1 || k == 0 || k == K-1 ? A(t-1, i, j, k)
    : 0.125 * (A(t-1, i-1, j, k) + A(t-1, i+1, j, k) + A(t-1, i, j-1, k) + A(t-1, i, j+1, k) + A(t-1, i, j, k-1))
    + 0.375 * A(t-1, i, j, k+1) where t in 1:T+1, i in 0:N, j in 0:M, k in 0:K
  B(i, j, k) = A(T, i, j, k)
}"""
FIELDS = """def f(double(N, M) ex, double(N, M) ey, double(N, M) hz, double(T) steps) -> (H) {
  X(0, i, j) = ex(i, j)
  Y(0, i, j) = ey(i, j)
  Z(0, i, j) = hz(i, j)
  Y(t, i, j) = Y(t-1, i, j) - 0.5 * (Z(t-1, i, j) - pad(Z(t-1, i-1, j), 0.0)) where t in 1:T+1, i in 0:N, j in 0:M
  X(t, i, j) = X(t-1, i, j) - 0.5 * (Z(t-1, i, j) - pad(Z(t-1, i, j-1), 0.0)) where t in 1:T+1, i in 0:N, j in 0:M
  Z(t, i, j) = Z(t-1, i, j) - 0.25 * (pad(X(t, i, j+1), 0.0) - X(t, i, j) + pad(Y(t, i+1, j), 0.0) - Y(t, i, j))
    where t in 1:T+1, i in 0:N, j in 0:M
  H(i, j) = Z(T, i, j)
}"""


def small_cache(name: str = "host", l2: int = 1 << 12) -> Machine:
    return replace(select_model(host_target(), name) if name != "host" else host_target(), l2=l2, l3=l2)


def check(text: str, *inputs: Array, is_tiled: bool = True, target: Machine | None = None, **options: Any) -> Any:
    operator = polyc.compile(text)
    program = operator.program
    sizes = {
        name: n for a, spec in zip(inputs, operator.program.parameters, strict=True) for name, n in _sizes(operator, spec, a)
    }
    # Few steps are written out elsewhere; here they are tiled like many.
    chosen = default_options().replace(disable=("short-recurrences",)).replace(**options)
    lowered = driver.lower(program, sizes=sizes, options=chosen, target=target or small_cache())
    text = lowered.as_text("loops")
    (expected,) = interpret(program, dict(zip(program.parameters, inputs, strict=True))).values()
    np.testing.assert_allclose(lowered.compile()(*inputs), expected, rtol=1e-12, atol=1e-12)
    assert len(pipelines(lowered)) == (is_tiled and chosen.parallel), text
    return lowered


def _sizes(operator: Any, name: str, array: Array) -> list[tuple[str, int]]:
    shape = operator.program.tensor(name).shape
    return [(e.name, n) for e, n in zip(shape, array.shape, strict=True)]


def _loops(plan: Plan) -> Iterator[PlanLoop]:
    if isinstance(plan, PlanLoop):
        yield plan
        yield from _loops(plan.child)
    elif isinstance(plan, PlanSequence):
        for child in plan.children:
            yield from _loops(child)


def pipelines(lowered: Any) -> list[PlanLoop]:
    return [loop for loop in _loops(lowered.plan) if loop.mark is not None and loop.mark.kind == "pipeline"]


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape)


@pytest.mark.parametrize(
    ("n", "steps"),
    [(400, 4), (511, 8), (512, 8), (512, 17), (513, 7), (700, 5)],
)
def test_a_line(n: int, steps: int) -> None:
    check(LINE, draw(n), draw(steps))


@pytest.mark.parametrize(
    ("shape", "steps"),
    [((18, 160), 9), ((17, 260), 8), ((33, 257), 4), ((40, 131), 8)],
)
def test_a_plane(shape: tuple[int, int], steps: int) -> None:
    check(PLANE, draw(*shape), draw(steps), target=small_cache(l2=1 << 16))


@pytest.mark.parametrize("shape", [(16, 40, 9), (33, 48, 11)])
def test_a_cube(shape: tuple[int, int, int]) -> None:
    lowered = check(CUBE, draw(*shape), draw(6), target=small_cache(l2=1 << 15))
    # Tiles of the second dimension stream along the first, and rows of neighbouring planes come together.
    (tiles,) = pipelines(lowered)
    step = lowered.scop.statement(next(iter(tiles.rows)))
    inside = [[i for i, c in zip(step.indices, loop.rows[step.name].coefficients, strict=True) if c] for loop in _loops(tiles)]
    assert inside == [["t"], ["t", "j"], ["t", "i"], ["t"], ["t", "j"], ["t", "i"], ["t", "k"]]


def backward(text: str) -> str:
    """The same steps from the last to the first."""
    text = re.sub(r"\((0|T), i", lambda found: "(T, i" if found[1] == "0" else "(0, i", text)
    return text.replace("t-1", "t+1").replace("1:T+1", "0:T")


@pytest.mark.parametrize(
    ("text", "shapes", "l2"),
    [
        (LINE, [(513,)], 1 << 12),
        (PLANE, [(18, 160)], 1 << 16),
        (CUBE, [(16, 40, 9)], 1 << 15),
        (FIELDS, [(20, 300)] * 3, 1 << 18),
    ],
)
@pytest.mark.parametrize("steps", [4, 9])
def test_steps_that_run_backward_are_tiled_as_those_forward(
    text: str, shapes: list[tuple[int, ...]], l2: int, steps: int
) -> None:
    inputs = [*(draw(*shape) for shape in shapes), draw(steps)]
    (forward,) = pipelines(check(text, *inputs, target=small_cache(l2=l2)))
    (found,) = pipelines(check(backward(text), *inputs, target=small_cache(l2=l2)))
    assert [x.size for x in _loops(found)] == [x.size for x in _loops(forward)]


def test_wide_stencils_are_skewed_as_far_as_they_reach() -> None:
    text = """def f(double(N) x, double(T) steps) -> (B) {
      A(0, i) = x(i)
      A(t, i) = i < 4 || i >= N-4 ? A(t-1, i) : 0.5 * A(t-1, i-4) + 0.25 * A(t-1, i+4) where t in 1:T+1, i in 0:N
      B(i) = A(T, i) }"""
    lowered = check(text, draw(700), draw(9))
    (tiles,) = pipelines(lowered)
    assert {tuple(row.coefficients) for loop in _loops(tiles) for row in loop.rows.values()} == {(1, 0), (4, 1)}


def test_tiles_are_as_long_as_their_steps_or_multiples() -> None:
    # Where blocks begin would be a quotient otherwise, which proofs take minutes for.
    for steps in (24, 200):
        for tiles in _candidates(steps, [_Space(400, 1, BLOCKS), _Space(400, 1, (0,))]):
            cost = _cost(tiles, 1000, 1 << 20, [_Space(400, 1, BLOCKS), _Space(400, 1, (0,))], 16, 1 << 20, 2, X86_64_V4)
            assert cost is None or max(tiles.sizes[:2]) % min(tiles.sizes[:2]) == 0


def follow_columns(tiles: _Tiles, steps: int, trips: tuple[int, ...], cores: int) -> float:
    """The time of columns of tiles, each on one core, in that of all points on one; all dimensions are skewed by the step."""
    along, across = tiles.order[tiles.columns], tiles.order[1 : tiles.columns]

    def starts(position: int, first: int) -> range:
        return range(first, first + tiles.sizes[0] - 1 + trips[position - 1], tiles.sizes[position])

    def overlap(position: int, start: int, t: int) -> int:
        end = min(start + tiles.sizes[position], t + trips[position - 1])
        return max(0, end - max(start, t))

    free, before, total = [0.0] * cores, dict[int, float](), 0.0
    for first in range(0, steps, tiles.sizes[0]):
        for corner in product(*(starts(p, first) for p in across)):
            now, left = heappop(free), dict[int, float]()
            for start in starts(along, first):
                work = 0
                for t in range(first, min(first + tiles.sizes[0], steps)):
                    points = overlap(along, start, t)
                    for p, begin in zip(across, corner, strict=True):
                        points *= overlap(p, begin, t)
                    work += points
                now = max([now, *(end for place, end in before.items() if place <= start)]) + work
                left[start], total = now, total + work
            now = max([now, *before.values()])
            heappush(free, now)
            before = left
    return max(free) / total


@pytest.mark.parametrize(
    ("sizes", "order", "trips", "steps"),
    [
        ((48, 16, 0, 0), (0, 1), (40, 40, 40), 200),
        ((6, 12, 0, 0), (0, 1), (40, 40, 40), 200),
        ((64, 64, 0), (0, 1), (250, 250), 100),
        ((64, 32, 0), (0, 1), (1300, 1300), 500),
        ((24, 2, 48, 0), (0, 2, 1), (120, 120, 120), 200),
        ((12, 24, 24, 0), (0, 1, 2), (80, 80, 80), 200),
    ],
)
@pytest.mark.parametrize("cores", [2, 8])
def test_columns_of_the_next_steps_wait_as_far_as_they_are_skewed(
    sizes: tuple[int, ...], order: tuple[int, ...], trips: tuple[int, ...], steps: int, cores: int
) -> None:
    tiles = _Tiles(sizes, order)
    estimate = _pipeline_time(tiles, steps, [_Space(n, 1, ()) for n in trips], cores)
    assert 1 / 1.4 < estimate / follow_columns(tiles, steps, trips, cores) < 1.4


def test_tiles_that_threads_wait_before_are_not_tiny() -> None:
    """Ten steps of 512 x 512 floats: two cores took 1.1 times as long in tiles of 12 rows as of 48."""
    spaces = [_Space(512, 1, ()), _Space(512, 1, ())]

    def cost(rows: int, cores: int) -> float:
        tiles = _Tiles((6, rows, 0), (0, 1))
        found = _cost(tiles, 10, 9 * 512 * 512, spaces, 8, 7 << 17, cores, replace(X86_64_V4, cores=cores))
        assert found is not None
        return found

    assert cost(24, 2) < cost(12, 2) < cost(6, 2)


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_small_cubes_do_not_wait_for_columns_of_many_steps(level: str, dynamic: bool) -> None:
    """40 x 40 x 40 doubles: two cores ran at 1.1 of the speed of one, in tiles of 48 steps."""
    program = polyc.compile(CUBE).program

    def lower(side: int, cores: int) -> Any:
        target = replace(select_model(host_target(), level), cores=cores, l2=1 << 20, l3=32 << 20)
        sizes: Any = {"N": side, "M": side, "K": side, "T": 100}
        return driver.lower(program, target=target, **{"typical" if dynamic else "sizes": sizes})

    two, many = lower(40, 2), lower(64, 16)
    (tiles,) = pipelines(two)
    assert max(loop.size for loop in _loops(tiles) if loop.part == "tile") <= 16
    # All cores together hold both planes, and share each step.
    assert not pipelines(many)
    marks = [loop.mark.kind for loop in _loops(many.plan) if loop.mark is not None]
    assert "parallel" in marks
    if dynamic and is_runnable(two.target, host_target()):
        for shape, steps in (((5, 7, 3), 5), ((13, 12, 16), 17), ((1, 4, 0), 3), ((8, 8, 9), 0)):
            x, given_steps = draw(*shape), draw(steps)
            (expected,) = interpret(program, {"x": x, "steps": given_steps}).values()
            for lowered in (two, many):
                np.testing.assert_allclose(lowered.compile()(x, given_steps), expected, rtol=1e-12, atol=1e-12)


def test_lines_in_the_last_level_cache_are_tiled() -> None:
    program, sizes = polyc.compile(LINE).program, {"N": 200_000, "T": 100}
    target = replace(select_model(host_target(), "x86-64-v4"), cores=2, l2=1 << 20, l3=32 << 20)
    assert pipelines(driver.lower(program, sizes=sizes, target=target))


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3"])
def test_other_machines(name: str) -> None:
    check(PLANE, draw(35, 300), draw(6), target=small_cache(name, 1 << 17))


@pytest.mark.parametrize("shape", [(20, 300), (33, 257)])
def test_fields_that_depend_on_each_other(shape: tuple[int, int]) -> None:
    lowered = check(FIELDS, draw(*shape), draw(*shape), draw(*shape), draw(6), target=small_cache(l2=1 << 18))
    # Each field has a vector loop of its own inside of the tile, and one plane in memory.
    (tiles,) = pipelines(lowered)
    fields = [loop for loop in _loops(tiles) if loop.mark and loop.mark.kind == "vector"]
    assert len(fields) == 3
    assert all(lowered.storage[name].moduli[0] == 1 for name in "XYZ")


def test_fields_in_the_cache_have_vector_loops_apart() -> None:
    shape = (9, 40)
    lowered = check(FIELDS, draw(*shape), draw(*shape), draw(*shape), draw(5), target=small_cache(l2=1 << 24), is_tiled=False)
    assert lowered.as_text("loops").count("vector(") >= 6


def test_statements_that_need_each_other_along_the_row_stay_in_one_loop() -> None:
    text = """def f(double(N) x, double(N) y) -> (A) {
      A(0) = x(0)  B(0) = y(0)
      A(i) = 0.5 * B(i-1) + x(i) where i in 1:N  B(i) = 0.25 * A(i) + y(i) where i in 1:N }"""
    check(text, draw(50), draw(50), is_tiled=False)


SEIDEL = """def f(double(N, M) x, double(T) steps) -> (B) {
  A(0, i, j) = x(i, j)
  A(t, i, j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? A(t-1, i, j)
    : (A(t, i-1, j-1) + A(t, i-1, j) + A(t, i-1, j+1) + A(t, i, j-1) + A(t-1, i, j) + A(t-1, i, j+1)
      + A(t-1, i+1, j-1) + A(t-1, i+1, j) + A(t-1, i+1, j+1)) / 9.0 where t in 1:T+1, i in 0:N, j in 0:M
  B(i, j) = A(T, i, j)
}"""


@pytest.mark.parametrize(
    ("name", "shape"),
    [("host", (26, 37)), ("host", (33, 50)), ("host", (40, 131)), ("x86-64-v3", (33, 50)), ("x86-64-v2", (26, 37))],
)
def test_sweeps_in_place_are_scans_in_skewed_tiles(name: str, shape: tuple[int, int]) -> None:
    lowered = check(SEIDEL, draw(*shape), draw(7), target=small_cache(name, 16 * shape[0] * shape[1]))
    assert "scan(" in lowered.as_text("loops") and lowered.storage["A"].moduli[0] == 1


def test_sweeps_in_the_order_of_the_source_are_exact() -> None:
    lowered = check(SEIDEL, draw(20, 37), draw(5), target=small_cache(l2=1 << 14), reassociate=False, is_tiled=False)
    assert "scan(" not in lowered.as_text("loops")


def test_one_thread_has_no_pipeline() -> None:
    lowered = check(PLANE, draw(35, 300), draw(9), target=small_cache(l2=1 << 17), parallel=False)
    assert "parallel" not in lowered.as_text("loops")
    assert lowered.as_text("loops").count("for (c") >= 3 + 2 + 2


def test_two_planes_are_kept() -> None:
    lowered = check(PLANE, draw(35, 300), draw(9), target=small_cache(l2=1 << 17))
    assert lowered.storage["A"].moduli[0] == 2


def test_what_fits_into_the_cache_is_not_tiled() -> None:
    check(PLANE, draw(35, 300), draw(9), target=small_cache(l2=1 << 20), is_tiled=False)
