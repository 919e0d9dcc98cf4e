"""The proofs: correct schedules pass, every mutation is refused, and both agree with a run of the instances one by one."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from islpy import DEFAULT_CONTEXT, Schedule, dim_type

from polyc.poly import instances
from polyc.poly.dependences import compute_dependences
from polyc.poly.legality import Violation, alias_is_safe, prove_storage, prove_values
from polyc.poly.scop import Scop
from polyc.poly.storage import Folding
from tests.poly.oracle import meets_in_parallel, runs_by_storage, runs_by_value, times_of
from tests.poly.trees import TBand, TSequence, build_tree, build_tree_of, instance_domains
from tests.scheduler.corpus import example, parse_line
from tests.scheduler.programs import make_scop


def scop_of(*lines: str, **sizes: int) -> Scop:
    return make_scop([parse_line(line) for line in lines], sizes)


def softmax() -> Scop:
    return example("softmax").scop()


SOFTMAX = "[i]{ init_M ; init_Z ; [j] M ; [j]{ E ; Z } ; [j] O }"


def by_value(scop: Scop, tree: str) -> Violation | None:
    return prove_values(scop, compute_dependences(scop), build_tree(scop, tree))


def by_storage(scop: Scop, tree: str, storage: dict[str, Folding]) -> Violation | None:
    schedule, dependences = build_tree(scop, tree), compute_dependences(scop)
    assert prove_values(scop, dependences, schedule) is None
    return prove_storage(scop, dependences, schedule, storage)


@pytest.mark.parametrize(
    "tree",
    [
        SOFTMAX,
        "[-i]{ init_M ; init_Z ; [-j] M ; [j]{ E ; Z } ; [-j] O }",
        "[i//32, i]{ init_M ; init_Z ; [j//16, j] M ; [j//64, j]{ E ; Z } ; [j] O }",
        "init_Z ; init_M ; [i, j] M ; [j, i]{ E ; Z } ; [i+j, i] O",
        "[i]{ init_M ; [j] M ; [j] E ; init_Z ; [j] Z ; [j] O }",
    ],
)
def test_correct_schedules_are_proved(tree: str) -> None:
    assert by_value(softmax(), tree) is None


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ("[i]{ init_M ; init_Z ; [j] M ; [j]{ Z ; E } ; [j] O }", "a value of e .* E.* and Z"),  # reversed
        ("[i]{ init_M ; init_Z ; [j]{ M ; E ; Z } ; [j] O }", "a value of m .* M.* and E"),  # consumer inside a reduction
        ("[i]{ init_M ; init_Z ; [j] M ; [j]{ E ; Z ; O } }", "a value of z .* Z.* and O"),
        ("[i]{ init_M ; init_Z ; [j] M ; [{E: j, Z: j-1}]{ E ; Z } ; [j] O }", "a value of e .* E.* and Z"),  # shifted
        ("[i]{ init_M ; init_Z ; [j] M ; [{E: j, Z: -j}]{ E ; Z } ; [j] O }", "a value of e .* E.* and Z"),
        ("[i]{ init_M ; [j] M ; [j]{ E ; Z } ; init_Z ; [j] O }", "a value of z .* initial value of Z.* and Z"),
        ("[i]{ init_M ; [j] M ; [{E: j, init_Z: 1, Z: j}]{ E ; init_Z ; Z } ; [j] O }", "initial value of Z.* and Z"),
        ("[i]{ init_M ; [j] M ; [j]{ E ; Z } ; [j] O }", "never runs init_Z"),
        ("[i]{ init_M ; init_Z ; [j] M ; [j] Z ; [j] O }", "never runs E"),
        ("[{init_M: i, init_Z: i, M: i, E: i, Z: i, O: i-1}]{ init_M ; init_Z ; [j] M ; [j]{ E ; Z } ; [j] O }", "and O"),
    ],
)
def test_wrong_schedules_are_refused(tree: str, words: str) -> None:
    violation = by_value(softmax(), tree)
    assert violation is not None and re.search(words, str(violation))


def test_a_violation_names_one_pair_and_the_sizes() -> None:
    violation = by_value(softmax(), "[i]{ init_M ; init_Z ; [j] M ; [j]{ Z ; E } ; [j] O }")
    assert violation is not None
    assert violation.source == "E[i=0, j=0]" and violation.sink == "Z[i=0, j=0]" and violation.sizes == "N=4, K=4"


def test_missing_and_doubled_instances_are_refused() -> None:
    scop = softmax()
    dependences, domain = compute_dependences(scop), instance_domains(scop)["O"]
    half = domain.intersect(type(domain)("[N, K] -> { O[i, j] : j >= 1 }"))
    violation = prove_values(scop, dependences, build_tree(scop, SOFTMAX, {"O": half}))
    assert violation is not None and str(violation).startswith("an instance is never run: O[i=0, j=0]")
    more = type(domain)("[N, K] -> { O[i, j] : 0 <= i < N and -1 <= j < K and N >= 4 and K >= 4 }")
    violation = prove_values(scop, dependences, build_tree(scop, SOFTMAX, {"O": more}))
    assert violation is not None and "no part of the program" in str(violation)


def test_a_set_node_orders_nothing() -> None:
    scop = scop_of("A: i:N -> a[i] = x[i]", "B: i:N -> b[i] = a[i]", N=8)
    text = str(build_tree(scop, "A ; B")).replace("sequence", "set")
    assert "set: [" in text
    violation = prove_values(scop, compute_dependences(scop), Schedule.read_from_str(DEFAULT_CONTEXT, text))
    assert violation is not None and "set node" in str(violation)


def by_text(child: str) -> str:
    """What is said of a tree ``child`` below the domain of one statement."""
    scop = scop_of("A: i:N -> a[i] = x[i]", N=8)
    text = f'{{domain: "{instance_domains(scop)["A"]}", child: {{{child}}}}}'
    return str(prove_values(scop, compute_dependences(scop), Schedule.read_from_str(DEFAULT_CONTEXT, text)))


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("i < 3", "i >= 3", "None"),
        ("i < 3", "i >= 2", "an instance runs more than once: A[i=2]"),
        ("i < 2", "i >= 3", "an instance is never run: A[i=2]"),
    ],
)
def test_an_instance_in_two_filters_or_none_is_refused(first: str, second: str, words: str) -> None:
    sequence = f'sequence: [{{filter: "{{ A[i] : {first} }}"}}, {{filter: "{{ A[i] : {second} }}"}}]'
    assert by_text(sequence).startswith(words)


def test_an_instance_for_which_a_band_has_no_value_is_refused() -> None:
    assert by_text('schedule: "[{ A[i] -> [(i)] : i >= 1 }]"').startswith("an instance is never run: A[i=0]")
    assert by_text('schedule: "[{ A[i] -> [(i)] }]"') == "None"


@pytest.mark.parametrize(
    ("tree", "storage"),
    [
        (SOFTMAX, {}),
        ("parallel " + SOFTMAX, {}),
        (SOFTMAX, {"m": Folding("m", (1,), "shared"), "e": Folding("e", (1, None), "shared")}),
        ("parallel " + SOFTMAX, {"m": Folding("m", (1,), "thread"), "e": Folding("e", (1, None), "thread")}),
        # m and z are never alive together here, so they may share a cell
        (
            "[i]{ init_M ; [j] M ; [j] E ; init_Z ; [j] Z ; [j] O }",
            {"m": Folding("b", (1,), "shared"), "z": Folding("b", (1,), "shared")},
        ),
        # the result is written over e, each element by its last reader
        (SOFTMAX, {"e": Folding("o", (None, None), "argument"), "o": Folding("o", (None, None), "argument")}),
        # one tile of i between the two halves
        (
            "parallel [i//32]{ [i]{ init_M ; init_Z ; [j] M } ; [i]{ [j]{ E ; Z } ; [j] O } }",
            {"m": Folding("m", (32,), "thread"), "z": Folding("z", (32,), "thread"), "e": Folding("e", (1, None), "thread")},
        ),
        ("[i]{ init_M ; init_Z ; vector [j] M ; vector [j]{ E ; Z } ; vector [j] O }", {}),
    ],
)
def test_correct_storage_is_proved(tree: str, storage: dict[str, Folding]) -> None:
    assert by_storage(softmax(), tree, storage) is None


@pytest.mark.parametrize(
    ("tree", "storage", "words"),
    [
        (SOFTMAX, {"e": Folding("e", (1, 1), "shared")}, "a value of e is overwritten"),  # modulus too small
        (SOFTMAX, {"m": Folding("b", (1,), "shared"), "z": Folding("b", (1,), "shared")}, "is overwritten"),
        (SOFTMAX, {"e": Folding("x", (None, None), "argument")}, "a value of x is overwritten"),  # the caller's array
        ("parallel " + SOFTMAX, {"m": Folding("m", (1,), "shared")}, "iterations of a parallel loop meet in one cell of m"),
        ("[i]{ init_M ; init_Z ; parallel [j] M ; [j]{ E ; Z } ; [j] O }", {}, "meet in one cell of m"),  # wrong mark
        (
            "[i]{ init_M ; init_Z ; [j] M ; [j]{ E ; Z } ; parallel [j] O }",
            {"e": Folding("e", (1, None), "thread")},
            "private e",
        ),
        (
            "parallel [i//32]{ [i]{ init_M ; init_Z ; [j] M } ; [i]{ [j]{ E ; Z } ; [j] O } }",
            {"m": Folding("m", (31,), "thread")},
            "a value of m is overwritten",
        ),
        (SOFTMAX, {"m": Folding("b", (1,), "shared"), "e": Folding("b", (1, None), "shared")}, "different rank"),
        (SOFTMAX, {"m": Folding("b", (1,), "shared"), "z": Folding("b", (1,), "thread")}, "different kinds of memory"),
    ],
)
def test_wrong_storage_is_refused(tree: str, storage: dict[str, Folding], words: str) -> None:
    violation = by_storage(softmax(), tree, storage)
    assert violation is not None and words in str(violation)


def test_lanes_of_a_vector_must_not_meet() -> None:
    scop = scop_of("A: i:N -> a[i] = x[i]", "B: i:N -> b[i] = a[i]", N=64)
    narrow = {"a": Folding("a", (4,), "shared")}
    assert by_storage(scop, "[i]{ A ; B }", narrow) is None
    violation = by_storage(scop, "vector [i]{ A ; B }", narrow)
    assert violation is not None and "lanes of a vector" in str(violation)
    wide = {"a": Folding("a", (32,), "shared")}
    tree = build_tree(scop, "vector [i]{ A ; B }", mark_text={"vector": "vector c0 16 2"})
    assert prove_storage(scop, compute_dependences(scop), tree, wide) is None


@pytest.mark.parametrize(
    ("tree", "columns", "moduli", "words"),
    [
        ("pipeline [t//4]{ [(t+i)//4]{ [t] [t+i] S } }", 1, (None, None), None),
        ("pipeline [t//4]{ [(t+i)//4]{ [t] [t+i] S } }", 1, (2, None), None),
        ("pipeline [t//4]{ [(t+i)//4, t, t+i] S }", 1, (2, None), None),
        ("pipeline [t//4]{ [(t+i)//8]{ [(t+i)//4, t, t+i] S } }", 2, (2, None), None),
        # a column of the next steps may run ahead of the neighbour that it reads
        ("pipeline [t//4]{ [i//4]{ [t] [i] S } }", 1, (None, None), "columns of a pipeline meet in one cell of a"),
        ("pipeline [t//4]{ [i//4]{ [t] [i] S } }", 2, (None, None), "columns of a pipeline meet in one cell of a"),
        ("pipeline [t//4]{ [t] [i] S }", 1, (None, None), None),
        # what two columns need at the same time has one cell
        ("pipeline [t//4]{ [(t+i)//4]{ [t] [t+i] S } }", 1, (2, 8), "is overwritten"),
        ("parallel [t//4]{ [(t+i)//4]{ [t] [t+i] S } }", 1, (2, None), "iterations of a parallel loop"),
    ],
)
def test_columns_of_a_pipeline_wait_for_those_before(
    tree: str, columns: int, moduli: tuple[int | None, ...], words: str | None
) -> None:
    scop = scop_of("S: t:N i:N -> a[t,i] = a[t-1,i] a[t-1,i+1]  where 1<=t<N and 0<=i<N-1", "O: i:N -> o[i] = a[N-1,0]", N=16)
    storage = {"a": Folding("a", moduli, "shared")}
    schedule = build_tree(scop, f"{tree} ; [i] O", mark_text={"pipeline": f"pipeline c0 {columns}"})
    violation = prove_storage(scop, compute_dependences(scop), schedule, storage)
    assert (words in str(violation)) if words else violation is None


def test_a_pipeline_needs_loops_inside_each_other() -> None:
    scop = scop_of("A: i:N -> a[i] = x[i]", "B: i:N -> b[i] = x[i]", N=8)
    schedule = build_tree(scop, "pipeline [i//2]{ [i] A ; [i] B }", mark_text={"pipeline": "pipeline c0 1"})
    with pytest.raises(ValueError, match="do not stand inside each other"):
        prove_storage(scop, compute_dependences(scop), schedule, {})


@pytest.mark.parametrize(
    ("lines", "tree", "expected"),
    [
        (["A: i:N -> a[i] = x[i]"], "[i] A", True),
        (["A: i:N -> a[i] = x[i]"], "parallel [i] A", True),
        (["A: i:N -> a[i] = x[i] x[i+1]  where 0<=i<N-1"], "[i] A", True),
        (["A: i:N -> a[i] = x[i] x[i+1]  where 0<=i<N-1"], "[-i] A", False),
        (["A: i:N -> a[i] = x[i] x[i+1]  where 0<=i<N-1"], "parallel [i] A", False),
        (["A: i:N j:N -> a[i,j] = x[j,i]"], "[i, j] A", False),
        (["T: i:N -> t[i] = x[i]", "A: i:N -> a[i] = t[i] x[i]"], "[i]{ T ; A }", True),
        (["S: j:N -> s += x[j]", "A: i:N -> a[i] = x[i] s"], "init_S ; [j] S ; [i] A", True),
        (["A: i:N -> a[i] = x[i]", "S: j:N -> s += x[j]"], "[i] A ; init_S ; [j] S", False),
    ],
)
def test_aliases(lines: list[str], tree: str, expected: bool) -> None:
    scop = scop_of(*lines, N=16)
    assert alias_is_safe(scop, build_tree(scop, tree), "a", "x") is expected


def test_a_chain_of_a_hundred_statements() -> None:
    lines = [f"S{k}: i:N j:N -> t{k}[i,j] = {f't{k - 1}' if k else 'x'}[i,j]" for k in range(100)]
    scop = scop_of(*lines, N=64)
    tree = f"parallel [i, j]{{ {' ; '.join(f'S{k}' for k in range(100))} }}"
    assert by_storage(scop, tree, {}) is None


PROGRAMS = {
    "softmax": (("M: i:N j:K -> m[i] += x[i,j]", "E: i:N j:K -> e[i,j] = x[i,j] m[i]", "Z: i:N j:K -> z[i] += e[i,j]"), (2, 3)),
    "stencil": (("A: i:N j:K -> a[i,j] = x[i,j]", "B: i:N j:K -> b[i,j] = a[i,j] a[i,j+1]  where 0<=j<K-1"), (3, 4)),
    "matmul": (("H: i:N j:K k:3 -> h[i,j] += x[i,k] w[k,j]", "Y: i:N j:K -> y[i,j] = h[i,j] h[j,i]"), (2, 2)),
}


LAST = {
    "softmax": "L: i:N -> l[i] = z[i]",
    "stencil": "L: i:N j -> l[i,j] = b[i,j]  where 0<=j<K-1",
    "matmul": "L: i:N j:K -> l[i,j] = y[i,j]",
}
"""A consumer of each program's last tensor, which makes that tensor a temporary."""


@st.composite
def random_trees(draw: st.DrawFn, scop: Scop) -> object:
    """A random tree: bands of random rows, random sequences; every leaf ends in a band over all its indices."""
    domains = instance_domains(scop)
    order = [n for s in scop.statements for n in ((f"init_{s.name}", s.name) if s.is_reduction else (s.name,))]

    def indices(name: str) -> list[str]:
        return [domains[name].get_dim_name(dim_type.set, d) for d in range(domains[name].dim(dim_type.set))]

    def row(name: str) -> str:
        i = draw(st.sampled_from(indices(name)))
        return draw(st.sampled_from([i, i, i, f"-{i}", f"{i}//2", f"{i}+1", "0", "+".join(indices(name))]))

    def tree(names: list[str], depth: int) -> object:
        if len(names) == 1:
            return TBand(tuple({names[0]: i} for i in indices(names[0])), names[0], None)
        if depth < 2 and draw(st.booleans()):
            if draw(st.booleans()):  # the same index for all, where they have it
                common = sorted(set.intersection(*(set(indices(n)) for n in names)))
                rows = dict.fromkeys(names, draw(st.sampled_from(common)))
            else:
                rows = {n: row(n) for n in names}
            return TBand((rows,), tree(names, depth + 1), None)
        if draw(st.integers(0, 3)) == 0:
            names = draw(st.permutations(names))
        cut = draw(st.integers(1, len(names) - 1))
        return TSequence((tree(names[:cut], depth), tree(names[cut:], depth)))

    return tree(order, 0)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.sampled_from(sorted(PROGRAMS)), st.data())
def test_the_proof_by_value_agrees_with_running_the_instances(name: str, data: st.DataObject) -> None:
    lines, (n, k) = PROGRAMS[name]
    scop = make_scop([parse_line(line) for line in lines], {"N": n, "K": k}, symbolic=False)
    tree = data.draw(random_trees(scop))
    proved = prove_values(scop, compute_dependences(scop), build_tree_of(scop, tree)) is None
    assert proved == runs_by_value(scop, tree)


@st.composite
def random_storage(draw: st.DrawFn, scop: Scop) -> dict[str, Folding]:
    storage = {}
    for t in scop.tensors.values():
        moduli = tuple(draw(st.sampled_from([None, None, 1, 2])) if t.role == "temporary" else None for _ in t.shape)
        rank = len(moduli)
        name = draw(st.sampled_from([t.name, t.name, f"pool{rank}"])) if t.role == "temporary" else t.name
        storage[t.name] = Folding(name, moduli, "shared")
    return storage


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.sampled_from(sorted(PROGRAMS)), st.data())
def test_the_proof_by_storage_agrees_with_running_the_instances(name: str, data: st.DataObject) -> None:
    lines, (n, k) = PROGRAMS[name]
    scop = make_scop([parse_line(line) for line in (*lines, LAST[name])], {"N": n, "K": k}, symbolic=False)
    tree = data.draw(random_trees(scop))
    assume(runs_by_value(scop, tree))
    times = times_of(scop, tree)
    assume(len(set(times.values())) == len(times))
    storage = data.draw(random_storage(scop))
    proved = prove_storage(scop, compute_dependences(scop), build_tree_of(scop, tree), storage) is None
    assert proved == runs_by_storage(scop, tree, storage)


def mark_one_band(tree: object, choose: st.DataObject) -> object:
    """The tree with the mark `parallel` above one of its bands of one member."""

    def bands(node: object) -> int:
        match node:
            case TBand():
                return 1 + bands(node.child)
            case TSequence():
                return sum(bands(c) for c in node.children)
        return 0

    left = choose.draw(st.integers(0, max(0, bands(tree) - 1)))

    def visit(node: object) -> object:
        nonlocal left
        match node:
            case TBand():
                left -= 1
                mark = "parallel" if left == -1 else None
                return TBand(node.members, visit(node.child), mark)
            case TSequence():
                return TSequence(tuple(visit(c) for c in node.children))
        return node

    return visit(tree)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.sampled_from(sorted(PROGRAMS)), st.sampled_from(["shared", "thread"]), st.data())
def test_the_proof_of_parallel_loops_agrees_with_meeting_instances(name: str, space: str, data: st.DataObject) -> None:
    lines, (n, k) = PROGRAMS[name]
    scop = make_scop([parse_line(line) for line in (*lines, LAST[name])], {"N": n, "K": k}, symbolic=False)
    tree = mark_one_band(data.draw(random_trees(scop)), data)
    assume(runs_by_value(scop, tree))
    temporaries = [t for t in scop.tensors.values() if t.role == "temporary"]
    storage = {t.name: Folding(t.name, (None,) * len(t.shape), space) for t in temporaries}  # type: ignore[arg-type]
    proved = prove_storage(scop, compute_dependences(scop), build_tree_of(scop, tree), storage) is None
    assert proved == (not meets_in_parallel(scop, tree, storage))


def test_what_isl_cannot_decide_in_its_quota_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:

    scop = softmax()
    dependences, schedule = compute_dependences(scop), build_tree(scop, SOFTMAX)
    monkeypatch.setattr(instances, "QUOTA", 50)
    monkeypatch.setattr(instances, "QUOTA_PER_STATEMENT", 0)
    for violation in (prove_values(scop, dependences, schedule), prove_storage(scop, dependences, schedule, {})):
        assert violation is not None and "isl operations" in str(violation)
    assert not alias_is_safe(scop, schedule, "o", "x")
    monkeypatch.undo()
    assert prove_values(scop, dependences, schedule) is None
