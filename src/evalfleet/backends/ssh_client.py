"""The system's own `ssh` for a host of a pool: a terminal as people know it, with our rules about keys.

It gets a configuration of its own, so that nothing but the pool says where the host is, which key opens it and which key it
must show. What `ssh` itself has to say goes to a file beside it: what comes on standard error is the host's alone.
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

from evalfleet.backends.reaching import Reachable
from evalfleet.backends.ssh_hostsfile import Login
from evalfleet.layout import Home

LOST = 255  # what ssh exits with when it has no exit status of a command to pass on
UNVERIFIED = "Host key verification failed."
_HOST, _JUMP = "evalfleet-host", "evalfleet-jump"
_SHARED = """\
  StrictHostKeyChecking yes
  UpdateHostKeys no
  PreferredAuthentications publickey
  ServerAliveInterval 15
  ServerAliveCountMax 3
  LogLevel ERROR
"""


def program() -> str | None:
    """Where `ssh` is installed."""
    return shutil.which("ssh")


def configuration(host: Reachable, own: Path, learned: Path) -> str:
    """The text for `ssh -F`.

    Args:
        own: a known_hosts file with the key that the host must show; read only where the pool names one.
        learned: the known_hosts file of the home.
    """
    known = [learned, *(path.expanduser() for path in host.known_hosts)]
    text = _entry(_HOST, host.spec.login, host, [own] if host.spec.host_key else known)
    if host.spec.jump is not None:
        text += f"  ProxyJump {_JUMP}\n" + _entry(_JUMP, host.spec.jump, host, known)
    return text


def known_line(login: Login, key: str) -> str:
    """A line of a known_hosts file."""
    marker = login.address if login.port == 22 else f"[{login.address}]:{login.port}"
    return f"{marker} {key}\n"


def _entry(name: str, login: Login, host: Reachable, known: Sequence[Path]) -> str:
    text = f"Host {name}\n  HostName {_quoted(login.address)}\n  Port {login.port}\n"
    if login.user is not None:
        text += f"  User {_quoted(login.user)}\n"
    if host.spec.key is not None:
        text += f"  IdentityFile {_quoted(str(host.spec.key))}\n  IdentitiesOnly yes\n"
    files = " ".join(_quoted(str(path)) for path in known)
    text += f"  UserKnownHostsFile {files}\n  GlobalKnownHostsFile none\n"
    return text + f"  ConnectTimeout {max(1, round(host.spec.connect_s))}\n" + _SHARED


def _quoted(text: str) -> str:
    """As a word of the configuration, in which % begins a code."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def run(program: str, host: Reachable, home: Home, command: str | None, *, terminal: bool) -> tuple[int, str]:
    """Let `ssh` have standard input, output and error until it ends.

    Args:
        command: for the login shell there; None: a shell to type in.
        terminal: ask for a terminal there also for a command.

    Returns:
        Its exit status, and its own last word about a connection that failed.
    """
    with tempfile.TemporaryDirectory(prefix="evalfleet-ssh-") as made:
        folder = Path(made)
        own, log = folder / "known_hosts", folder / "log"
        if host.spec.host_key is not None:
            own.write_text(known_line(host.spec.login, host.spec.host_key), "utf-8")
        (folder / "config").write_text(configuration(host, own, home.known_hosts), "utf-8")
        words = [program, "-F", str(folder / "config"), "-E", str(log), *(["-t"] if terminal else []), _HOST]
        if command is not None:
            words += ["--", command]
        status = _wait(words)
        with suppress(OSError):
            said = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
            return status, said[-1] if said else ""
    return status, ""


def _wait(words: Sequence[str]) -> int:
    """Run a program in our terminal. What the terminal sends goes to both of us, and only the program heeds it."""
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if child is not None:
            child.send_signal(number)

    with _handled({signal.SIGINT: _ignore, signal.SIGQUIT: _ignore, signal.SIGTERM: pass_on, signal.SIGHUP: pass_on}):
        child = subprocess.Popen(words)
        status = child.wait()
    return status if status >= 0 else 128 - status  # as a shell tells of a signal


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """A handler, and not SIG_IGN, because the program would inherit that."""


@contextmanager
def _handled(handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]]) -> Generator[None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
