"""What people write who come from other languages, told by the text around the place where a `.tc` text stops being one."""

from __future__ import annotations

import re

from polyc.diagnostics import Span
from polyc.frontends.tc.types import TYPE_NAMES

_TYPES = "|".join(sorted(TYPE_NAMES, key=len, reverse=True))

_RANGE = "a range is written lower:upper, as in where i in 0:N"

LOOPS = "there are no loops: indices run over their ranges; give one in a where clause: where i in 0:N"

UNTIL = "a recurrence ends where a condition holds: until e(t) < eps where t in 0:T, below its statements"

_REDUCTIONS = {
    **dict.fromkeys(
        ("mean", "avg", "average"), "a mean is a sum divided by its number: s(i) +=! A(i, j), then y(i) = s(i) / float(N)"
    ),
    **dict.fromkeys(("sum", "add"), "a sum is written +=!"),
    **dict.fromkeys(("prod", "mul", "product"), "a product is written *=!"),
    **dict.fromkeys(("any", "or"), "whether any of the values are true is written ||=!"),
    **dict.fromkeys(("all", "and"), "whether all of the values are true is written &&=!"),
    "softmax": "write it out: the maximum, the exponentials, their sum, the quotients",
    **dict.fromkeys(("norm", "std", "var"), "sum the squares with +=!, and finish in a second statement"),
}

_BEFORE = (
    # the text in front of the place, what stands there, help
    (r"=$", r"\+", "sums are written += or +=!"),
    (r"[\w)]$", r"\+\s+=!?", "+= and +=! are written without a space"),
    (r"[\w)]$", r"!\s*\+=", "the ! stands behind: +=!"),
    (r"[\w)]$", r"-=!", "add the opposite: s +=! -A(i)"),
    (r"[\w)]$", r"(:=|<-|==)", "an assignment is written ="),
    (r"<$", r"<", "there are no shifts: multiply by a power of two (decorated functions have << and >>)"),
    (r">$", r">", "there are no shifts: divide by a power of two (decorated functions have << and >>)"),
    (r"<$", r">", "unequal is written !="),
    (r"\d$", r",\d", "a fraction is written with a point: 2.5"),
    (r".", r",\s*\w+\s+in\b", "ranges stand behind where: O(i) = A(i) where i in 0:N"),
    (r"(max|min)=!?[^=]*$", r",", "one expression is reduced; the greater of two values is max(a, b)"),
    (r"\bin\b[^,:]*:[^,:]*$", r":", "a range has no step: write A(2 * i) with i in 0:N/2, or a condition: where i % 2 == 0"),
    (r"\bwhere\b[^:]*\b\w+\s*=[^=,:]*$", r":", "a range is written with in: where i in 0:N"),
    (r"\bin$", r"\[", _RANGE),
    (r"\bin\s*\([^()]*$", r",", _RANGE),
    (r"\bwhere\s*\(\s*\w+$", r"in\b", "clauses stand without parentheses: where i in 0:N"),
    (r"\bwhere\b[^=]*\b(and|or)$", r"\w", "clauses are separated by commas: where i in 0:N, i > 1"),
    (rf"\(\s*({_TYPES})$", r"\)", "a cast is a function of the value: float(x)"),
    (r"=\s*\((int|long|short|char|unsigned)\)\s*\w+\([^()]*\)$", r".", "a cast is a function of the value: int32(x)"),
    (r"=\s*if\s+\w+\([^()]*\)$", r".", "conditions are expressions: O(i) = c ? a : b"),
    (r"[=&|(]\s*not\s+\w+\([^()]*\)$", r".", "the logical operators are &&, || and !"),
    (r"\bfor\s*\([^()]*$", r".", LOOPS),
    (r"\bwhile\s*\([^()]*$", r".", UNTIL),
    (r"\w\([^():]*$", r":\s*[,)]", "an index stands for all of a dimension: A(i, j)"),
    (r".", r"where\s*\(", "a selection is written c ? a : b"),
    (r"\bmod$", r".", "the remainder is written %"),
    (r"\bdiv$", r".", "the quotient of integers is written /, and rounds down"),
    (rf"\b({_TYPES})\s+\w+$", r"\w", "dimensions stand in parentheses: float(N) A"),
    (r"\([^()]*(\([^()]*\)[^()]*)*,$", r"\)", "remove the comma"),
    (r"\bdef\s+\w+$", rf"({_TYPES})\b", "parameters stand in parentheses: def f(float(N) A) -> (B) { B(i) = A(i) }"),
    (
        r"[{}\w)]$",
        rf"({_TYPES})\s+\w",
        "types stand with parameters and results: what is assigned has the type of its right side",
    ),
    (r"\)$", r"=>", "results stand behind ->: def f(float(N) A) -> (B) { B(i) = A(i) }"),
    (r"\bmonoid\b[^{]*->\s*\([^()]*$", r"\)", "each result has its identity beside it: -> (c = 0.0)"),
    (r"[\w)]\s+$", r"\w+=(?![=!])", "a reduction of one's own starts from its identity: name=!"),
)


def guess_habit(text: str, span: Span, names: set[str]) -> str | None:
    """Help for the mistake that the text at `span` looks like, where one of `names` was expected."""
    before, place = text[max(0, span.start - 400) : span.start], text[span.start : span.start + 80]
    line = before[before.rfind("\n") + 1 :]
    if "OP_ASSIGN" in names and (found := re.match(r"(\w+)=!", place)) is not None and found[1] in _REDUCTIONS:
        return _REDUCTIONS[found[1]]
    for pattern, there, help in _BEFORE:
        searched = line if pattern.endswith(r"\s+$") else line.rstrip()
        if re.match(there, place) is not None and re.search(pattern, searched) is not None:
            return help
    return None
