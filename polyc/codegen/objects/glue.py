"""LLVM IR of a function that calls kernels one after the other: a whole model as one entry point."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.machine.memory import LINE
from polyc.records import dataclass

ALIGNMENT = LINE


@dataclass(frozen=True, slots=True)
class Place:
    """Where an array begins: `offset` bytes into the memory for intermediates or the weights, or an input or output."""

    kind: str
    """``arena``, ``weights``, ``input`` or ``output``."""
    offset: int
    """Bytes, or the number of the input or output."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the kernel `symbol`: its arrays, and its block of sizes and strides."""

    symbol: str
    places: tuple[Place, ...]
    block: tuple[int, ...]
    is_parallel: bool


@dataclass(frozen=True, slots=True)
class Copy:
    """`size` bytes that are the same in two places."""

    target: Place
    source: Place
    size: int


def glue_ir(name: str, triple: str, calls: Sequence[Call], copies: Sequence[Copy], arena_size: int, weights: str | None) -> str:
    """``int32 name(void **inputs, void **outputs, const void *weights, void *workspace, int32 threads)`` and
    ``int64 name_workspace(int32 threads)``.  With `weights`, the path of a file, its bytes are in the object, and the first
    function has no such parameter."""
    parameter = "" if weights is not None else "ptr %weights, "
    lines = [f'target triple = "{triple}"', ""]
    blocks = {c.block: f"@{name}.block{k}" for k, c in enumerate(dict((c.block, c) for c in calls).values())}
    for values, symbol in blocks.items():
        text = ", ".join(f"i64 {v}" for v in values)
        lines.append(f"{symbol} = private constant [{len(values)} x i64] [{text}]")
    symbols = dict.fromkeys(c.symbol for c in calls)
    for s in symbols:
        lines += [f"declare hidden i32 @{s}(ptr, ptr, ptr, ptr, i32)", f"declare hidden i64 @{s}_workspace(ptr, i32)"]
    lines.append("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    if weights is not None:
        quoted = weights.replace("\\", "\\\\").replace('"', '\\"')
        escaped = "".join(
            c if 32 <= ord(c) < 127 and c not in '"\\' else "".join(f"\\{b:02X}" for b in c.encode()) for c in quoted
        )
        lines += [
            f"@{name}.weights = external hidden constant i8",
            'module asm ".section .rodata,\\22a\\22"',
            f'module asm ".balign {ALIGNMENT}"',
            f'module asm ".globl {name}.weights"',
            f'module asm ".hidden {name}.weights"',
            f'module asm "{name}.weights:"',
            f'module asm ".incbin \\22{escaped}\\22"',
        ]
    lines += ["", f"define i64 @{name}_workspace(i32 %threads) {{", "entry:"]
    last = "0"
    for k, (values, s) in enumerate(dict.fromkeys((c.block, c.symbol) for c in calls)):
        team = "%threads" if any(c.is_parallel for c in calls if c.symbol == s) else "1"
        lines.append(f"  %s{k} = call i64 @{s}_workspace(ptr {blocks[values]}, i32 {team})")
        lines.append(f"  %c{k} = icmp sgt i64 %s{k}, {last}")
        lines.append(f"  %m{k} = select i1 %c{k}, i64 %s{k}, i64 {last}")
        last = f"%m{k}"
    lines += [f"  %size = add i64 {last}, {arena_size + 2 * ALIGNMENT}", "  ret i64 %size", "}", ""]
    head = f"define i32 @{name}(ptr %inputs, ptr %outputs, {parameter}ptr %workspace, i32 %threads)"
    longest = max((len(c.places) for c in calls), default=1)
    lines += [f"{head} {{", "entry:", f"  %table = alloca [{longest} x ptr]", "  %error = alloca [3 x i64]"]
    lines += [
        "  %address = ptrtoint ptr %workspace to i64",
        f"  %up = add i64 %address, {ALIGNMENT - 1}",
        f"  %down = and i64 %up, {-ALIGNMENT}",
        "  %arena = inttoptr i64 %down to ptr",
        f"  %private = getelementptr i8, ptr %arena, i64 {-(-arena_size // ALIGNMENT) * ALIGNMENT}",
    ]
    writer = _Writer(lines, "%weights" if weights is None else f"@{name}.weights")
    for k, c in enumerate(calls):
        for j, place in enumerate(c.places):
            value = writer.pointer(place)
            slot = writer.new()
            lines.append(f"  {slot} = getelementptr ptr, ptr %table, i64 {j}")
            lines.append(f"  store ptr {value}, ptr {slot}")
        team = "%threads" if c.is_parallel else "1"
        status = writer.new()
        lines += [
            f"  {status} = call i32 @{c.symbol}(ptr %table, ptr {blocks[c.block]}, ptr %private, ptr %error, i32 {team})",
            f"  %failed{k} = icmp ne i32 {status}, 0",
            f"  br i1 %failed{k}, label %stop{k}, label %next{k}",
            f"stop{k}:",
            f"  ret i32 {k + 1}",
            f"next{k}:",
        ]
    for copy in copies:
        target, source = writer.pointer(copy.target), writer.pointer(copy.source)
        lines.append(f"  call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {copy.size}, i1 false)")
    return "\n".join([*lines, "  ret i32 0", "}", ""])


class _Writer:
    def __init__(self, lines: list[str], weights: str) -> None:
        self.lines = lines
        self.weights = weights
        self.count = 0

    def new(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def pointer(self, place: Place) -> str:
        """A value that is the address of `place`."""
        if place.kind in ("input", "output"):
            slot, value = self.new(), self.new()
            self.lines.append(f"  {slot} = getelementptr ptr, ptr %{place.kind}s, i64 {place.offset}")
            self.lines.append(f"  {value} = load ptr, ptr {slot}")
            return value
        base = "%arena" if place.kind == "arena" else self.weights
        value = self.new()
        self.lines.append(f"  {value} = getelementptr i8, ptr {base}, i64 {place.offset}")
        return value
