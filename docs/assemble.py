"""Assemble docs/errors.md from the sections that each part of polyc keeps in docs/errors.d/, and the tables of docs/passes.md.

``python docs/assemble.py`` rewrites them; ``--check`` only says (exit code 1) that one is out of date.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PREFIXES = {
    "syntax": "The text is not in the language",
    "semantic": "Names and indices",
    "type": "Element types",
    "range": "Ranges of indices",
    "argument": "Arrays and sizes given at a call",
    "bounds": "Subscripts that are data",
    "unsupported": "Understood, but not possible in this version",
    "budget": "Compile-time budgets",
    "threads": "Threads",
    "internal": "Bugs in polyc",
}
"""First word of the codes, in the order of the page, and what they have in common."""

INTRODUCTION = """# Errors and warnings

Every error is a `polyc.PolycError` and also the Python built-in that fits (`ValueError`, `TypeError`, `IndexError`, …). Its
`.code` is one of the headings below; its text shows the place in your source, where there is one, and a way out.
"""


def read_sections() -> dict[str, str]:
    """Text of each code's section.  Where two parts of polyc raise the same code, the fuller description stands."""
    sections: dict[str, str] = {}
    for path in sorted((DOCS / "errors.d").glob("*.md")):
        for code, body in re.findall(r"^## +`?([a-z0-9-]+)`? *\n(.*?)(?=^## |\Z)", path.read_text(), re.S | re.M):
            sections[code] = max(sections.get(code, ""), body.strip(), key=len)
    return sections


def assemble() -> str:
    """The whole page; codes by area, then by name."""
    sections = read_sections()
    parts = [INTRODUCTION]
    known = list(PREFIXES)
    other = sorted({c.split("-")[0] for c in sections} - set(known))
    for prefix in [*known, *other]:
        codes = sorted(c for c in sections if c.split("-")[0] == prefix)
        if codes:
            parts.append(f"# {PREFIXES.get(prefix, prefix.capitalize())}\n")
            parts += [f"## {code}\n\n{sections[code]}\n" for code in codes]
    return "\n".join(parts)


TABLE = r"(?<=<!-- {0} -->\n).*?(?=<!-- end of {0} -->)"


def tabulate_passes() -> str:
    """docs/passes.md with the table of the passes that there are, and what docs/ablation.json says that they bring."""
    from polyc.driver import pass_levels

    passes = [(level.name, p) for level in pass_levels() for p in level.passes]
    names = [f"{p.name} (required)" if p.required else f"`{p.name}`" for _, p in passes]
    table = [["level", "pass", "what it is for"]]
    table += [[level, name, p.why] for (level, p), name in zip(passes, names, strict=True)]
    found = json.loads((DOCS / "ablation.json").read_text())
    gains = [["pass", "lines", *(f"{key}, {n} workloads" for key, n in found["settings"].items())]]
    for (_, p), name in zip(passes, names, strict=True):
        if p.name in found["passes"] and not p.required:
            cells = (describe_worth(found["passes"][p.name].get(key)) for key in found["settings"])
            gains.append([name, str(found["lines"][p.name]), *cells])
    text = (DOCS / "passes.md").read_text()
    for mark, rows in (("passes", table), ("ablation", gains)):
        lines = [f"| {' | '.join(row)} |\n" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:])]
        lines[1] = lines[1].replace(" ", "")
        text = re.sub(TABLE.format(mark), lambda match, lines=lines: "".join(lines), text, flags=re.S)  # type: ignore[misc]
    return text


def describe_worth(worth: dict[str, Any] | None) -> str:
    """One cell: of how many workloads the code is another without the pass, the best and the worst ratio, and the mean."""
    if worth is None:
        return "not measured"
    if not worth["changed"]:
        return "–"
    if not worth["compared"]:
        return f"changes {worth['changed']}"
    text = str(worth["differs"]) + (f", {worth['fails']} fail" if worth["fails"] else "")
    if not worth["measured"]:
        return text
    (best, at_best), (worst, at_worst) = worth["best"], worth["worst"]
    if worth["measured"] == 1:
        return f"{text}: {best:.2f} {at_best}"
    return f"{text}: {best:.2f} {at_best} … {worst:.2f} {at_worst}, mean {worth['mean']:.2f} of {worth['measured']}"


def main() -> int:
    pages = {DOCS / "errors.md": assemble(), DOCS / "passes.md": tabulate_passes()}
    if "--check" in sys.argv:
        return int(any(not page.exists() or page.read_text() != text for page, text in pages.items()))
    for page, text in pages.items():
        page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
