"""Masks of some lanes of other masks, computed from lanes of their operands.

On AVX and AVX2, LLVM (22.1) splits a masked load that is wider than a register.  Where the mask of a part turns out to be the
same in all lanes only then (a condition that all lanes share, and a constant mask), the part is loaded without a mask, or the
code generator ends the process.  A `shufflevector` of the wide mask makes no difference, so the masks of parts are computed
without it, and constants folded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from polyc.codegen.writer.builder import Function, Val, int_val, vector_const

_TYPED = re.compile(r"(?:<(\d+) x (\w+)>|(\w+)) (.+)")


def constant_lanes(mask: Val) -> list[bool] | None:
    """The lanes of a constant mask; None for any other."""
    if not mask.is_const or mask.ref == "poison":
        return None
    if mask.ref.startswith("<"):
        return [lane.split()[-1] in ("1", "true") for lane in mask.ref[1:-1].split(",")]
    return [mask.ref in ("true", "1", "splat (i1 true)")] * mask.lanes


def _constant(lanes: Iterable[bool]) -> Val:
    bits = [int(lane) for lane in lanes]
    return vector_const(bits, "i1") if len(bits) > 1 else int_val(bits[0], "i1")


def take_lanes(fn: Function, mask: Val, lanes: Sequence[int]) -> Val:
    """The mask that has the given lanes of `mask`."""
    return _Taker(fn, {}).take(mask, tuple(lanes))


@dataclass(slots=True)
class _Taker:
    """Makes masks again, each once."""

    fn: Function
    made: dict[tuple[str, tuple[int, ...]], Val]

    def take(self, mask: Val, lanes: tuple[int, ...]) -> Val:
        key = mask.ref, lanes
        if key not in self.made:
            known = constant_lanes(mask)
            self.made[key] = self._make(mask, lanes) if known is None else _constant(known[lane] for lane in lanes)
        return self.made[key]

    def _make(self, mask: Val, lanes: tuple[int, ...]) -> Val:
        fn = self.fn
        if len(lanes) == 1:
            return fn.extract(mask, lanes[0])
        if (count := fn.prefixes.get(mask.ref)) is not None:
            width = fn.module.mask_bits >> (len(lanes) - 1).bit_length()
            type = f"i{min(64, max(8, width))}"
            return fn.compare("icmp ult", vector_const(lanes, type), fn.splat(fn.convert("trunc", count, type), len(lanes)))
        operation, _, rest = fn.texts.get(mask.ref, "").partition(" ")
        match operation:
            case "icmp" | "fcmp":
                relation, _, rest = rest.partition(" ")
                a, b = (take_values(fn, operand, lanes) for operand in _operands(rest))
                return fn.compare(f"{operation} {relation}", a, b)
            case "and" | "or" | "xor":
                a, b = (self.take(operand, lanes) for operand in _operands(rest))
                return _combine(fn, operation, a, b)
            case "select":
                condition, a, b = _operands(rest)
                condition = condition if condition.lanes == 1 else self.take(condition, lanes)
                return fn.select(condition, self.take(a, lanes), self.take(b, lanes))
            case "freeze":
                return fn.freeze(self.take(_operands(rest)[0], lanes))
            case "shufflevector":
                scalar = _find_scalar(fn, mask)
                return self._take_shuffled(rest, lanes) if scalar is None else fn.splat(scalar, len(lanes))
        return fn.shuffle(mask, None, lanes)

    def _take_shuffled(self, operands: str, lanes: tuple[int, ...]) -> Val:
        """Lanes of a shuffle: of one operand, or of both and constants that tell which."""
        a, b, order = _operands(operands)
        places = [0 if order.ref == "zeroinitializer" else _integer(order.ref[1:-1].split(", ")[lane]) for lane in lanes]
        parts: list[Val] = []
        for number, source in enumerate((a, b)):
            inside = [place - number * a.lanes if place // a.lanes == number else None for place in places]
            own = next((place for place in inside if place is not None), None)
            if own is not None:
                whole = self.take(source, tuple(own if place is None else place for place in inside))
                parts.append(_combine(self.fn, "and", whole, _constant(place is not None for place in inside)))
        if not parts:  # nobody looks at them
            return _constant(False for _ in lanes)
        return parts[0] if len(parts) == 1 else _combine(self.fn, "or", *parts)


def _combine(fn: Function, operation: str, a: Val, b: Val) -> Val:
    """The operation where one of the masks may be constant."""
    left, right = constant_lanes(a), constant_lanes(b)
    if left is not None and right is not None:
        table = {"and": bool.__and__, "or": bool.__or__, "xor": bool.__xor__}[operation]
        return _constant(table(x, y) for x, y in zip(left, right, strict=True))
    if left is not None:
        a, b, left, right = b, a, right, left
    if right is not None and len(set(right)) == 1:
        if (operation == "and") != right[0] and operation != "xor":
            return b
        if operation != "xor" or not right[0]:
            return a
    return fn.binary(operation, a, b)


def take_values(fn: Function, value: Val, lanes: Sequence[int]) -> Val:
    """Lanes of a vector of any type; of a scalar as many times the same."""
    if len(lanes) == 1 or value.lanes == 1:
        return fn.splat(fn.extract(value, lanes[0]), len(lanes))
    if value.ref.startswith("<"):
        parts = value.ref[1:-1].split(", ")
        return Val("<" + ", ".join(parts[lane] for lane in lanes) + ">", value.type, len(lanes))
    if value.is_const:  # the same in all lanes
        return Val(value.ref, value.type, len(lanes))
    scalar = _find_scalar(fn, value)
    return fn.shuffle(value, None, lanes) if scalar is None else fn.splat(scalar, len(lanes))


def _find_scalar(fn: Function, value: Val) -> Val | None:
    """What all lanes of `value` are, where it was made by `Function.splat`."""
    operation, _, rest = fn.texts.get(value.ref, "").partition(" ")
    if operation != "shufflevector" or not rest.endswith(" zeroinitializer"):
        return None
    operation, _, rest = fn.texts.get(_operands(rest)[0].ref, "").partition(" ")
    return _operands(rest)[1] if operation == "insertelement" else None


def _operands(text: str) -> list[Val]:
    """The operands of an instruction; those without a type have the first one's."""
    found: list[Val] = []
    for part in _split(text):
        typed = (
            None if part.startswith(("%", "splat")) or (part.startswith("<") and " x " not in part) else _TYPED.fullmatch(part)
        )
        if typed is None:
            found.append(Val(part, found[0].type, found[0].lanes))
        else:
            found.append(Val(typed[4], typed[2] or typed[3], int(typed[1] or 1)))
    return found


def _split(text: str) -> list[str]:
    """At the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 2
    return [*parts, text[start:]]


def _integer(lane: str) -> int:
    return -1 if lane.endswith("poison") else int(lane.split()[-1])
