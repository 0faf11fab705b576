"""Installs what a run's tasks need on a host over SSH: a virtual environment with evalfleet's packages, and a ready machine.

The environment is named by its content, so all runs on a host share it, and a new evalfleet gets a new one. evalfleet's own
packages are copied from this machine; their dependencies come from the host's package index, in the versions installed here, or
from a folder of wheels.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import asyncssh
from msgspec import Struct

from evalfleet import config
from evalfleet.core.readiness import HostEvent, Notice, Pull, PullEvents, ReadinessCheck, Update
from evalfleet.errors import ConfigError, HostRefused, HostUnreachable, InputError
from evalfleet.hosts.ssh.channel import NO_PYTHON, PYTHONS, Process, program_text, start_process, waiting_python
from evalfleet.hosts.ssh.connection import words_of
from evalfleet.hosts.ssh.login.hosts_file import DEFAULT_FOLDER, SshHostSpec
from evalfleet.hosts.wheels import Wheel, extras_of, pins_of, plain_name, wheel_of
from evalfleet.model import JsonObject, Tools
from evalfleet.runner.bootstrap import MARK

LEAST_PYTHON = 11
INSTALL_S = 15 * 60.0
CHECKS_S = (
    4 * 3600.0
)  # enough for three pulls of an hour. Each check has its own deadline; this is for a program that ignores them
AGAIN_S = 60.0  # a host that refused the tools or is not ready is not asked again before
UNUSED_S = 14 * 86400.0
MOST_WHEELS = 1 << 30
_REMOTE = Path(__file__).with_name("remote_tools.py")
_PROGRAM = "evalfleet.benchmarks.readiness"

Say = Callable[[Update], None]
Tell = Callable[[ReadinessCheck], None]


class ToolsPackage(Struct, frozen=True, kw_only=True):
    """Everything that is copied to a host, packed once for all hosts."""

    key: str  # of the environment that it makes
    wheels: tuple[Wheel, ...]
    orders: JsonObject


class InstalledTools(Struct, frozen=True, kw_only=True):
    """The environment of a run on a host."""

    python: str
    fresh: bool  # it was made now


def package_of(tools: Tools, wheels: Path | None = None) -> ToolsPackage:
    """Pack what the tools need. Reads files from disk.

    Args:
        tools: of the run.
        wheels: a folder of wheels; if given, no package index is used.

    Raises ConfigError where a package to copy is not installed here; InputError where the folder has no wheels.
    """
    ours = [(wheel_of(plain_name(each)), extras_of(each)) for each in tools.shipped]
    packages = {plain_name(each) for each in tools.shipped}
    pins = {name: version for name, version in pins_of(tools.shipped).items() if name not in packages}
    pinned = "".join(f"{name}=={version}\n" for name, version in pins.items())
    install = [(wheel.name, f"[{','.join(extras)}]" if extras else "") for wheel, extras in ours]
    made_of = {"ours": [(wheel.digest, extras) for wheel, extras in ours], "bare": tools.bare, "pins": pinned}
    key = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]
    brought = (*(wheel for wheel, _ in ours), *(_wheels_in(wheels) if wheels is not None else ()))
    orders: JsonObject = {
        "key": key,
        "install": install,
        "bare": list(tools.bare),
        "pins": pinned,
        "titles": ["-".join(wheel.name.split("-", 2)[:2]).replace("-", " ") for wheel, _ in ours] + list(tools.bare),
        "no_index": wheels is not None,
        "wheels": [(wheel.name, hashlib.sha256(wheel.data).hexdigest(), len(wheel.data)) for wheel in brought],
        "limit_s": INSTALL_S,
        "unused_s": UNUSED_S,
    }
    return ToolsPackage(key=key, wheels=brought, orders=orders)


def _wheels_in(folder: Path) -> list[Wheel]:
    try:
        files = sorted(folder.glob("*.whl"))
        if sum(file.stat().st_size for file in files) > MOST_WHEELS:
            raise InputError(
                f"--wheels {folder}: more than {MOST_WHEELS >> 30} GiB; keep only the wheels that are needed."
            )
        found = [Wheel(name=file.name, data=file.read_bytes(), digest="") for file in files]
    except OSError as error:
        raise InputError(f"--wheels {folder}: {error.strerror}.") from None
    if not found:
        raise InputError(
            f"--wheels {folder}: it has no wheels; create some with: pip download -d {folder} evalfleet, for the hosts' Python."
        )
    return found


async def install(
    connection: asyncssh.SSHClientConnection, spec: SshHostSpec, package: ToolsPackage, say: Say
) -> InstalledTools:
    """Create the environment on the host, or find the existing one.

    Raises:
        HostRefused: it cannot be created; says why and what to do.
        HostUnreachable: the connection broke, or the host took too long.
    """
    folder = "~/.evalfleet/tools" if spec.folder == DEFAULT_FOLDER else f"{spec.folder}-tools"
    pythons = (spec.python,) if spec.python else PYTHONS
    process = await waiting_python(connection, pythons, least=LEAST_PYTHON)
    try:
        with anyio.fail_after(INSTALL_S + 120.0):
            await _send(process, program_text(_REMOTE.read_bytes(), {**package.orders, "folder": folder}))
            async for line in _lines(process):
                match line:
                    case {"tell": str(text)}:
                        say(text)
                    case {"send": True}:
                        for wheel in package.wheels:
                            await _send(process, wheel.data)
                    case {"python": str(python), "fresh": bool(fresh)}:
                        return InstalledTools(python=python, fresh=fresh)
                    case {"error": str(text), **rest}:
                        advice = _advice(package) if rest.get("step") == "pip" else ""
                        raise HostRefused(f"cannot install the tools there{advice}: {text}")
                    case _:
                        raise HostRefused(f"unexpected answer from the installer: {json.dumps(line)[:200]}")
            raise await _no_word(process)
    except TimeoutError:
        raise HostUnreachable(f"the tools could not be installed within {INSTALL_S / 60:.0f} minutes") from None
    finally:
        process.close()


def _advice(package: ToolsPackage) -> str:
    if package.orders["no_index"]:
        return " (the folder of --wheels must contain every package, for the host's Python and processor)"
    return " (if the host cannot reach a package index, copy the packages: evalfleet prepare BENCHMARK --pool NAME --wheels DIR)"


async def run_checks(
    connection: asyncssh.SSHClientConnection,
    python: str,
    tools: Tools,
    tell: Tell,
    say: Say,
    restarted: Collection[str] | None = None,
) -> list[ReadinessCheck]:
    """Run the benchmark's readiness checks on the host, and start what is not running there.

    Args:
        connection: to the host.
        python: of its tools.
        tools: of the run.
        tell: called with each readiness check as it runs.
        say: called with progress inside a check.
        restarted: if not None, only a quick recheck that restarts what is dead, except for these.

    Raises HostRefused and HostUnreachable if no answer arrives.
    """
    orders = {
        "benchmark": tools.benchmark,
        "settings": tools.settings,
        "secrets": config.set_secrets(tools.secrets),
        "restarted": None if restarted is None else list(restarted),
    }
    checks: list[ReadinessCheck] = []
    process = await start_process(connection, f"exec {shlex.join([python, '-I', '-m', _PROGRAM])}")
    try:
        with anyio.fail_after(CHECKS_S):
            await _send(process, json.dumps(orders).encode() + b"\n")
            async for line in _lines(process):
                match line:
                    case {"tell": str(text)}:
                        say(text)
                    case {"pull": row}:
                        say(Pull.of_row(row))
                    case {"check": row}:
                        checks.append(ReadinessCheck.of_row(row))
                        tell(checks[-1])
                    case {"error": str(text)}:
                        raise HostRefused(text)
                    case {"done": True}:
                        return checks
                    case _:
                        raise HostRefused(f"unexpected answer from the readiness program: {json.dumps(line)[:200]}")
            raise await _no_word(process)
    except TimeoutError:
        raise HostUnreachable(f"the host was not ready within {CHECKS_S / 3600:.0f} hours") from None
    finally:
        process.close()


async def prepare_host(
    connection: asyncssh.SSHClientConnection,
    spec: SshHostSpec,
    tools: Tools,
    tell: Tell,
    say: Say,
    package: ToolsPackage | None = None,
) -> list[ReadinessCheck]:
    """Bring the tools to a host and run the checks of its benchmark there; ends with the first check that does not hold.

    Args:
        connection: to the host.
        spec: of the host.
        tools: of a run, or of a benchmark (`benchmarks.equipment.tools_of`).
        tell: called with each readiness check as it runs.
        say: called with progress inside a check.
        package: the packed tools, if they are packed already.

    Raises:
        HostUnreachable: the connection broke. Everything that the host itself refuses is a check.
        ConfigError: a package to copy is not installed here.
    """
    packed = package or await anyio.to_thread.run_sync(package_of, tools)
    begun = time.monotonic()
    try:
        there = await install(connection, spec, packed, say)
    except HostRefused as error:
        check = ReadinessCheck(
            name="tools", holds=False, seen=str(error), remedy="then prepare again", took_s=_since(begun)
        )
        tell(check)
        return [check]
    seen = f"{', '.join(packed.orders['titles'])} ({'installed' if there.fresh else 'found'})"
    check = ReadinessCheck(name="tools", holds=True, seen=seen, took_s=_since(begun))
    tell(check)
    if tools.benchmark is None:
        return [check]
    try:
        return [check, *await run_checks(connection, there.python, tools, tell, say)]
    except HostRefused as error:
        last = ReadinessCheck(
            name="ready", holds=False, seen=str(error), remedy="then prepare again", took_s=_since(begun)
        )
        tell(last)
        return [check, last]


class HostTools:
    """The tools of one run on one host, installed on first use."""

    def __init__(self, spec: SshHostSpec, tools: Tools, notice: Notice) -> None:
        self._spec = spec
        self._tools = tools
        self._notice = notice
        self._pulls = PullEvents(spec.name)
        self._is_proved = False
        self._refusal: HostRefused | None = None
        self._refused_until = 0.0

    async def prepare(self, connection: asyncssh.SSHClientConnection, *, busy: bool) -> str:
        """Make the host ready for the tasks, and return the path of their Python.

        A host's readiness is checked once, its tools at every connection: it may have been reinstalled. A host that is `busy` with
        tasks of the run was ready when they began, and nothing is started or restarted while they run: they soon show whether
        it still is.

        Raises HostRefused if it is not ready, and HostUnreachable.
        """
        if self._refusal is not None and anyio.current_time() < self._refused_until:
            raise self._refusal
        try:
            try:
                package = await anyio.to_thread.run_sync(package_of, self._tools)
            except ConfigError as error:
                raise HostRefused(str(error)) from error
            there = await install(connection, self._spec, package, self._say)
            if self._tools.benchmark is not None and not busy and (there.fresh or not self._is_proved):
                check = first_failed(await run_checks(connection, there.python, self._tools, self._tried, self._say))
                if check is not None:
                    raise HostRefused(f"is not ready for {self._tools.benchmark}: {check.said()}")
        except HostRefused as error:
            self._report(self._pulls.end(str(error)))
            if str(error) != str(self._refusal):  # it is retried; one report is enough
                self._say(f"gets no work: {error}")
            self._refusal, self._refused_until = error, anyio.current_time() + AGAIN_S
            raise
        if there.fresh:
            self._say("has installed the tools of the run")
        self._report(self._pulls.end(None))  # a host that gets work has its image
        self._is_proved = self._is_proved or not busy
        return there.python

    def _say(self, update: Update) -> None:
        self._notice(f"host {self._spec.name}: {update}")
        if isinstance(update, Pull):
            self._report(self._pulls.update(update))

    def _tried(self, check: ReadinessCheck) -> None:
        self._report(self._pulls.end(None if check.holds else check.seen))

    def _report(self, event: HostEvent | None) -> None:
        if event is not None:
            self._notice(event)


async def recheck_host(
    connection: asyncssh.SSHClientConnection, spec: SshHostSpec, tools: Tools, restarted: Collection[str]
) -> list[ReadinessCheck]:
    """Check whether a prepared host is still ready; see `benchmarks.base.Prepares.recheck`.

    Raises HostRefused and HostUnreachable if no answer arrives.
    """
    package = await anyio.to_thread.run_sync(package_of, tools)
    there = await install(connection, spec, package, lambda _: None)
    return await run_checks(connection, there.python, tools, lambda _: None, lambda _: None, restarted)


def first_failed(checks: Sequence[ReadinessCheck]) -> ReadinessCheck | None:
    """The first check that does not hold."""
    return next((check for check in checks if not check.holds), None)


def _since(begun: float) -> float:
    return round(time.monotonic() - begun, 3)


async def _send(process: Process, data: bytes) -> None:
    try:
        process.stdin.write(data)
        await process.stdin.drain()
    except (asyncssh.Error, OSError) as error:
        raise HostUnreachable(f"the connection broke: {words_of(error)}") from error


async def _lines(process: Process) -> AsyncIterator[dict[str, Any]]:
    """The marked lines of the host's output."""
    while True:
        try:
            line = await process.stdout.readline()
        except (asyncssh.Error, OSError) as error:
            raise HostUnreachable(f"the connection broke: {words_of(error)}") from error
        if not line:
            return
        if line.startswith(MARK.encode()):
            with suppress(ValueError):
                yield json.loads(line[len(MARK) :])


async def _no_word(process: Process) -> HostRefused | HostUnreachable:
    """Why a program on the host ended without a final answer."""
    said = ""
    with anyio.move_on_after(10.0), suppress(asyncssh.Error, OSError):
        said = (await process.stderr.read(1 << 16)).decode(errors="replace").strip()
        await process.wait_closed()
    if process.exit_status is None:
        return HostUnreachable("the connection to the host was lost")
    if process.exit_status == NO_PYTHON:
        found = f" (found: {', '.join(said.splitlines())})" if said else ""
        return HostRefused(
            f"the host has no Python 3.{LEAST_PYTHON} or newer, which the tasks of a benchmark need{found}; install one there (apt-get "
            f'install -y python3 python3-venv), or set python = "…" in the hosts file'
        )
    last = (said.splitlines() or ["no output"])[-1]
    return HostRefused(f"the program there ended with exit status {process.exit_status}: {last}")
