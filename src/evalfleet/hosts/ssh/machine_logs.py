"""Logs of a machine that a login finds: those of cloud-init, the Docker daemon and its containers."""

from __future__ import annotations

import re
import shlex

import asyncssh

from evalfleet.core.failures.kinds import one_line
from evalfleet.errors import HostRefused, HostUnreachable, NotFound

CLOUD_INIT = "cloud-init"
DOCKER = "docker"
CONTAINER = "container/"  # and the container's name
_CONTAINER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MOST_LINES = 20_000

# Plain POSIX sh. Logs of the system need the rights of root, or of its groups.
_RIGHTS = "as=; sudo -n true 2>/dev/null && as='sudo -n'\n"
_JOURNAL = "$as journalctl --quiet --no-pager --output=short-iso --lines={lines} {units} 2>/dev/null"
_UNITS = {
    CLOUD_INIT: (
        "cloud-init-local",
        "cloud-init",
        "cloud-init-main",
        "cloud-init-network",
        "cloud-config",
        "cloud-final",
    ),
    DOCKER: ("docker", "containerd"),
}
_FILES = {CLOUD_INIT: "/var/log/cloud-init-output.log", DOCKER: "/var/log/docker.log"}  # where there is no journal


async def names(connection: asyncssh.SSHClientConnection) -> list[str]:
    """The logs that there are. Raises HostUnreachable, HostRefused."""
    tests = [
        f'if [ -n "$({_journal(log, 1)})" ] || [ -e {_FILES[log]} ]; then echo {log}; fi'
        for log in (CLOUD_INIT, DOCKER)
    ]
    containers = f"$as docker ps --all --format '{{{{.Names}}}}' 2>/dev/null | sed 's|^|{CONTAINER}|'"
    said = await _said(connection, "\n".join([*tests, containers, "exit 0"]))
    return said.split()


async def read(connection: asyncssh.SSHClientConnection, log: str, limit: int) -> str:
    """The last `limit` bytes of a log; empty where there is none of that name.

    Raises HostUnreachable; NotFound where there is no such container; HostRefused with what else the machine says.
    """
    if log in _UNITS:
        script = f'said=$({_journal(log, _MOST_LINES)})\n[ -n "$said" ] || said=$($as tail -c {limit} {_FILES[log]} 2>/dev/null)'
    elif log.startswith(CONTAINER) and _CONTAINER_NAME.fullmatch(name := log.removeprefix(CONTAINER)):
        script = (
            f"said=$($as docker logs --timestamps --tail {_MOST_LINES} {shlex.quote(name)} 2>&1) || "
            '{ printf "%s\\n" "$said" | tail -n 1 >&2; exit 1; }'
        )
    else:
        return ""
    return await _said(connection, f'{script}\n[ -z "$said" ] || printf "%s\\n" "$said" | tail -c {limit}')


def _journal(log: str, lines: int) -> str:
    return _JOURNAL.format(lines=lines, units=" ".join(f"--unit={unit}" for unit in _UNITS[log]))


async def _said(connection: asyncssh.SSHClientConnection, script: str) -> str:
    try:
        done = await connection.run("exec sh -s", input=_RIGHTS + script, errors="replace")
    except (asyncssh.Error, OSError) as error:
        raise HostUnreachable(f"the connection broke: {one_line(str(error))}") from error
    if done.exit_status is None:
        raise HostUnreachable("the connection to the host was lost")
    if done.exit_status != 0:
        said = one_line(str(done.stderr or "")) or f"exit status {done.exit_status}"
        raise NotFound(said) if "No such container" in said else HostRefused(said)
    return str(done.stdout or "")
