"""A VM as namespaces with a real sshd on port 22: own address, processes, host name, and an overlay of / as its disk.

Needs root, iproute2 and openssh-server. IMDS answers where it does on Azure, and tells its callers apart by their
addresses. All of a VM lives in one tree of processes that dies with the emulator, however that dies.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import resources
from pathlib import Path

import anyio

from evalfleet.emulator.arm.protocol import ArmError
from evalfleet.emulator.machines import programs, wrong_clock
from evalfleet.emulator.machines.condition import Condition, Surroundings
from evalfleet.emulator.machines.condition import write as write_condition
from evalfleet.emulator.machines.host import HostSpec, Ran, copy_tree, fresh_private_key
from evalfleet.errors import CloudError, InputError

GATEWAY = "10.99.0.1"
FIRST = "10.99.0.2"
PREFIX = 16
PORT = 22
IMDS = "169.254.169.254"
BRIDGE = "evalfleet0"
LOCK = "\0evalfleet-emulator-netns"
NEEDED = ("ip", "unshare", "nsenter", "setpriv", "chroot")
PATIENCE_S = 30.0
_NESTED = re.compile(r" (?:svm|vmx)\b")
_SSHD = """Port 22
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
MaxStartups 200
MaxSessions 200
Subsystem sftp internal-sftp
PidFile none
"""


async def command(*argv: str) -> str:
    """Run one of the system's programs.

    Raises:
        CloudError: it failed; says what it said.
    """
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise CloudError(f"emulator: `{' '.join(argv)}` failed: {output.decode(errors='replace').strip()}")
    return output.decode(errors="replace")


def missing() -> str | None:
    """Return why this machine cannot have such hosts, or None."""
    if os.geteuid() != 0:
        return "it needs root; use --hosts inprocess"
    absent = [name for name in NEEDED if shutil.which(name) is None]
    if not Path("/usr/sbin/sshd").exists():
        absent.append("sshd")
    return f"install {', '.join(absent)} (Debian: apt-get install iproute2 openssh-server)" if absent else None


@asynccontextmanager
async def network() -> AsyncGenerator[None]:
    """Have the bridge that all VMs hang on: it has the gateway's address and that of IMDS. One emulator at a time.

    Raises:
        InputError: another emulator has it.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        try:
            lock.bind(LOCK)
        except OSError:
            raise InputError("--hosts netns: another emulator on this machine is using them; stop it first.") from None
        if plugged(BRIDGE):  # left by one that was killed
            await command("ip", "link", "delete", BRIDGE)
        await command("ip", "link", "add", BRIDGE, "type", "bridge")
        try:
            await command("ip", "addr", "add", f"{GATEWAY}/{PREFIX}", "dev", BRIDGE)
            await command("ip", "addr", "add", f"{IMDS}/32", "dev", BRIDGE)
            await command("ip", "link", "set", BRIDGE, "up")
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await command("ip", "link", "delete", BRIDGE)


def plugged(name: str) -> bool:
    """Whether this machine has a network interface of that name."""
    return Path("/sys/class/net", name).exists()


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


class NetnsHost:
    """One VM."""

    def __init__(self, spec: HostSpec) -> None:
        self._spec = spec
        self._process: asyncio.subprocess.Process | None = None
        self._link = "ef" + spec.folder.name.replace("-", "")[:12]

    async def boot(self, condition: Condition, ssh: str | None) -> None:
        folder = self._spec.folder
        self._prepare(wrong_key=ssh == "wrong_host_key")
        self._pretend(condition)
        if ssh == "no_ssh":
            return
        script = resources.files("evalfleet.emulator") / "netns.sh"
        with (folder / "console.log").open("ab") as console:
            self._process = await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig", "KILL"),
                *("unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child"),
                *("sh", str(script), str(folder), self._spec.name, f"{self._spec.address}/{PREFIX}", GATEWAY),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        peer = f"{self._link}p"
        await command("ip", "link", "add", self._link, "type", "veth", "peer", "name", peer)
        await command("ip", "link", "set", self._link, "master", BRIDGE, "up")
        await command("ip", "link", "set", peer, "netns", str(await self._first_process()), "name", "eth0")
        if ssh != "mute_ssh":
            await self._answers()

    def _pretend(self, condition: Condition) -> None:
        """Write the processor that the VM shall see; the script that becomes the VM puts it in its place."""
        kept = Path("/proc/cpuinfo").read_text().splitlines()
        flag = " vmx" if condition.kvm else ""
        shown = [_NESTED.sub("", line) + (flag if line.startswith("flags") else "") for line in kept]
        (self._spec.folder / "cpuinfo").write_text("\n".join(shown) + "\n")
        (self._spec.folder / "kvm").write_text("usable" if condition.kvm else "none")

    async def lay_out(self) -> None:
        if self._spec.image is not None and not (self._spec.folder / "disk").exists():
            await copy_tree(self._spec.image, self._spec.folder)

    async def show(self, condition: Condition, images_gb: float) -> None:
        spec, base = self._spec, self._spec.folder / "disk" / "usr" / "local"
        (base / "bin").mkdir(parents=True, exist_ok=True)
        # Ours may lie where the VM's user cannot read.
        programs.install(base / "bin", programs.EVERYWHERE, python="/usr/bin/python3")
        clock = await wrong_clock.install(base, Path("/usr/local"), condition.clock_skew_s)
        preload = spec.folder / "disk" / "etc" / "ld.so.preload"
        preload.parent.mkdir(parents=True, exist_ok=True)
        preload.write_text(f"{clock}\n" if clock else "")
        path = "/usr/sbin:/usr/bin:/sbin:/bin"
        where = Surroundings(path=path, vm=spec.vm, docker=spec.docker, images_gb=images_gb, clock=clock is not None)
        write_condition(condition, base, where)

    @property
    def docker_folder(self) -> Path:
        return self._spec.folder / "disk" / "usr" / "local" / "docker"

    def outside(self, path: Path) -> Path:
        return self._spec.folder / "disk" / path.relative_to("/")

    async def copy_disk(self, to: Path) -> None:
        await copy_tree(self._spec.folder / "disk", to / "disk")
        for path in ("etc/ssh/ssh_host_ed25519_key", f"home/{self._spec.user}/.ssh/authorized_keys"):
            await command("rm", "-f", str(to / "disk" / path))

    async def spawn(self, argv: Sequence[str], environ: Mapping[str, str], folder: str) -> Process:
        inside = str(await self._first_process())
        known = [
            "env",
            "-i",
            f"PATH={os.defpath}:/usr/local/bin",
            *(f"{name}={value}" for name, value in environ.items()),
        ]
        enter = (
            "nsenter",
            "--target",
            inside,
            "--mount",
            "--net",
            "--pid",
            "--uts",
            "--ipc",
            "--root",
            f"--wd={folder}",
        )
        return await asyncio.create_subprocess_exec(*enter, *known, *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE)

    def _prepare(self, *, wrong_key: bool) -> None:
        """Write what cloud-init and Azure's agent write: host key, user, login keys."""
        for name in ("disk/etc/ssh", f"disk/home/{self._spec.user}/.ssh", "work", "root", "mnt"):
            (self._spec.folder / name).mkdir(parents=True, exist_ok=True)
        etc = self._spec.folder / "disk" / "etc"
        key = etc / "ssh" / "ssh_host_ed25519_key"
        if wrong_key or not key.exists():
            key.touch(mode=0o600)
            key.write_text((None if wrong_key else self._spec.host_key) or fresh_private_key())
        (etc / "ssh" / "evalfleet_sshd_config").write_text(_SSHD)
        user, home = self._spec.user, self._spec.folder / "disk" / "home" / self._spec.user
        if not (etc / "passwd").exists():
            (etc / "passwd").write_text(Path("/etc/passwd").read_text() + f"{user}:x:7777:7777::/home/{user}:/bin/sh\n")
            (etc / "shadow").write_text(Path("/etc/shadow").read_text() + f"{user}:*:19000:0:99999:7:::\n")
            (etc / "group").write_text(Path("/etc/group").read_text() + f"{user}:x:7777:\n")
            (etc / "shadow").chmod(0o640)
            (etc / "sudoers.d").mkdir(exist_ok=True)
            (etc / "sudoers.d" / "evalfleet").write_text(f"{user} ALL=(ALL) NOPASSWD:ALL\n")
        keys = home / ".ssh" / "authorized_keys"
        if not keys.exists():
            keys.write_text("".join(f"{line}\n" for line in self._spec.login_keys))
            for path in (home, home / ".ssh", keys):
                os.chown(path, 7777, 7777)

    async def _first_process(self) -> int:
        """Return the first process inside: the child of `unshare`."""
        assert self._process is not None
        async with asyncio.timeout(PATIENCE_S):
            while True:
                # setpriv became unshare; the first child of that process is the VM's.
                if children := _children(self._process.pid):
                    return children[0]
                await asyncio.sleep(0.005)

    async def _answers(self) -> None:
        """Wait until SSH answers, as Azure waits for its agent."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection(self._spec.address, PORT)
                except OSError:
                    await asyncio.sleep(0.02)
                    continue
                writer.close()
                return

    async def halt(self) -> None:
        if self._process is not None:
            # The end of its first process is the end of all processes in a namespace, and of its interface.
            with suppress(ProcessLookupError):
                os.kill(await self._first_process(), signal.SIGKILL)
            await self._process.wait()
            await self._unplugged()
            self._process = None
        shutil.rmtree(self._spec.folder / "mnt", ignore_errors=True)

    async def _unplugged(self) -> None:
        """Wait until the interface is gone, so that the same machine can be plugged in again."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if not plugged(self._link):
                    return
                await asyncio.sleep(0.005)

    async def remove(self) -> None:
        await self.halt()
        await asyncio.to_thread(shutil.rmtree, self._spec.folder, ignore_errors=True)

    async def run(self, script: str) -> Ran:
        inside = str(await self._first_process())
        process = await asyncio.create_subprocess_exec(
            *("nsenter", "--target", inside, "--mount", "--net", "--pid", "--uts", "--ipc", "--root", "--wd"),
            *("/bin/sh", "-c", script),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate()
        code = process.returncode if process.returncode is not None else -1
        return Ran(exit_code=code, stdout=stdout.decode(errors="replace"), stderr=stderr.decode(errors="replace"))

    async def set_link(self, *, blocked: bool, latency_s: float) -> None:
        if latency_s:
            raise ArmError(400, "BadRequest", "Only --hosts inprocess can emulate a slow link.")
        await command("ip", "link", "set", self._link, "down" if blocked else "up")
