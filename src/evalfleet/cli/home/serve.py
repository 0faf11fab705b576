"""`evalfleet serve`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalfleet.answers.home import ServerAddress
from evalfleet.cli.shared.document import document
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.config import Settings
    from evalfleet.web.server import Options

INTERRUPTED = 130


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port; 0 picks a free one."
)
@click.option("--open", "open_page", is_flag=True, help="Open the dashboard in a browser.")
@click.option("--runs", type=click.IntRange(min=1), default=4, show_default=True, help="Runs to drive at a time.")
@click.option("--no-drive", is_flag=True, help="Only show: drive no runs and manage no pools.")
@click.option("--no-token", is_flag=True, help="Read-only, without a token, for all users of this machine.")
@click.option(
    "--tls-cert",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TLS certificate, needed for non-loopback addresses.",
)
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Key of the TLS certificate.")
@click.option("--behind-proxy", is_flag=True, help="A proxy in front terminates TLS.")
@click.option(
    "--allow-host", multiple=True, metavar="NAME", help="Another host name under which it is reached; repeatable."
)
@click.option("--while-stdin", is_flag=True, hidden=True, help="Exit when standard input closes.")
@json_option
@home_option
def command(
    host: str,
    port: int,
    open_page: bool,
    runs: int,
    no_drive: bool,
    no_token: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    behind_proxy: bool,
    allow_host: tuple[str, ...],
    while_stdin: bool,
    as_json: bool,
    home: str | None,
) -> int:
    """Serve the dashboard, drive queued runs and send alerts until Ctrl-C.

    Prints one address with a token; anyone who has it can act. Ctrl-C leaves running tasks running; the next `serve` goes on.
    """
    import anyio

    from evalfleet import config
    from evalfleet.errors import InputError

    try:
        from evalfleet.web.server import Options
    except ModuleNotFoundError as error:
        if error.name not in ("aiohttp", "yarl"):
            raise
        raise InputError("`serve` needs one more package; install it with: pip install 'evalfleet[serve]'") from None
    options = Options(
        host=host,
        port=port,
        token=not no_token,
        tls_cert=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy,
        allow_hosts=allow_host,
        drive=not no_drive,
        runs=runs,
    )
    anyio.run(_serve, config.load(home), options, open_page, while_stdin, as_json)
    return INTERRUPTED if not while_stdin else 0


async def _serve(settings: Settings, options: Options, open_page: bool, while_stdin: bool, as_json: bool) -> None:
    import logging
    import signal

    import anyio

    from evalfleet.web.server import running

    logging.basicConfig(level=settings.log_level.upper(), stream=sys.stderr, format="evalfleet: %(message)s")

    def notice(text: str) -> None:
        click.echo(f"evalfleet: {text}", err=True)

    async with running(settings, options, notice) as server:
        click.echo(document(ServerAddress(url=server.url, address=server.address)) if as_json else server.address)
        sys.stdout.flush()
        if open_page:
            _open(server.address)
        async with anyio.create_task_group() as group:
            if while_stdin:
                group.start_soon(_until_end_of_stdin, group.cancel_scope)
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
                await anext(received)
            group.cancel_scope.cancel()
        if options.drive:
            notice("stopping; running tasks go on, and the next `evalfleet serve` continues their runs")


async def _until_end_of_stdin(scope: object) -> None:
    import anyio
    import anyio.to_thread

    await anyio.to_thread.run_sync(sys.stdin.buffer.read, abandon_on_cancel=True)
    assert isinstance(scope, anyio.CancelScope)
    scope.cancel()


def _open(address: str) -> None:
    import webbrowser

    webbrowser.open(address)
