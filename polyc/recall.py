"""The driver's slow functions, behind the disk cache: what an earlier process worked out is read instead.

Kinds of entries: ``source`` (the programs of a ``.tc`` text), ``shapes`` (of a program's results at given sizes), ``extents``
(the same over symbols), ``kernel`` (object code, and what a `Kernel` needs to run it), ``host`` (what LLVM says of this
machine), ``sequence`` and ``call`` (object code that runs kernels one after the other, and that finds planned calls).  An
entry depends on nothing but its key (`polyc.cache.keys`), so a hit gives what the driver would give.  Whatever is wrong with
an entry, the driver does the work.
"""

from __future__ import annotations

import functools
import logging
import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from polyc import driver
from polyc.codegen import calls
from polyc.config import VERSION, Options, debugging, default_options, parse_bytes
from polyc.diagnostics import Diagnostic, PolycWarning, Remark
from polyc.ir.expr import Expr
from polyc.ir.program import Program
from polyc.ir.signature import Signature
from polyc.ir.text import format_loops
from polyc.target import Target

if TYPE_CHECKING:
    from polyc.cache import Entry, Key, ProgramPlaces, Store

Made = TypeVar("Made")
Read = TypeVar("Read")

logger = logging.getLogger("polyc")


def package_state() -> tuple[tuple[str, int, int], ...]:
    """Path, size and time of change of the package's own files: code that is being worked on has no version."""
    root = os.path.dirname(__file__)
    found: list[tuple[str, int, int]] = []
    try:
        _list_files(root, found)
    except OSError:
        return ()  # no files of its own: an archive
    return tuple(sorted((path[len(root) :], size, time) for path, size, time in found))


def _list_files(directory: str, found: list[tuple[str, int, int]]) -> None:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".lark")):
                state = entry.stat()
                found.append((entry.path, state.st_size, state.st_mtime_ns))
            elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                _list_files(entry.path, found)


_PACKAGE = package_state()
"""The state of polyc's files when this process began: what it compiles belongs to no later one."""


@dataclass(eq=False)
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
    target: Target
    lower: Callable[[], driver.Lowered]

    @cached_property
    def lowered(self) -> driver.Lowered:
        """All stages, compiled again."""
        return self.lower()

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
        from polyc.codegen.aot import c_header

        return c_header(self.signature, self.parameters)

    def compile(self, constants: Sequence[Any] = (), bound: Mapping[str, Any] | None = None) -> Any:
        """As `driver.Lowered.compile`."""
        return driver.load_kernel(self, constants, bound)


# --- Kernels ---------------------------------------------------------------------------------------------------------


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
    store = _open_store()
    if store is None:
        return request.lower()
    with driver.compiling():
        return _recall(store, request.key(), request.read, request.lower, request.write)


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
        _recall_host()
        target = driver.select_target(self.options)
        return _kernel_key(
            self.program, self.sizes, self.strides, self.aliases, self.options, target, self.constants, self.typical
        )

    def read(self, entry: Entry) -> Recalled:
        from polyc.cache import identify_program

        places = identify_program(self.program).places
        return _read_kernel(entry, places, self.sizes, driver.select_target(self.options), self.lower)

    def write(self, lowered: driver.Lowered) -> Entry:
        from polyc.cache import identify_program

        return _write_kernel(lowered, identify_program(self.program).places, self.aliases)


def find(request: Request) -> Recalled | None:
    """What an earlier process compiled for `request`; None where nothing is stored."""
    store = _open_store()
    if store is None:
        return None
    with driver.compiling():
        key = request.key()
        entry = store.read(key)
        return None if entry is None else _read_entry(store, key, request.read, entry)


def make_entry(request: Request) -> Entry:
    """Compile, and give what an entry of the cache would hold; nothing is stored.  Raises `polyc.cache.Unstorable`."""
    with driver.compiling():
        return request.write(request.lower())


def adopt(request: Request, entry: Entry) -> Recalled | None:
    """The specialisation that another process made (`make_entry`), which is stored; None where the entry makes no sense."""
    store = _open_store()
    with driver.compiling():
        try:
            value = request.read(entry)
        except Exception as error:
            logger.warning("cache: what a worker made of %s makes no sense: %s", request.program.name, error)
            return None
        if store is not None and package_state() == _PACKAGE:
            store.write(request.key(), entry)
        return value


def _kernel_key(
    program: Program,
    sizes: Mapping[str, int],
    strides: driver.Strides | None,
    aliases: tuple[tuple[str, str], ...],
    options: Options,
    target: Target,
    constants: Collection[str],
    typical: Mapping[str, int],
) -> Key:
    from polyc.cache import Key, identify_program
    from polyc.codegen.host import describe_llvm

    identity = identify_program(program)
    parts = (
        ("sizes", _format_sizes(sizes) or "any"),
        ("typical sizes", _format_sizes(typical)),
        ("strides", "any" if strides is None else _format_strides(strides)),
        ("in place", ", ".join(f"{out} over {source}" for out, source in aliases)),
        ("constants", ", ".join(sorted(constants))),
        ("options", ", ".join(f"{f.name}={getattr(options, f.name)}" for f in fields(Options) if f.name != "verify")),
        ("machine", ", ".join(f"{f.name}={getattr(target, f.name)}" for f in fields(Target))),
        ("source", identity.places.digest),
        ("versions", f"{own_versions()}, {describe_llvm()}"),
    )
    return Key("kernel", program.name, identity.text, parts)


def _format_sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{n}={v}" for n, v in sorted(sizes.items()))


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
    entry: Entry, places: ProgramPlaces, sizes: Mapping[str, int], target: Target, lower: Callable[[], driver.Lowered]
) -> Recalled:
    from polyc.cache import Unreadable, decode

    signature, *rest = decode(entry.header["value"], places)
    if not isinstance(signature, Signature) or len(rest) != 7:
        raise Unreadable("no kernel")
    parameters, remarks, preparations, panels, aliases, loops, unread = rest
    return Recalled(
        signature, entry.payload, parameters, remarks, preparations, panels, aliases, loops, unread, dict(sizes), target, lower
    )


def _digest_loops(lowered: driver.Lowered) -> str:
    from polyc.cache import digest_text

    return digest_text(format_loops(lowered.nest))


# --- Shapes and sources ----------------------------------------------------------------------------------------------


def infer_shapes(program: Program, sizes: Mapping[str, int]) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """As `driver.infer_shapes`."""
    store = _open_store()
    if store is None:
        return driver.infer_shapes(program, sizes)
    from polyc.cache import Entry, Key, decode, encode, identify_program

    with driver.compiling():
        identity = identify_program(program)
        parts = (("sizes", _format_sizes(sizes)), ("versions", own_versions()))
        key = Key("shapes", program.name, identity.text, parts)
        return _recall(
            store,
            key,
            lambda entry: dict(decode(entry.header["value"], identity.places)),
            lambda: driver.infer_shapes(program, sizes),
            lambda shapes: Entry({"value": encode(shapes, identity.places)}),
        )


def infer_extents(program: Program) -> tuple[dict[str, tuple[Expr, ...]], tuple[tuple[str, Expr], ...]]:
    """As `driver.infer_extents`."""
    store = _open_store()
    if store is None:
        return driver.infer_extents(program)
    from polyc.cache import Entry, Key, decode, encode, identify_program

    with driver.compiling():
        identity = identify_program(program)
        parts = (("source", identity.places.digest), ("versions", own_versions()))

        def read(entry: Entry) -> tuple[dict[str, tuple[Expr, ...]], tuple[tuple[str, Expr], ...]]:
            extents, defined = decode(entry.header["value"], identity.places)
            return extents, defined

        return _recall(
            store,
            Key("extents", program.name, identity.text, parts),
            read,
            lambda: driver.infer_extents(program),
            lambda found: Entry({"value": encode(found, identity.places)}),
        )


def read_tc(text: str, filename: str) -> tuple[tuple[Program, ...], tuple[Diagnostic, ...]]:
    """Programs and warnings of `driver.read_tc_with_warnings`."""

    def read() -> tuple[tuple[Program, ...], tuple[Diagnostic, ...]]:
        result = driver.read_tc_with_warnings(text, filename)
        return result.programs, result.warnings

    store = _open_store()
    if store is None:
        return read()
    from polyc.cache import Entry, Key, SourcePlaces, decode, digest_text, encode

    def write(result: tuple[tuple[Program, ...], tuple[Diagnostic, ...]]) -> Entry:
        places = SourcePlaces()
        value = encode(result, places)
        return Entry({"value": value, "sources": places.plain_sources()})

    def restore(entry: Entry) -> tuple[tuple[Program, ...], tuple[Diagnostic, ...]]:
        programs, found = decode(entry.header["value"], SourcePlaces(entry.header["sources"]))
        return programs, found

    parts = (("file", filename), ("versions", own_versions()))
    return _recall(store, Key("source", filename, digest_text(text), parts), restore, read, write)


# --- What they share -------------------------------------------------------------------------------------------------


def _recall(
    store: Store, key: Key, read: Callable[[Entry], Read], make: Callable[[], Made], write: Callable[[Made], Entry]
) -> Read | Made:
    """The value of the entry of `key`; where there is none, or it makes no sense, what `make` gives, which is kept."""
    from polyc.cache import Unstorable

    entry = store.read(key)
    if entry is not None:
        value = _read_entry(store, key, read, entry)
        if value is not None:
            return value
    _tell_miss(store, key)
    made = make()
    if package_state() != _PACKAGE:
        logger.info("cache: %s of %s is not stored: polyc's files have changed since it was imported", key.kind, key.name)
        return made
    try:
        store.write(key, write(made))
    except (Unstorable, RecursionError) as error:
        logger.info("cache: %s of %s is not stored: %s", key.kind, key.name, error)
    return made


def _tell_miss(store: Store, key: Key) -> None:
    if logger.isEnabledFor(logging.INFO):
        logger.info("cache: miss: %s of %s: %s", key.kind, key.name, store.explain_miss(key))


def _read_entry(store: Store, key: Key, read: Callable[[Entry], Read], entry: Entry) -> Read | None:
    """The value of an entry; one that makes no sense is removed."""
    try:
        value = read(entry)
    except Exception as error:
        # The entry is as it was written, but not by this version, or not for this key.
        logger.warning("cache: %s of %s makes no sense and is removed: %s", key.kind, key.name, error)
        store.remove(key)
        return None
    logger.debug("cache: hit: %s of %s", key.kind, key.name)
    return value


@functools.cache
def load_sequence(name: str | None = None) -> Any:
    """A function of `codegen.sequence` (the first one), ready to be called: its address, and what keeps that valid."""
    from polyc.codegen.loader import load_object
    from polyc.codegen.sequence import NAME

    with driver.compiling():
        return load_object(glue_code("sequence"), name or NAME)


def _make_sequence() -> bytes:
    from polyc.codegen.host import host_target
    from polyc.codegen.sequence import make_sequence

    return make_sequence(host_target())


_GLUE: Mapping[str, Callable[[], bytes]] = {"sequence": _make_sequence, "call": calls.make_call}
"""Code that belongs to no program: it runs kernels one after the other, and finds planned calls."""
GLUE = tuple(_GLUE)
_glue: dict[str, bytes] = {}
"""What is known of it; code for one machine, whatever its cores."""


def glue_code(kind: str) -> bytes:
    """Object code of one of `GLUE`."""
    if not knows_glue(kind):
        store = _open_store()
        if store is not None:
            _tell_miss(store, _glue_key(kind))
        adopt_glue(kind, _GLUE[kind]())
    return _glue[kind]


def knows_glue(kind: str) -> bool:
    """Whether `glue_code` needs no LLVM."""
    if kind not in _glue and knows_host():
        store = _open_store()
        entry = None if store is None else store.read(_glue_key(kind))
        if entry is not None:
            _glue[kind] = entry.payload
    return kind in _glue


def adopt_glue(kind: str, code: bytes) -> None:
    """Take what a worker has made for what `glue_code` would give."""
    from polyc.cache import Entry

    _glue[kind] = code
    store = _open_store()
    if store is not None and package_state() == _PACKAGE:
        store.write(_glue_key(kind), Entry({}, code))


calls.use_source(functools.partial(glue_code, "call"))


def _host_target() -> Target:
    from polyc.codegen.host import host_target

    _recall_host()
    return host_target()


def _glue_key(kind: str) -> Key:
    from polyc.cache import Key, digest_text, versions

    target = _host_target()
    parts = (("versions", f"{own_versions()}, {versions('llvmlite')}"),)
    return Key(kind, target.name, digest_text(repr(target)), parts)


def knows_host() -> bool:
    """Whether it is known what LLVM says of this machine, without asking LLVM."""
    from polyc.codegen import host

    if host.are_facts_known():
        return True
    found = _find_host()
    if found is not None:
        host.adopt_facts(found)
    return found is not None


def _recall_host() -> None:
    """Ask the cache what LLVM says of this machine, else LLVM: for that it has to be loaded."""
    if not knows_host():
        from polyc.codegen import host

        key, store = _host_key(), _open_store()
        if key is not None and store is not None:
            _tell_miss(store, key)
        _keep_host(host.facts())


def plain_host() -> list[Any]:
    """What LLVM says of this machine, as JSON has it."""
    from polyc.codegen import host

    _recall_host()
    found = host.facts()
    return [found.triple, list(found.features), found.version]


def adopt_host(triple: str, features: Sequence[str], version: str) -> None:
    """Take `plain_host` of a worker for what LLVM would say here."""
    from polyc.codegen import host

    if not host.are_facts_known():
        host.adopt_facts(host.Facts(triple, tuple(features), version))
        _keep_host(host.facts())


def _host_key() -> Key | None:
    """None where there is no cache, or the system does not say what machine this is."""
    from polyc.cache import Key, versions
    from polyc.codegen import host

    machine = host.describe_machine()
    if machine is None or _open_store() is None:
        return None
    return Key("host", "this machine", machine, (("versions", f"{own_versions()}, {versions('llvmlite')}"),))


def _find_host() -> Any:
    """The facts that the cache has."""
    from polyc.codegen import host

    def read(entry: Entry) -> host.Facts:
        triple, features, version = entry.header["value"]
        if not all(isinstance(t, str) for t in (triple, version, *features)) or not features:
            raise ValueError("no facts about a machine")
        return host.Facts(triple, tuple(features), version)

    key, store = _host_key(), _open_store()
    entry = None if key is None or store is None else store.read(key)
    return None if entry is None or key is None or store is None else _read_entry(store, key, read, entry)


def _keep_host(found: Any) -> None:
    from polyc.cache import Entry

    key, store = _host_key(), _open_store()
    if key is not None and store is not None and package_state() == _PACKAGE:
        store.write(key, Entry({"value": [found.triple, list(found.features), found.version]}))


def own_versions() -> str:
    """What code depends on beside its program, options and machine: versions, and the state of polyc's own files."""
    from polyc.cache import digest_text, versions

    return f"polyc {VERSION} ({digest_text(repr(_PACKAGE))[:16]}), {versions('islpy', 'highspy')}"


_warned: set[str] = set()


def _open_store() -> Store | None:
    """The store of the environment.  While faults should surface (`POLYC_DEBUG`), everything is compiled."""
    if debugging():
        return None
    size = os.environ.get("POLYC_CACHE_SIZE", "")
    if size and size not in _warned and parse_bytes(size) is None:
        from polyc.runtime.threads import user_stacklevel

        _warned.add(size)
        message = f"POLYC_CACHE_SIZE is {size!r}, which is no number of bytes; the default is used"
        diagnostic = Diagnostic("argument-cache-size", message, None, "write for example 200M or 2G", "warning")
        warnings.warn(PolycWarning(diagnostic), stacklevel=user_stacklevel())
    from polyc.cache import open_store

    return open_store()
