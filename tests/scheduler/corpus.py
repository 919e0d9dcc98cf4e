"""The golden schedules: one file per program, its statements and the rows that the scheduler finds for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from polyc.poly.scop import Scop
from tests.scheduler.programs import Line, make_scop

FOLDER = Path(__file__).parents[1] / "golden" / "schedules"


@dataclass(frozen=True)
class Example:
    name: str
    sizes: dict[str, int]
    lines: tuple[Line, ...]
    schedule: str

    def scop(self, symbolic: bool = True) -> Scop:
        return make_scop(list(self.lines), self.sizes, symbolic)


def parse_line(text: str) -> Line:
    """``Z: i:N j:K -> z[i] += e[i,j]  where 0<=i<N``."""
    text, _, condition = text.partition("  where ")
    name, _, rest = text.partition(": ")
    domain, _, body = f" {rest}".partition(" -> ")
    write, sign, reads = body.split(" ", 2)
    return Line(name, domain.strip(), write, tuple(reads.split()), sign == "+=", condition or None)


def read_example(path: Path) -> Example:
    head, _, schedule = path.read_text().partition("schedule\n")
    first, *lines = head.strip().split("\n")
    sizes = {k: int(v) for k, v in (pair.split("=") for pair in first.split()[1:])}
    return Example(path.stem, sizes, tuple(parse_line(line) for line in lines), schedule.strip())


EXAMPLES = [read_example(path) for path in sorted(FOLDER.glob("*.sched"))]


def example(name: str) -> Example:
    return next(e for e in EXAMPLES if e.name == name)
