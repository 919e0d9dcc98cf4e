"""Kernels: object code, and what a `Kernel` needs to run it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any

from polyc import driver
from polyc.config import Options, default_options
from polyc.diagnostics import DOUBTS, Remark
from polyc.ir.program import Program
from polyc.ir.signature import Signature
from polyc.log import logger
from polyc.recall.entries import format_sizes, is_unchanged, open_store, own_versions, read_entry, read_or_make
from polyc.recall.machine import check_code_generator, recall_host
from polyc.records import dataclass

if TYPE_CHECKING:
    from polyc.cache import Entry, Key, ProgramPlaces
    from polyc.machine import Machine


@dataclass(slots=True, eq=False)
class Recalled:
    """A specialisation that was compiled before: what of `driver.Lowered` is needed to run it.

    The stages before object code are made again when somebody wants to see them (`lowered`)."""

    signature: Signature
    code: bytes
    parameters: tuple[str, ...]
    """`LoopNest.parameters`."""
    remarks: tuple[Remark, ...]
    preparations: tuple[Program, ...]
    panels: Mapping[str, Any]
    aliases: Mapping[tuple[str, str], bool]
    """What is known of pairs (result, input) in the same memory."""
    loops: str
    """Digest of the text of the loops."""
    unread: tuple[str, ...]
    """As `driver.Lowered.unread`."""
    fixed_sizes: Mapping[str, int]
    options: Options
    lower: Callable[[], driver.Lowered]
    _lowered: driver.Lowered | None = None

    @property
    def is_for_host(self) -> bool:
        """Whether it was compiled for the machine that the environment puts in the place of this one, or this one."""
        return self.options.target == "host"

    @property
    def target(self) -> Machine:
        """What it was compiled for."""
        return driver.select_target(self.options)

    @property
    def lowered(self) -> driver.Lowered:
        """All stages, compiled again when they are first asked for."""
        self._lowered = self._lowered or self.lower()
        return self._lowered

    def alias_is_safe(self, output: str, source: str) -> bool:
        """Whether the code may write `output` over `source`; the proof is made again where it was not kept."""
        known = self.aliases.get((output, source))
        if known is None:
            with driver.compiling():
                # Only a proof about these very loops is one about this code.
                known = _digest_loops(self.lowered) == self.loops and self.lowered.alias_is_safe(output, source)
        return known

    def as_text(self, stage: str) -> str:
        """As `driver.Lowered.as_text`."""
        return self.lowered.as_text(stage)

    def explain(self) -> str:
        """As `driver.Lowered.explain`."""
        return self.lowered.explain()

    def summary(self) -> str:
        """As `driver.Lowered.summary`."""
        return self.lowered.summary()

    def object_code(self) -> bytes:
        return self.code

    def c_header(self) -> str:
        from polyc.codegen.objects.aot import c_header

        return c_header(self.signature, self.parameters)

    def compile(self, constants: Sequence[Any] = (), bound: Mapping[str, Any] | None = None) -> Any:
        """As `driver.Lowered.compile`."""
        return driver.load_kernel(self, constants, bound)


def compile_program(
    program: Program,
    *,
    sizes: Mapping[str, int] | None = None,
    strides: driver.Strides | None = None,
    aliases: tuple[tuple[str, str], ...] = (),
    options: Options | None = None,
    constants: Collection[str] = (),
    typical: Mapping[str, int] | None = None,
) -> driver.Lowered | Recalled:
    """`driver.lower` with these arguments, or what is left of it from an earlier process.

    Both have ``signature``, ``remarks``, ``preparations``, ``panels``, ``alias_is_safe``, ``object_code``, ``c_header``,
    ``compile``, ``as_text``, ``explain`` and ``summary``."""
    request = Request(program, sizes or {}, strides, aliases, options or default_options(), tuple(constants), typical or {})
    store = open_store()
    if store is None:
        return request.lower()
    with driver.compiling():
        return read_or_make(store, request.key(), request.read, request.lower, request.write)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A specialisation that somebody wants: the arguments of `compile_program`."""

    program: Program
    sizes: Mapping[str, int]
    strides: driver.Strides | None
    aliases: tuple[tuple[str, str], ...]
    options: Options
    constants: tuple[str, ...] = ()
    typical: Mapping[str, int] = field(default_factory=dict)

    def lower(self) -> driver.Lowered:
        """All stages, compiled."""
        check_code_generator(driver.select_target(self.options))
        return driver.lower(
            self.program,
            sizes=self.sizes or None,
            strides=self.strides,
            aliases=self.aliases,
            options=self.options,
            constants=self.constants,
            typical=self.typical or None,
        )

    def key(self) -> Key:
        recall_host()
        return _kernel_key(self.program, self.sizes, self.strides, self.aliases, self.options, self.constants, self.typical)

    def read(self, entry: Entry) -> Recalled:
        from polyc.cache import identify_program

        places = identify_program(self.program).places
        return _read_kernel(entry, places, self.sizes, self.options, self.lower)

    def write(self, lowered: driver.Lowered) -> Entry:
        from polyc.cache import Unstorable, identify_program

        if any(d.code in DOUBTS for d in lowered.ranges.warnings):
            raise Unstorable("its warnings are for every process")
        return _write_kernel(lowered, identify_program(self.program).places, self.aliases)


def find(request: Request) -> Recalled | None:
    """What an earlier process compiled for `request`; None where nothing is stored."""
    store = open_store()
    if store is None:
        return None
    with driver.compiling():
        key = request.key()
        entry = store.read(key)
        return None if entry is None else read_entry(store, key, request.read, entry)


def make_entry(request: Request) -> Entry:
    """Compile, and give what an entry of the cache would hold; nothing is stored.  Raises `polyc.cache.Unstorable`."""
    with driver.compiling():
        return request.write(request.lower())


def adopt(request: Request, entry: Entry) -> Recalled | None:
    """The specialisation that another process made (`make_entry`), which is stored; None where the entry makes no sense."""
    store = open_store()
    with driver.compiling():
        try:
            value = request.read(entry)
        except Exception as error:
            logger.warning("cache: what a worker made of %s makes no sense: %s", request.program.name, error)
            return None
        if store is not None and is_unchanged():
            store.write(request.key(), entry)
        return value


def _kernel_key(
    program: Program,
    sizes: Mapping[str, int],
    strides: driver.Strides | None,
    aliases: tuple[tuple[str, str], ...],
    options: Options,
    constants: Collection[str],
    typical: Mapping[str, int],
) -> Key:
    from polyc.cache import Key, identify_program
    from polyc.codegen.objects.host import describe_llvm, describe_target

    identity = identify_program(program)
    parts = (
        ("sizes", format_sizes(sizes) or "any"),
        ("typical sizes", format_sizes(typical)),
        ("strides", "any" if strides is None else _format_strides(strides)),
        ("in place", ", ".join(f"{out} over {source}" for out, source in aliases)),
        ("constants", ", ".join(sorted(constants))),
        ("options", ", ".join(f"{f.name}={getattr(options, f.name)}" for f in fields(Options) if f.name != "verify")),
        ("machine", describe_target(options.target)),
        ("source", identity.places.digest),
        ("versions", f"{own_versions()}, {describe_llvm()}"),
    )
    return Key("kernel", program.name, identity.text, parts)


def _format_strides(strides: driver.Strides) -> str:
    return " ".join("any" if s is None else "/".join("?" if n is None else str(n) for n in s) or "-" for s in strides)


def _write_kernel(lowered: driver.Lowered, places: ProgramPlaces, aliases: Sequence[tuple[str, str]]) -> Entry:
    from polyc.cache import Entry, Unstorable, encode

    if not lowered.is_reproducible:
        raise Unstorable("a part of the compiler failed")
    value = (
        lowered.signature,
        tuple(lowered.nest.parameters),
        lowered.remarks,
        lowered.preparations,
        dict(lowered.panels),
        {pair: lowered.alias_is_safe(*pair) for pair in aliases},
        _digest_loops(lowered),
        lowered.unread,
    )
    return Entry({"value": encode(value, places)}, lowered.object_code())


def _read_kernel(
    entry: Entry, places: ProgramPlaces, sizes: Mapping[str, int], options: Options, lower: Callable[[], driver.Lowered]
) -> Recalled:
    from polyc.cache import Unreadable, decode

    signature, *rest = decode(entry.header["value"], places)
    if not isinstance(signature, Signature) or len(rest) != 7:
        raise Unreadable("no kernel")
    parameters, remarks, preparations, panels, aliases, loops, unread = rest
    return Recalled(
        signature, entry.payload, parameters, remarks, preparations, panels, aliases, loops, unread, dict(sizes), options, lower
    )


def _digest_loops(lowered: driver.Lowered) -> str:
    from polyc.cache import digest_text
    from polyc.ir.loops_text import format_loops

    return digest_text(format_loops(lowered.nest))
