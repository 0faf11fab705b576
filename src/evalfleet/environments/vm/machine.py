"""One QEMU process and its guest, which end with the process that started them, however that ends.

QEMU gets its disk as a descriptor of a file without a name, and is asked over a socket without a name. So whatever is killed at
whatever moment, neither a process nor a file is left behind. It dies with the *thread* that started it: a guest that
outlives its thread must be started by another one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from evalfleet import config
from evalfleet.environments.vm.golden import GoldenImage
from evalfleet.environments.vm.qmp import Qmp
from evalfleet.environments.vm.settings import Accelerator
from evalfleet.errors import VmError

_MARKS = ("EVALFLEET_ATTEMPT", "EVALFLEET_TASK")  # by which the runner knows an attempt's processes
_PASSED = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", *_MARKS)
_QEMU_S = 60.0  # for QEMU to start and to answer, on a busy machine
_DEATH_S = 2.0  # at most, between the end of a connection and that of the process
_SHOWN = 300  # characters of last words
# Its parent may die before it asks to die with it; then it has another one.
_UNLESS_ALONE = '[ "$PPID" = "$0" ] && exec "$@"'


class Memory(Struct, frozen=True, kw_only=True):
    """The file that holds a guest's memory."""

    path: Path
    shared: bool  # whether the guest's writes go to the file; else they are its own, and it shares the rest with others


class Machine:
    """A guest that is powered on. Must be ended.

    Args:
        disk: its disk, a qcow2 file over `backing`; owned from now on.
        memory: None for ordinary memory.
        state: what the devices were like when the memory was saved; None to boot.
        view: where to make a socket by which people can watch it; None: nobody can.

    Raises:
        VmError: QEMU did not start; says why, with its last words.
    """

    def __init__(
        self,
        golden: GoldenImage,
        *,
        disk: IO[bytes],
        backing: Path,
        token: Path,
        memory: Memory | None = None,
        state: Path | None = None,
        view: Path | None = None,
    ) -> None:
        self._disk = disk
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 — closed with the machine
        self._serial = tempfile.TemporaryFile()  # noqa: SIM115
        self._view = view
        ours, theirs = socket.socketpair()
        with theirs, open(f"/proc/self/fd/{self._serial.fileno()}", "wb") as serial:  # QEMU wants one that only writes
            descriptors = (disk.fileno(), serial.fileno(), theirs.fileno())
            argv = [
                *("setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", _UNLESS_ALONE, str(os.getpid())),
                *_arguments(golden, descriptors, backing, token, memory, view),
                *(("-incoming", "defer") if state else ()),
            ]
            environ = config.environment()
            try:
                self._process = subprocess.Popen(
                    argv,
                    env={name: environ[name] for name in _PASSED if name in environ},
                    cwd=view.parent if view else "/",
                    stdin=subprocess.DEVNULL,
                    stdout=self._words,
                    stderr=self._words,
                    pass_fds=descriptors,
                    process_group=0,
                )
            except OSError as error:
                ours.close()
                self._close_files()
                raise VmError(f"QEMU cannot be started: {error.strerror}") from None
        self._qmp: Qmp | None = None
        try:
            self._qmp = Qmp(ours, timeout_s=_QEMU_S)
            if state is not None:
                self._qmp.migrate("migrate-incoming", f"exec:cat {_quoted(state)}", timeout_s=_QEMU_S)
                self._qmp.execute("cont")
            self.port = self._qmp.forwarded_port()
        except VmError as error:
            ours.close()
            why = self.death(patience_s=_DEATH_S) or str(error)
            self.end()
            raise VmError(why) from None
        except BaseException:
            ours.close()
            self.end()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def death(self, *, patience_s: float = 0.0) -> str | None:
        """Return how QEMU ended, with its last words; None while it lives."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        code = self._process.poll()
        if code is None:
            return None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        words = _last_words(self._words)
        return f"QEMU {how}{f' ({words})' if words else ''}"

    def console(self) -> str:
        """Return the last line that the guest wrote to its serial port."""
        return _last_words(self._serial)

    def screen(self) -> bytes:
        """Return what the guest shows on its own screen, as PNG. Raises VmError."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "screen.png")
            self._monitor().execute("screendump", {"filename": str(file), "format": "png"})
            return file.read_bytes()

    def save(self, state: Path, *, timeout_s: float) -> None:
        """Stop the guest, write the state of its devices, and end QEMU in order. Its memory must be a shared file."""
        qmp = self._monitor()
        qmp.execute("stop")
        qmp.migrate("migrate", f"exec:cat > {_quoted(state)}", timeout_s=timeout_s)
        self._quit()

    def shut_down(self, *, timeout_s: float) -> bool:
        """Press the power button, and switch off what is still on after that time. Returns whether the guest shut down."""
        qmp = self._monitor()
        qmp.execute("system_powerdown")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
            return True
        self._quit()
        return False

    def end(self) -> None:
        """End QEMU at once. May be called twice."""
        with contextlib.suppress(ProcessLookupError):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._qmp is not None:
            self._qmp.close()
        self._close_files()
        if self._view is not None:
            self._view.unlink(missing_ok=True)

    def _quit(self) -> None:
        """End QEMU in order, so that its disk is whole."""
        self._monitor().execute("quit")
        try:
            self._process.wait(_QEMU_S)
        except subprocess.TimeoutExpired:
            raise VmError(f"QEMU did not end within {_QEMU_S:g} s") from None

    def _monitor(self) -> Qmp:
        if self._qmp is None:
            raise VmError("QEMU is not up")
        return self._qmp

    def _close_files(self) -> None:
        for file in (self._disk, self._words, self._serial):
            file.close()


def fresh_disk(empty: Path) -> IO[bytes]:
    """Return a new overlay: a copy of an empty qcow2 file, without a name."""
    disk = tempfile.TemporaryFile(dir=empty.parent)  # noqa: SIM115 — the machine closes it
    disk.write(empty.read_bytes())
    disk.flush()
    return disk


def _arguments(
    golden: GoldenImage,
    descriptors: tuple[int, int, int],
    backing: Path,
    token: Path,
    memory: Memory | None,
    view: Path | None,
) -> list[str]:
    """Return QEMU's command line."""
    settings = golden.settings
    disk, serial, monitor = descriptors
    kvm = golden.accelerator is Accelerator.KVM
    argv = [golden.qemu, "-nodefaults", "-no-user-config", "-display", "none", "-name", "evalfleet"]
    argv += ["-machine", f"{settings.machine}{',memory-backend=ram' if memory else ''}"]
    argv += ["-accel", "kvm" if kvm else "tcg,thread=multi", "-cpu", "host" if kvm else "max"]
    argv += ["-smp", str(settings.cpus), "-m", f"{settings.memory_mb}M"]
    if memory:
        shared = "on" if memory.shared else "off"
        place = str(memory.path).replace(",", ",,")
        argv += ["-object", f"memory-backend-file,id=ram,size={settings.memory_mb}M,mem-path={place},share={shared}"]
    if "-vga" not in settings.arguments:
        argv += ["-vga", "std"]
    if view:
        argv += ["-vnc", f"unix:{view.name}"]  # by its name alone: such paths end at 108 bytes
    argv += ["-chardev", f"socket,id=monitor,fd={monitor}", "-mon", "chardev=monitor,mode=control"]
    argv += ["-add-fd", f"fd={disk},set=1", "-add-fd", f"fd={serial},set=2"]
    argv += ["-chardev", "file,id=serial,path=/dev/fdset/2", "-serial", "chardev:serial"]
    argv += ["-blockdev", json.dumps(_disk_node(backing)), "-device", f"{settings.disk},drive=disk"]
    outside = "" if settings.internet else ",restrict=on"
    argv += ["-netdev", f"user,id=net{outside},hostfwd=tcp:127.0.0.1:0-:{settings.guest_port}"]
    argv += ["-device", f"{settings.network},netdev=net"]
    argv += ["-fw_cfg", f"name=opt/evalfleet/token,file={str(token).replace(',', ',,')}"]
    for name in ("kernel", "initrd", "append"):
        value: str | None = getattr(settings, name)
        if value:
            argv += [f"-{name}", value]
    return [*argv, *settings.arguments]


def _disk_node(backing: Path) -> dict[str, Any]:
    return {
        "driver": "qcow2",
        "node-name": "disk",
        "discard": "unmap",
        "cache": {"no-flush": True},  # nothing of it outlives this machine's power cut
        "file": {"driver": "file", "filename": "/dev/fdset/1", "cache": {"no-flush": True}, "locking": "off"},
        "backing": {"driver": "qcow2", "read-only": True, "file": {"driver": "file", "filename": str(backing)}},
    }


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"


def _last_words(file: IO[bytes]) -> str:
    if file.closed:
        return ""
    size = os.fstat(file.fileno()).st_size
    text = os.pread(file.fileno(), 4096, max(0, size - 4096)).decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_SHOWN] if lines else ""
