"""Shared by the commands of `evalfleet pool`: the home, its pools, and which one is named."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalfleet.layout import Home
    from evalfleet.model import Pool
    from evalfleet.store.reader import StoreReader


def home_of(home: str | None) -> Home:
    from evalfleet import config
    from evalfleet.layout import Home

    return Home(config.load(home).home)


@contextmanager
def opened(home: str | None) -> Generator[tuple[StoreReader | None, list[Pool]]]:
    """The store's reader, None where there is no store yet, and the pools in it."""
    from evalfleet.store.open import open_reader

    reader = open_reader(home_of(home).path)
    try:
        yield reader, reader.pools.all() if reader is not None else []
    finally:
        if reader is not None:
            reader.close()


def chosen(name: str | None, pools: list[Pool]) -> Pool:
    """The pool of that name; without a name the only one.

    Raises InputError where no name is given and there is not exactly one pool; NotFound where no pool has that name.
    """
    from evalfleet.errors import InputError, NotFound

    known = ", ".join(pool.name for pool in pools)
    if name is None:
        if len(pools) == 1:
            return pools[0]
        raise InputError(f"which pool? There are: {known}." if pools else "there are no pools yet.")
    for pool in pools:
        if pool.name == name:
            return pool
    raise NotFound(f"there is no pool {name!r}; known pools: {known or 'none'}")
