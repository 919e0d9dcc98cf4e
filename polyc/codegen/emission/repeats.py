"""Lanes that read the same element in runs, ``X[j // 2]``: the elements are loaded side by side and repeated in registers.

Before: ``vector j < 16 { Y[j] = X[j // 2] }`` reads lane by lane.  After: ``X[0] … X[7]`` are loaded together, and one shuffle
makes ``0 0 1 1 … 7 7`` of them.  Where the first lane is in the middle of a run is known at run time only (a loop that begins
at a cache line of its result), the elements are loaded as those of the first lanes and as those of the last, and put together
in one of as many ways as a run is long.  Nothing is touched that no lane reads.
"""

from __future__ import annotations

from math import gcd

from polyc.codegen.emission.arithmetic import emit_operator
from polyc.codegen.emission.context import Context, State
from polyc.codegen.emission.linear import LANE, Linear, as_linear, constant_of, split_lane
from polyc.codegen.writer import vectors
from polyc.codegen.writer.builder import Function, Val, int_val, zero_val
from polyc.ir.expr import Call, Const, Expr
from polyc.ir.loops import Buffer
from polyc.ir.types import I64
from polyc.records import dataclass

MAX_RUN = 8
"""Lanes that read one element; longer runs are found in other ways, if at all."""

MIN_RUN_BYTES = 2
"""Elements narrower than this take more than one shuffle."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Lanes read the elements ``(inside + lane) // length``; `place`: the remainder of `inside`, where it is known."""

    inside: Linear
    length: int
    place: int | None


def find_runs(ctx: Context, linear: Linear, itemsize: int) -> tuple[Linear, Runs] | None:
    """The offset without the term of ``(… + lane) // length``, and that; None where an offset is not of this form."""
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
        case Call("floordiv", (value, Const(length))) if 2 <= int(length) <= min(MAX_RUN, ctx.lanes):
            split = split_lane(as_linear(value, ctx.env, ctx.lane), ctx.lane)
            if split is None or constant_of(split[1]) != 1:
                return None
            return uniform, Runs(split[0], int(length), _place(ctx, split[0], int(length)))
    return None


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
    if runs.place is not None:
        owners = [(runs.place + lane) // length for lane in range(lanes)]
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
    if mask is not None or count == 1:
        return None
    whole = emit_operator(fn, state.target, "floordiv", [start, int_val(length)], I64)
    inside = fn.binary("sub", start, fn.binary("mul", whole, int_val(length)))
    reach = fn.binary("add", inside, int_val(lanes - 1))
    last = emit_operator(fn, state.target, "floordiv", [reach, int_val(length)], I64)
    back = fn.binary("mul", fn.binary("sub", last, int_val(count - 1)), int_val(dtype.itemsize))
    front = vectors.load_contiguous(fn, dtype, first, count, None, epoch)
    rear = vectors.load_contiguous(fn, dtype, vectors.offset_pointer(fn, first, back), count, None, epoch)
    result: Val | None = None
    for place in range(length):
        owners = [(place + lane) // length for lane in range(lanes)]
        chosen = [e if e < count else count + count - 1 - (owners[-1] - e) for e in owners]
        value = fn.shuffle(front, rear, chosen)
        if result is not None:
            value = fn.select(fn.compare("icmp eq", inside, int_val(place)), value, result)
        result = value
    return result


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
