"""Real SSH servers on loopback, each a host of its own: own keys, own home folder; and a line to them that a test may spoil."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import DEADLINE_S, wait_for

from evalfleet.hosts.local.launcher import RunnerInfo, runner_info
from evalfleet.hosts.ssh.login.hosts_file import Login, SshHostSpec

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.defpath)
KEYGEN = shutil.which("ssh-keygen")


def require() -> None:
    if SSHD is None or KEYGEN is None:
        pytest.skip("no sshd here; scripts/sshd installs one")


def make_key(path: Path, passphrase: str = "", kind: str = "ed25519") -> Path:
    assert KEYGEN is not None
    subprocess.run([KEYGEN, "-q", "-t", kind, "-N", passphrase, "-C", "", "-f", path], check=True)
    return path


def public(key: Path) -> str:
    """The public half of a key, as a hosts file has it."""
    return " ".join(key.with_name(f"{key.name}.pub").read_text().split()[:2])


def fingerprint(key: Path) -> str:
    assert KEYGEN is not None
    return subprocess.run([KEYGEN, "-lf", key], check=True, capture_output=True, text=True).stdout.split()[1]


def write_hashed(path: Path, lines: str) -> None:
    """A known_hosts file as careful people have it, with a line in it that nobody understands."""
    assert KEYGEN is not None
    path.write_text(lines)
    subprocess.run([KEYGEN, "-q", "-H", "-f", path], check=True, capture_output=True)
    path.write_text("# mine\nnonsense\n" + path.read_text())


@contextlib.contextmanager
def agent(folder: Path, key: Path, passphrase: str) -> Iterator[str]:
    """An SSH agent that holds one key; its socket."""
    place, answer = str(folder / "agent"), folder / "askpass"
    answer.write_text(f"#!/bin/sh\necho '{passphrase}'\n")
    answer.chmod(0o700)
    env = {"PATH": os.defpath, "SSH_AUTH_SOCK": place, "SSH_ASKPASS": str(answer), "SSH_ASKPASS_REQUIRE": "force"}
    process = subprocess.Popen(["ssh-agent", "-D", "-a", place], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: os.path.exists(place), "the agent")
        subprocess.run(["ssh-add", "-q", key], env=env, check=True, stdin=subprocess.DEVNULL, timeout=60)
        yield place
    finally:
        process.kill()
        process.wait()


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
        return public(self.folder / "host_key")

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
                    f"SetEnv HOME={self.home} XDG_RUNTIME_DIR=/nowhere EVALFLEET_SLOT_LOCKS={self.folder}/slots",
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
        served = self.served()
        for pid in served:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(served)

    def served(self) -> list[int]:
        """The processes that serve connections."""
        assert self._process is not None
        return _children(self._process.pid)

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

    def stop_runner(self) -> None:
        """It lives on and does nothing."""
        info = self.runner()
        assert info is not None
        os.kill(info.pid, signal.SIGSTOP)

    def close(self) -> None:
        self.stop()
        info = self.runner()
        if info is not None:
            os.kill(info.pid, signal.SIGCONT)
            os.kill(info.pid, signal.SIGTERM)
            wait_for(lambda: self.runner() is None, "the runner's end")


def hosts_file(hosts: list[Sshd], **options: object) -> str:
    """The text of a hosts file for these hosts."""
    rows: list[str] = []
    for host in hosts:
        known: dict[str, object] = {"name": host.name, "address": "127.0.0.1", "port": host.port}
        known |= {"user": getpass.getuser(), "key": str(host.user_key), "host_key": host.host_key}
        rows.append(
            "[[host]]\n"
            + "".join(f"{key} = {json.dumps(value)}\n" for key, value in (known | options).items() if value is not None)
        )
    return "\n".join(rows)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Line:
    """A TCP line to a port of loopback that can be slow, dead silent, or cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.delay_s = 0.0  # each way
        self._open = threading.Event()
        self._open.set()
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def freeze(self) -> None:
        """Nothing passes any more, and nobody is told; new connections are taken, and stay silent."""
        self._open.clear()

    def thaw(self) -> None:
        self._open.set()

    def cut(self) -> None:
        for end in self._ends:
            _end(end)

    def close(self) -> None:
        _end(self._listener)
        self.thaw()
        self.cut()
        for thread in self._threads:
            thread.join(DEADLINE_S)
        for sock in (self._listener, *self._ends):
            sock.close()

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._ends.append(near)
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                _end(near)
                continue
            self._ends.append(far)
            for source, sink in ((near, far), (far, near)):
                waiting: queue.Queue[tuple[float, bytes]] = queue.Queue()
                self._start(self._read, source, waiting)
                self._start(self._write, sink, waiting)

    def _read(self, source: socket.socket, waiting: queue.Queue[tuple[float, bytes]]) -> None:
        """Reads at once, and lets write later, so that a slow line is long and not narrow."""
        data = b"?"
        while data:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            waiting.put((time.monotonic() + self.delay_s, data))

    def _write(self, sink: socket.socket, waiting: queue.Queue[tuple[float, bytes]]) -> None:
        while True:
            due, data = waiting.get()
            time.sleep(max(0.0, due - time.monotonic()))
            self._open.wait()
            try:
                sink.sendall(data)
            except OSError:
                data = b""
            if not data:
                _end(sink)
                return


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def host(folder: Path, name: str = "box", *lines: str, user_key: Path | None = None) -> Iterator[Sshd]:
    server = Sshd(folder / name, name, *lines, user_key=user_key)
    try:
        yield server
    finally:
        server.close()
