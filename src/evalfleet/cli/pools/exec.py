"""`evalfleet pool exec`."""

from __future__ import annotations

import click

from evalfleet.answers.machines import CommandOnPool
from evalfleet.cli.pools.shared.hosts import found, require_library, say, worker_option
from evalfleet.cli.pools.shared.pools import home_of
from evalfleet.cli.pools.ssh import line_of
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import duration_option, home_option, json_option

FAILED, LOST = 1, 3


class _Split(click.Command):
    """Knows where the command begins: after `--`, or else with the first word that is no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            ctx.meta["command"] = args[cut + 1 :]
            args = args[:cut]
            ctx.allow_interspersed_args = True
        return super().parse_args(ctx, args)


@click.command("exec", cls=_Split, context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[NAME] -- CMD…")
@worker_option
@duration_option("--timeout", "timeout_s", help='End CMD after this time, such as "5m".  [default: never]')
@json_option
@home_option
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    worker: str | None,
    timeout_s: float | None,
    as_json: bool,
    home: str | None,
) -> int:
    """Run a command on all hosts of a pool at the same time.

    NAME may be left out when there is one pool. Every line starts with its host. Exits with 0 if CMD did so
    everywhere, with 3 if a host was unreachable or lost, else with 1.
    """
    import anyio

    name, line = _meant(ctx, words, home)
    hosts = found(home, name, worker)
    require_library()
    from evalfleet.cli.pools.shared.run_on_all import Everywhere

    rows = anyio.run(Everywhere(hosts, home_of(home), line, timeout_s).run, not as_json)
    if as_json:
        print_document(CommandOnPool(command=line, hosts={row.host: row.told() for row in rows}))
    else:
        for row in rows:
            if row.ended.exit != 0:
                say(f"host {row.host}: {row.ended.error or f'exit status {row.ended.exit}'}")
    if any(row.ended.is_lost for row in rows):
        return LOST
    return FAILED if any(row.ended.exit != 0 for row in rows) else 0


def _meant(ctx: click.Context, words: tuple[str, ...], home: str | None) -> tuple[str | None, str]:
    """The pool that is named, and the command."""
    after: list[str] | None = ctx.meta.get("command")
    if after is None:
        _refuse_pool_as_command(words, home)
        name, rest = None, words
    else:
        if len(words) > 1:
            raise click.UsageError(f"name at most one pool before --: {' '.join(words)}")
        name, rest = words[0] if words else None, tuple(after)
    if not rest:
        raise click.UsageError("which command? Write it after --: evalfleet pool exec -- uptime")
    return name, line_of(rest)


def _refuse_pool_as_command(words: tuple[str, ...], home: str | None) -> None:
    from evalfleet.cli.pools.shared.pools import opened

    with opened(home) as (_, pools):
        if len(words) > 1 and words[0] in [pool.name for pool in pools]:
            raise click.UsageError(
                f"write the command after --: evalfleet pool exec {words[0]} -- {' '.join(words[1:])}"
            )
