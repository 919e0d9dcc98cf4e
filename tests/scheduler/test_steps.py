"""States of recurrences whose readers run in the same loop over steps."""

from __future__ import annotations

import pytest

from polyc.scheduler.rows import steps
from tests.scheduler.support import check

RETENTION = "S(t,d,e) = (t == 0 ? 0.0 : g(d) * S(t-1,d,e)) + k(t,d) * v(t,e) where t in 0:T"
HEAD = "def f(float(T,D) q, float(T,D) k, float(T,E) v, float(D) g)"
CASES = {
    "sum": f"{HEAD} -> (o) {{ {RETENTION}  o(t,e) +=! q(t,d) * S(t,d,e) }}",
    "two readers": f"""{HEAD} -> (o, m) {{ {RETENTION}
      o(t,e) +=! q(t,d) * S(t,d,e)  m(t,e) max=! S(t,d,e) }}""",
    "last state": f"""{HEAD} -> (o, F) {{ {RETENTION}
      o(t,e) +=! q(t,d) * S(t,d,e)  F(d,e) = S(T-1,d,e) * 2.0 }}""",
    "read between": f"""{HEAD} -> (o) {{ {RETENTION}
      p(t,d) = exp(q(t,d)) + q(t,d)  o(t,e) +=! p(t,d) * S(t,d,e) }}""",
    "in order of its elements": f"{HEAD} -> (o) {{ {RETENTION}  o(t,d,e) = exp(S(t,d,e)) + q(t,d) }}",
}


@pytest.mark.parametrize("name", CASES)
def test_states_of_one_step_are_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MANY_STATES", 1)
    for sizes in ({"T": 9, "D": 5, "E": 20}, {"T": 1, "D": 1, "E": 1}):
        lowered = check(CASES[name], sizes)
        assert sizes["T"] == 1 or lowered.storage["S"].moduli[0] == 1


REFUSED = {
    "both ends": f"{HEAD} -> (o) {{ {RETENTION}  o(t,e) +=! q(t,d) * S(t,d,e) * S(T-1-t,d,e) where t in 0:T }}",
    "a sum over steps": f"{HEAD} -> (o) {{ {RETENTION}  o(d,e) +=! q(t,d) * S(t,d,e) }}",
    "a product": f"{HEAD} -> (o) {{ {RETENTION}  o(t,d,j) +=! S(t,d,e) * v(j,e) }}",
    "one after the other": f"""{HEAD} -> (o, p) {{ {RETENTION}
      o(t,e) +=! q(t,d) * S(t,d,e)  p(t,d) +=! S(t,d,e) * o(T-1-t,e) }}""",
    "is a result": f"{HEAD} -> (S, o) {{ {RETENTION}  o(t,e) +=! q(t,d) * S(t,d,e) }}",
}


@pytest.mark.parametrize("name", REFUSED)
def test_readers_of_other_steps_come_later(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MANY_STATES", 1)
    check(REFUSED[name], {"T": 6, "D": 4, "E": 17})
