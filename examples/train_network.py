"""Train a small network with plain NumPy arrays: two classes of points on two spirals, three layers, Adam.

The network and its loss are one operator; `value_and_grad` makes another one of it, which returns the loss and its derivatives
by the parameters.  ``python -m examples.train_network``
"""

from __future__ import annotations

import numpy as np

import polyc

NETWORK = """
def network(float(N, D) x, int32(N) label, float(H, D) W1, float(H) b1, float(H, H) W2, float(H) b2, float(C, H) W3,
    float(C) b3) -> (loss, wrong) {
  s(n, h) +=! x(n, d) * W1(h, d)
  u(n, h) = tanh(s(n, h) + b1(h))
  r(n, h) +=! u(n, k) * W2(h, k)
  v(n, h) = tanh(r(n, h) + b2(h))
  q(n, c) +=! v(n, h) * W3(c, h)
  z(n, c) = q(n, c) + b3(c)
  top(n) max=! z(n, c)
  total(n) +=! exp(z(n, c) - top(n))
  loss +=! (log(total(n)) + top(n) - z(n, label(n))) / float(N)
  wrong +=! z(n, label(n)) < top(n) ? 1 : 0
}
"""
PARAMETERS = ("W1", "b1", "W2", "b2", "W3", "b3")


def make_spirals(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """`n` points, each on one of two arms that wind around each other, and which arm that is."""
    label = rng.integers(0, 2, n).astype(np.int32)
    turn = rng.random(n)
    angle = 1.5 * np.pi * turn + np.pi * label
    points = (0.2 + turn[:, None]) * np.stack((np.cos(angle), np.sin(angle)), 1)
    return (points + 0.02 * rng.standard_normal((n, 2))).astype(np.float32), label


def train(steps: int = 400, n: int = 256, hidden: int = 32, rate: float = 0.01) -> tuple[float, float, int]:
    """The loss before and after so many steps of Adam, and how many points are in the wrong class then."""
    rng = np.random.default_rng(0)
    x, label = make_spirals(n, rng)
    shapes = {"W1": (hidden, 2), "b1": (hidden,), "W2": (hidden, hidden), "b2": (hidden,), "W3": (2, hidden), "b3": (2,)}
    weights = [rng.standard_normal(s).astype(np.float32) / np.sqrt(np.float32(s[-1])) for s in shapes.values()]
    network = polyc.compile(NETWORK)
    step_of = network.value_and_grad(wrt=PARAMETERS, of="loss")
    means = [np.zeros_like(w) for w in weights]
    squares = [np.zeros_like(w) for w in weights]
    first = float(network(x, label, *weights)[0])
    for step in range(1, steps + 1):
        _, _, *gradients = step_of(x, label, *weights)
        for weight, gradient, mean, square in zip(weights, gradients, means, squares, strict=True):
            mean += 0.1 * (gradient - mean)
            square += 0.01 * (gradient * gradient - square)
            weight -= rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
    loss, wrong = network(x, label, *weights)
    return first, float(loss), int(wrong)


if __name__ == "__main__":
    before, after, misses = train()
    print(f"loss {before:.3f} → {after:.4f}; {misses} points in the wrong class")
