"""What one step of a contraction's register tile does, and the registers it needs: as planned, to compare machine code with."""

from __future__ import annotations

from math import ceil

from polyc.records import dataclass
from polyc.scheduler.contractions.choice import Choice


@dataclass(frozen=True, slots=True)
class RegisterUse:
    """One step of the reduction, in vectors of `Choice.lanes`."""

    accumulators: int
    """Also the multiply-adds of a step."""
    loads: int
    """Vectors of the vector operand."""
    broadcasts: int
    """Elements of the row operand."""

    @property
    def registers(self) -> int:
        """Accumulators, the vectors that several rows share, and one broadcast: what is live at once."""
        return self.accumulators + (self.loads if self.broadcasts > 1 else 1) + 1


def register_use(choice: Choice) -> RegisterUse:
    """Registers and operations of a step of the tile of `choice`."""
    rows, vectors = 1, 1
    for index, size in choice.way.tile.items():
        if index == choice.way.vector:
            vectors *= ceil(size / choice.way.lanes)
        elif index in choice.vector_operand.indices:
            vectors *= size
        else:
            rows *= size
    return RegisterUse(rows * vectors, vectors, rows)
