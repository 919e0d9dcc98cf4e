"""Records are the dataclasses that they are written as."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from polyc.codegen.emission.context import Context
from polyc.diagnostics import Source, Span
from polyc.ir.expr import Call, Const, Expr, Index, Pad, Read, Select, Size, int_const
from polyc.ir.loops import Loop, Store
from polyc.ir.types import F32
from polyc.records import CALLS_BEFORE_COMPILING, Hashed, dataclass, replace

TREE = Call("add", (Read("A", (Index("i"), Size("N"))), Select(Const(True), int_const(1), int_const(2))))
COUNTED = []


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 7
    names: list[str] = dataclasses.field(default_factory=list)


class Leaf:
    def __hash__(self) -> int:
        COUNTED.append(self)
        return 5


@dataclass(frozen=True, slots=True)
class Branch(Hashed):
    leaf: Leaf
    note: str = dataclasses.field(default="", compare=False)


def test_fields_are_given_by_place_and_by_name_and_have_their_defaults():
    assert Point(1) == Point(x=1, y=7, names=[]) != Point(1, 8)
    assert Point(1).names is not Point(1).names
    assert Pad(Read("A", ()), int_const(0), mode="wrap").mode == "wrap"
    assert Loop("i", int_const(0), Size("N"), 1, "serial", ()).lanes == 1
    assert Context() == Context(env={}) and Context().env is not Context().env
    for arguments, named in (((), {}), ((1, 2, [], 4), {}), ((1,), {"x": 1}), ((1,), {"z": 1})):
        with pytest.raises(TypeError, match=r"Point\.__init__"):
            Point(*arguments, **named)


def test_what_a_class_writes_itself_stays():
    @dataclass(frozen=True, slots=True)
    class Own:
        """Words."""

        x: int
        y: int = dataclasses.field(default=3, repr=False)

        def __hash__(self) -> int:
            return 11

        def __eq__(self, other: object) -> bool:
            return True

    assert hash(Own(1)) == 11 and Own(1) == 2 and Own.__doc__ == "Words." and repr(Own(1)).endswith("Own(x=1)")
    assert Point.__doc__ is None and not hasattr(Own(1), "__dict__")


def test_what_is_declared_without_equality_is_itself():
    @dataclass(frozen=True, slots=True, eq=False)
    class Place:
        x: int

    one = Place(1)
    assert one == one != Place(1) and len({one, Place(1)}) == 2


@dataclass(slots=True)
class Account:
    name: str
    sums: list[int] = dataclasses.field(default_factory=list)
    parent: Account | None = None


@dataclass(frozen=True, slots=True)
class Marked(Point):
    mark: str = ""
    x: str = "a"


def test_records_that_change_are_those_of_dataclasses():
    plain = dataclasses.make_dataclass("Account", [("name", str), ("sums", list), ("parent", object)], slots=True)
    one, other = Account("a", [1], Account("b")), plain("a", [1], None)
    assert one == Account("a", [1], Account("b")) != Account("a") and one != other and not hasattr(one, "__dict__")
    one.name, one.parent = "c", one
    assert (one.name, replace(one, name="d").name, copy.copy(one)) == ("c", "d", one) and pickle.loads(
        pickle.dumps(one)
    ).name == "c"
    assert repr(one) == "Account(name='c', sums=[1], parent=...)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    with pytest.raises(AttributeError):
        one.other = 1  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Sized:
    x: int
    twice: int = dataclasses.field(init=False, default=0)
    seen: list[int] = dataclasses.field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.seen.append(self.x)


def test_the_first_records_and_all_later_ones_are_made_alike():
    """Those before the functions of the class are compiled, and those behind."""
    for n in range(2 * CALLS_BEFORE_COMPILING):
        for arguments, named in (((1, 2, 3), {}), ((), {}), ((1,), {"x": 1}), ((1,), {"twice": 1}), ((), {"z": 1})):
            with pytest.raises(TypeError, match=r"Sized\.__init__"):
                Sized(*arguments, **named)
            with pytest.raises(TypeError):
                replace(Point(1), **{"z": n})
        one = Sized(n) if n % 2 else Sized(x=n)
        assert (one.x, one.twice, one.seen) == (n, 0, [n])
        assert replace(Marked(n, mark="m"), x=3, names=None) == Marked(3, 7, None, "m")
        assert replace(Sized(n), x=n + 1).seen == [n + 1]


def test_fields_of_a_base_come_first_in_their_order():
    assert [f.name for f in dataclasses.fields(Marked)] == ["x", "y", "names", "mark"]
    assert Marked.__match_args__ == ("x", "y", "names", "mark") and Marked() == Marked("a", 7, [], "")
    assert dataclasses.is_dataclass(Marked) and dataclasses.asdict(Point(1)) == {"x": 1, "y": 7, "names": []}
    assert not dataclasses.fields(Marked)[3].kw_only and Marked.__slots__ == ("mark",)


def test_a_default_that_all_would_share_is_refused():
    with pytest.raises(ValueError, match="default of names"):

        @dataclass(frozen=True, slots=True)
        class Shared:
            names: list[str] = []  # noqa: RUF012


def test_fields_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TREE.op = "sub"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Point(1).x = 2  # type: ignore[misc]


def test_a_hash_is_worked_out_once_and_is_that_of_what_is_compared():
    branch = Branch(Leaf())
    COUNTED.clear()
    assert hash(branch) == hash(branch) == hash(Branch(branch.leaf, "noted"))
    assert len(COUNTED) == 2
    assert hash(TREE) == hash(dataclasses.replace(TREE)) and TREE in {dataclasses.replace(TREE)}


@pytest.mark.parametrize("node", [TREE, Store("A", (Index("i"),), Const(0.5, F32))], ids=["expression", "statement"])
def test_nodes_are_copied_with_or_without_their_hash(node: Expr | Store):
    other = dataclasses.replace(node)
    hash(node)
    for one in (node, other):
        for found in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
            assert found == node and hash(found) == hash(node)
    changed = dataclasses.replace(TREE, op="sub")
    assert changed != TREE and hash(changed) == hash(Call("sub", TREE.args))


@pytest.mark.parametrize("node", [TREE, Point(1), Context(lanes=4), Branch(Leaf())], ids=lambda node: type(node).__name__)
def test_replace_gives_what_that_of_dataclasses_gives(node: object):
    own = [f.name for f in dataclasses.fields(node)]
    for changes in ({}, {own[0]: "x"}, {own[-1]: None}, dict.fromkeys(own)):
        new, wanted = replace(node, **changes), dataclasses.replace(node, **changes)
        assert type(new) is type(node) and [getattr(new, n) for n in own] == [getattr(wanted, n) for n in own]
    with pytest.raises(TypeError, match="unexpected"):
        replace(node, other=1)
    assert hash(TREE) != hash(replace(TREE, op="sub")) == hash(Call("sub", TREE.args))


def test_nodes_are_equal_whose_compared_fields_are():
    nan = float("nan")
    assert Const(nan) == Const(nan) != Const(float("nan")) and Const(1) != Const(1, F32)  # as tuples of the same objects
    assert Index("i") != Size("i") and Index("i") != "i" and TREE == dataclasses.replace(TREE) != Call("add", ())
    assert Index("i", span=None) == Index("i", span=Span(Source("i"), 0, 1)) == Index("i")
