"""What the Tab key offers for arguments that name something in the home: runs, task keys, pools.

A shell asks while a person types, so an answer is read only, takes one page of the store at most, and is empty where the
home cannot be read: a message in the middle of the prompt would help no one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from evalfleet.store.reader import StoreReader

_MOST = 200
Offer = tuple[str, str]  # a word, and what is said about it
Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def _from_home(find: Callable[[StoreReader, click.Context, str], Sequence[Offer]]) -> Completer:
    @wraps(find)
    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        offers: Sequence[Offer] = ()
        with suppress(Exception):
            offers = _asked(find, ctx, incomplete)
        return [CompletionItem(word, help=said) for word, said in offers if word.startswith(incomplete)]

    return complete


def _asked(
    find: Callable[[StoreReader, click.Context, str], Sequence[Offer]], ctx: click.Context, incomplete: str
) -> Sequence[Offer]:
    from evalfleet import config
    from evalfleet.report.reader import opened

    home = ctx.params.get("home") or ctx.find_root().params.get("home")
    with opened(config.load(home).home) as reader:
        return find(reader, ctx, incomplete) if reader is not None else ()


@_from_home
def complete_run(reader: StoreReader, _ctx: click.Context, incomplete: str) -> Sequence[Offer]:
    """Ids of the newest runs, or their names where one was begun; and `latest`."""
    offers = [("latest", "the newest run")]
    for run in reader.runs.newest(_MOST):
        offers.append((run.id, f"{run.name}, {run.state}"))
        if incomplete and run.name.startswith(incomplete):
            offers.append((run.name, f"{run.id}, {run.state}"))
    return list(dict(reversed(offers)).items())[::-1]  # of runs with one name the newest


@_from_home
def complete_key(reader: StoreReader, ctx: click.Context, incomplete: str) -> Sequence[Offer]:
    """Keys of the tasks of the run that was named before."""
    run = reader.runs.find(ctx.params.get("run") or "latest")
    rows = reader.tasks.page(run.id, search=incomplete or None, limit=_MOST)
    return [(row["key"], row["state"]) for row in rows]


@_from_home
def complete_pool(reader: StoreReader, _ctx: click.Context, _incomplete: str) -> Sequence[Offer]:
    return [(pool.name, pool.backend) for pool in reader.pools.all()]
