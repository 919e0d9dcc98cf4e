"""A small writer of textual LLVM IR: values, blocks, functions, and value numbering along the structure of the code.

Text is written directly instead of through `llvmlite.ir`: it is an order of magnitude faster for unrolled tiles, and the
writer can append to any block that is still open (register accumulators are set up in the preheader of a loop whose body
is being written).  Pure instructions are numbered: the same text inside the same or an enclosing scope is the same value.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import lru_cache

from polyc.ir.types import DType
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class Val:
    """An operand: its text, its scalar LLVM type, and the number of lanes (1 = a scalar)."""

    ref: str
    type: str
    lanes: int = 1

    @property
    def full_type(self) -> str:
        return self.type if self.lanes == 1 else f"<{self.lanes} x {self.type}>"

    @property
    def is_const(self) -> bool:
        return self.ref[0] not in "%@"

    def __str__(self) -> str:
        return f"{self.type} {self.ref}" if self.lanes == 1 else f"<{self.lanes} x {self.type}> {self.ref}"


def llvm_type(dtype: DType) -> str:
    """The type of a value while it is computed with; in memory bool is one byte.  16-bit floats are bits, to be cast."""
    if dtype.kind == "f" and not dtype.is_storage:
        return "float" if dtype.bits == 32 else "double"
    return "i1" if dtype.kind == "b" else f"i{dtype.bits}"


def memory_type(dtype: DType) -> str:
    return "i8" if dtype.kind == "b" else llvm_type(dtype)


@lru_cache(maxsize=4096)
def int_val(value: int, type: str = "i64", lanes: int = 1) -> Val:
    if type == "i1":
        return splat_const(Val("true" if value else "false", "i1"), lanes)
    bits = int(type[1:])
    value &= (1 << bits) - 1
    if value >> (bits - 1):
        value -= 1 << bits
    return splat_const(Val(str(value), type), lanes)


def float_val(value: float, type: str, lanes: int = 1) -> Val:
    """A floating-point constant, rounded to `type`, in LLVM's hexadecimal form."""
    if type == "float":
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    return splat_const(Val("0x" + struct.pack(">d", value).hex().upper(), type), lanes)


def is_number(value: Val) -> bool:
    """Whether a floating-point value is the same known number in all lanes, and not NaN."""
    found = re.fullmatch(r"(?:splat \(\w+ )?0x([0-9A-F]{16})\)?", value.ref)
    return found is not None and not math.isnan(struct.unpack(">d", bytes.fromhex(found[1]))[0])


def splat_const(value: Val, lanes: int) -> Val:
    return value if lanes == 1 else Val(f"splat ({value.type} {value.ref})", value.type, lanes)


def vector_const(values: Sequence[int], type: str) -> Val:
    return Val("<" + ", ".join(f"{type} {v}" for v in values) + ">", type, len(values))


def zero_val(type: str, lanes: int = 1) -> Val:
    if lanes > 1:
        return Val("zeroinitializer", type, lanes)
    return float_val(0.0, type) if type in ("float", "double") else int_val(0, type)


@dataclass(slots=True, eq=False)
class Block:
    """A basic block; the terminator is kept apart, so that lines can be added until the function is printed."""

    label: str
    lines: list[str] = field(default_factory=list)
    terminator: str = ""


_NAME = re.compile(r"%[\w.]+")
_ARGUMENT = re.compile(r"%a\d+\b")

SPARE_BYTES = 1024
"""More than the widest vector."""


class Module:
    """Functions and the declarations they need, in order of first use."""

    def __init__(self, mask_bits: int) -> None:
        self.mask_bits = mask_bits  # as of `Target`
        self.functions: list[Function] = []
        self.declarations: dict[str, str] = {}
        self.extra: dict[str, str] = {}
        self.metadata: list[str] = []
        self._outlined: dict[tuple[int, int], list[tuple[str, Function]]] = {}
        """Outlined functions with their names, by their numbers of blocks and lines."""

    def share(self, function: Function, name: str) -> str:
        """The name of an earlier function that does the same as this one, which is dropped then; else its own.

        Arguments are called ``%a0``, ``%a1``, … by what they are in the function around; the order is what counts."""
        shape = len(function.blocks), sum(len(block.lines) for block in function.blocks)
        alike = self._outlined.setdefault(shape, [])
        own = function.without_names(name) if alike else None
        for other_name, other in alike:
            if other.without_names(other_name) == own:
                self.functions.remove(function)
                return other_name
        alike.append((name, function))
        return name

    def declare(self, name: str, result: str, arguments: Sequence[str], attributes: str = "") -> str:
        self.declarations.setdefault(name, f"declare {result} @{name}({', '.join(arguments)}) {attributes}".rstrip())
        return f"@{name}"

    def unroll_hint(self, count: int) -> str:
        """Metadata of a loop that is to be unrolled `count` times, of 1 that it is to stay as it is: one node for each loop."""
        what = f'"llvm.loop.unroll.count", i32 {count}' if count > 1 else '"llvm.loop.unroll.disable"'
        hint = self._shared_node(f"!{{!{what}}}")
        self.metadata.append(f"!{len(self.metadata)} = distinct !{{!{len(self.metadata)}, {hint}}}")
        return f"!{len(self.metadata) - 1}"

    def streaming_hint(self) -> str:
        """Metadata of stores that are to pass the caches by."""
        return self._shared_node("!{i32 1}")

    def _shared_node(self, text: str) -> str:
        """The name of the node of metadata that is written so."""
        for number, line in enumerate(self.metadata):
            if line.partition(" = ")[2] == text:
                return f"!{number}"
        self.metadata.append(f"!{len(self.metadata)} = {text}")
        return f"!{len(self.metadata) - 1}"

    def as_text(self, triple: str, attributes: str) -> str:
        parts = [f'target triple = "{triple}"', ""]
        parts += self.extra.values()
        # Where LLVM is to unroll any loop, it would choose for those of which nothing is said.
        is_unrolling = any(count > 1 for f in self.functions for _, count in f.loops)
        for function in self.functions:
            if is_unrolling:
                function.finish_loops()
            parts += ["", *function.as_lines()]
        parts += ["", *self.declarations.values(), "", f"attributes #0 = {{ {attributes} }}", "", *self.metadata, ""]
        return "\n".join(parts)


class Function:
    """One function being written: a current block, a stack of scopes, stack slots in the entry block."""

    def __init__(self, module: Module, header: str) -> None:
        self.module = module
        self.header = header
        self.allocas: list[str] = []
        self._shared: dict[str, Val] = {}
        self.counter = 0
        self.is_streaming = False
        """Whether there are stores that pass the caches by: they are to be visible to others where it ends."""
        self.loops: list[tuple[Block, int]] = []
        """The last block of each loop, and how often LLVM is to unroll it."""
        self.prefixes: dict[str, Val] = {}
        """Of masks whose first lanes are active, how many those are."""
        self.texts: dict[str, str] = {}
        """The instructions without effects, by the names of their values."""
        self.scopes: list[dict[str, Val]] = [{}]
        self._numbered: set[str] = set()
        """Keys of all scopes, those that are closed among them: most instructions are in none."""
        self.current = Block("entry")
        self.blocks = [self.current]
        module.functions.append(self)

    def as_lines(self) -> list[str]:
        lines = [f"{self.header} #0 {{"]
        for number, block in enumerate(self.blocks):
            lines.append(f"{block.label}:")
            if number == 0:
                lines += [f"  {text}" for text in self.allocas]
            lines += [f"  {text}" for text in block.lines]
            lines.append(f"  {block.terminator}")
        return [*lines, "}"]

    def without_names(self, name: str) -> tuple[str, list[int]]:
        """The text with arguments numbered as they come and `name` left out, and how often loops are to be unrolled."""
        numbers: dict[str, int] = {}
        text = "\n".join(self.as_lines()).replace(name, "@")
        text = _ARGUMENT.sub(lambda match: f"%argument{numbers.setdefault(match[0], len(numbers))}", text)
        return text, [count for _, count in self.loops]

    def operands(self) -> set[str]:
        """Names that instructions have for operands, those of labels and functions among them."""
        texts = (text for block in self.blocks for text in (*block.lines, block.terminator))
        return {name for text in texts for name in _NAME.findall(text)}

    def finish_loops(self) -> None:
        """Say in every loop how often LLVM is to unroll it."""
        for block, count in self.loops:
            block.terminator += f", !llvm.loop {self.module.unroll_hint(count)}"
        self.loops.clear()

    # -- instructions

    def fresh(self, hint: str = "v") -> str:
        self.counter += 1
        return f"%{hint}{self.counter}"

    def pure(self, text: str, type: str, lanes: int = 1, key: str | None = None) -> Val:
        """An instruction without effects: numbered under `key` (its own text unless given)."""
        key = text if key is None else key
        if key in self._numbered:
            for scope in reversed(self.scopes):
                if (known := scope.get(key)) is not None:
                    return known
        self._numbered.add(key)
        value = Val(self.fresh(), type, lanes)
        self.current.lines.append(f"{value.ref} = {text}")
        self.scopes[-1][key], self.texts[value.ref] = value, text
        return value

    def effect(self, text: str) -> None:
        self.current.lines.append(text)

    def effect_value(self, text: str, type: str, lanes: int = 1) -> Val:
        value = Val(self.fresh(), type, lanes)
        self.current.lines.append(f"{value.ref} = {text}")
        return value

    def hide(self, value: Val) -> Val:
        """The same value of an integer register, of which LLVM knows nothing.  That is no instruction."""
        return self.pure(f'call {value.type} asm "", "=r,0"({value}) nounwind willreturn memory(none)', value.type)

    def spare(self) -> Val:
        """Stack memory that holds nothing, as wide as any vector."""
        return self.shared_slot(f"[{SPARE_BYTES} x i8]", 64)

    def shared_slot(self, type: str, align: int) -> Val:
        """The stack slot of this type for all that use it, one after the other."""
        if type not in self._shared:
            self._shared[type] = self.alloca(type, align)
        return self._shared[type]

    def alloca(self, type: str, align: int) -> Val:
        """A stack slot of the entry block; LLVM turns slots of one type into SSA values."""
        ref = self.fresh("slot")
        self.allocas.append(f"{ref} = alloca {type}, align {align}")
        return Val(ref, "ptr")

    # -- vectors

    def splat(self, value: Val, lanes: int) -> Val:
        if value.lanes == lanes:
            return value
        assert value.lanes == 1, f"{value} has {value.lanes} lanes, wanted {lanes}"
        if value.is_const:
            return splat_const(value, lanes)
        one = self.pure(f"insertelement <{lanes} x {value.type}> poison, {value}, i64 0", value.type, lanes)
        return self.pure(f"shufflevector {one}, {one.full_type} poison, <{lanes} x i32> zeroinitializer", value.type, lanes)

    def unify(self, *values: Val) -> list[Val]:
        lanes = max([v.lanes for v in values])
        return [v if v.lanes == lanes else self.splat(v, lanes) for v in values]

    def extract(self, value: Val, lane: int) -> Val:
        if value.lanes == 1:
            return value
        if (count := self.prefixes.get(value.ref)) is not None:
            return self.compare("icmp ugt", count, int_val(lane))
        return self.pure(f"extractelement {value}, i64 {lane}", value.type)

    def insert(self, vector: Val, value: Val, lane: int) -> Val:
        return self.pure(f"insertelement {vector}, {value}, i64 {lane}", vector.type, vector.lanes)

    def shuffle(self, a: Val, b: Val | None, lanes: Sequence[int]) -> Val:
        second = f"{a.full_type} poison" if b is None else str(b)
        mask = ", ".join(f"i32 {i}" if i >= 0 else "i32 poison" for i in lanes)
        text = f"shufflevector {a}, {second}, <{len(lanes)} x i32> <{mask}>"
        return self.pure(text, a.type, len(lanes)) if len(lanes) > 1 else self.extract(a, lanes[0])

    def map_lanes(self, function: Callable[[list[Val]], Val], *values: Val) -> Val:
        """`function` on each lane in turn (library calls)."""
        if all(v.lanes == 1 for v in values):
            return function(list(values))
        vectors = self.unify(*values)
        lanes = vectors[0].lanes
        result: Val | None = None
        for lane in range(lanes):
            one = function([self.extract(v, lane) for v in vectors])
            result = self.insert(result or Val("poison", one.type, lanes), one, lane)
        assert result is not None
        return result

    def map_registers(self, function: Callable[[list[Val]], Val], width: int, *values: Val) -> Val:
        """`function` on `width` lanes at a time (instructions of one register size); lanes / width is a power of two."""
        vectors = self.unify(*values)
        lanes = vectors[0].lanes
        if lanes == width:
            return function(vectors)
        parts = [
            function([self.shuffle(v, None, range(first, first + width)) for v in vectors]) for first in range(0, lanes, width)
        ]
        while len(parts) > 1:
            both = 2 * parts[0].lanes
            parts = [self.shuffle(a, b, range(both)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    # -- shorthands

    def binary(self, op: str, a: Val, b: Val) -> Val:
        if a.lanes != b.lanes:
            a, b = self.unify(a, b)
        return self.pure(f"{op} {a}, {b.ref}", a.type, a.lanes)

    def compare(self, op: str, a: Val, b: Val) -> Val:
        """`op` such as ``icmp slt`` or ``fcmp olt``."""
        if a.lanes != b.lanes:
            a, b = self.unify(a, b)
        return self.pure(f"{op} {a}, {b.ref}", "i1", a.lanes)

    def select(self, condition: Val, a: Val, b: Val) -> Val:
        if a == b:
            return a
        if condition.ref in ("true", "false") and condition.lanes == 1:
            return a if condition.ref == "true" else b
        a, b = self.unify(a, b)
        if condition.lanes > 1:
            condition, a, b = self.unify(condition, a, b)
        return self.pure(f"select {condition}, {a}, {b}", a.type, a.lanes)

    def convert(self, op: str, a: Val, type: str) -> Val:
        if a.type == type:
            return a
        to = type if a.lanes == 1 else f"<{a.lanes} x {type}>"
        return self.pure(f"{op} {a} to {to}", type, a.lanes)

    def bitcast(self, a: Val, type: str) -> Val:
        return self.convert("bitcast", a, type)

    def freeze(self, a: Val) -> Val:
        return self.pure(f"freeze {a}", a.type, a.lanes)

    def intrinsic(self, name: str, *args: Val, extra: str = "") -> Val:
        """A pure overloaded intrinsic ``llvm.<name>.<type>`` whose operands and result have one type."""
        values = self.unify(*args)
        first = values[0]
        suffix = {"float": "f32", "double": "f64"}.get(first.type, first.type)
        suffix = suffix if first.lanes == 1 else f"v{first.lanes}{suffix}"
        types = [v.full_type for v in values] + ([extra.split()[0]] if extra else [])
        callee = self.module.declare(f"llvm.{name}.{suffix}", first.full_type, types)
        operands = ", ".join([str(v) for v in values] + ([extra] if extra else []))
        return self.pure(f"call {first.full_type} {callee}({operands})", first.type, first.lanes)

    def and_(self, a: Val | None, b: Val | None) -> Val | None:
        if a is None or b is None:
            return a if b is None else b
        return self.binary("and", a, b)

    def not_(self, a: Val) -> Val:
        return self.binary("xor", a, int_val(1, "i1", a.lanes))

    # -- control flow

    def new_block(self, hint: str) -> Block:
        self.counter += 1
        return Block(f"{hint}{self.counter}")

    def place(self, block: Block) -> None:
        self.blocks.append(block)
        self.current = block

    def branch(self, target: Block) -> None:
        self.current.terminator = f"br label %{target.label}"

    def branch_if(self, condition: Val, then: Block, other: Block) -> None:
        self.current.terminator = f"br i1 {condition.ref}, label %{then.label}, label %{other.label}"

    @contextmanager
    def scope(self) -> Iterator[None]:
        self.scopes.append({})
        try:
            yield
        finally:
            self.scopes.pop()

    @contextmanager
    def when(self, condition: Val | None) -> Iterator[None]:
        """Code that runs only where the scalar `condition` holds (None: always)."""
        if condition is None:
            yield
            return
        then, after = self.new_block("then"), self.new_block("endif")
        self.branch_if(condition, then, after)
        self.place(then)
        with self.scope():
            yield
        self.branch(after)
        self.place(after)

    @contextmanager
    def at(self, block: Block, scopes: list[dict[str, Val]]) -> Iterator[None]:
        """Append to an earlier, dominating `block` under the scopes that were open there."""
        saved = self.current, self.scopes
        self.current, self.scopes = block, scopes
        try:
            yield
        finally:
            self.current, self.scopes = saved

    def counted_loop(self, lower: Val, upper: Val, step: int | Val, body: Callable[[Val], None], unroll: int = 1) -> None:
        """``for i in range(lower, upper, step): body(i)``; the bounds are not compared first: lower < upper is known.

        LLVM is asked to put `unroll` iterations into one; it does not unroll what nobody asked for."""
        before = self.current
        header, after = self.new_block("loop"), self.new_block("done")
        self.branch(header)
        self.place(header)
        variable = Val(self.fresh("i"), "i64")
        with self.scope():
            body(variable)
            by = step.ref if isinstance(step, Val) else step
            following = self.effect_value(f"add nsw {variable}, {by}", "i64")
            again = self.effect_value(f"icmp slt {following}, {upper.ref}", "i1")
            self.branch_if(again, header, after)
            self.loops.append((self.current, unroll))
        header.lines.insert(
            0, f"{variable.ref} = phi i64 [ {lower.ref}, %{before.label} ], [ {following.ref}, %{self.current.label} ]"
        )
        self.place(after)
