"""The installation of Docker on a Debian-like machine, if this user may install it."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Callable

from evalfleet.errors import EnvironmentFailed

PACKAGE = "docker.io"
INSTALL_S = 600.0
_SOCKET = "/var/run/docker.sock"


def as_root() -> list[str] | None:
    """The words before a command that only root may run; None where this user cannot be root."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo is None:
        return None
    done = subprocess.run([sudo, "-n", "true"], capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=20)
    return [sudo, "-n"] if done.returncode == 0 else None


def install_docker(say: Callable[[str], None]) -> None:
    """Install Docker by apt, and let this user use it. Raises EnvironmentFailed."""
    root = as_root()
    if root is None:
        raise EnvironmentFailed("this user is not root and cannot use sudo without a password")
    apt = shutil.which("apt-get")
    if apt is None:
        raise EnvironmentFailed("there is no apt-get here")
    say(f"installs {PACKAGE} with apt-get")
    quiet = [*root, "env", "DEBIAN_FRONTEND=noninteractive", apt, "-q"]
    _run([*quiet, "update"])
    _run([*quiet, "install", "-y", "--no-install-recommends", PACKAGE, *([] if not root else ["acl"])])
    if root:
        user = getpass.getuser()
        _run([*root, "usermod", "-aG", "docker", user])
        # The group counts from the next login on; what is logged in already gets the right to the socket itself.
        _run([*root, "setfacl", "-m", f"user:{user}:rw", _SOCKET])


def _run(command: list[str]) -> None:
    shown = " ".join(command)
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=INSTALL_S,
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentFailed(f"{shown} did not end within {INSTALL_S:g} s") from None
    except OSError as error:
        raise EnvironmentFailed(f"{shown}: {error.strerror}") from None
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise EnvironmentFailed(f"{shown} failed: {' | '.join(lines[-3:]) or f'exit status {done.returncode}'}")
