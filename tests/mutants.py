"""Mistakes in conditions of legality, each of which a test has to notice: mutation testing of passes.

``python -m tests.mutants NAMES…`` makes those of the passes of these names, one at a time, without names all of them, and runs
for each the cheapest test that should fail.  The checkout is copied first, and only the copy is changed.  The exit status is 1
where a mutant survives or is stale.  ``mutants.txt`` lists them:

    == inline polyc/scheduler/rewriting/inline.py tests/scheduler/test_inline.py
    -- it is read with padding: test_padded_reads_keep_their_tensor
    - if is_padded and not is_whole_copy:
    + if False:

A heading has a pass, a file of it, and a file of tests; of the latter only the test that a mutant names is run, and what it
names none for is nests before and after.  What follows ``- `` occurs exactly once in the file, and ``+ `` takes its place.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT = 120
"""Seconds of a test; loops of which a mutant never comes to an end are noticed so, too."""


NESTS = "tests/loopnest/test_passes.py::test_pass_makes_what_the_file_says[{}]"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake in `path`: `mistake` in the place of `text`; `test` is what pytest is given to notice it."""

    pass_name: str
    path: str
    test: str
    title: str
    text: str
    mistake: str


def read_mutants(listed: str) -> list[Mutant]:
    """The mutants of a list."""
    found = []
    for group in re.split(r"^== ", listed, flags=re.M)[1:]:
        head, *parts = re.split(r"^-- ", group, flags=re.M)
        name, path, tests = head.split()
        for part in parts:
            first, *lines = part.splitlines()
            title, _, test = first.partition(": ")
            test = f"{tests}::{test}" if test else NESTS.format(Path(tests).stem)
            text, mistake = ("\n".join(line[2:] for line in lines if line.startswith(mark)) for mark in ("- ", "+ "))
            found.append(Mutant(name, path, test, title, text, mistake))
    return found


MUTANTS = read_mutants(Path(__file__).with_suffix(".txt").read_text())


def is_stale(mutant: Mutant) -> bool:
    """Whether its text does not stand exactly once in its file, or says the same as the mistake."""
    path = ROOT / mutant.path
    return not path.exists() or path.read_text().count(mutant.text) != 1 or mutant.text == mutant.mistake


def run_tests(root: Path, *tests: str) -> tuple[int | None, str]:
    """The exit status of pytest, None where one test takes too long, and its output."""
    left_out = (f"-pno:{plugin}" for plugin in ("cacheprovider", "xdist", "hypothesispytest"))  # half of the time
    command = [sys.executable, "-m", "pytest", "-x", "--tb=short", *left_out, *tests]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["POLYC_CACHE"] = "0"  # no code of a mutant is kept
    limit = LIMIT if len(tests) == 1 else None
    try:
        made = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None, ""
    return made.returncode, made.stdout + made.stderr


def judge(status: int | None, output: str) -> str:
    """What became of a mutant: killed where a test has failed, crashed or hung; broken where none could run."""
    if status == 0:
        return "survived"
    return "killed" if status is None or status < 0 or re.search(r"^FAILED ", output, re.M) else "broken"


def try_mutant(mutant: Mutant, root: Path) -> tuple[str, str]:
    """What becomes of a mutant in the copy `root`, and the output of its test."""
    path = root / mutant.path
    original = path.read_text()

    def write(text: str) -> None:
        path.write_text(text)
        Path(cache_from_source(path)).unlink(missing_ok=True)  # of the same second, and as long

    write(original.replace(mutant.text, mutant.mistake))
    try:
        status, output = run_tests(root, mutant.test)
    finally:
        write(original)
    return judge(status, output), output


def try_mutants(mutants: list[Mutant], root: Path) -> Counter[str]:
    """How many became what; each is told as soon as it is known."""
    found = Counter[str]()
    for mutant in mutants:
        start = time.perf_counter()
        verdict, output = ("stale", "") if is_stale(mutant) else try_mutant(mutant, root)
        found[verdict] += 1
        print(f"{verdict:9}{time.perf_counter() - start:6.1f} s  {mutant.pass_name}: {mutant.title}", flush=True)
        if verdict == "broken":
            print(output)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").partition("\n")[0])
    passes = list(dict.fromkeys(m.pass_name for m in MUTANTS))
    parser.add_argument("names", nargs="*", metavar="PASS", help=", ".join(passes))
    names = parser.parse_args().names
    if unknown := set(names) - set(passes):
        parser.error(f"no mutants of {', '.join(sorted(unknown))}; there are some of {', '.join(passes)}")
    mutants = [m for m in MUTANTS if not names or m.pass_name in names]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="polyc-mutants-") as folder:
        root = Path(shutil.copytree(ROOT, Path(folder, "polyc"), ignore=shutil.ignore_patterns(".*", "build", "dist")))
        status, output = run_tests(root, *dict.fromkeys(m.test for m in mutants))
        if status != 0:
            print(output, "these tests fail without any mutant", sep="\n")
            return 1
        found = try_mutants(mutants, root)
    print(f"{found.total()} mutants in {time.perf_counter() - start:.0f} s: {', '.join(f'{n} {v}' for v, n in found.items())}")
    return int(found.total() != found["killed"])


if __name__ == "__main__":
    sys.exit(main())
