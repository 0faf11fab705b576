"""A VM as an SSH server inside the emulator: nothing to install, no root, forty of them in the blink of an eye.

Its commands are real processes of the person who runs the emulator, in a folder of the VM's own: `home` is its disk,
`mnt` its temporary disk, and programs in `bin` go before those of the machine. It is no sandbox.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import asyncssh

from evalfleet import config
from evalfleet.emulator import processes
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.hosts import HostSpec, Ran, fresh_private_key
from evalfleet.emulator.link import Link
from evalfleet.emulator.session import Session

FaultOf = Callable[[str, Mapping[str, str]], Fault | None]


class InprocessHost:
    """One VM. `fault_of` is asked for the faults of its commands."""

    def __init__(self, spec: HostSpec, fault_of: FaultOf) -> None:
        self._spec = spec
        self._fault_of = fault_of
        self._link = Link(self._serve)
        self._home = spec.folder / "home"
        self._key_file = spec.folder / "etc" / "ssh" / "ssh_host_ed25519_key"

    async def boot(self, fault: Fault | None) -> None:
        for name in ("home", "mnt", "bin", "etc/ssh"):
            (self._spec.folder / name).mkdir(parents=True, exist_ok=True)
        preset = fault.preset if fault else None
        if preset == "wrong_host_key" or not self._key_file.exists():
            key = None if preset == "wrong_host_key" else self._spec.host_key
            self._write_key(key or fresh_private_key())
        if preset != "no_ssh":
            await self._link.listen(self._spec.address, self._spec.port, mute=preset == "mute_ssh")

    def _write_key(self, private: str) -> None:
        self._key_file.touch(mode=0o600)
        self._key_file.write_text(private)
        public = asyncssh.import_private_key(private).export_public_key().decode()
        self._key_file.with_suffix(".pub").write_text(public)

    async def halt(self) -> None:
        await self._link.close()
        await asyncio.to_thread(processes.end_all, self._spec.folder)
        shutil.rmtree(self._spec.folder / "mnt", ignore_errors=True)

    async def remove(self) -> None:
        await self.halt()
        await asyncio.to_thread(shutil.rmtree, self._spec.folder, ignore_errors=True)

    async def set_link(self, *, blocked: bool, latency_s: float) -> None:
        self._link.set(blocked=blocked, latency_s=latency_s)

    async def run(self, script: str) -> Ran:
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
            "PATH": f"{self._spec.folder / 'bin'}{os.pathsep}{inherited.get('PATH', os.defpath)}",
            "HOME": str(self._home),
            "USER": self._spec.user,
            "LOGNAME": self._spec.user,
            "SHELL": "/bin/sh",
            "HOSTNAME": self._spec.name,
            "EVALFLEET_IMDS": self._spec.imds_url,
            "EVALFLEET_SSH_HOST_KEY": str(self._key_file),
            "EVALFLEET_TEMPORARY_DISK": str(self._spec.folder / "mnt"),
        }

    async def _serve(self, sock: socket.socket) -> None:
        """Serve one connection until it ends."""
        try:
            connection = await asyncssh.run_server(
                sock,
                server_factory=lambda: _Server(self._admits),
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
        command = process.command
        fault = self._fault_of("host.exec", {"name": self._spec.name, "command": command or ""})
        await Session(process, cwd=self._home, environment=self.environment(), fault=fault).run()

    def _sftp(self, channel: asyncssh.SSHServerChannel[bytes]) -> asyncssh.SFTPServer:
        return _HomeSftp(channel, self._home)


class _Server(asyncssh.SSHServer):
    """Lets in who holds one of the VM's keys, and passes connections on, as sshd does."""

    def __init__(self, admits: Callable[[str, asyncssh.SSHKey], bool]) -> None:
        self._admits = admits

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return self._admits(username, key)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return True

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
