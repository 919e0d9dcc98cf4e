"""Copies: nests of loops around one store of values that the nest does not change, each element written once.

Their iterations may run in any order, and twice.  What passes ask of them is found here: which loops lie across each other in
memory (`lies_across`), and which runs of the result a block of them writes (`Block`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from polyc.ir.access import stride_of, with_values
from polyc.ir.dependence import iterations_apart
from polyc.ir.expr import Expr, Index, Read, int_const, reads
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, Loop, Node, Store
from polyc.ir.simplify import constant_of, simplify
from polyc.ir.walk import perfect_nest
from polyc.records import dataclass


def copy_nest(node: Node, buffers: Mapping[str, Buffer]) -> tuple[list[Loop], Store] | None:
    """The loops (outermost first) and the store of a nest whose iterations are free to run in any order, any number of times.

    None if `node` is anything else."""
    loops, body = perfect_nest(node)
    if not loops or len(body) != 1 or any(n.registers or n.initial for n in loops):
        return None
    store = body[0]
    is_copy = isinstance(store, Store) and _is_free(store, buffers) and keeps_apart(loops, store)
    return (list(loops), store) if isinstance(store, Store) and is_copy else None


def _is_free(store: Store, buffers: Mapping[str, Buffer]) -> bool:
    """Whether the store reads nothing that is written."""
    found = (r for e in (store.value, *store.subscripts) for r in reads(e))
    return buffers[store.buffer].space != "register" and not are_read({store.buffer}, found, buffers)


def are_read(written: set[str], found: Iterable[Read], buffers: Mapping[str, Buffer]) -> bool:
    """Whether what is written, or may be the same memory, is read: who writes it again may then write something else."""
    aliases = written.union(*(buffers[name].may_alias for name in written))
    return any(r.tensor in aliases or written & {*buffers[r.tensor].may_alias} for r in found)


def keeps_apart(loops: Iterable[Loop], store: Store) -> bool:
    """Whether different iterations of `loops` surely write different elements."""
    moving = [index_coefficients(s) or {} for s in store.subscripts]
    outer_first = sorted(loops, key=lambda n: -n.step * max((abs(c.get(n.var, 0)) for c in moving), default=0))
    for k, loop in enumerate(outer_first):
        inner = outer_first[k + 1 :]
        apart = iterations_apart(store.subscripts, store.subscripts, loop.var, inner, inner)
        if apart is None or not all(n is not None and abs(n) < loop.step for n in apart):
            return False
    return True


# -- how it moves in memory


def lies_across(access: Read | Store, buffer: Buffer, outer: str, inner: str) -> bool:
    """Whether an access moves by one element with `outer`, and by more, or by an unknown stride, with `inner`."""
    size, across = buffer.dtype.itemsize, stride_of(access, buffer, inner)
    return stride_of(access, buffer, outer) == size and (across is None or abs(across) > size)


def strides_of(access: Read | Store, buffer: Buffer, loops: Iterable[Loop]) -> dict[str, int | None]:
    """Bytes by which an access moves with each of the loops."""
    return {loop.var: stride_of(access, buffer, loop.var) for loop in loops}


def trip_count(loop: Loop) -> int:
    """Iterations of a loop from 0 on, whole steps; 0 where they are not known."""
    length = constant_of(loop.upper) if loop.lower == int_const(0) else None
    return 0 if length is None or length % loop.step else length // loop.step


def is_plain(loop: Loop, stride: int | None) -> bool:
    """Whether a loop is no parallel one, of a known number of iterations, and goes upwards in memory."""
    is_counted = loop.step == 1 and trip_count(loop) > 0
    return loop.kind in ("serial", "vector", "unroll") and is_counted and stride is not None and stride > 0


def find_run(loops: Iterable[Loop], strides: Mapping[str, int | None], size: int) -> tuple[int, dict[str, int]]:
    """How many neighbours, `size` bytes apart, the loops reach one after the other; by variable of the loops that do so, by how
    many of them it moves."""
    run = 1
    places: dict[str, int] = {}
    for loop in sorted(loops, key=lambda n: (strides[n.var] or 0) * n.step):
        stride = strides[loop.var]
        if stride is None or stride * loop.step != run * size:
            break
        places[loop.var] = run // loop.step
        run *= trip_count(loop)
    return run, places


def number_iterations(loops: Iterable[Loop]) -> tuple[int, dict[str, int]]:
    """How many iterations loops have, outermost first, and by variable how many of them it moves by."""
    total = 1
    multiples: dict[str, int] = {}
    for loop in reversed(list(loops)):
        multiples[loop.var] = total
        total *= trip_count(loop)
    return total, multiples


def sum_of(multiples: Mapping[str, int]) -> Expr:
    """The sum of variables times their multiples."""
    total: Expr = int_const(0)
    for name, multiple in multiples.items():
        total = total + Index(name) * multiple
    return simplify(total)


def digits(number: Expr, multiples: Mapping[str, int]) -> dict[str, Expr]:
    """The variables of which `sum_of` the multiples is `number`, each of them less than makes up the next larger multiple."""
    found: dict[str, Expr] = {}
    for name, multiple in sorted(multiples.items(), key=lambda item: -item[1]):
        found[name] = simplify(number // multiple)
        number = simplify(number % multiple)
    return found


@dataclass(frozen=True, slots=True)
class Block:
    """Loops of a copy, outermost first, that write `n_rows` runs of `run` neighbouring elements of a result.

    By variable: by how many rows (`rows`), or elements of a run (`places`), a loop moves."""

    loops: tuple[Loop, ...]
    store: Store
    result: Buffer
    run: int
    places: Mapping[str, int]
    n_rows: int
    rows: Mapping[str, int]

    @property
    def row_bytes(self) -> int:
        return self.run * self.result.dtype.itemsize

    @property
    def n_bytes(self) -> int:
        return self.n_rows * self.row_bytes

    @property
    def vector(self) -> Loop:
        return next(n for n in self.loops if n.kind == "vector")

    @property
    def strides(self) -> dict[str, int | None]:
        return strides_of(self.store, self.result, self.loops)

    def place_of(self, row: Expr, element: Expr, outside: Mapping[str, Expr] = MappingProxyType({})) -> tuple[Expr, ...]:
        """Subscripts of an element by its number in a row, and that of the row; `outside`: values of variables around."""
        names = {n.var: int_const(0) for n in self.loops} | digits(row, self.rows) | dict(outside)
        *outer, last = with_values(self.store, names).subscripts
        return (*outer, simplify(last + element))


def find_block(loops: Sequence[Loop], store: Store, buffers: Mapping[str, Buffer]) -> Block | None:
    """What loops of a copy write; None where their iterations are not known, or go downwards in memory."""
    result = buffers[store.buffer]
    strides = strides_of(store, result, loops)
    if not all(is_plain(n, strides[n.var]) for n in loops):
        return None
    run, places = find_run(loops, strides, result.dtype.itemsize)
    return Block(tuple(loops), store, result, run, places, *number_iterations(n for n in loops if n.var not in places))
