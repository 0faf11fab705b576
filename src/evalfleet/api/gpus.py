"""GPUs for programs that are no tasks: a notebook, a training script, somebody else's scheduler.

::

    from evalfleet import GpuPool

    async with GpuPool().acquire(gpus=2, min_memory_mb=8000, timeout=300) as lease:
        subprocess.run(["vllm", "serve", "…"], env={**environment, **lease.env}, pass_fds=lease.fds)

Programs wait in the same queue as the tasks of all runs of the home, and nobody else gets the cards meanwhile: the lease is in
the home's store, and each card is locked on this machine, for other homes and users too. A program that dies gives its lease
back within seconds. What it started and gave `pass_fds` keeps the cards locked for as long as it lives.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from math import inf
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from evalfleet import config
from evalfleet.api.tasks import Duration, Folder, plain
from evalfleet.core.gpus.allocation import never
from evalfleet.core.gpus.cards import Card, blocked
from evalfleet.errors import GpuTimeout, InputError, NoSuchGpus
from evalfleet.hosts.base import single_error
from evalfleet.hosts.local import gpus as gpus_here
from evalfleet.hosts.local.backend import HOST
from evalfleet.layout import Home
from evalfleet.model import Device, Requests
from evalfleet.report.gpus import gpus_facts
from evalfleet.report.terminal.gpus import whose
from evalfleet.store.gpus.records import PROGRAM_S, RENEW_S, Ask, Program
from evalfleet.store.home import process
from evalfleet.store.ids import new_id
from evalfleet.store.open import open_store
from evalfleet.store.store import Store
from evalfleet.store.thread import StoreThread
from evalfleet.validation import seconds

_TURN_S = 0.01  # how soon what others release is noticed
_LOOK_S = 5.0  # a look at the cards is not older than that while we wait
_LOCK_S = 0.5  # whoever had a card before may need a moment to close its lock


class GpuLease(Struct, frozen=True, kw_only=True):
    """Cards that are ours until the `async with` block ends."""

    devices: tuple[Device, ...]
    env: dict[str, str]  # for programs that shall use them: CUDA_VISIBLE_DEVICES and what goes with it
    fds: tuple[int, ...]  # of the locks: hand them to child processes with `pass_fds`

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(device.uuid for device in self.devices)

    @property
    def indices(self) -> tuple[int, ...]:
        return tuple(device.index for device in self.devices)


class GpuPool:
    """The GPUs of this machine, shared with all runs of a home.

    Args:
        home: whose runs; else EVALFLEET_HOME, or ~/.evalfleet.
        name: what `evalfleet gpus` calls this program; else the name of its file.
    """

    def __init__(self, home: Folder | None = None, *, name: str | None = None) -> None:
        self._home = Home(config.load(home).home)
        self._name = name or Path(sys.argv[0] or "python").name

    def acquire(
        self,
        gpus: int = 1,
        *,
        min_memory_mb: int = 0,
        timeout: Duration | None = None,
        places: Sequence[int] = (),
        pack: bool = False,
        env_style: str = "index",
    ) -> AbstractAsyncContextManager[GpuLease]:
        """Wait until so many whole cards are free, and have them until the block ends.

        Args:
            gpus: how many; all of them or none.
            min_memory_mb: so much of each must be free.
            timeout: how long to wait at most; None: for ever.
            places: which cards, by their place on the PCI bus; (): all.
            pack: take the fullest cards that will do, so that large sets stay free; else the freest.
            env_style: how `lease.env` names the cards: "index", in PCI order, or "uuid", which some servers refuse.

        Raises:
            InputError: what is asked for makes no sense.
            NoSuchGpus: this machine could never give it.
            GpuTimeout: it was not free in time; says who has it.
        """
        if gpus < 1 or min_memory_mb < 0 or env_style not in ("index", "uuid"):
            raise InputError(
                f"gpus={gpus}, min_memory_mb={min_memory_mb}, env_style={env_style!r}: ask for at least 1 GPU, no "
                'negative memory, and env_style "index" or "uuid"'
            )
        given = plain(timeout)
        wait_s = 0.0 if given == 0 else seconds("timeout", given)
        ask = Ask(gpus=gpus, least_mb=min_memory_mb, hosts=frozenset({HOST}), places=tuple(places), pack=pack)
        return self._acquired(ask, wait_s, env_style)

    @asynccontextmanager
    async def _acquired(self, ask: Ask, wait_s: float | None, env_style: str) -> AsyncGenerator[GpuLease]:
        thread = StoreThread()
        store = await thread.call(open_store, self._home.path)
        pid, born, boot = process.me()
        words = f"{self._name} (process {pid})"
        waiting = _Waiting(
            thread, store, self._home, Program(token=new_id(16), name=words, pid=pid, born=born, boot=boot)
        )
        try:
            if not await waiting.wait(ask, inf if wait_s is None else wait_s):
                raise GpuTimeout(await thread.call(_excuse, store, waiting.program, ask, wait_s or 0.0))
            with single_error():
                async with anyio.create_task_group() as group:
                    group.start_soon(waiting.renew)
                    yield _lease(waiting.devices, waiting.fds, env_style)
                    group.cancel_scope.cancel()
        finally:
            waiting.unlock()
            await thread.finish(store.gpus.free, waiting.program)
            await thread.finish(store.close)


class _Waiting:
    """One request on its way to its cards."""

    def __init__(self, thread: StoreThread, store: Store, home: Home, program: Program) -> None:
        self.program = program
        self.devices: tuple[Device, ...] = ()
        self.fds: list[int] = []
        self._thread = thread
        self._store = store
        self._spool = home.spool

    async def wait(self, ask: Ask, wait_s: float) -> bool:
        """Return when the cards are leased, locked, and really free; False: they are not after that time."""
        until = anyio.current_time() + wait_s
        looked_at = await self._see(ask)
        while True:
            turn = await self._thread.call(self._store.gpus.turn)
            devices = await self._thread.call(self._store.gpus.lease, self.program, ask)
            if devices is not None:
                taken = await self._take(devices, ask)
                if not taken:
                    return True
                await self._thread.call(self._give_back, taken)
            if anyio.current_time() >= until:
                return False
            await self._moved(turn, min(RENEW_S, until - anyio.current_time()))
            if anyio.current_time() - looked_at > _LOOK_S:
                looked_at = await self._see(ask)

    async def _moved(self, turn: int, at_most_s: float) -> None:
        """Return when it is our turn, or after that time.

        Asked here and not in the store's thread: it is idle now, and the answer takes microseconds.
        """
        until = anyio.current_time() + at_most_s
        while anyio.current_time() < until:
            await anyio.sleep(_TURN_S)
            moved = self._store.gpus.turn()
            if moved != turn and self._store.gpus.is_turn(self.program.token):
                return
            turn = moved

    async def _see(self, ask: Ask) -> float:
        """Tell the store what the cards show; returns when that was. Raises NoSuchGpus."""
        began = anyio.current_time()
        now = self._store.now()
        seen = await anyio.to_thread.run_sync(gpus_here.look, self._spool)
        asked = Requests(gpus=ask.gpus, gpu_memory_mb=ask.least_mb)
        why = never(asked, ask.places, {HOST: seen.cards})
        if why is not None:
            raise NoSuchGpus(f"{self.program.name} {why}" + (f" ({seen.problem})" if seen.problem else ""))
        await self._thread.call(self._keep, seen.cards, now)
        return began

    def _keep(self, cards: Sequence[Card], now: float) -> None:
        with self._store.batch():
            leased = {lease.uuid for lease in self._store.gpus.leases() if lease.host == HOST}
            # Whoever leases a card also locks it, and its memory is his.
            told = [replace(card, held=None, unexplained_mb=None) if card.uuid in leased else card for card in cards]
            self._store.gpus.see(HOST, told, now)

    async def _take(self, devices: tuple[Device, ...], ask: Ask) -> list[str]:
        """Lock the cards and look once more. Returns those that somebody else is on; none: they are ours."""
        self.devices = devices
        taken = await anyio.to_thread.run_sync(self._lock)
        if not taken:
            seen = await anyio.to_thread.run_sync(gpus_here.look, self._spool)
            found = {card.uuid: replace(card, held=None) for card in seen.cards}
            taken = [device.uuid for device in devices if not _is_free(found.get(device.uuid), ask)]
        if taken:
            self.unlock()
        return taken

    def _lock(self) -> list[str]:
        for device in self.devices:
            until = time.monotonic() + _LOCK_S
            while True:
                try:
                    self.fds.append(gpus_here.lock(self._spool, device.uuid, self.program.name))
                    break
                except gpus_here.GpuInUse:
                    if time.monotonic() > until:
                        return [device.uuid]
                    time.sleep(_TURN_S)
        return []

    def _give_back(self, taken: list[str]) -> None:
        with self._store.batch():
            self._store.gpus.free(self.program)
            self._store.gpus.avoid(HOST, taken)

    def unlock(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    async def renew(self) -> None:
        """Say that we live, for those who cannot look."""
        while True:
            await anyio.sleep(PROGRAM_S / 4)
            await self._thread.call(self._store.gpus.renew, self.program)


def _is_free(card: Card | None, ask: Ask) -> bool:
    return card is not None and blocked(card, 0.0) is None and (card.shown_mb or 0) >= ask.least_mb


def _lease(devices: tuple[Device, ...], fds: Sequence[int], env_style: str) -> GpuLease:
    names = [str(device.index) if env_style == "index" else device.uuid for device in devices]
    rows = [{"uuid": device.uuid, "index": device.index, "memory_mb": device.memory_mb} for device in devices]
    env = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(names),
        "EVALFLEET_GPUS": json.dumps(rows),
        "EVALFLEET_GPU_LOCK_FDS": ",".join(map(str, fds)),
    }
    return GpuLease(devices=devices, env=env, fds=tuple(fds))


def _excuse(store: Store, program: Program, ask: Ask, wait_s: float) -> str:
    facts = gpus_facts(store)
    place = next((row.position for row in facts.waiting if row.program == program.name), None)
    queue = f"; place {place} of {len(facts.waiting)} in the queue" if place else ""
    now = store.now()
    cards = "; ".join(f"GPU {gpu.index}: {whose(gpu, now)}" for gpu in facts.gpus[:16] if gpu.host == HOST)
    many = f"{ask.gpus} GPU{'s' * (ask.gpus > 1)}"
    return f"{program.name} got no {many} within {wait_s:g} s{queue}. {cards}. `evalfleet gpus` shows them"
