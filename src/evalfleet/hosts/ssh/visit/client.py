"""Runs the system's `ssh` for a host of a pool: the familiar terminal, with evalfleet's rules for host keys.

`ssh` gets a generated configuration with the same hops as every other connection to the host, so address, user key and host key
are always the same. Messages of `ssh` itself go to a separate file: standard error carries only the host's output.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from evalfleet.hosts.access import ReachableHost
from evalfleet.hosts.ssh.login.config import Hop
from evalfleet.layout import Home

LOST = 255  # what ssh exits with when it has no exit status of a command to pass on
UNVERIFIED = "Host key verification failed."
_SHARED = """\
  StrictHostKeyChecking yes
  UpdateHostKeys no
  PreferredAuthentications publickey
  ServerAliveInterval 15
  ServerAliveCountMax 3
"""


def program() -> str | None:
    """Where `ssh` is installed."""
    return shutil.which("ssh")


def configuration(host: ReachableHost, hops: Sequence[Hop], own: Path, learned: Path) -> str:
    """The text for `ssh -F`; the host itself is the last of the names in it.

    Args:
        hops: every machine on the route; the last one is the host.
        own: a known_hosts file with the host's key; read only if the pool names one.
        learned: the known_hosts file of the home.
    """
    text = ""
    for number, hop in enumerate(hops):
        is_last = number == len(hops) - 1
        known = [own] if is_last and host.spec.host_key else [learned, *_others(host, hop)]
        text += f"Host {_name(number)}\n" + _place(hop) + _identity(hop)
        text += f"  UserKnownHostsFile {' '.join(_quoted(str(path)) for path in known)}\n  GlobalKnownHostsFile none\n"
        text += f"  ProxyJump {_name(number - 1)}\n" if number else ""
        text += f"  ConnectTimeout {max(1, round(host.spec.connect_s))}\n" + _SHARED
        text += f"  LogLevel {'ERROR' if is_last else 'QUIET'}\n"  # only the last one writes to our file
    return text


def known_line(hop: Hop, key: str) -> str:
    """A line of a known_hosts file."""
    login = hop.known_as or hop.login
    marker = login.address if login.port in (None, 22) else f"[{login.address}]:{login.port}"
    return f"{marker} {key}\n"


def _name(number: int) -> str:
    return f"evalfleet-{number}"


def _others(host: ReachableHost, hop: Hop) -> list[Path]:
    return [path.expanduser() for path in (host.known_hosts if hop.known_hosts is None else hop.known_hosts)]


def _place(hop: Hop) -> str:
    text = f"  HostName {_quoted(hop.login.address)}\n  Port {hop.login.port or 22}\n"
    if hop.login.user is not None:
        text += f"  User {_quoted(hop.login.user)}\n"
    if hop.known_as is not None:
        text += f"  HostKeyAlias {_quoted(hop.known_as.address)}\n"
    if hop.command is not None:
        text += f"  ProxyCommand {hop.command.replace('%', '%%')}\n"
    return text


def _identity(hop: Hop) -> str:
    files = (hop.key,) if hop.key is not None else hop.identities or ()
    text = "".join(f"  IdentityFile {_quoted(str(path))}\n" for path in files)
    if hop.key is not None or hop.identities_only:
        text += "  IdentitiesOnly yes\n"
    if not hop.asks_agent:
        text += "  IdentityAgent none\n"
    elif hop.agent:
        text += f"  IdentityAgent {_quoted(hop.agent)}\n"
    return text


def _quoted(text: str) -> str:
    """Quote a word of the configuration, in which % starts a token."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def run(
    program: str, host: ReachableHost, hops: Sequence[Hop], home: Home, command: str | None, *, terminal: bool
) -> tuple[int, str]:
    """Run `ssh` with our standard input, output and error until it ends.

    Args:
        hops: the route to the host.
        command: for the login shell there; None for an interactive shell.
        terminal: request a terminal for a command, too.

    Returns:
        Its exit status, and its last message about a failed connection.
    """
    with tempfile.TemporaryDirectory(prefix="evalfleet-ssh-") as made:
        folder = Path(made)
        own, log = folder / "known_hosts", folder / "log"
        if host.spec.host_key is not None:
            own.write_text(known_line(hops[-1], host.spec.host_key), "utf-8")
        (folder / "config").write_text(configuration(host, hops, own, home.known_hosts), "utf-8")
        words = [
            program,
            "-F",
            str(folder / "config"),
            "-E",
            str(log),
            *(["-t"] if terminal else []),
            _name(len(hops) - 1),
        ]
        if command is not None:
            words += ["--", command]
        status = _wait(words)
        with suppress(OSError):
            said = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
            return status, said[-1] if said else ""
    return status, ""


def _wait(words: Sequence[str]) -> int:
    """Run a program in our terminal. Both get the terminal's signals; only the program reacts to them."""
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if child is not None:
            child.send_signal(number)

    with _handled({signal.SIGINT: _ignore, signal.SIGQUIT: _ignore, signal.SIGTERM: pass_on, signal.SIGHUP: pass_on}):
        child = subprocess.Popen(words)
        status = child.wait()
    return status if status >= 0 else 128 - status  # as a shell tells of a signal


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """A handler and not SIG_IGN, which the program would inherit."""


@contextmanager
def _handled(handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]]) -> Generator[None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
