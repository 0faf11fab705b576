"""What is kept of a machine that failed, before it is stopped or deleted."""

from __future__ import annotations

from msgspec.structs import replace

from evalfleet.config import set_secrets
from evalfleet.hosts.access import ReachableHost
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.facts import facts_of
from evalfleet.pools.machine.logs.kept import keep, read_all
from evalfleet.pools.machine.logs.logs import machine_logs
from evalfleet.pools.machine.reach import ssh_spec
from evalfleet.pools.machine.record import MachineRecord
from evalfleet.store.store import Store

LIMIT_S = 20.0  # a machine that failed is not kept longer than that for the sake of its logs


class FailureLogs:
    """Of one machine."""

    def __init__(self, context: PoolContext, record: MachineRecord) -> None:
        self._context = context
        self._record = record

    async def told(self, message: str, *, by_login: bool) -> str:
        """Keep the machine's logs, once for each failure. Returns the message, with the folder that they are in.

        Args:
            by_login: whether the machine may answer SSH; else only its cloud is asked.
        """
        folder = self._record.facts.logs or await self._kept(by_login)
        return message if folder is None or folder in message else f"{message}; its logs are in {folder}"

    async def _kept(self, by_login: bool) -> str | None:
        context, name = self._context, self._record.name
        host = self._reached() if by_login else None
        async with machine_logs(name, context.cloud, host, context.home) as logs:
            texts = await read_all(logs, LIMIT_S)
        if not texts:
            return None
        runs, secrets = await context.record.call(_runs_and_secrets, context.record.store, context.record.name)
        folder = await keep(context.home, context.record.name, name, runs, texts, set_secrets(secrets))
        if folder is not None:
            await context.record.note("worker.logs_kept", {"host": name, "folder": folder, "logs": list(texts)})
            await self._record.move(facts=replace(self._record.facts, logs=folder))
        return folder

    def _reached(self) -> ReachableHost | None:
        host, pool = self._record.host, self._context.record.name
        if facts_of(host).address is None:
            return None
        spec = ssh_spec(self._context.provider, host, self._context.wanted.slots)
        return ReachableHost(pool=pool, spec=spec, known_hosts=())


def _runs_and_secrets(store: Store, pool: str) -> tuple[list[str], set[str]]:
    """The runs that use the pool now, and the names of their tasks' secrets."""
    runs = [one.run_id for one in store.pools.demand(pool)]
    return runs, {name for run in runs for task in store.tasks.all(run) for name in task.spec.secrets}
