"""The disk cache: what was compiled in earlier processes, found again by what it was made of.

`keys` says what an entry depends on, `values` and `places` turn values into plain data and back, `store` keeps files.
Nothing here compiles; `polyc.recall` puts the cache before the driver's slow functions.
"""

from polyc.cache.keys import Key, digest_text, identify_program, versions
from polyc.cache.places import ProgramPlaces, SourcePlaces
from polyc.cache.store import Entry, Store, open_store
from polyc.cache.values import Unreadable, Unstorable, decode, encode

__all__ = [
    "Entry",
    "Key",
    "ProgramPlaces",
    "SourcePlaces",
    "Store",
    "Unreadable",
    "Unstorable",
    "decode",
    "digest_text",
    "encode",
    "identify_program",
    "open_store",
    "versions",
]
