"""Random graphs of stencils in overlapping tiles: the same results as the reference interpreter's, whatever reads whatever."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.property.pipeline import profile, small_thresholds
from tests.scheduler.support import check_nest, lower, read

BORDERS = ("none", "none", "0.0", "2.5", "clamp", "reflect", "wrap")


@st.composite
def stencils(draw: Any) -> str:
    """A function of an image: stages that read earlier ones at a few offsets, as expressions or as sums over windows."""
    border = draw(st.sampled_from(BORDERS))
    stages: list[str] = []
    names = ["X"]
    for n in range(draw(st.integers(2, 5))):
        name = f"T{n}"
        sources = [draw(st.sampled_from(names[-3:])) for _ in range(draw(st.integers(1, 3)))]
        if not n or draw(st.booleans()):
            sources[0] = names[-1]
        terms = []
        kind = draw(st.sampled_from(("points", "points", "window", "halved", "woven")))
        for source in sources:
            dy, dx = draw(st.integers(0, 2)), draw(st.integers(0, 3))
            step = 2 if kind == "halved" and border == "none" and n < 2 else 1
            y, x = (f"2*y+{dy}" if step == 2 else f"y+{dy}"), (f"2*x+{dx}" if step == 2 else f"x+{dx}")
            if border != "none":
                y, x = f"y+{dy - 1}", f"x+{dx - 2}"
            if kind == "window":
                y, x = f"{y}+r", f"{x}+s"
            read = f"{source}({y},{x})"
            terms.append(read if border == "none" else f"pad({read}, {border})")
        value = " + ".join(terms) if kind == "window" else " - 0.5 * ".join(terms)
        ranges = ["y in 0:H", "x in 0:W"] if border != "none" else []
        ranges += [f"r in 0:{draw(st.integers(1, 3))}", f"s in 0:{draw(st.integers(1, 3))}"] if kind == "window" else []
        where = f" where {', '.join(ranges)}" if ranges else ""
        if kind == "window":
            stages.append(f"  {name}(y,x) {draw(st.sampled_from(('+=!', 'max=!')))} {value}{where}")
        elif kind == "woven" and border == "none":
            stages += [f"  {name}(2*y,x) = exp(0.1 * ({value}))", f"  {name}(2*y+1,x) = tanh(0.2 * ({value}))"]
        else:
            stages.append(f"  {name}(y,x) = {draw(st.sampled_from(('', 'exp', 'tanh')))}(0.1 * ({value})){where}")
        names.append(name)
    results = [names[-1], *(n for n in names[1:-1] if draw(st.integers(0, 4)) == 0)]
    used = {n for n in names[1:] if any(f"{n}(" in s.partition("=")[2] for s in stages)}
    results += [n for n in names[1:-1] if n not in used and n not in results]
    body = "\n".join(stages)
    return f"def f(float(H,W) X) -> ({', '.join(results)}) {{\n{body}\n}}"


@profile(60)
@given(stencils(), st.integers(24, 34), st.integers(30, 45), st.booleans())
def test_random_graphs(text: str, h: int, w: int, is_fixed: bool) -> None:
    sizes = {"H": h, "W": w}
    with small_thresholds():
        check_nest(lower(read(text), sizes, is_fixed), sizes)
