"""What LLVM says of this machine and whether it makes right code for it, which is not loaded to be asked twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyc.recall.entries import is_unchanged, open_store, own_versions, read_entry, read_or_make, tell_miss

if TYPE_CHECKING:
    from polyc.cache import Entry, Key
    from polyc.machine import Machine


def physical_host() -> Machine:
    """This machine as a target, from what the cache knows of it."""
    from polyc.codegen.objects import host

    recall_host()
    return host.physical_host()


def knows_host() -> bool:
    """Whether it is known what LLVM says of this machine, without asking LLVM."""
    from polyc.codegen.objects import host

    if host.are_facts_known():
        return True
    found = _find_host()
    if found is not None:
        host.adopt_facts(found)
    return found is not None


def recall_host() -> None:
    """Ask the cache what LLVM says of this machine, else LLVM: for that it has to be loaded."""
    if not knows_host():
        from polyc.codegen.objects import host

        key, store = _host_key(), open_store()
        if key is not None and store is not None:
            tell_miss(store, key)
        _keep_host(host.facts())


def plain_host() -> list[Any]:
    """What LLVM says of this machine, as JSON has it."""
    from polyc.codegen.objects import host

    recall_host()
    found = host.facts()
    return [found.triple, list(found.features), found.version]


def adopt_host(triple: str, features: Sequence[str], version: str) -> None:
    """Take `plain_host` of a worker for what LLVM would say here."""
    from polyc.codegen.objects import host

    if not host.are_facts_known():
        host.adopt_facts(host.Facts(triple, tuple(features), version))
        _keep_host(host.facts())


def _host_key() -> Key | None:
    """None where there is no cache, or the system does not say what machine this is."""
    from polyc.cache import Key, versions
    from polyc.codegen.objects import host

    machine = host.describe_machine()
    if machine is None or open_store() is None:
        return None
    return Key("host", "this machine", machine, (("versions", f"{own_versions()}, {versions('llvmlite')}"),))


def _find_host() -> Any:
    """The facts that the cache has."""
    from polyc.codegen.objects import host

    def read(entry: Entry) -> host.Facts:
        triple, features, version = entry.header["value"]
        if not all(isinstance(t, str) for t in (triple, version, *features)) or not features:
            raise ValueError("no facts about a machine")
        return host.Facts(triple, tuple(features), version)

    key, store = _host_key(), open_store()
    entry = None if key is None or store is None else store.read(key)
    return None if entry is None or key is None or store is None else read_entry(store, key, read, entry)


def _keep_host(found: Any) -> None:
    from polyc.cache import Entry

    key, store = _host_key(), open_store()
    if key is not None and store is not None and is_unchanged():
        store.write(key, Entry({"value": [found.triple, list(found.features), found.version]}))


_tested: set[tuple[str, str, str]] = set()
"""Triples, names of processors and features of targets that code was tested for."""


def check_code_generator(target: Machine) -> None:
    """Before the first code for a target that runs here is made: whether LLVM makes it right (`codegen.objects.self_test`).

    Raises UnsupportedError (``unsupported-code-generator``).  The cache keeps for which targets it does."""
    from polyc.codegen.objects.host import physical_host
    from polyc.machine import is_runnable

    machine = target.triple, target.cpu, target.features
    if machine in _tested or not is_runnable(target, physical_host()):
        return
    from polyc.codegen.objects.self_test import check_code

    store = open_store()
    if store is None:
        check_code(target)
    else:
        from polyc.cache import Entry, Key, digest_text, versions

        parts = (("versions", f"{own_versions()}, {versions('llvmlite')}"),)
        key = Key("self-test", target.name, digest_text("\n".join(machine)), parts)
        read_or_make(store, key, lambda entry: True, lambda: check_code(target), lambda _: Entry({}))
    _tested.add(machine)
