"""What is read of programs before anything is compiled: the programs of a text, and shapes of results."""

from __future__ import annotations

from collections.abc import Mapping

from polyc import driver
from polyc.diagnostics import Diagnostic
from polyc.ir.expr import Expr
from polyc.ir.program import Program
from polyc.recall.entries import format_sizes, open_store, own_versions, read_or_make


def infer_shapes(program: Program, sizes: Mapping[str, int]) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """As `driver.infer_shapes`."""
    store = open_store()
    if store is None:
        return driver.infer_shapes(program, sizes)
    from polyc.cache import Entry, Key, decode, encode, identify_program

    with driver.compiling():
        identity = identify_program(program)
        parts = (("sizes", format_sizes(sizes)), ("versions", own_versions()))
        key = Key("shapes", program.name, identity.text, parts)
        return read_or_make(
            store,
            key,
            lambda entry: dict(decode(entry.header["value"], identity.places)),
            lambda: driver.infer_shapes(program, sizes),
            lambda shapes: Entry({"value": encode(shapes, identity.places)}),
        )


def infer_extents(program: Program) -> tuple[dict[str, tuple[Expr, ...]], tuple[tuple[str, Expr], ...]]:
    """As `driver.infer_extents`."""
    store = open_store()
    if store is None:
        return driver.infer_extents(program)
    from polyc.cache import Entry, Key, decode, encode, identify_program

    with driver.compiling():
        identity = identify_program(program)
        parts = (("source", identity.places.digest), ("versions", own_versions()))

        def read(entry: Entry) -> tuple[dict[str, tuple[Expr, ...]], tuple[tuple[str, Expr], ...]]:
            extents, defined = decode(entry.header["value"], identity.places)
            return extents, defined

        return read_or_make(
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

    store = open_store()
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
    return read_or_make(store, Key("source", filename, digest_text(text), parts), restore, read, write)
