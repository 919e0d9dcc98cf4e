"""isl schedule trees for tests, from a text: ``[i]{ init_M ; [j] M ; [j]{ E ; Z } }``.

A member is an affine row over the indices of each statement below (``i``, ``2t+i``, ``i//4``), the same text for all of
them, or ``{S0: 2t+i, S1: 2t+i+1}``.  ``parallel`` or ``vector`` before a band puts the mark above it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import islpy as isl

from polyc.poly.legality import instance_domains
from polyc.poly.scop import Scop


@dataclass(frozen=True)
class TBand:
    members: tuple[dict[str, str] | str, ...]
    child: object
    mark: str | None


@dataclass(frozen=True)
class TSequence:
    children: tuple[object, ...]


def parse_tree(text: str) -> object:
    tokens = re.findall(r"\[[^\]]*\]|[{};]|\w+", text)
    at = 0

    def sequence() -> object:
        nonlocal at
        children = [item()]
        while at < len(tokens) and tokens[at] == ";":
            at += 1
            children.append(item())
        return children[0] if len(children) == 1 else TSequence(tuple(children))

    def item() -> object:
        nonlocal at
        token = tokens[at]
        at += 1
        mark = None
        if token in ("parallel", "pipeline", "vector"):
            mark, token = token, tokens[at]
            at += 1
        if token == "{":
            inner = sequence()
            at += 1
            return inner
        if not token.startswith("["):
            return token
        plain = re.sub(r"\b[PRS]:(?! )", "", token[1:-1])
        members = tuple(_member(m) for m in re.findall(r"\{[^}]*\}|[^,{}]+", plain) if m.strip())
        return TBand(members, item(), mark)

    return sequence()


def _member(text: str) -> dict[str, str] | str:
    text = text.strip()
    if not text.startswith("{"):
        return text
    rows: dict[str, str] = {}
    for part in text.strip("{}").split(","):
        names, row = part.split(":")
        rows.update({n.strip(): row.strip() for n in names.split("/")})
    return rows


def leaves(node: object) -> list[str]:
    match node:
        case str():
            return [node]
        case TBand():
            return leaves(node.child)
        case TSequence():
            return [n for c in node.children for n in leaves(c)]
    raise TypeError(node)


def build_tree(
    scop: Scop, text: str, domains: dict[str, isl.Set] | None = None, mark_text: dict[str, str] | None = None
) -> isl.Schedule:
    """The schedule tree; `domains` replaces some instance sets, `mark_text` the texts of marks."""
    return build_tree_of(scop, parse_tree(text), domains, mark_text)


def build_tree_of(
    scop: Scop, tree: object, domains: dict[str, isl.Set] | None = None, mark_text: dict[str, str] | None = None
) -> isl.Schedule:
    sets = instance_domains(scop) | (domains or {})
    union = isl.UnionSet.empty(isl.Space.params_alloc(isl.DEFAULT_CONTEXT, 0))
    for name in leaves(tree):
        union = union.union(isl.UnionSet.from_set(sets[name]))
    root = isl.Schedule.from_domain(union).get_root()
    return _insert(root.child(0), tree, sets, mark_text or {}).get_schedule()


def _row(name: str, domain: isl.Set, row: str) -> str:
    indices = [domain.get_dim_name(isl.dim_type.set, d) for d in range(domain.dim(isl.dim_type.set))]
    row = re.sub(r"(\w+)//(\d+)", r"floor(\1/\2)", row)
    return f"{name}[{', '.join(indices)}] -> [({row})]"


def _insert(node: isl.ScheduleNode, tree: object, sets: dict[str, isl.Set], marks: dict[str, str]) -> isl.ScheduleNode:
    """Insert `tree` at a leaf; returns the node at its top."""
    match tree:
        case str():
            return node
        case TSequence():
            filters = isl.UnionSetList.alloc(isl.DEFAULT_CONTEXT, len(tree.children))
            for child in tree.children:
                part = isl.UnionSet.empty(isl.Space.params_alloc(isl.DEFAULT_CONTEXT, 0))
                for name in leaves(child):
                    part = part.union(isl.UnionSet.from_set(isl.Set.universe(sets[name].get_space())))
                filters = filters.add(part)
            node = node.insert_sequence(filters)
            for n, child in enumerate(tree.children):
                node = _insert(node.child(n).child(0), child, sets, marks)
                node = node.ancestor(2)
            return node
        case TBand():
            names = leaves(tree)
            rows = []
            for member in tree.members:
                pieces = [_row(n, sets[n], member if isinstance(member, str) else member[n]) for n in names]
                rows.append("{ " + "; ".join(pieces) + " }")
            partial = isl.MultiUnionPwAff("[" + ", ".join(rows) + "]")
            node = node.insert_partial_schedule(partial)
            node = _insert(node.child(0), tree.child, sets, marks).parent()
            if tree.mark:
                node = node.insert_mark(isl.Id(marks.get(tree.mark, tree.mark)))
            return node
    raise TypeError(tree)
