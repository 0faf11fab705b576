"""`evalfleet pool logs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from evalfleet.cli.pools.shared.hosts import found, require_library, worker_option
from evalfleet.cli.pools.shared.pools import home_of, opened
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.store.reader import StoreReader

LOST = 3


@click.command("logs")
@click.argument("name", required=False)
@worker_option
@click.option("-f", "--follow", is_flag=True, help="Follow new lines until Ctrl-C.")
@click.option(
    "--lines",
    type=click.IntRange(0, 10_000),
    default=20,
    show_default=True,
    metavar="N",
    help="Lines of each log to start with.",
)
@json_option
@home_option
def command(name: str | None, worker: str | None, follow: bool, lines: int, as_json: bool, home: str | None) -> int:
    """Show the logs of a pool's hosts: the runner's log, and the output of live attempts.

    NAME may be left out when there is one pool. With --json one object per line. Exits with 3 if a host was not
    reached. What one task wrote, now or earlier: `evalfleet logs RUN KEY`.
    """
    import anyio

    hosts = found(home, name, worker)
    require_library()
    from evalfleet.cli.pools.shared.multi_tail import Tails

    with opened(home) as (reader, _):
        tails = Tails(hosts, home_of(home), _Titles(reader).of, lines=lines, follow=follow, as_json=as_json)
        lost = anyio.run(tails.run)
    return LOST if lost else 0


class _Titles:
    """The task keys of attempts, where this home knows them."""

    def __init__(self, reader: StoreReader | None) -> None:
        self._reader = reader
        self._known: dict[str, str] = {}

    def of(self, source: str) -> str:
        """What to call a source of lines: the key of an attempt's task, or else its own name."""
        if source not in self._known:
            self._known[source] = self._key(source) or source
        return self._known[source]

    def _key(self, source: str) -> str | None:
        from evalfleet.errors import NotFound

        run, _, numbers = source.partition(".")
        task, _, number = numbers.partition(".")
        if self._reader is None or not (task.isdigit() and number.isdigit()):
            return None
        try:
            return self._reader.tasks.at(run, int(task)).spec.key
        except NotFound:
            return None
