"""Numbers of a report from paired rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.coordinator import Measurement, Side
from benchmarks.sides import PREPARED, ROOFS, SUBJECTS


@dataclass(frozen=True, slots=True)
class Quartiles:
    lower: float
    median: float
    upper: float


@dataclass(frozen=True, slots=True)
class Summary:
    """What one measurement says about its subject.

    `ratio` is peer time over subject time, round by round, against the peer for which it is smallest among those whose result
    is right: above 1 the subject is faster.  Peers that prepared their weights meet `polyc_bound`, where that was measured.
    `roof` is the share of the slower of the two measured rooflines that the subject reaches; `bound` names it.
    """

    times: dict[str, Quartiles]
    best_peer: str | None
    ratio: Quartiles | None
    roof: float | None
    bound: str | None
    rate: float | None
    """GFLOP/s where bound by arithmetic, GB/s where bound by memory."""


def quartiles(values: Sequence[float]) -> Quartiles:
    low, mid, high = np.percentile(np.asarray(values), [25, 50, 75])
    return Quartiles(float(low), float(mid), float(high))


def geometric_mean(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(values)))))


def paired_ratio(peer: Side, subject: Side) -> Quartiles:
    return quartiles([p / s for p, s in zip(peer.seconds, subject.seconds, strict=True)])


def is_wrong(measurement: Measurement, name: str) -> bool:
    """Whether the side's result missed the workload's tolerance."""
    error = measurement.sides[name].error
    return error is not None and not error <= measurement.workload.tolerance


def _counterpart(measurement: Measurement, peer: str, subject: str) -> Side:
    """The side to compare a peer with: the one whose weights are prepared too, if the peer's are and it was measured."""
    bound = measurement.sides.get("polyc_bound")
    if subject == "polyc" and peer in PREPARED and measurement.workload.weights and bound is not None and bound.seconds:
        return bound
    return measurement.sides[subject]


def summarise(measurement: Measurement, subject_name: str) -> Summary:
    """Medians, quartiles, the ratio to the best peer and the share of the roofline."""
    measured = {n: s for n, s in measurement.sides.items() if s.seconds}
    times = {n: quartiles(s.seconds) for n, s in measured.items()}
    subject = measured.get(subject_name)
    no_peers = (subject_name, *SUBJECTS, *ROOFS)
    peers = [n for n in measured if n not in no_peers and not is_wrong(measurement, n)]
    ratios = {n: paired_ratio(measured[n], _counterpart(measurement, n, subject_name)) for n in peers} if subject else {}
    best = min(peers, key=lambda n: ratios[n].median if ratios else times[n].median, default=None)
    ratio = ratios[best] if subject and best else None
    roofs = {n: times[n].median for n in ("stream", "fma") if n in times}
    bound = max(roofs, key=lambda n: roofs[n], default=None)
    roof = rate = None
    if subject:
        work = measurement.workload
        amount = work.flops if bound == "fma" else work.bytes_read + work.bytes_written
        rate = amount / times[subject_name].median / 1e9
        if bound:
            roof = paired_ratio(measured[bound], subject).median
    return Summary(times, best, ratio, roof, bound, rate)
