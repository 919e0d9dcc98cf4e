"""Where in the user's source something is, as plain data.

An entry that holds programs (`SourcePlaces`) holds their sources too.  One that was compiled *from* a program
(`ProgramPlaces`) refers to places of that program by number: the same program written elsewhere gets messages that point
where it stands now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from polyc.cache.values import FIELDS, Plain, Unreadable, Unstorable
from polyc.diagnostics import Source, Span
from polyc.digest import sha256
from polyc.ir.program import Program
from polyc.records import replace


class SourcePlaces:
    """Places by character range, with the texts they are in: ``[number of the source, start, end]``, and
    the context where there is one."""

    def __init__(self, sources: Plain = ()) -> None:
        """`sources`: as `plain_sources` gave them."""
        try:
            self._sources = [Source(str(text), str(name), int(line), bool(f)) for text, name, line, f in sources]
        except (TypeError, ValueError) as error:
            raise Unreadable(f"sources: {error}") from error
        self._numbers = {source: n for n, source in enumerate(self._sources)}

    def plain_sources(self) -> Plain:
        return [[s.text, s.name, s.first_line, s.is_function] for s in self._sources]

    def write_source(self, source: Source) -> Plain:
        if source not in self._numbers:
            self._numbers[source] = len(self._sources)
            self._sources.append(source)
        return self._numbers[source]

    def read_source(self, plain: Plain) -> Source:
        return self._sources[plain]

    def write_span(self, span: Span) -> Plain:
        return [self.write_source(span.source), span.start, span.end, *([span.context] if span.context else [])]

    def read_span(self, plain: Plain) -> Span:
        number, start, end, *context = plain
        return Span(self._sources[number], start, end, *context)


class ProgramPlaces:
    """Places by their number among the different spans of one program, in the order of its nodes.

    Programs of equal text and equal `digest` have the same spans, and sources, at the same numbers, and the same words in
    them: compilation makes no new spans, and its messages quote nothing else of a source."""

    def __init__(self, program: Program) -> None:
        self._spans: list[Span] = []
        self._sources: list[Source] = []
        self._span_numbers: dict[tuple[int, int, int, str], int] = {}
        self._source_numbers: dict[Source, int] = {}
        self._seen: dict[int, int] = {}
        pattern = [-1 if place is None else self._number(place) for place in _places(program)]
        digest = sha256(repr(pattern).encode())
        for span in self._spans:
            words = span.source.text[span.start : span.end]
            digest.update(f"{self._source_number(span.source)} {len(words)} {words}".encode("utf-8", "surrogatepass"))
        self.digest = digest.hexdigest()

    def _number(self, place: Span | Source) -> int:
        if isinstance(place, Source):
            return self._source_number(place)
        key = (self._source_number(place.source), place.start, place.end, place.context)
        number = self._span_numbers.get(key)
        if number is None:
            number = self._span_numbers[key] = len(self._spans)
            self._spans.append(place)
        return number

    def _source_number(self, source: Source) -> int:
        number = self._seen.get(id(source))  # the program keeps them alive, and hashing a long text takes a while
        if number is None:
            number = self._source_numbers.setdefault(source, len(self._sources))
            if number == len(self._sources):
                self._sources.append(source)
            self._seen[id(source)] = number
        return number

    def write_source(self, source: Source) -> Plain:
        if source not in self._source_numbers:
            raise Unstorable("a source that is not the program's")
        return self._source_numbers[source]

    def read_source(self, plain: Plain) -> Source:
        return self._sources[plain]

    def write_span(self, span: Span) -> Plain:
        key = (self._source_numbers.get(span.source, -1), span.start, span.end, span.context)
        if key in self._span_numbers:
            return self._span_numbers[key]
        number = next((n for known, n in self._span_numbers.items() if known[:3] == key[:3]), None)
        if number is None or span.context:
            raise Unstorable("a span that is not the program's")
        return ~number  # without the context that the program has there

    def read_span(self, plain: Plain) -> Span:
        return self._spans[plain] if plain >= 0 else replace(self._spans[~plain], context="")


def _places(value: Any) -> Iterator[Span | Source | None]:
    """Every span and source in `value`, and None for each that could be there and is not, parents before children."""
    names = FIELDS.get(type(value).__name__)
    if names is not None:
        for name in names:
            part = getattr(value, name)
            if name in ("span", "source"):
                yield part
            elif not isinstance(part, (str, int, float)):
                yield from _places(part)
    elif isinstance(value, tuple):
        for part in value:
            if not isinstance(part, (str, int, float)):
                yield from _places(part)
