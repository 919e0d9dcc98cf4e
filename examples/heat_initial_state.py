"""Recover the initial state of a heat equation from what twenty thermometers show during 200 steps.

The misfit is a quadratic function of the initial state, so conjugate gradients find its minimum with gradients alone.  Each is
the recurrence, run backwards.  ``python -m examples.heat_initial_state``
"""

from __future__ import annotations

import numpy as np

import polyc

ROD = """
def rod(double(N) start, int64 T, double(S) place) -> (double(T, S) shown) {
  A(0, i) = start(i)
  A(t, i) = i == 0 || i == N - 1 ? A(t - 1, i) : A(t - 1, i) + 0.25 * (A(t - 1, i - 1) - 2.0 * A(t - 1, i) + A(t - 1, i + 1))
    where t in 1:T+1, i in 0:N
  shown(t, s) = A(t + 1, 5 * s + 2) where t in 0:T, s in 0:S
}
def misfit(double(N) start, int64 T, double(S) place, double(T, S) seen) -> (loss) {
  shown = rod(start, T, place)
  loss +=! 0.5 * (shown(t, s) - seen(t, s)) * (shown(t, s) - seen(t, s))
}
"""


def recover(n: int = 100, steps: int = 200, iterations: int = 60) -> tuple[float, float]:
    """The largest error of the recovered state, relative to the largest temperature: with a start of zeros, and in the end."""
    i = np.arange(n)
    truth = np.exp(-(((i - 30) / 7) ** 2)) + 0.6 * np.exp(-(((i - 68) / 9) ** 2))
    place = np.zeros(n // 5)
    seen = polyc.compile(ROD, "rod")(truth, steps, place)
    gradient = polyc.compile(ROD, "misfit").grad(wrt=("start",))

    def slope(state: np.ndarray) -> np.ndarray:
        return np.asarray(gradient(state, steps, place, seen))

    state = np.zeros(n)
    constant = slope(state)
    residual = -constant
    direction = residual.copy()
    for _ in range(iterations):
        curved = slope(direction) - constant
        size = residual @ residual
        length = size / (direction @ curved)
        state += length * direction
        residual -= length * curved
        direction = residual + (residual @ residual) / size * direction
    return 1.0, float(np.abs(state - truth).max() / truth.max())


if __name__ == "__main__":
    _, error = recover()
    print(f"the initial state is recovered up to {100 * error:.2f} % of its largest value")
