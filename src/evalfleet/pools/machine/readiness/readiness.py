"""The readiness checks of a machine that we made: what must hold before it gets work, check by check, each with a deadline.

`arm` (the cloud says that it runs) holds when the checks begin. Then: `ssh` something answers there; `host_key` it is the
machine that we made, and its key has never been anywhere else; `disk` there is room; `kvm` usable, where it is needed;
`runner` its Python can run our runner; `setup` the pool's own script; and what the pool's benchmark needs.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
import asyncssh
from msgspec.structs import replace

from evalfleet.benchmarks import registry
from evalfleet.benchmarks.worker_tools import tools_of
from evalfleet.core.failures.kinds import one_line
from evalfleet.core.readiness import HostEvent, Pull, PullEvents, ReadinessCheck, Update
from evalfleet.errors import HostRefused, HostUnreachable
from evalfleet.hosts.base import single_error
from evalfleet.hosts.ssh.channel import RunnerPlace, run_command
from evalfleet.hosts.ssh.connection import Keepalive, connected
from evalfleet.hosts.ssh.login.host_keys import HostKeys
from evalfleet.hosts.ssh.login.hosts_file import SshHostSpec
from evalfleet.hosts.ssh.tools import CHECKS_S, INSTALL_S, first_failed, prepare_host
from evalfleet.model import Tools
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.keys import STAGE, SWAP
from evalfleet.pools.machine.reach import ssh_spec
from evalfleet.pools.machine.readiness import scripts as readiness_scripts
from evalfleet.pools.machine.readiness.checks import SILENCE, TimedChecks, Unwell
from evalfleet.pools.machine.record import MachineRecord

DEADLINES_S = {
    "ssh": 300.0,
    "host_key": 180.0,
    "disk": 120.0,
    "kvm": 60.0,
    "runner": 180.0,
    "setup": 1800.0,
    "benchmark": INSTALL_S + CHECKS_S,  # its own checks have shorter ones, and say better what is wrong
}
Connection = asyncssh.SSHClientConnection


class ReadinessChecks(TimedChecks):
    """The checks of one machine that is reached over SSH."""

    deadlines_s = DEADLINES_S

    def __init__(self, context: PoolContext, record: MachineRecord) -> None:
        super().__init__(context, record)
        self._line = AsyncExitStack()
        self._connection: tuple[str | None, Connection] | None = None  # and the host key that it was verified by

    async def run(self) -> None:
        """Raises CheckFailed at the first check that does not hold in its time."""
        async with self._line:
            await self._check("ssh", self._banner, replace=True)
            await self._check("host_key", self._verified, replace=True)
            await self._check("disk", self._room, replace=False)
            if self._wanted.kvm:
                await self._check("kvm", self._kvm, replace=True)
            await self._check("runner", self._runner, replace=False)
            if self._wanted.setup is not None:
                await self._check("setup", self._setup, replace=False)
            if self._wanted.benchmark is not None:
                await self._check("benchmark", self._benchmark, replace=False)
                del self._took["benchmark"]  # its own checks say more
            await self._record.move(facts=replace(self._record.facts, checks_s=self._took))

    # Checks

    async def _banner(self) -> str | None:
        if self._spec().jump is not None or self._spec().proxy is not None:
            return None  # only a login through what is on the way tells
        login = self._spec().login
        try:
            with anyio.fail_after(10):
                async with await anyio.connect_tcp(login.address, login.port or 22) as stream:
                    greeting = await stream.receive(64)
        except (OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            return f"{login}: {one_line(str(error)) or SILENCE}"
        return None if greeting.startswith(b"SSH-") else f"{login}: answers, but not as SSH does"

    async def _verified(self) -> str | None:
        """Log in to the machine whose key we know, and give it one that has never left it."""
        facts = self._record.facts
        if facts.host_key is None:
            raise Unwell(
                "the key of this machine is unknown: it was not created by this home, or by a controller that died"
            )
        known = await self._shows()
        if known == facts.next_key:
            await self._record.move(facts=replace(facts, host_key=known, next_key=None))
        elif known in facts.keys.values():
            await self._renew_key()
        return None

    async def _shows(self) -> str:
        """Which of its keys the machine shows."""
        facts = self._record.facts
        refused: HostRefused | None = None
        for key in filter(None, (facts.host_key, facts.next_key)):
            try:
                await self._connected(key)
                return key
            except HostRefused as error:
                refused = refused or error
        raise Unwell(str(refused))

    async def _renew_key(self) -> None:
        """In two steps, with the next key stored in between, so that a crash leaves no unknown key."""
        fresh = " ".join((await self._said(STAGE)).split()[:2])
        await self._record.move(facts=replace(self._record.facts, next_key=fresh))
        await self._said(SWAP)
        await self._connected(fresh)
        await self._record.move(facts=replace(self._record.facts, host_key=fresh, next_key=None))

    async def _room(self) -> str | None:
        free_gb = await self._free_gb()
        if free_gb < self._wanted.free_gb:
            await self._said(readiness_scripts.TIDY)
            free_gb = await self._free_gb()
        if free_gb < self._wanted.free_gb:
            raise Unwell(
                f"{free_gb:g} GB free, {self._wanted.free_gb:g} needed, and tidying up did not help; "
                "look what fills it (`evalfleet pool exec -- df -h`), or take larger disks (--disk-gb)"
            )
        return None

    async def _free_gb(self) -> float:
        said = await self._said(readiness_scripts.FREE_GB)
        try:
            return float(said)
        except ValueError:
            raise Unwell(f"df does not tell how much is free; it says {one_line(said)!r}") from None

    async def _kvm(self) -> str | None:
        said = (await self._said(readiness_scripts.KVM)).strip()
        if said != "usable":
            raise Unwell(f"KVM is not usable ({said}); take a size with nested virtualization: `evalfleet sizes`")
        return None

    async def _runner(self) -> str | None:
        spec = self._spec()
        try:
            await run_command(await self._connected(), RunnerPlace(folder=spec.folder, python=spec.python), "look")
        except HostRefused as error:
            raise Unwell(str(error)) from error
        return None

    async def _setup(self) -> str | None:
        assert self._wanted.setup is not None
        await self._said(self._wanted.setup)
        return None

    async def _benchmark(self) -> str | None:
        """What its tasks need is brought, and the checks of the benchmark pass."""
        assert self._wanted.benchmark is not None
        settings = self._context.settings
        tools = tools_of(registry.find(self._wanted.benchmark, settings), settings)
        connection = await self._connected()
        tried = await self._prepare(connection, tools)
        bad = first_failed(tried)
        if bad is not None:
            raise Unwell(bad.said())
        return None

    async def _prepare(self, connection: Connection, tools: Tools) -> list[ReadinessCheck]:
        """A pull may take long, so that one that begins or ends is an event."""
        pulls = PullEvents(self._record.name)
        with single_error():
            async with anyio.create_task_group() as group:

                def hear(update: Update) -> None:
                    self._hear(str(update))
                    if isinstance(update, Pull):
                        group.start_soon(self._note, pulls.update(update))

                def tell(check: ReadinessCheck) -> None:
                    self._hear(check.said())
                    self._took[f"{check.name} {check.of}" if check.of else check.name] = check.took_s
                    group.start_soon(self._note, pulls.end(None if check.holds else check.seen))

                return await prepare_host(connection, self._spec(), tools, tell, hear)
        raise AssertionError("a block that raises nothing has returned")

    async def _note(self, event: HostEvent | None) -> None:
        if event is not None:
            await self._context.record.note(event.type, event.data)

    # The way there

    def _spec(self) -> SshHostSpec:
        return ssh_spec(self._context.provider, self._record.host, self._wanted.slots)

    async def _connected(self, key: str | None = None) -> Connection:
        """The connection of these checks to the machine that shows `key`, or else the host's own: a handshake costs more than
        most checks do."""
        spec = self._spec() if key is None else replace(self._spec(), host_key=key)
        if self._connection is not None and self._connection[0] == spec.host_key:
            return self._connection[1]
        await self._hang_up()
        keys = HostKeys(self._context.home.known_hosts, (), trust_first_use=False, notice=lambda _: None)
        connection = await self._line.enter_async_context(connected(spec, keys, Keepalive()))
        self._connection = spec.host_key, connection
        return connection

    async def _hang_up(self) -> None:
        self._connection = None
        await self._line.aclose()

    async def _said(self, script: str) -> str:
        """What a script says that ran well. Raises Unwell with its last words where it did not, BackendError where it is lost."""
        connection = await self._connected()
        try:
            done = await connection.run("exec sh -s", input=script)
        except (asyncssh.Error, OSError) as error:
            raise HostUnreachable(f"the connection broke: {one_line(str(error))}") from error
        if done.exit_status is None:
            raise HostUnreachable("the connection to the host was lost")
        out, err = str(done.stdout or ""), str(done.stderr or "")
        if done.exit_status != 0:
            last = (err.strip() or out.strip() or "it said nothing").splitlines()[-1]
            raise Unwell(f"exit status {done.exit_status}: {one_line(last)}")
        return out
