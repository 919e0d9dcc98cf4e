"""Token-level mutation: whatever the text, the answer is a Program or a named error."""

from __future__ import annotations

import random
import re

from polyc.diagnostics import InternalError, PolycError
from polyc.frontends.tc import read_tc
from polyc.ir.text import format_program
from polyc.ir.verify import verify_program

SEEDS = (
    """def softmax(float(N, D) X) -> (O, M) {
  M(n) max=! X(n, d)
  E(n, d) = exp(X(n, d) - M(n))
  Z(n) +=! E(n, d)
  O(n, d) = E(n, d) / Z(n) where n in 0:N, k = d + 1, exists X(n, k)
}""",
    """def conv(float(N, C, H, W) I, float(M, C, KH, KW) K, uint8(M, 3) S, int32 z) -> (double(N) P, O) {
  O(n, m, h, w) +=! pad(I(n, c, h + kh - 1, 2 * w + kw), 0) * K(m, c, kh, kw) # taps
  O(n, m, h, w) = S(m, 0) == 1 ? fmax(O(n, m, h, w), 0.0) : -3e-1 % 2
  P(n) += O(n, m, h, w) <=> sum(O(n, m, h, w))
  P(n) min= min(I.1, int32(S(n, n))) * z where n in z > 3 ? 1 : 0:N * N - 1
}""",
)
_TOKEN = re.compile(r"\s+|[A-Za-z_]\w*|[0-9.]+(?:e-?\d+)?|[-+*/%<>=!&|?:,(){}]+|.", re.DOTALL)
_EXTRA = [
    *"( ) { } [ ] , : ? ! - + * / % = < > . ; # 0 1 -1 3. .5 1e9 2147483648 99999999999999999999".split(),
    *"+= +=! max= max=! min=! *=! <=> -> && || == != <= >= where in exists def min max pad float int8 bool".split(),
    *"float16 uint64 exp pow j0 fma norm3d X I O M n d N T.1 X.0 Ω \x00".split(),
    " ",
    "\n",
]


def mutate(rng: random.Random, tokens: list[str]) -> str:
    tokens = list(tokens)
    for _ in range(rng.randint(1, 4)):
        position = rng.randrange(len(tokens))
        match rng.randrange(5):
            case 0:
                del tokens[position]
            case 1:
                tokens.insert(position, rng.choice(_EXTRA))
            case 2:
                tokens[position] = rng.choice(_EXTRA)
            case 3:
                other = rng.randrange(len(tokens))
                tokens[position], tokens[other] = tokens[other], tokens[position]
            case _:
                end = min(len(tokens), position + rng.randint(1, 12))
                tokens[position:position] = tokens[position:end] * rng.randint(1, 3)
        if not tokens:
            break
    return "".join(tokens)


def test_only_named_errors_escape() -> None:
    rng = random.Random(20240607)
    accepted = 0
    for _ in range(1200):
        text = mutate(rng, _TOKEN.findall(rng.choice(SEEDS)))
        try:
            programs = read_tc(text)
        except PolycError as error:
            assert not isinstance(error, InternalError), text
            assert error.diagnostics and all(d.span is not None and d.help for d in error.diagnostics), text
            assert "^" in str(error)
        else:
            for program in programs:
                verify_program(program)
                format_program(program)
            accepted += 1
    assert accepted > 20
