"""`evalfleet gpus`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.answers.gpus import GpuList
    from evalfleet.config import Settings
    from evalfleet.core.gpus.cards import Card

_FRESH_S = 3.0  # what a controller saw so long ago need not be looked at again
_REDRAW_S = 1.0


@click.command("gpus")
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option("--release", "release", metavar="UUID", help="Take a GPU out of quarantine; a unique prefix is enough.")
@json_option
@home_option
def command(watch: bool, release: str | None, as_json: bool, home: str | None) -> None:
    """Show every GPU: its holder, foreign processes, quarantine and reason, and the queue."""
    from evalfleet import config

    settings = config.load(home)
    if release is not None:
        _release(settings, release)
    elif watch and not as_json:
        _watch(settings)
    else:
        _show(settings, as_json=as_json)


def _show(settings: Settings, *, as_json: bool) -> None:
    from evalfleet.report.terminal import lines

    facts, now, problem = _facts(settings)
    if as_json:
        print_document(facts)
    else:
        lines.write(_lines(facts, now, problem), colour=settings.colour)


def _lines(facts: GpuList, now: float, problem: str | None) -> list[Any]:
    from evalfleet.report.terminal import lines
    from evalfleet.report.terminal.gpus import gpu_lines

    if facts.gpus:
        return gpu_lines(facts, now, lines.columns())
    why = f"No GPUs: {problem}, and no host" if problem else "No GPUs: no host"
    return [
        lines.line(f"{why} of a pool has shown one."),
        lines.line(
            "Tasks that ask for GPUs are held. A file spool/gpus.json in the home stands in for GPUs, to try things."
        ),
    ]


def _facts(settings: Settings) -> tuple[GpuList, float, str | None]:
    """The GPUs of all hosts, the time, and why this machine has none."""
    import time

    from evalfleet.report.gpus import gpus_facts
    from evalfleet.report.reader import opened

    with opened(settings.home) as store:
        now = time.time() if store is None else store.now()
        known = [] if store is None else store.gpus.cards()
        seen, problem = _looked(settings, known, now)
        return gpus_facts(store, seen), now, problem


def _looked(settings: Settings, known: list[Card], now: float) -> tuple[list[Card], str | None]:
    """The GPUs of this machine, unless a controller listed them just now; and why there are none."""
    from msgspec.structs import replace

    from evalfleet.hosts.local.backend import HOST
    from evalfleet.hosts.local.gpus import look
    from evalfleet.layout import Home

    seen_at = max((card.seen_at for card in known if card.host == HOST), default=0.0)
    if now - seen_at < _FRESH_S:
        return [], None
    seen = look(Home(settings.home).spool)
    return [replace(card, seen_at=now) for card in seen.cards], seen.problem


def _watch(settings: Settings) -> None:
    import sys
    import time

    from evalfleet.config import is_terminal
    from evalfleet.report.terminal import lines

    home = "\x1b[H\x1b[J" if is_terminal(sys.stdout) else ""
    try:
        while True:
            facts, now, problem = _facts(settings)
            click.echo(home, nl=False)
            lines.write(_lines(facts, now, problem), colour=settings.colour)
            time.sleep(_REDRAW_S)
    except KeyboardInterrupt:
        click.echo()


def _release(settings: Settings, text: str) -> None:
    from evalfleet.engine.supervisor import owner_name
    from evalfleet.errors import AmbiguousId, NotFound
    from evalfleet.store.open import open_store

    with closing(open_store(settings.home)) as store:
        apart = [card for card in store.gpus.cards() if card.quarantine is not None]
        found = [card for card in apart if card.uuid == text] or [card for card in apart if card.uuid.startswith(text)]
        if not found:
            names = ", ".join(card.uuid for card in apart) or "none"
            raise NotFound(f"no GPU {text!r} is in quarantine; in quarantine: {names}")
        if len(found) > 1:
            raise AmbiguousId(
                f"{text!r} fits {len(found)} GPUs ({', '.join(card.uuid for card in found)}); give more of it"
            )
        store.gpus.unquarantine(found[0].host, found[0].uuid, owner_name())
        click.echo(f"GPU {found[0].index} of {found[0].host} ({found[0].uuid}) is out of quarantine")
