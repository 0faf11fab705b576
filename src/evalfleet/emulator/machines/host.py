"""A VM as an SSH server inside the emulator: nothing to install, no root, and forty of them start in a moment.

Its commands are real processes of the person who runs the emulator, in a folder of the VM's own: `home` is its disk,
`mnt` its temporary disk, and programs in `bin` go before those of the machine. It is no sandbox.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import shutil
import socket
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import asyncssh
from msgspec import Struct

from evalfleet import config
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.machines import processes, programs, wrong_clock
from evalfleet.emulator.machines.condition import Condition, Surroundings
from evalfleet.emulator.machines.condition import write as write_condition
from evalfleet.emulator.machines.link import Link
from evalfleet.emulator.machines.session import Session

DISK = ("home", "bin", "docker")  # what of its folder is the disk that an image keeps
_OWN = ("127.0.0.1", "localhost")


class HostSpec(Struct, frozen=True, kw_only=True):
    """What a host is made from."""

    name: str
    folder: Path  # of its disks; stays over a deallocate
    address: str
    port: int
    user: str
    login_keys: tuple[str, ...]
    host_key: str | None  # private, from cloud-init, shown by no repr; None: the host makes one
    imds_url: str
    vm: str = ""  # the VM's own id
    docker: str = ""  # where Docker's daemon listens for its machines
    image: Path | None = None  # a copy of another host's disk, to begin with

    def __repr__(self) -> str:
        return f"HostSpec(name={self.name!r}, address={self.address!r}, port={self.port!r})"


class Ran(Struct, frozen=True, kw_only=True):
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str


class Host:
    """A machine that can be switched on and off, keeps its disk meanwhile, and answers SSH.

    `asked` hears of each command that comes over SSH, and returns the fault that hits it.
    """

    def __init__(self, spec: HostSpec, asked: Callable[[str, str], Fault | None]) -> None:
        self._spec = spec
        self._asked = asked
        self._link = Link(self._serve)
        self._clock: Path | None = None  # the library that makes its programs' clock wrong
        self._home = spec.folder / "home"
        self._key_file = spec.folder / "etc" / "ssh" / "ssh_host_ed25519_key"

    async def boot(self, condition: Condition, ssh: str | None) -> None:
        """Switch on, as a machine in that condition. `ssh` names a preset that keeps SSH from working."""
        folder = self._spec.folder
        for name in ("home", "mnt", "bin", "etc/ssh"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        programs.install(folder / "bin", programs.ALL)
        if ssh == "wrong_host_key" or not self._key_file.exists():
            key = None if ssh == "wrong_host_key" else self._spec.host_key
            self._write_key(key or fresh_private_key())
        self._link.set(blocked=False, latency_s=condition.latency_s)
        if ssh != "no_ssh":
            await self._link.listen(self._spec.address, self._spec.port, mute=ssh == "mute_ssh")

    async def lay_out(self) -> None:
        """Fill its disk from its image, the first time."""
        if self._spec.image is not None and not self._home.exists():
            await copy_tree(self._spec.image, self._spec.folder)

    async def show(self, condition: Condition, images_gb: float) -> None:
        """Let it look so, from inside."""
        spec = self._spec
        self._clock = await wrong_clock.install(spec.folder, condition.clock_skew_s)
        path = config.base_env().get("PATH", os.defpath)
        where = Surroundings(
            path=path, vm=spec.vm, docker=spec.docker, images_gb=images_gb, clock=self._clock is not None
        )
        write_condition(condition, spec.folder, where)

    @property
    def docker_folder(self) -> Path:
        """Where the state of its Docker lies: on its disk."""
        return self._spec.folder / "docker"

    async def copy_disk(self, to: Path) -> None:
        """Copy its disk into a new folder."""
        for name in DISK:
            if (self._spec.folder / name).exists():
                await copy_tree(self._spec.folder / name, to / name)

    def _write_key(self, private: str) -> None:
        self._key_file.touch(mode=0o600)
        self._key_file.write_text(private)
        public = asyncssh.import_private_key(private).export_public_key().decode()
        self._key_file.with_suffix(".pub").write_text(public)

    async def halt(self) -> None:
        """Switch off at once: every process dies, every connection is cut, the temporary disk is empty."""
        await self._link.close()
        await asyncio.to_thread(processes.end_all, self._spec.folder)
        shutil.rmtree(self._spec.folder / "mnt", ignore_errors=True)

    async def remove(self) -> None:
        """Switch off for good, and delete the disk."""
        await self.halt()
        await asyncio.to_thread(shutil.rmtree, self._spec.folder, ignore_errors=True)

    async def set_link(self, *, blocked: bool, latency_s: float) -> None:
        """Let the network be cut (nothing passes, nothing is refused) or slow."""
        self._link.set(blocked=blocked, latency_s=latency_s)

    async def spawn(self, argv: Sequence[str], environ: Mapping[str, str], folder: str) -> Process:
        """Start a program on it, with pipes for all three streams.

        Raises:
            OSError: it cannot be started.
        """
        env = {"PATH": config.base_env().get("PATH", os.defpath), **self._own_clock(), **environ}
        return await asyncio.create_subprocess_exec(
            *argv, cwd=folder, env=env, start_new_session=True, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )

    async def run(self, script: str) -> Ran:
        """Run a script, as the agent inside an Azure VM does."""
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            script,
            cwd=self._home,
            env=self.environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        stdout, stderr = await process.communicate()
        code = process.returncode if process.returncode is not None else -1
        return Ran(exit_code=code, stdout=stdout.decode(errors="replace"), stderr=stderr.decode(errors="replace"))

    def environment(self) -> dict[str, str]:
        """Return what every command of this VM finds in its environment."""
        inherited = {name: value for name, value in config.base_env().items() if name in ("LANG", "TZ", "PATH")}
        return {
            **inherited,
            **self._own_clock(),
            "PATH": f"{self._spec.folder / 'bin'}{os.pathsep}{inherited.get('PATH', os.defpath)}",
            "HOME": str(self._home),
            "USER": self._spec.user,
            "LOGNAME": self._spec.user,
            "SHELL": "/bin/sh",
            "HOSTNAME": self._spec.name,
            "EVALFLEET_CONTAINER_LOCKS": str(self._spec.folder / "container-locks"),
            "EVALFLEET_IMDS": self._spec.imds_url,
            "EVALFLEET_SLOT_LOCKS": str(self._spec.folder / "slots"),
            "EVALFLEET_SSH_HOST_KEY": str(self._key_file),
            "EVALFLEET_TEMPORARY_DISK": str(self._spec.folder / "mnt"),
        }

    def _own_clock(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._clock)} if self._clock else {}

    async def _serve(self, sock: socket.socket) -> None:
        """Serve one connection until it ends."""
        try:
            connection = await asyncssh.run_server(
                sock,
                server_factory=lambda: _Server(self._admits, self._spec.address),
                server_host_keys=[str(self._key_file)],
                process_factory=self._session,
                sftp_factory=self._sftp,
                allow_scp=True,
                encoding=None,
                line_editor=False,
            )
        except (asyncssh.Error, OSError):
            return  # the client went away, or did not like our key
        try:
            await connection.wait_closed()
        finally:
            connection.abort()

    def _admits(self, user: str, key: asyncssh.SSHKey) -> bool:
        if user != self._spec.user:
            return False
        added = self._home / ".ssh" / "authorized_keys"
        lines = [*self._spec.login_keys, *(added.read_text().splitlines() if added.exists() else ())]
        return any(_same(line, key) for line in lines)

    async def _session(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        fault = self._asked(self._spec.name, process.command or "")
        await Session(process, cwd=self._home, environment=self.environment(), fault=fault).run()

    def _sftp(self, channel: asyncssh.SSHServerChannel[bytes]) -> asyncssh.SFTPServer:
        return _HomeSftp(channel, self._home)


class _Server(asyncssh.SSHServer):
    """Lets in who holds one of the VM's keys, and passes connections on, as sshd does."""

    def __init__(self, admits: Callable[[str, asyncssh.SSHKey], bool], address: str) -> None:
        self._admits = admits
        self._address = address
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return self._admits(username, key)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> Any:
        return self._forward(dest_port) if dest_host in _OWN else True

    async def _forward(self, port: int) -> Any:
        """Connect to what listens on this VM, which is on its address; else to what listens for all, as one machine."""
        assert self._connection is not None
        try:
            return await self._connection.forward_connection(self._address, port)
        except asyncssh.ChannelOpenError:
            return await self._connection.forward_connection(_OWN[0], port)

    def unix_connection_requested(self, dest_path: str) -> bool:
        return True


class _HomeSftp(asyncssh.SFTPServer):
    """Files as the VM's commands see them: relative names begin in its home, absolute ones are the machine's."""

    def __init__(self, channel: Any, home: Path) -> None:
        super().__init__(channel)  # pyright: ignore[reportUnknownMemberType]
        self._home = os.fsencode(home)

    def map_path(self, path: bytes) -> bytes:
        return os.path.normpath(os.path.join(self._home, path))


def _same(line: str, key: asyncssh.SSHKey) -> bool:
    try:
        return asyncssh.import_public_key(line) == key
    except asyncssh.KeyImportError:
        return False


def fresh_private_key() -> str:
    """Return a host key for a VM that was given none."""
    made: Any = asyncssh.generate_private_key("ssh-ed25519")  # pyright: ignore[reportUnknownMemberType]
    return made.export_private_key().decode()


def read_user_data(custom_data: str | None) -> dict[str, Any]:
    """Read the cloud-config that we send (JSON below its first line); anything else is as none."""
    try:
        text = base64.b64decode(custom_data or "").decode()
        found: Any = json.loads(text.removeprefix("#cloud-config\n")) if text.startswith("#cloud-config\n") else {}
    except (binascii.Error, ValueError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


async def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder as a disk is copied: with owners, links and all. What vanishes meanwhile is not in the copy."""
    await asyncio.to_thread(target.mkdir, parents=True, exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *("cp", "-a", f"{source}/.", str(target)), stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
    )
    await process.wait()
