"""Values come back equal from their plain form, and nothing but known values comes back at all."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from polyc import driver
from polyc.cache import ProgramPlaces, SourcePlaces, Unreadable, Unstorable, decode, encode
from polyc.diagnostics import Diagnostic, Remark, Source, Span
from polyc.ir.expr import Const
from polyc.ir.text import format_program
from polyc.ir.types import DTYPES, F64
from polyc.poly.storage import Panel
from tests.golden.programs import PROGRAMS


def through_json(value: object) -> object:
    places = SourcePlaces()
    plain = encode(value, places)
    plain, sources = json.loads(json.dumps([plain, places.plain_sources()]))
    return decode(plain, SourcePlaces(sources))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(2**70),
        1.5,
        float("inf"),
        "a\ud800b",
        (1, (2.0, "x"), ()),
        {("a", "b"): True, "c": (1,)},
        DTYPES["u8"],
        Panel(1, 32),
        Remark("passed", "tile", "by 3", "S0", Span(Source("some text", "f.tc", 7), 2, 6)),
        Diagnostic("range-size", "m", Span(Source("é\n", "g"), 0, 1), "h", "warning"),
    ],
)
def test_value_comes_back(value: object) -> None:
    found = through_json(value)
    assert found == value
    assert type(found) is type(value)


def test_numbers_keep_sign_type_and_nan() -> None:
    found = through_json((Const(-0.0, F64), Const(0), Const(False), Const(float("nan"), F64), Const(np.float64(2.5), F64)))
    assert isinstance(found, tuple)
    zero, integer, boolean, nan, scalar = found
    assert math.copysign(1, zero.value) == -1
    assert type(integer.value) is int and type(boolean.value) is bool and math.isnan(nan.value)
    assert type(scalar.value) is float


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_program_comes_back_with_its_places(program) -> None:
    (read,) = driver.read_tc(program.text, "some.tc")
    found = through_json(read)
    assert found == read
    assert format_program(found) == format_program(read)
    assert found.source == read.source
    assert [s.span for s in found.statements] == [s.span for s in read.statements]
    assert ProgramPlaces(found).digest == ProgramPlaces(read).digest


@pytest.mark.parametrize("value", [object(), [1], {1, 2}, np.int64(3), b"bytes", len])
def test_other_values_are_not_stored(value: object) -> None:
    with pytest.raises(Unstorable):
        encode((value,), SourcePlaces())


@pytest.mark.parametrize(
    "plain",
    [
        {"Const": [1]},
        {"Const": 5},
        {"os.system": ["true"]},
        {"Path": ["x"]},
        {"DType": "f99"},
        {"Span": [0, 1, 2]},
        {"Span": None},
        {"Const": [1, {"DType": "i64"}, None], "Size": ["N", None]},
        {"dict": [[1]]},
        {"dict": [[{"dict": []}, 1]]},
        {"Source": "x"},
    ],
)
def test_other_plain_data_is_not_read(plain: object) -> None:
    with pytest.raises(Unreadable):
        decode([plain], SourcePlaces())


TEXT = "def f(float(N) A, int32(M) I) -> (B) { B(m) = A(I(m)) }"


def test_places_of_a_program_move_with_it() -> None:
    (here,) = driver.read_tc(TEXT, "here.tc")
    (there,) = driver.read_tc("\n\n" + TEXT, "there.tc")
    near, far = ProgramPlaces(here), ProgramPlaces(there)
    assert near.digest == far.digest
    moved = decode(encode(here.statements[0].span, near), far)
    assert moved == there.statements[0].span
    assert moved.source.name == "there.tc" and moved.line_column()[0] == 3


def test_other_words_in_the_source_are_other_places() -> None:
    (spaced,), (plain,) = (driver.read_tc(f"def f(float(N) A) -> (B) {{ B(i) = {e} }}") for e in ("A(i) + 1", "A(i)+1"))
    assert spaced == plain
    assert ProgramPlaces(spaced).digest != ProgramPlaces(plain).digest


def test_foreign_places_are_not_stored() -> None:
    (program,) = driver.read_tc(TEXT)
    with pytest.raises(Unstorable):
        encode(Span(Source("elsewhere"), 0, 1), ProgramPlaces(program))
