"""The route to a host: from the hosts file, completed by the user's OpenSSH configuration.

`ssh -G` reads that configuration, so `Include`, `Match exec` and all other directives work as they do for ssh.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
from msgspec import Struct
from msgspec.structs import replace

from evalfleet.errors import HostRefused
from evalfleet.hosts.ssh.login.hosts_file import Login, SshHostSpec

ANSWER_S = 30.0  # `Match exec` may run a program
MOST_HOPS = 8
_JUMP = re.compile(r"(?:ssh://)?(?:(?P<user>[^@\s]+)@)?(?P<host>\[[^\]\s]+\]|[^@\s:\[\]]+)(?::(?P<port>\d{1,5}))?/?")
_TOKEN = re.compile(r"%(.)")


class Hop(Struct, frozen=True, kw_only=True):
    """One machine on the route, with everything needed to log in there."""

    login: Login
    key: Path | None = None  # the one that the hosts file names: nothing else counts beside it
    identities: tuple[Path, ...] | None = None  # keys to try besides the agent's; None: the user's default ones
    identities_only: bool = False  # of the agent's keys only those that stand in `identities`
    agent: str = ""  # its socket; empty: the one of the environment
    asks_agent: bool = True
    known_hosts: tuple[Path, ...] | None = None  # None: the usual files
    known_as: Login | None = None  # in known_hosts files; None: by `login`
    command: str | None = None  # what brings us to its port, in the place of a connection


async def route(spec: SshHostSpec, file: Path | None = None) -> list[Hop]:
    """The machines on the route, in order; the last one is the host itself.

    Args:
        file: configuration file to use in place of ssh's own.

    Raises HostRefused where the configuration cannot be read, or its jump hosts form a loop.
    """
    ssh = _program(file) if spec.ssh_config else None
    if ssh is None:
        jump = [] if spec.jump is None else [Hop(login=spec.jump, key=spec.key)]
        return [*jump, Hop(login=spec.login, key=spec.key, command=spec.proxy)]
    if spec.jump is None:
        return await _way(ssh, spec.login, spec.key, 1)
    said = await _ask(ssh, spec.login)
    return [*await _way(ssh, spec.jump, spec.key, 1), replace(_hop(spec.login, spec.key, said), command=None)]


async def _way(ssh: Sequence[str], login: Login, key: Path | None, depth: int) -> list[Hop]:
    if depth > MOST_HOPS:
        raise HostRefused(
            f"{login}: the ssh configuration leads through more than {MOST_HOPS} hosts; check its ProxyJump"
        )
    said = await _ask(ssh, login)
    hop = _hop(login, key, said)
    jumps = _jumps(login, said.get("proxyjump", [""])[0])
    if not jumps:
        return [hop]
    way = await _way(ssh, jumps[0], None, depth + 1)
    for each in jumps[1:]:  # reached through the one before it, even if the configuration names another jump host
        way.append(replace(_hop(each, None, await _ask(ssh, each)), command=None))
    return [*way, replace(hop, command=None)]


def _jumps(login: Login, text: str) -> list[Login]:
    if text.lower() in ("", "none"):
        return []
    jumps: list[Login] = []
    for part in text.split(","):
        match = _JUMP.fullmatch(part.strip())
        if match is None:
            raise HostRefused(f"{login}: ProxyJump {part!r} in the ssh configuration is not understood")
        port = None if match["port"] is None else int(match["port"])
        jumps.append(Login(address=match["host"].strip("[]"), port=port, user=match["user"]))
    # As ssh does: `Host *` with a ProxyJump speaks of the jump host, too.
    return [] if jumps[0].address == login.address else jumps


def _hop(login: Login, key: Path | None, said: Mapping[str, list[str]]) -> Hop:
    there = Login(
        address=said["hostname"][0], port=login.port or int(said["port"][0]), user=login.user or said["user"][0]
    )
    tokens = {"%": "%", "h": there.address, "n": login.address, "p": str(there.port), "r": there.user or ""}
    tokens |= {"d": str(Path.home()), "u": _account("pw_name"), "i": str(os.getuid())}
    agent = said.get("identityagent", ["SSH_AUTH_SOCK"])[0]
    alias = said.get("hostkeyalias", [""])[0]
    command = said.get("proxycommand", ["none"])[0]
    return Hop(
        login=there,
        key=key,
        identities=tuple(Path(_expanded(each, tokens)).expanduser() for each in said.get("identityfile", ())),
        identities_only=said.get("identitiesonly", ["no"])[0] == "yes",
        agent="" if agent in ("SSH_AUTH_SOCK", "none") else str(Path(_expanded(agent, tokens)).expanduser()),
        asks_agent=agent != "none",
        known_hosts=_files(said, "userknownhostsfile") + _files(said, "globalknownhostsfile"),
        known_as=Login(address=alias) if alias else None,
        command=None if command == "none" else _expanded(command, tokens),
    )


def _expanded(text: str, tokens: Mapping[str, str]) -> str:
    return _TOKEN.sub(lambda match: tokens.get(match[1], match[0]), text)


def _account(field: str) -> str:
    """This user's entry in the user database; None if there is none, as in many containers."""
    try:
        return getattr(pwd.getpwuid(os.getuid()), field)
    except KeyError:
        return ""


def _files(said: Mapping[str, list[str]], name: str) -> tuple[Path, ...]:
    words = said.get(name, [""])[0].split()
    return () if words == ["none"] else tuple(Path(word) for word in words)


def _program(file: Path | None) -> list[str] | None:
    """The `ssh -G` command without the host; None if there is no configuration to read."""
    home = Path.home()
    own = home / ".ssh" / "config"
    ssh = shutil.which("ssh")
    if ssh is None:
        if file is None and not own.exists():
            return None
        raise HostRefused(
            f"{file or own} exists, but there is no ssh program to read it; install the OpenSSH client, or "
            "set ssh_config = false in the hosts file"
        )
    if file is None and str(home) != _account("pw_dir"):
        file = own if own.exists() else Path("/dev/null")  # ssh would look at the home of the user database
    chosen = [] if file is None else ["-F", str(file)]
    return [ssh, "-G", "-T", "-o", "IgnoreUnknown=*", *chosen]


async def _ask(ssh: Sequence[str], login: Login) -> dict[str, list[str]]:
    """The settings that ssh would use for a host: lower-case name -> values."""
    user = [] if login.user is None else ["-l", login.user]
    port = [] if login.port is None else ["-p", str(login.port)]
    try:
        with anyio.fail_after(ANSWER_S):
            done = await anyio.run_process([*ssh, *user, *port, "--", login.address], check=False)
    except TimeoutError as error:
        raise HostRefused(
            f"{login}: `ssh -G` did not answer within {ANSWER_S:.0f} s; run it by hand to see why"
        ) from error
    except OSError as error:
        raise HostRefused(f"{login}: cannot run `ssh -G`: {error.strerror}") from error
    said: dict[str, list[str]] = {}
    for line in done.stdout.decode(errors="replace").splitlines():
        name, _, value = line.partition(" ")
        said.setdefault(name, []).append(value)
    if done.returncode != 0 or not {"hostname", "port", "user"} <= said.keys():
        why = (done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"])[0]
        raise HostRefused(
            f"{login}: the ssh configuration cannot be used: {why}; fix it, or set ssh_config = false in the hosts file"
        )
    return said
