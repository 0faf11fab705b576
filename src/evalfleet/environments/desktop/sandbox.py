"""A bubblewrap sandbox for a desktop: which files it sees, and whether the machine allows one.

Inside there is the system's software, read-only, and nothing else of the machine: no other processes, no network, no
files of the user. Home and temporary files lie in memory and are gone with the last process; all processes are gone with
the first. The user is never root, because some applications warn of root.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from evalfleet.errors import EnvironmentFailed

HOME = "/home/user"
PLACE = "/run/evalfleet"
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/games"
_UID = "1000"
_TRIAL_S = 30.0
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")
_CONFIGURATION = (
    *("X11", "alternatives", "ca-certificates", "dbus-1", "default", "fonts", "glvnd", "gtk-2.0", "gtk-3.0", "gtk-4.0"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "libreoffice", "localtime", "locale.alias", "magic", "mime.types"),
    *("nsswitch.conf", "pcmanfm", "profile", "bash.bashrc", "ssl", "terminfo", "timezone", "xdg"),
)
_STATE = ("/var/cache/fontconfig", "/var/lib/xkb", "/var/lib/libreoffice", "/var/spool/libreoffice")
_FILES = {
    "/etc/passwd": f"user:x:{_UID}:{_UID}:user:{HOME}:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "/etc/group": f"user:x:{_UID}:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost desktop\n",
    "/etc/machine-id": "0123456789abcdef0123456789abcdef\n",
}


class Mode(StrEnum):
    """How a desktop is kept apart from its machine."""

    AUTO = "auto"  # sandboxed if the machine allows it
    BWRAP = "bwrap"
    PLAIN = "plain"  # private folders only


def arguments(bwrap: str, descriptors: list[int], visible: Sequence[str] = ()) -> list[str]:
    """Return the start of a command line; the command to be run inside follows.

    Args:
        descriptors: gets those that must be passed on to the process, and closed afterwards.
        visible: more files and folders that are seen inside, read-only.
    """
    argv = [bwrap, "--die-with-parent", "--unshare-all", "--uid", _UID, "--gid", _UID, "--hostname", "desktop"]
    for path in _SYSTEM:
        if os.path.islink(path):
            argv += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            argv += ["--ro-bind", path, path]
    for path in (*(f"/etc/{name}" for name in _CONFIGURATION), *_STATE):
        argv += ["--ro-bind-try", path, path]
    for path, text in _FILES.items():
        descriptors.append(_holding(text))
        argv += ["--file", str(descriptors[-1]), path]
    argv += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp", "--dir", HOME, "--dir", PLACE]
    for path in visible:
        argv += ["--ro-bind", path, path]
    return [*argv, "--chdir", HOME, "--"]


def interpreter() -> tuple[str, list[str]]:
    """Return the Python that runs inside, and what must be visible for that."""
    found = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    prefixes = {os.path.realpath(path) for path in (sys.base_prefix, sys.base_exec_prefix)}
    return found, sorted(path for path in prefixes if not Path(path).is_relative_to("/usr"))


@functools.cache
def refusal() -> str:
    """Return why this machine allows no sandbox; empty if it does. Tries to make one, once."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "bwrap is not installed"
    descriptors: list[int] = []
    try:
        argv = [*arguments(bwrap, descriptors), "/usr/bin/env", "true"]
        done = subprocess.run(argv, pass_fds=descriptors, capture_output=True, text=True, timeout=_TRIAL_S, check=False)
    except subprocess.TimeoutExpired:
        raise EnvironmentFailed(f"{bwrap} did not make a sandbox within {_TRIAL_S:g} s") from None
    finally:
        for fd in descriptors:
            os.close(fd)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"bwrap ended with status {done.returncode}"])[-1]


def chosen(mode: Mode) -> str | None:
    """Return the path of bwrap, or None for a plain desktop.

    Raises:
        EnvironmentFailed: a sandbox is wanted, and the machine allows none.
    """
    if mode is Mode.PLAIN:
        return None
    why_not = refusal()
    if why_not and mode is Mode.BWRAP:
        raise EnvironmentFailed(f"this machine does not allow a sandbox: {why_not}")
    return None if why_not else shutil.which("bwrap")


def _holding(text: str) -> int:
    """Return a descriptor from which that text is read."""
    fd = os.memfd_create("evalfleet")
    os.write(fd, text.encode())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
