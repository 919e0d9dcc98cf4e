"""Fit the parameters of a pendulum to a noisy record of its angle: its stiffness, its damping, and the angle it was let go at.

Three numbers and a thousand measurements: the Jacobian has three columns, which the forward mode gives one by one.  Gauss and
Newton's method takes from there.  ``python -m examples.fit_pendulum``
"""

from __future__ import annotations

import numpy as np

import polyc

PENDULUM = """
def pendulum(double stiffness, double damping, double start, int64 T, double dt) -> (double(T) angle) {
  a(0) = start
  v(0) = 0.0 * start
  v(t + 1) = v(t) - dt * (stiffness * sin(a(t)) + damping * v(t)) where t in 0:T
  a(t + 1) = a(t) + dt * v(t + 1) where t in 0:T
  angle(t) = a(t + 1) where t in 0:T
}
"""
TRUTH = np.array([9.81, 0.25, 1.2])


def fit(steps: int = 1000, iterations: int = 8, noise: float = 0.01) -> np.ndarray:
    """Stiffness, damping and first angle that fit a record best, from a guess that is off by a tenth and more."""
    dt = np.float64(0.01)
    pendulum = polyc.compile(PENDULUM)
    record = pendulum(*TRUTH, steps, dt) + noise * np.random.default_rng(0).standard_normal(steps)
    moved = pendulum.jvp(wrt=("stiffness", "damping", "start"))
    found = np.array([8.7, 0.1, 1.0])
    for _ in range(iterations):
        columns = []
        for direction in np.eye(3):
            angle, column = moved(*found, steps, dt, *direction)
            columns.append(column)
        found = found + np.linalg.lstsq(np.stack(columns, 1), record - angle, rcond=None)[0]
    return found


if __name__ == "__main__":
    for name, value, true in zip(("stiffness", "damping", "first angle"), fit(), TRUTH, strict=True):
        print(f"{name}: {value:.3f}, in truth {true:.3f}")
