"""Assemble docs/errors.md from the sections that each part of polyc keeps in docs/errors.d/, and the table of docs/passes.md.

``python docs/assemble.py`` rewrites them; ``--check`` only says (exit code 1) that one is out of date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

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


TABLE = re.compile(r"(?<=<!-- passes -->\n).*?(?=<!-- end of passes -->)", re.S)


def tabulate_passes() -> str:
    """docs/passes.md with the table of the passes that there are."""
    from polyc.driver import pass_levels

    lines = ["| level | pass | what it is for |", "|---|---|---|"]
    for level in pass_levels():
        for p in level.passes:
            lines.append(f"| {level.name} | {f'{p.name} (required)' if p.required else f'`{p.name}`'} | {p.why} |")
    table = "\n".join([*lines, ""])
    return TABLE.sub(lambda match: table, (DOCS / "passes.md").read_text())


def main() -> int:
    pages = {DOCS / "errors.md": assemble(), DOCS / "passes.md": tabulate_passes()}
    if "--check" in sys.argv:
        return int(any(not page.exists() or page.read_text() != text for page, text in pages.items()))
    for page, text in pages.items():
        page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
