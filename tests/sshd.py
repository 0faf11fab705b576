"""Real SSH servers on loopback, each a host of its own: own keys, own home folder; and a line to them that a test may spoil."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalfleet.backends.launcher import RunnerInfo, runner_info
from evalfleet.backends.ssh_hostsfile import Login, SshHostSpec
from fleet import wait_for

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.defpath)
KEYGEN = shutil.which("ssh-keygen")


def require() -> None:
    if SSHD is None or KEYGEN is None:
        pytest.skip("no sshd here; scripts/sshd installs one")


def make_key(path: Path, passphrase: str = "") -> Path:
    assert KEYGEN is not None
    subprocess.run([KEYGEN, "-q", "-t", "ed25519", "-N", passphrase, "-C", "", "-f", path], check=True)
    return path


class Sshd:
    """One host. `folder` holds everything of it; its users' home is `folder / "home"`."""

    def __init__(self, folder: Path, name: str, *lines: str, user_key: Path | None = None) -> None:
        require()
        self.name = name
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.user_key = user_key or make_key(folder / "user_key")
        make_key(folder / "host_key")
        shutil.copy(f"{self.user_key}.pub", folder / "authorized_keys")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._lines = lines
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def host_key(self) -> str:
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])

    @property
    def spool(self) -> Path:
        return self.home / ".evalfleet" / f"spool-{socket.gethostname()}"

    def spec(self, **fields: Any) -> SshHostSpec:
        port = fields.pop("port", self.port)
        login = Login(address="127.0.0.1", port=port, user=getpass.getuser())
        known = {"name": self.name, "key": self.user_key, "host_key": self.host_key}
        return SshHostSpec(login=login, **{**known, **fields})

    def start(self) -> None:
        config = self.folder / "sshd_config"
        config.write_text(
            "\n".join(
                [
                    *self._lines,  # the first word on a matter counts
                    f"ListenAddress 127.0.0.1:{self.port}",
                    f"HostKey {self.folder}/host_key",
                    f"AuthorizedKeysFile {self.folder}/authorized_keys",
                    f"PidFile {self.folder}/sshd.pid",
                    f"SetEnv HOME={self.home} XDG_RUNTIME_DIR=/nowhere",
                    *("UsePAM no", "StrictModes no", "PermitRootLogin yes", "PasswordAuthentication no"),
                    *("MaxStartups 100", "UseDNS no", "PrintMotd no", "PrintLastLog no"),
                ]
            )
            + "\n"
        )
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it locks itself in
        with (self.folder / "sshd.log").open("ab") as log:
            command = [str(SSHD), "-D", "-e", "-f", str(config)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(self._listens, f"sshd of {self.name}: {(self.folder / 'sshd.log').read_text()}")

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "sshd.log").read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True
        return False

    def new_host_key(self) -> None:
        (self.folder / "host_key").unlink()
        (self.folder / "host_key.pub").unlink()
        make_key(self.folder / "host_key")

    def cut(self) -> int:
        """Kill the processes that serve connections, as when a host drops its clients; how many they were."""
        assert self._process is not None
        served = _children(self._process.pid)
        for pid in served:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(served)

    def stop(self) -> None:
        """No more connections, and those that are there end."""
        if self._process is not None:
            self.cut()
            self._process.kill()
            self._process.wait()
            self._process = None

    def runner(self) -> RunnerInfo | None:
        return runner_info(self.spool)

    def kill_runner(self) -> None:
        info = self.runner()
        assert info is not None
        os.kill(info.pid, signal.SIGKILL)
        wait_for(lambda: self.runner() is None, "the runner's death")

    def close(self) -> None:
        self.stop()
        info = self.runner()
        if info is not None:
            os.kill(info.pid, signal.SIGTERM)
            wait_for(lambda: self.runner() is None, "the runner's end")


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Line:
    """A TCP line to a port of loopback that can be slow, dead silent, or cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.delay_s = 0.0  # each way
        self.accepted = 0
        self._open = threading.Event()
        self._open.set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        """Nothing passes any more, and nobody is told; new connections are taken, and stay silent."""
        self._open.clear()

    def thaw(self) -> None:
        self._open.set()

    def cut(self) -> None:
        for pair in self._pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def close(self) -> None:
        self._listener.close()
        self.thaw()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self.accepted += 1
                self._pairs.append((near, far))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        """Reads at once and writes later, so that a slow line is long and not narrow."""
        waiting: list[tuple[float, bytes]] = []
        came = threading.Condition()

        def write() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with came:
                        came.wait_for(lambda: waiting)
                        due, data = waiting.pop(0)
                    time.sleep(max(0.0, due - time.monotonic()))
                    self._open.wait()
                    if not data:
                        sink.shutdown(socket.SHUT_RDWR)
                        return
                    sink.sendall(data)

        threading.Thread(target=write, daemon=True).start()
        data = b"?"
        while data:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            with came:
                waiting.append((time.monotonic() + self.delay_s, data))
                came.notify()


@contextlib.contextmanager
def host(folder: Path, name: str = "box", *lines: str, user_key: Path | None = None) -> Iterator[Sshd]:
    server = Sshd(folder / name, name, *lines, user_key=user_key)
    try:
        yield server
    finally:
        server.close()
