"""What a host makes of a golden image once, for all attempts on it: a token, an empty overlay and a copy of the running machine.

It lies in a folder that is keyed by the image and the configuration. Everything is made in a new folder and renamed, under a
lock, so two runs prepare once, and a preparation that is killed leaves nothing that is used. Attempts hold the lock shared.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from evalfleet.environments.vm.golden import GoldenImage, identity
from evalfleet.environments.vm.machine import Machine, Memory
from evalfleet.environments.vm.readiness import wait_for_agent
from evalfleet.environments.vm.settings import Reset
from evalfleet.errors import VmError

KEPT = ".kept"  # beside the folder: guests that go on from one attempt to the next
_SAVE_S = 300.0
_CREATE_S = 60.0
_LOCK_AGAIN_S = 0.05
_UNUSED_S = 7 * 86400.0  # after which a configuration that is no longer used is forgotten


class GuestFiles(Struct, frozen=True, kw_only=True):
    """The files of a guest in a folder: its disk over the golden one, its memory, and the state of its devices."""

    folder: Path

    @property
    def disk(self) -> Path:
        return self.folder / "disk.qcow2"

    @property
    def memory(self) -> Path:
        return self.folder / "memory"

    @property
    def state(self) -> Path:
        return self.folder / "state"


class Prepared(GuestFiles, frozen=True, kw_only=True):
    """What was made once of an image and a configuration; the guest is the running machine that clones begin with."""

    golden: GoldenImage

    @property
    def token(self) -> Path:
        return self.folder / "token"

    @property
    def empty(self) -> Path:
        """An overlay with nothing in it."""
        return self.folder / "empty.qcow2"

    def token_text(self) -> str:
        return self.token.read_text("ascii").strip()


@contextmanager
def prepared(
    golden: GoldenImage, *, evidence: Path | None = None, say: Callable[[str], None] = lambda _line: None
) -> Generator[Prepared]:
    """Give what was prepared, and prepare it first where that was not done. Nobody removes it meanwhile.

    Args:
        evidence: a folder for a picture of a guest that does not come up.
        say: hears what goes on.

    Raises:
        VmError: the guest did not come up; says why.
    """
    folder = golden.folder
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = Prepared(golden=golden, folder=folder)
    lock = _lock_path(folder)
    with lock.open("a") as held:
        # Another one may prepare just now: that takes no longer than it would here.
        deadline = time.monotonic() + golden.settings.boot_timeout_s + (golden.settings.settle_s or 0.0) + _SAVE_S
        while not (folder.exists() and _locked(held.fileno(), fcntl.LOCK_SH) and folder.exists()):
            if not folder.exists() and _locked(held.fileno(), fcntl.LOCK_EX) and not folder.exists():
                _prepare(found, evidence, say)
                _forget_others(golden)
            elif time.monotonic() > deadline:
                raise VmError(f"another process has been preparing {golden.disk} for too long; it holds {lock}")
            else:
                time.sleep(_LOCK_AGAIN_S)
        os.utime(lock)
        yield found


def is_prepared(golden: GoldenImage) -> bool:
    return golden.folder.exists()


def _prepare(found: Prepared, evidence: Path | None, say: Callable[[str], None]) -> None:
    """Make the folder. Holds the lock."""
    golden = found.golden
    new = found.folder.with_name(f"{found.folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)  # of one that was killed
    new.mkdir(mode=0o700)
    made = Prepared(golden=golden, folder=new)
    try:
        _write_token(made)
        _create_empty(made)
        if golden.settings.reset in (Reset.SNAPSHOT, Reset.CLOSE):
            _save_running(made, evidence, say)
        (new / "about.json").write_text(json.dumps({"files": golden.files}))
        new.rename(found.folder)
    except OSError as error:
        raise VmError(f"the snapshot of {golden.disk} cannot be written: {error}") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _write_token(made: Prepared) -> None:
    given = made.golden.settings.token_file
    token = Path(given).read_text("ascii").strip() if given else secrets.token_urlsafe(24)
    with open(os.open(made.token, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
        file.write(token + "\n")


def _create_empty(made: Prepared) -> None:
    """Its backing file is named to QEMU each time."""
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", str(made.empty), str(made.golden.disk_bytes)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_CREATE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise VmError(f"qemu-img: {error}") from None
    if done.returncode != 0:
        raise VmError(f"qemu-img: {done.stderr.strip() or done.returncode}")


def _save_running(made: Prepared, evidence: Path | None, say: Callable[[str], None]) -> None:
    """Boot the image once, wait for its agent, and keep disk, memory and devices as they are then."""
    golden = made.golden
    say(f"booting {golden.disk.name} once for all attempts ({golden.accelerator.value.upper()})")
    shutil.copyfile(made.empty, made.disk)
    machine = Machine(
        golden,
        disk=made.disk.open("r+b"),
        backing=golden.disk,
        token=made.token,
        memory=Memory(path=made.memory, shared=True),
    )
    try:
        took_s = wait_for_agent(machine, made.token_text(), timeout_s=golden.settings.boot_timeout_s, evidence=evidence)
        say(f"the guest agent was ready after {took_s:.0f} s; saving the machine")
        time.sleep(golden.settings.settle_s or 0.0)
        machine.save(made.state, timeout_s=_SAVE_S)
    finally:
        machine.end()
    _name_backing(made)


def _name_backing(made: Prepared) -> None:
    """Write the golden disk's name into the disk that lies over it."""
    argv = ["qemu-img", "rebase", "-q", "-u", "-F", "qcow2", "-b", str(made.golden.disk), str(made.disk)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_CREATE_S, check=False)
    if done.returncode != 0:
        raise VmError(f"qemu-img: {done.stderr.strip() or done.returncode}")


def _forget_others(golden: GoldenImage) -> None:
    """Remove what was made of earlier versions of the image, and of configurations that are no longer used."""
    prefix = golden.folder.name.removesuffix(golden.key)
    for lock in golden.folder.parent.glob(f"{prefix}*.lock"):
        folder = lock.with_suffix("")
        if folder == golden.folder or not _is_outdated(folder, lock):
            continue
        with contextlib.suppress(OSError), lock.open("a") as held:
            if _locked(held.fileno(), fcntl.LOCK_EX):  # else it is in use
                for path in (folder, folder.with_name(folder.name + ".new"), folder.with_name(folder.name + KEPT)):
                    shutil.rmtree(path, ignore_errors=True)


def _is_outdated(folder: Path, lock: Path) -> bool:
    with contextlib.suppress(OSError, ValueError, KeyError, VmError):  # a file that is away for a while may come back
        files = json.loads((folder / "about.json").read_text())["files"]
        if any(identity(Path(file[0])) != file for file in files):
            return True
    with contextlib.suppress(OSError):
        return time.time() - lock.stat().st_mtime > _UNUSED_S
    return False


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _locked(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
