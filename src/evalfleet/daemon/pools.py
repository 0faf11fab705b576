"""Keeps pools that nobody keeps while something is wished of them, each with a process of its own.

Such a process is `evalfleet pool settle NAME`, as a person would type it: a slow cloud never slows the page. It takes the pool, makes it
what it should be, and leaves it, so that a run that uses the pool can keep it, and machines that nobody uses stop at their deadline as they
would without a server. It outlives a server that ends or is killed: money is at stake, and what was asked for is carried through. The next
server waits for it, and goes on where it was killed, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct, field

from evalfleet import config
from evalfleet.azure import settings as azure_settings
from evalfleet.core.hosts.lifecycle import total_usd
from evalfleet.daemon.file_limit import lower_file_limit
from evalfleet.daemon.readers import Readers
from evalfleet.model import DesiredState, Pool
from evalfleet.pools.convergence import is_settled
from evalfleet.store.base.store import StoreReader

LOG = "settle.log"
_LOOK_S = 0.5
_MOST = 8  # pools at a time
_GRACE_S = 3.0  # left to the command that has just written a wish, before we take it for dead
_FIRST_S = 5.0  # before what failed is tried again; doubles each time
_LONGEST_S = 900.0
_DONE = (0, 3)  # 3: it said why not


class _Wanted(Struct):
    """A pool that we keep, or will."""

    forced: bool = False  # to be looked at though it is settled by what is written: only the cloud knows better
    again: bool = False  # machines in quarantine may try again
    more: bool = False  # something was wished while its process was about to end
    times: int = 0  # failed
    not_before: float = 0.0  # by the loop's clock
    process: subprocess.Popen[bytes] | None = None


class Standing(Struct, frozen=True, kw_only=True):
    """How a pool of rented machines stands."""

    kept: bool  # by somebody, of whichever process
    settled: bool
    used: bool  # a run that is not over will keep it


def again_after_s(code: int, standing: Standing | None, times: int) -> float | None:
    """Whether a pool is to be looked after again when its process has ended, and after how long; None: it is not."""
    if standing is None or (code in _DONE and standing.settled):
        return None
    return min(_LONGEST_S, _FIRST_S * 2.0 ** min(times, 10))


class Stewards(Struct, kw_only=True):
    """Used in the event loop's thread."""

    settings: config.Settings
    readers: Readers
    notice: Callable[[str], None]
    _wanted: dict[str, _Wanted] = field(default_factory=dict[str, _Wanted])
    _unseen: set[str] = field(default_factory=set[str])  # wanted since the last look began, which knows nothing of them
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def want(self, name: str, *, again: bool = False) -> None:
        """See to it that what was wished of this pool is done, whoever keeps it now."""
        wanted = self._wanted.setdefault(name, _Wanted())
        wanted.forced = True
        wanted.again |= again
        wanted.more = wanted.process is not None
        wanted.times, wanted.not_before = 0, 0.0
        self._unseen.add(name)
        self._remember()
        self._wake.set()

    async def serve(self) -> None:
        """Look after pools until cancelled. What is under way then goes on by itself."""
        for name, again in self._remembered().items():
            self._wanted.setdefault(name, _Wanted(forced=True, again=again))
        while True:
            await self._look()
            with anyio.move_on_after(_LOOK_S):
                await self._wake.wait()
            self._wake.clear()

    async def _look(self) -> None:
        over = {
            name: code for name, one in self._wanted.items() if one.process and (code := one.process.poll()) is not None
        }
        self._unseen.clear()
        pools = await self.readers.call(standings)  # after the look at processes, whose last words are in it
        now = anyio.current_time()
        for name, pool in pools.items():
            if self._can_keep and not (pool.kept or pool.settled or pool.used):
                self._wanted.setdefault(name, _Wanted(not_before=now + _GRACE_S))
        for name, wanted in list(self._wanted.items()):
            pool = pools.get(name)
            if pool is None and name in self._unseen:
                continue  # it was made since
            if name in over:
                self._ended(name, wanted, over[name], pool)
            elif wanted.process is None:
                self._go_on(name, wanted, pool, now)
        self._remember()

    def _go_on(self, name: str, wanted: _Wanted, pool: Standing | None, now: float) -> None:
        if pool is None:
            del self._wanted[name]
        elif pool.kept:
            # Whoever keeps it looks at the cloud, too; but pardons nobody, and may have left since.
            wanted.forced = wanted.again or name in self._unseen
        elif pool.settled and not wanted.forced:
            del self._wanted[name]
        elif wanted.not_before <= now and self._running < _MOST:
            self._start(name, wanted)

    @property
    def _can_keep(self) -> bool:
        return azure_settings.reachable(self.settings)

    @property
    def _running(self) -> int:
        return sum(one.process is not None for one in self._wanted.values())

    def _start(self, name: str, wanted: _Wanted) -> None:
        log = self.settings.home / "pools" / name / LOG
        log.parent.mkdir(parents=True, exist_ok=True)
        self.notice(f"keeping pool {name}")
        more = ("--again",) if wanted.again else ()
        with log.open("ab") as file:
            os.fchmod(file.fileno(), 0o600)
            wanted.process = subprocess.Popen(
                (sys.executable, "-m", "evalfleet", "pool", "settle", name, *more),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**config.environment(), "EVALFLEET_HOME": str(self.settings.home)},
                start_new_session=True,  # a Ctrl-C is for us
            )
        lower_file_limit(wanted.process.pid)
        wanted.forced = wanted.again = wanted.more = False

    def _ended(self, name: str, wanted: _Wanted, code: int, pool: Standing | None) -> None:
        wanted.process = None
        delay = 0.0 if wanted.more else again_after_s(code, pool, wanted.times)
        if delay is None or pool is None:
            del self._wanted[name]
            self.notice(f"pool {name} is {'gone' if pool is None else 'as it should be'}")
            return
        wanted.times += not wanted.more
        wanted.forced = True
        wanted.not_before = anyio.current_time() + delay
        if delay:
            self.notice(f"pool {name} is not what it should be; again in {delay:.0f} s, pools/{name}/{LOG} says why")

    # What is remembered for the next server

    @property
    def _file(self) -> Path:
        return self.settings.home / "serve-pools.json"

    def _remembered(self) -> dict[str, bool]:
        found: Any = None
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(self._file.read_text("utf-8"))["pools"]
        if not isinstance(found, dict):
            return {}
        return {str(name): again is True for name, again in found.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - checked one by one

    def _remember(self) -> None:
        pools = {name: self._wanted[name].again for name in sorted(self._wanted)}
        if pools != self._remembered():
            partial = self._file.with_name(f".serve-pools.json.{os.getpid()}")
            partial.write_text(json.dumps({"pools": pools}) + "\n", "utf-8")
            partial.replace(self._file)


def standings(store: StoreReader) -> dict[str, Standing]:
    """Of all pools whose machines we make."""
    with store.snapshot():
        rented = [pool for pool in store.pools() if pool.backend != "ssh"]
        if not rented:
            return {}
        live = store.runs_page(limit=1000, states=["queued", "running", "paused"])
        used = {row["run"].policy.pool for row in live}
        return {
            pool.name: Standing(
                kept=store.pool_owner(pool.name) is not None,
                settled=is_settled(pool, store.hosts(pool.name)) and not _is_overspent(store, pool),
                used=pool.name in used,
            )
            for pool in rented
        }


def _is_overspent(store: StoreReader, pool: Pool) -> bool:
    """Whether machines run that the pool's budget does not allow any more: then somebody must stop them."""
    limit: float | None = pool.settings.get("budget_usd")
    if limit is None or not any(host.desired is DesiredState.RUNNING for host in store.hosts(pool.name)):
        return False
    return total_usd(store.hosts(pool.name, gone=True), store.now()) >= limit
