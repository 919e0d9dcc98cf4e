"""``polyc cache``: where compiled kernels are kept, how much there is, and removing them."""

from __future__ import annotations

import click

from polyc.cache import Store
from polyc.cli.common import file_error, guard_errors
from polyc.config import cache_directory, cache_settings, cache_size


@click.group("cache")
def cache_command() -> None:
    """Show or clear the disk cache of compiled kernels.

    Kernels are found again by what they were compiled from: the operator, sizes, layouts, options, the machine, and the
    versions of polyc and of what it compiles with.  POLYC_CACHE_DIR moves the cache, POLYC_CACHE_SIZE limits it (512M), and
    POLYC_CACHE=0 switches it off.

    \b
    Examples:
      polyc cache info
      polyc cache clear
      POLYC_CACHE=0 polyc run softmax.tc --size N=64,D=1000
    """


@cache_command.command("info")
@guard_errors
def info_command() -> None:
    """Print the location, the entries by kind, their bytes, and the most bytes that they may take.

    \b
    Example:
      polyc cache info
    """
    store = _find_store()
    if store is None:
        click.echo("location: none: neither POLYC_CACHE_DIR nor a home directory is known")
        return
    totals = store.totals()
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(totals.entries.items()))
    click.echo(f"location: {store.base}")
    click.echo(f"state:    {'off (POLYC_CACHE=0)' if cache_settings() is None else 'on'}")
    click.echo(f"entries:  {sum(totals.entries.values())}{f' ({kinds})' if kinds else ''}")
    click.echo(f"bytes:    {totals.size}")
    click.echo(f"at most:  {store.cap}")


@cache_command.command("clear")
@guard_errors
def clear_command() -> None:
    """Remove all entries; nothing else in the directory is touched.

    \b
    Example:
      polyc cache clear
    """
    store = _find_store()
    if store is None:
        click.echo("removed 0 entries")
        return
    try:
        count = store.clear()
    except OSError as error:
        raise file_error(error.filename or store.directory, error) from error
    click.echo(f"removed {count} entr{'y' if count == 1 else 'ies'} from {store.base}")


def _find_store() -> Store | None:
    """The store, even where it is switched off: it may still hold entries."""
    directory = cache_directory()
    return None if directory is None else Store(directory, cache_size())
