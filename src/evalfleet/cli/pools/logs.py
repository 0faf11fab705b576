"""`evalfleet pool logs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from evalfleet.cli.pools.shared.hosts import found, require_library, worker_option
from evalfleet.cli.pools.shared.pools import home_of, opened
from evalfleet.cli.shared.options import home_option, json_option, pool_argument

if TYPE_CHECKING:
    from evalfleet.store.reader import StoreReader

LOST = 3


@click.command("logs")
@pool_argument
@click.argument("host", required=False)
@worker_option
@click.option("-f", "--follow", is_flag=True, help="Follow new lines until Ctrl-C.")
@click.option(
    "--lines",
    type=click.IntRange(0, 10_000),
    metavar="N",
    help="Lines of each log to start with.  [default: 20; all of a log that is named]",
)
@click.option("--boot", "log", flag_value="boot", help="The machine's console, from its cloud.")
@click.option("--cloud-init", "log", flag_value="cloud-init", help="What cloud-init did when the machine first booted.")
@click.option("--docker", "log", flag_value="docker", help="The Docker daemon.")
@click.option("--container", metavar="C", help="A container of the machine.")
@click.option("--log", "log", metavar="L", help="A log by its name in --list.")
@click.option("--list", "lists", is_flag=True, help="List the logs that there are.")
@click.option("--kept", is_flag=True, help="As kept when the machine failed last, if it is still there.")
@json_option
@home_option
def command(
    name: str | None,
    host: str | None,
    worker: str | None,
    follow: bool,
    lines: int | None,
    log: str | None,
    container: str | None,
    lists: bool,
    kept: bool,
    as_json: bool,
    home: str | None,
) -> int:
    """Show the logs of a pool's hosts: the runner's log, and the output of live attempts.

    NAME may be left out when there is one pool. HOST, or --worker, limits it to one machine. --boot, --cloud-init,
    --docker, --container and --log show that log of the machine itself instead; logs of a machine that failed were kept. With
    --json one object per line. Exits with 3 if a host was not reached. What one task wrote, now or earlier:
    `evalfleet logs RUN KEY`.
    """
    import anyio

    if container is not None:
        if log is not None:
            raise click.UsageError("name one log: --container and another were given.")
        log = f"container/{container}"
    if lists or log is not None:
        if follow:
            raise click.UsageError("--follow is for the runner and the tasks, not for logs of the machine itself.")
        return _machine_logs(home, name, host or worker, None if lists else log, lines, kept=kept, as_json=as_json)
    hosts = found(home, name, host or worker)
    require_library()
    from evalfleet.cli.pools.shared.multi_tail import Tails

    with opened(home) as (reader, _):
        begin = 20 if lines is None else lines
        tails = Tails(hosts, home_of(home), _Titles(reader).of, lines=begin, follow=follow, as_json=as_json)
        lost = anyio.run(tails.run)
    return LOST if lost else 0


def _machine_logs(
    home: str | None,
    name: str | None,
    host: str | None,
    log: str | None,
    lines: int | None,
    *,
    kept: bool,
    as_json: bool,
) -> int:
    """Print a log of each machine; without `log` the names of those that there are."""
    import anyio

    from evalfleet import config
    from evalfleet.cli.pools.shared.machine_logs import MachineLogPrinter, pool_of
    from evalfleet.operations.machines.machine_logs import targets

    settings = config.load(home)
    with opened(home) as (reader, pools):
        pool = pool_of(name, host, pools, reader)
        assert reader is not None  # else there is no pool
        machines = targets(settings, reader, pool, host)
    return anyio.run(MachineLogPrinter(machines, log, lines, kept=kept, as_json=as_json).run)


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
