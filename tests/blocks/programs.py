"""Programs such as people write for arrays in chunks: bodies over inputs x (N, M), v (N), w (5), k (N, integers below N)."""

from __future__ import annotations

import random

import numpy as np

from tests.gradients.helpers import Case
from tests.gradients.sources import compile_text, sizes_of

BODIES = {
    "mean": "m(j) +=! x(i, j)  y(j) = m(j) / float(N)",
    "standardise-columns": """m(j) +=! x(i, j)  u(j) = m(j) / float(N)  s(j) +=! (x(i, j) - u(j)) * (x(i, j) - u(j))
  y(i, j) = (x(i, j) - u(j)) / sqrt(s(j) / float(N) + 0.001)""",
    "standardise-rows": """m(i) +=! x(i, j)  u(i) = m(i) / float(M)  s(i) +=! (x(i, j) - u(i)) * (x(i, j) - u(i))
  y(i, j) = (x(i, j) - u(i)) / sqrt(s(i) / float(M) + 0.001)""",
    "min-max": "a() min=! x(i, j)  b() max=! x(i, j)  y(i, j) = (x(i, j) - a()) / (b() - a())",
    "norm": "s(i) +=! x(i, j) * x(i, j)  y(i, j) = x(i, j) / (sqrt(s(i)) + 1.0)",
    "cumulative": "y(0, j) = x(0, j)  y(i, j) = y(i - 1, j) + x(i, j) where i in 1:N",
    "cumulative-back": "y(N - 1, j) = x(N - 1, j)  y(i, j) = y(i + 1, j) + x(i, j) where i in 0:N - 1",
    "cumulative-rows": "y(i, 0) = x(i, 0) where i in 0:N  y(i, j) = max(y(i, j - 1), x(i, j)) where j in 1:M",
    "both-ways": """a(0, j) = x(0, j)  a(i, j) = a(i - 1, j) + x(i, j) where i in 1:N
  b(N - 1, j) = x(N - 1, j)  b(i, j) = b(i + 1, j) + x(i, j) where i in 0:N - 1  y(i, j) = a(i, j) + b(i, j) - x(i, j)""",
    "filter-both-ways": """a(0, j) = x(0, j)  a(i, j) = 0.5 * a(i - 1, j) + x(i, j) where i in 1:N
  y(N - 1, j) = a(N - 1, j)  y(i, j) = 0.5 * y(i + 1, j) + a(i, j) where i in 0:N - 1""",
    "exclusive": "y(0, j) = x(0, j) * 0.0  y(i + 1, j) = y(i, j) + x(i, j) where i in 0:N",
    "second-order": "y(0) = v(0)  y(1) = v(1)  y(i) = 0.3 * y(i - 1) - 0.2 * y(i - 2) + v(i) where i in 2:N",
    "prefix-of-scalars": "y(0) = v(0)  y(i) = y(i - 1) + v(i) where i in 1:N",
    "argmax": "m(i) max=! x(i, j)  y(i) min=! x(i, j) == m(i) ? j : M",
    "argmin-columns": "m(j) min=! x(i, j)  y(j) min=! x(i, j) == m(j) ? i : N",
    "argmax-then-gather": "m(j) max=! x(i, j)  p(j) min=! x(i, j) == m(j) ? i : N - 1  y(j) = v(int32(p(j)))",
    "gather-rows": "y(i, j) = x(k(i), j)",
    "gather-elements": "y(i) = v(k(i)) * 2.0",
    "scatter": "y(i) = 0.0 where i in 0:N  y(k(i)) += v(i)",
    "histogram": "y(b) = 0 where b in 0:N  y(k(i)) += 1 where i in 0:N",
    "segment-max": "y(b) = -100.0 where b in 0:N  y(k(i)) max= v(i) where i in 0:N",
    "lower-triangle": "y(i) +=! x(i, j) where j <= i",
    "upper-triangle": "y(j) +=! x(i, j) where i <= j",
    "mask": "y(i, j) = i < j && x(i, j) > 0.5 ? x(i, j) : 0.0",
    "pairs": "y(i, l) = v(i) - v(l)",
    "outer": "y(i, j, l) = x(i, j) * v(l)",
    "band": "y(i) +=! x(i, j) where j >= i - 1, j <= i + 1",
    "strided": "y(i, j) = x(2 * i, j)",
    "strided-from": "y(i, j) = x(3 * i + 1, j)",
    "dilated": "y(i) +=! v(i + 2 * r) * w(r)",
    "reversed": "y(i, j) = x(N - 1 - i, j) where i in 0:N",
    "upsampled": "y(i, j) = x(i / 2, j) where i in 0:2 * N",
    "interleaved": "y(i) = i % 2 == 0 ? v(i / 2) : v(N - 1 - i / 2) where i in 0:2 * N",
    "pool": "y(i, j) max=! x(2 * i + r, j) where r in 0:2",
    "window-longer-than-chunks": "y(i) +=! v(i + r) where r in 0:6",
    "moving-average": "s(i) +=! v(i + r) where r in 0:4  y(i) = s(i) / 4.0",
    "moving-average-padded": "y(i) +=! pad(v(i + r - 2), clamp) * w(r) where i in 0:N",
    "moving-deviation": """s(i) +=! v(i + r) where r in 0:4
  q(i) +=! (v(i + r) - s(i) / 4.0) * (v(i + r) - s(i) / 4.0) where r in 0:4
  y(i) = sqrt(q(i))""",
    "transposed-convolution": "y(2 * i + r) +=! v(i) * w(r)",
    "transposed-convolution-of-three": "y(2 * i + r) +=! v(i) * w(r) where r in 0:3",
    "full-convolution": "y(i + r) +=! v(i) * w(r)",
    "pad-wrap": "y(i, j) = pad(x(i - 2, j), wrap) + pad(x(i + 1, j + 1), wrap) where i in 0:N, j in 0:M",
    "pad-reflect": "y(i, j) = pad(x(i - 2, j), reflect) + pad(x(i, j + 2), symmetric) where i in 0:N, j in 0:M",
    "pad-out": "y(i, j) = pad(x(i - 1, j - 2), 0.5) where i in 0:N + 2, j in 0:M + 4",
    "two-shapes": "y(i) +=! x(i, j)  z(j) max=! x(i, j)",
    "three-results": "y(i, j) = x(j, i)  z() +=! x(i, j)  u(i) = v(i) + z()",
    "integers": "y(i) = (k(i) * 7 + 3) / 4 - k(i) % 3",
    "quotient-subscript": "y(i) = v(i / 3) + v(i % 3) where i in 0:N",
    "power": "s(0, i) = v(i)  s(t, i) = s(t - 1, i) * 0.5 + v(i) where t in 1:4  y(i) = s(3, i)",
    "diffusion": """s(0, i, j) = x(i, j)  s(t + 1, i, j) = 0.5 * s(t, i, j) + 0.25 * (pad(s(t, i - 1, j), clamp)
      + pad(s(t, i + 1, j), clamp)) where t in 0:4, i in 0:N, j in 0:M  y(i, j) = s(4, i, j)""",
    "all-states": """s(0, i) = v(i)  s(t, i) = 0.5 * s(t - 1, i) + 0.5 * pad(s(t - 1, i - 1), wrap) where t in 1:4, i in 0:N
  y(t, i) = s(t, i)""",
    "gram": "g(j, l) +=! x(i, j) * x(i, l)  y(j, l) = g(j, l) / float(N)",
    "covariance": """m(j) +=! x(i, j)  c(i, j) = x(i, j) - m(j) / float(N)  y(j, l) +=! c(i, j) * c(i, l)""",
    "product-chain": "a(i, l) +=! x(i, j) * x(l, j)  y(i, j) +=! a(i, l) * x(l, j)",
    "trace": "y() +=! x(i, i) where i in 0:min(N, M)",
    "diagonal": "y(i) = x(i, i) where i in 0:min(N, M)",
    "any-all": "y(i) ||=! x(i, j) > 0.9  z(j) &&=! x(i, j) > 0.1",
    "softmax": "m(i) max=! x(i, j)  s(i) +=! exp(x(i, j) - m(i))  y(i, j) = exp(x(i, j) - m(i)) / s(i)",
    "log-sum-exp": "m() max=! v(i)  s() +=! exp(v(i) - m())  y() = log(s()) + m()",
    "attention": """p(i, l) +=! x(i, j) * x(l, j)  m(i) max=! p(i, l)  s(i) +=! exp(p(i, l) - m(i))
  y(i, j) +=! exp(p(i, l) - m(i)) * x(l, j) / s(i)""",
    "nearest": """d(i, l) +=! (x(i, j) - x(l, j)) * (x(i, j) - x(l, j)) where l in 0:3  m(i) min=! d(i, l)
  y(i) min=! d(i, l) == m(i) ? l : 3""",
    "count-nan": "c(j) +=! x(i, j) == x(i, j) ? 1 : 0  y(j) = c(j)",
    "blur-then-difference": """b(i, j) = (pad(x(i - 1, j), clamp) + x(i, j) + pad(x(i + 1, j), clamp)) / 3.0
      where i in 0:N, j in 0:M  y(i, j) = b(i, j) - b(i + 1, j)""",
    "sum-in-the-middle": "b(i) +=! v(i + r) where r in 0:3  t() +=! b(i)  y(i) = b(i) / t()",
}


def make_case(name: str) -> Case:
    """A program with inputs of a few elements, drawn by its name."""
    body = BODIES[name]
    results = [r for r in ("y", "z", "u") if f"{r}(" in body and (r != "u" or name == "three-results")]
    text = f"def f(float(N, M) x, float(N) v, float(R) w, int32(N) k) -> ({', '.join(results)}) {{\n  {body}\n}}"
    program = compile_text(text).program
    source, rng = random.Random(name), np.random.default_rng(len(body))
    n, m = source.choice([7, 11, 13]), source.choice([6, 9])
    arrays = {
        "x": rng.random((n, m), np.float32),
        "v": rng.random(n, np.float32),
        "w": rng.random(5, np.float32),
        "k": rng.integers(0, n, n).astype(np.int32),
    }
    return Case(program, sizes_of(program, arrays), arrays, {})
