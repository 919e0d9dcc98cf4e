"""Lanes that read the same element in runs, ``X[j // 2]``: the elements are loaded side by side and repeated in registers.

Before: ``vector j < 16 { Y[j] = X[j // 2] }`` reads lane by lane.  After: ``X[0] … X[7]`` are loaded together, and one shuffle
makes ``0 0 1 1 … 7 7`` of them.  Where the first lane is in the middle of a run is known at run time only (a loop that begins
at a cache line of its result), the elements are loaded as those of the first lanes and as those of the last, and put together
in one of as many ways as a run is long.  Nothing is touched that no lane reads.

Of steps of other lengths, ``X[10 * j // 33 + k]`` in a picture that grows by 3.3, ``X[3 * j // 2]`` in one that shrinks, all
from the first lane's element to the last one's is loaded under a mask, and permuted by numbers that follow from the remainder
of the first lane's: all rows and all k share them.  Sums of quotients and remainders, ``X[j // 2 + 2 * (j % 2)]``, are two
loads and a shuffle where it is known which elements lanes read from the first one's on.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from polyc.code_limits import MAX_TRIED
from polyc.codegen.emission.arithmetic import emit_operator
from polyc.codegen.emission.context import Context, State
from polyc.codegen.emission.linear import LANE, Linear, as_linear, constant_of, split_lane
from polyc.codegen.emission.tables import largest_table, permute
from polyc.codegen.writer import vectors
from polyc.codegen.writer.builder import Function, Val, int_val, vector_const, zero_val
from polyc.ir.expr import Call, Const, Expr
from polyc.ir.loops import Buffer
from polyc.ir.types import I64
from polyc.records import dataclass

MAX_RUN = 8
"""Lanes that read one element, of which each number is put together in a way of its own."""

MIN_RUN_BYTES = 2
"""Elements narrower than this take more than one shuffle."""

NUMBER_BITS = 31
"""Of the products that take the place of divisions of the lanes' numbers."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Lanes read the elements ``(inside + step * lane) // length``; `place`: the remainder of `inside`, where it is known."""

    inside: Linear
    step: int
    length: int
    place: int | None

    def owners(self, place: int, lanes: int) -> list[int]:
        """The element of every lane, from that of lane 0 on."""
        return [(place + self.step * lane) // self.length for lane in range(lanes)]


def find_runs(ctx: Context, linear: Linear, itemsize: int) -> tuple[Linear, Runs] | None:
    """The offset without the term of ``(… + step * lane) // length``, and that; None where an offset is not of this form."""
    uniform: Linear = {}
    found: Expr | None = None
    for atoms, coefficient in linear.items():
        split = split_lane({atoms: coefficient}, ctx.lane)
        if split is not None and not split[1]:
            uniform[atoms] = coefficient
        elif found is None and len(atoms) == 1 and atoms[0] is not LANE and coefficient == itemsize:
            found = atoms[0]
        else:
            return None
    match found:
        case Call("floordiv", (value, Const(length))) if length >= 2:
            split = split_lane(as_linear(value, ctx.env, ctx.lane), ctx.lane)
            step = None if split is None else constant_of(split[1])
            if split is None or step is None or step < 1:
                return None
            return uniform, Runs(split[0], step, int(length), _place(ctx, split[0], int(length)))
    return None


def find_distances(ctx: Context, offset: Linear) -> list[int] | None:
    """By how many bytes each lane reads behind the first one, if these are numbers: ``X[j // 2 + 2 * (j % 2)]`` from an even
    j on reads the elements 0 2 1 3 2 4 ..."""
    terms = [_term_distances(ctx, {atoms: coefficient}) for atoms, coefficient in offset.items()]
    known = [term for term in terms if term is not None]
    return [sum(lanes) for lanes in zip(*known, strict=True)] if known and len(known) == len(terms) else None


def _term_distances(ctx: Context, term: Linear) -> list[int] | None:
    """Those of one term: a multiple of the lane, or of a quotient or a remainder by a number whose own place is known."""
    split, lanes = split_lane(term, ctx.lane), range(ctx.lanes)
    if split is not None:
        step = constant_of(split[1])
        return None if step is None else [step * lane for lane in lanes]
    (((*_, atom), coefficient),) = term.items()
    match atom:
        case Call("floordiv" | "mod" as op, (value, Const(number))) if len(next(iter(term))) == 1 and number > 0:
            length, inside = int(number), split_lane(as_linear(value, ctx.env, ctx.lane), ctx.lane)
            step = None if inside is None else constant_of(inside[1])
            place = None if inside is None else _place(ctx, inside[0], length)
            if step is not None and place is not None:
                at = [place + step * lane for lane in lanes]
                return [coefficient * (n // length if op == "floordiv" else n % length - place) for n in at]
    return None


def load_window(state: State, buffer: Buffer, first: Val, distances: list[int], epoch: str) -> Val | None:
    """The element of every lane at these distances in bytes from `first`, by two loads of all that lies between, and a shuffle;
    None where that is more than two vectors, or two elements."""
    dtype, lanes = buffer.dtype, len(distances)
    if dtype.itemsize < MIN_RUN_BYTES or dtype.kind == "b" or lanes & (lanes - 1) or any(d % dtype.itemsize for d in distances):
        return None
    owners = [d // dtype.itemsize for d in distances]
    low, high = min(owners), max(owners)
    count = 1 << max(0, (high - low).bit_length() - 1)  # half of them, rounded up to a power of two
    if low == high:
        at = vectors.offset_pointer(state.fn, first, low * dtype.itemsize)
        return state.fn.splat(vectors.load_scalar(state.fn, dtype, at, None, epoch), lanes)
    if count > lanes or count == 1:
        return None
    places = (low, high - count + 1)
    front, rear = (
        vectors.load_contiguous(
            state.fn, dtype, vectors.offset_pointer(state.fn, first, place * dtype.itemsize), count, None, epoch
        )
        for place in places
    )
    return state.fn.shuffle(front, rear, [e - low if e < low + count else count + e - places[1] for e in owners])


def _place(ctx: Context, inside: Linear, length: int) -> int | None:
    """The remainder of a sum by `length`, where it is known."""
    for atoms, coefficient in inside.items():
        step = coefficient
        for atom in atoms:
            step *= ctx.divisors.get(getattr(atom, "name", ""), 1)
        if atoms and gcd(step, length) != length:
            return None
    return inside.get((), 0) % length


def load_runs(state: State, ctx: Context, buffer: Buffer, first: Val, start: Val, runs: Runs, mask: Val | None) -> Val | None:
    """The element of every lane.  `first`: the address of the element of lane 0; `start`: the value that is divided there."""
    fn, dtype, lanes, length = state.fn, buffer.dtype, ctx.lanes, runs.length
    if dtype.itemsize < MIN_RUN_BYTES or dtype.kind == "b" or lanes & (lanes - 1):
        return None
    epoch = f"; {state.epochs.get(buffer.name, 0)}"
    if runs.step >= length or length > min(MAX_RUN, lanes):
        return _load_permuted(state, ctx, buffer, first, start, runs, mask, epoch)
    if runs.place is not None:
        owners = runs.owners(runs.place, lanes)
        part_mask: Val | None = None
        count = owners[-1] + 1
        if count == 1:
            return None if mask is not None else fn.splat(vectors.load_scalar(fn, dtype, first, None, epoch), lanes)
        if mask is not None:
            count = 1 << (count - 1).bit_length()
            part_mask = _any_of_run(fn, mask, owners, count, length)
        part = vectors.load_contiguous(fn, dtype, first, count, part_mask, epoch)
        return fn.shuffle(part, None, owners)
    count = (lanes - 1) // length + 1
    if mask is not None or count == 1 or runs.step > 1:
        return _load_permuted(state, ctx, buffer, first, start, runs, mask, epoch)
    inside = _remainder(state, start, length)
    reach = fn.binary("add", inside, int_val(lanes - 1))
    last = emit_operator(fn, state.target, "floordiv", [reach, int_val(length)], I64)
    back = fn.binary("mul", fn.binary("sub", last, int_val(count - 1)), int_val(dtype.itemsize))
    front = vectors.load_contiguous(fn, dtype, first, count, None, epoch)
    rear = vectors.load_contiguous(fn, dtype, vectors.offset_pointer(fn, first, back), count, None, epoch)
    result: Val | None = None
    for place in range(length):
        owners = runs.owners(place, lanes)
        chosen = [e if e < count else count + count - 1 - (owners[-1] - e) for e in owners]
        value = fn.shuffle(front, rear, chosen)
        if result is not None:
            value = fn.select(fn.compare("icmp eq", inside, int_val(place)), value, result)
        result = value
    return result


def _remainder(state: State, start: Val, length: int) -> Val:
    """How far into a run lane 0 is."""
    fn = state.fn
    whole = emit_operator(fn, state.target, "floordiv", [start, int_val(length)], I64)
    return fn.binary("sub", start, fn.binary("mul", whole, int_val(length)))


def _load_permuted(
    state: State, ctx: Context, buffer: Buffer, first: Val, start: Val, runs: Runs, mask: Val | None, epoch: str
) -> Val | None:
    """One masked load, or two, and a permutation; None where no instruction permutes as many, or lanes are missing between
    others."""
    fn, dtype, lanes, target = state.fn, buffer.dtype, ctx.lanes, state.target
    n_registers = runs.owners(runs.length - 1, lanes)[-1] // lanes + 1
    product = _quotient_by_product(runs.length, runs.length - 1 + runs.step * (lanes - 1))
    if product is None or n_registers > 2 or n_registers * lanes > largest_table(target, dtype, lanes):
        return None
    n_active: Val | None = int_val(lanes)
    if mask is not None:
        known = vectors.constant_prefix(mask)
        n_active = vectors.prefix_count(fn, mask) if known is None else int_val(known)
    if n_active is None or not target.has_masked_loads(dtype.itemsize):
        return None
    inside = _remainder(state, start, runs.length)
    reach = fn.binary("add", inside, fn.binary("mul", fn.binary("sub", n_active, int_val(1)), int_val(runs.step)))
    count = fn.binary("add", fn.binary("udiv", reach, int_val(runs.length)), int_val(1))
    if mask is not None:
        count = fn.select(fn.compare("icmp sgt", n_active, int_val(0)), count, int_val(0))
    factor, shift = product
    numbers = vector_const([runs.step * lane for lane in range(lanes)], "i32")
    numbers = fn.binary("add", fn.splat(fn.convert("trunc", inside, "i32"), lanes), numbers)
    numbers = fn.binary("lshr", fn.binary("mul", numbers, int_val(factor, "i32")), int_val(shift, "i32"))
    parts = []
    for n in range(n_registers):
        active = vectors.first_lanes(fn, target, fn.binary("sub", count, int_val(n * lanes)), lanes)
        pointer = vectors.offset_pointer(fn, first, n * lanes * dtype.itemsize)
        parts.append(vectors.load_contiguous(fn, dtype, pointer, lanes, active, epoch))
    return permute(fn, parts, fn.convert("zext", numbers, f"i{dtype.bits}"))


@lru_cache(maxsize=256)
def _quotient_by_product(divisor: int, most: int) -> tuple[int, int] | None:
    """(factor, shift) with ``n // divisor == n * factor >> shift`` for all n up to `most`; None where no such product fits."""
    if most > MAX_TRIED:
        return None
    for shift in range(divisor.bit_length(), NUMBER_BITS):
        factor = (1 << shift) // divisor + 1
        if most * factor >> NUMBER_BITS == 0 and all(n * factor >> shift == n // divisor for n in range(most + 1)):
            return factor, shift
    return None


def _any_of_run(fn: Function, mask: Val, owners: list[int], count: int, length: int) -> Val:
    """Which of `count` elements a lane of `mask` reads; `owners` has the element of every lane.

    The lanes of a run may differ: a condition can hold for the second one alone."""
    lanes, nothing = len(owners), zero_val("i1", len(owners))
    readers = [[lane for lane in range(lanes) if owners[lane] == e] for e in range(count)]
    result: Val | None = None
    for k in range(length):
        found = fn.shuffle(mask, nothing, [run[k] if k < len(run) else lanes for run in readers])
        result = found if result is None else fn.binary("or", result, found)
    assert result is not None
    return result
