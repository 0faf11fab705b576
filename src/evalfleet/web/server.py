"""The server as a process, or inside a test: opens its door, tells its address, and ends in order."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import Struct

from evalfleet.config import Settings
from evalfleet.daemon.alerts.access import Access
from evalfleet.daemon.alerts.service import AlertService
from evalfleet.daemon.file_limit import raise_file_limit
from evalfleet.daemon.readers import Readers
from evalfleet.daemon.run_driver import RunDriver
from evalfleet.errors import InputError
from evalfleet.layout import Home
from evalfleet.model import Event
from evalfleet.store.open import open_store
from evalfleet.web.app import application
from evalfleet.web.context import Site
from evalfleet.web.feed import Feed
from evalfleet.web.handlers.remote_attempts import Remote
from evalfleet.web.host_connections import Lines
from evalfleet.web.security import tokens
from evalfleet.web.security.auth import Entrance, Gate, is_loopback, names_of
from evalfleet.web.security.connections import ConnectionLimit
from evalfleet.web.security.sessions import key_in

PORT = 8765
_BACKLOG = 512
_SHUTDOWN_S = 2.0
_log = logging.getLogger("evalfleet.web.http")


class Options(Struct, frozen=True, kw_only=True):
    """How to serve."""

    host: str = "127.0.0.1"
    port: int = PORT  # 0: a free one
    token: bool = True  # False: every user of this machine may look, and none may act
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False
    allow_hosts: tuple[str, ...] = ()
    drive: bool = True  # runs, and pools
    runs: int = 4  # driven at a time


class Server(Struct, frozen=True, kw_only=True):
    url: str  # without a token
    address: str  # with one, for a person, and shown by no repr
    site: Site

    def __repr__(self) -> str:
        return f"Server(url={self.url!r})"


def _refuse_unsafe(settings: Settings, options: Options) -> None:
    """Raise InputError where others could reach the server and it would not be safe."""
    if (options.tls_cert is None) != (options.tls_key is None):
        raise InputError("--tls-cert and --tls-key belong together; give both, or none")
    if is_loopback(options.host):
        return
    if not options.token:
        raise InputError("--no-token is for 127.0.0.1 only; leave it out, or serve there")
    with closing(open_store(settings.home)) as store:
        made = [token for token in store.tokens.all() if token.name != tokens.START_NAME]
    if not made:
        raise InputError(
            f"{options.host} can be reached from other machines, and there is no token yet; `evalfleet token new NAME` creates one"
        )
    if options.tls_cert is None and not options.behind_proxy:
        raise InputError(
            f"{options.host} can be reached by others; give --tls-cert and --tls-key, or --behind-proxy where a proxy "
            "does TLS"
        )


@asynccontextmanager
async def running(
    settings: Settings, options: Options, notice: Callable[[str], None] = lambda _: None
) -> AsyncGenerator[Server]:
    """Serve until the block ends; then this server drives no run, and all can be resumed.

    Raises InputError: unsafe, or the port is taken. StoreError: the home cannot be used.
    """
    _refuse_unsafe(settings, options)
    most = raise_file_limit()
    listening = _listen(options)
    port: int = listening.getsockname()[1]
    token = _start_token(settings, port) if options.token and is_loopback(options.host) else None
    readers = Readers(settings.home)
    readers.open()

    def happened(events: list[Event]) -> None:
        readers.happened(events[-1].number)
        alerts.look_soon(events)

    feed = Feed(settings.home, happened)
    lines = Lines(Home(settings.home))
    remote = Remote(lines, settings)
    site = Site(
        settings=settings,
        gate=Gate(_entrance(options, port), readers, key_in(Home(settings.home).session_key)),
        connections=ConnectionLimit(most, shared=options.behind_proxy),
        readers=readers,
        feed=feed,
        remote=remote,
    )
    driver = _driver(site, options, notice) if options.drive else None
    alerts = AlertService(settings, Access(read=readers.call, write=site.write, notice=notice))
    await feed.open()
    runner, unheed = await _set_up(site)
    try:
        await web.SockSite(runner, listening, ssl_context=_tls(options), backlog=_BACKLOG).start()
        async with anyio.create_task_group() as group:
            group.start_soon(feed.serve)
            group.start_soon(alerts.serve)
            group.start_soon(lines.serve)
            if driver is not None:
                await group.start(driver.serve)
            yield _server(options, port, token, site)
            group.cancel_scope.cancel()
    finally:
        unheed()
        with anyio.CancelScope(shield=True):
            await feed.close()
            await runner.cleanup()
            remote.close()
            site.writers.shutdown(wait=True)
            site.waiters.shutdown(wait=True)
            readers.close()


def _driver(site: Site, options: Options, notice: Callable[[str], None]) -> RunDriver:
    driver = RunDriver.of(site.settings, site.readers, site.write, notice, runs=options.runs)
    site.run_supervisor, site.pool_supervisor = driver.runs, driver.pools
    return driver


async def _set_up(site: Site) -> tuple[web.AppRunner, Callable[[], None]]:
    """What answers requests, with its door; and what ends the watch over the door."""
    _log.addFilter(_is_ours)
    runner = web.AppRunner(
        application(site),
        access_log=None,
        logger=_log,
        handle_signals=False,
        shutdown_timeout=_SHUTDOWN_S,
        keepalive_timeout=75,
    )
    await runner.setup()
    assert runner.server is not None
    site.connections.guard(runner.server)
    return runner, site.connections.heed(asyncio.get_running_loop())


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether to log it: not requests that are not HTTP."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def _entrance(options: Options, port: int) -> Entrance:
    return Entrance(
        port=port,
        hosts=names_of(options.host, options.allow_hosts),
        any_port=options.behind_proxy,
        secure=options.tls_cert is not None or options.behind_proxy,
        open=not options.token,
    )


def _server(options: Options, port: int, token: str | None, site: Site) -> Server:
    shown = f"[{options.host}]" if ":" in options.host else options.host
    url = f"{'https' if options.tls_cert else 'http'}://{shown}:{port}/"
    return Server(url=url, address=f"{url}?token={token}" if token else url, site=site)


def _start_token(settings: Settings, port: int) -> str:
    """A token for the person who started the server. The former one of this port is worthless from now on; pages that are open by it
    outlive the restart."""
    with closing(open_store(settings.home)) as store:
        return tokens.restart(store, port)


def _listen(options: Options) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        listening = socket.create_server((options.host, options.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InputError(
            f"cannot listen at {options.host} port {options.port}: {error.strerror or error}; choose another with --port"
        ) from None
    listening.setblocking(False)
    return listening


def _tls(options: Options) -> ssl.SSLContext | None:
    if options.tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(options.tls_cert, options.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"--tls-cert {options.tls_cert}: cannot be used: {error}") from None
    return context
