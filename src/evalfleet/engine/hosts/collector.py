"""Collects the files of ended attempts, then lets the host forget them.

The verdict is stored before, and missing files never change it: an attempt whose files cannot be collected stays
`collecting` and is tried again at the next connection. So does one whose files may hold a secret that is unknown here: the
next controller may know it. Where files are kept elsewhere than in the home, they go there before their attempt is `ended`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import anyio

from evalfleet.engine.dispatcher import Secrets
from evalfleet.engine.hosts.uploads import FileUploads
from evalfleet.engine.orders import Ended
from evalfleet.errors import BackendError, MissingSecret, RunnerRefused
from evalfleet.hosts.base import Host
from evalfleet.layout import Home
from evalfleet.model import JsonObject, Kind, Run
from evalfleet.store.store import Store
from evalfleet.store.thread import StoreThread


class FileCollector:
    """One per host. `put` adds ended attempts; `serve` collects them while the host is connected."""

    def __init__(
        self,
        store: Store,
        thread: StoreThread,
        home: Home,
        run: Run,
        secrets: Secrets,
        uploads: FileUploads,
        done: Callable[[], None],
    ) -> None:
        self._store = store
        self._thread = thread
        self._home = home
        self._run = run
        self._secrets = secrets
        self._uploads = uploads
        self._done = done  # called when nothing is left to collect, or the host is gone
        self._waiting: dict[str, Ended] = {}
        self._given_up: set[str] = set()
        self._taken: set[str] = set()  # their host has given what it could
        self._sealed: set[str] = set()  # their files may hold a secret that is unknown here
        self._wake = anyio.Event()
        self._host: Host | None = None
        self._abandoned = False

    def put(self, ended: Sequence[Ended]) -> None:
        if ended:
            self._waiting |= {one.attempt.id: one for one in ended}
            self._wake.set()

    def use(self, host: Host | None) -> None:
        """Collect from this connection from now on; None if the host is not reached."""
        self._host = host
        self._abandoned &= host is None
        self._wake.set()

    def abandon(self) -> None:
        """The host is given up: do not wait for its files. If it comes back, they are collected then."""
        self._abandoned = True
        self._wake.set()

    def surrender(self) -> list[Ended]:
        """Hand over the uncollected attempts to another collector."""
        left, self._waiting = list(self._waiting.values()), {}
        return left

    @property
    def waiting(self) -> int:
        """How many attempts still have files to collect."""
        return len(self._waiting)

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    async def serve(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            while self._waiting and self._host is not None:
                await self._work_off(self._host, list(self._waiting.values()))
                await self._pause()
            while here := [one for one in self._waiting.values() if self._uploads.is_here(one)]:
                await self._finish(await self._uploads.move(here))  # needs no host
                await self._pause()
                if self._host is not None:
                    self._wake.set()
                    break
            if self._abandoned:
                await self._go_without([one for one in self._waiting.values() if not self._uploads.is_here(one)])
            self._done()

    async def _pause(self) -> None:
        """Where files cannot be stored now, wait a while; what comes meanwhile is collected at once."""
        if self._waiting and self._uploads.wait_s:
            with anyio.move_on_after(self._uploads.wait_s):
                await self._wake.wait()
                self._wake = anyio.Event()

    async def _work_off(self, host: Host, batch: list[Ended]) -> None:
        try:
            for one in batch:
                if one.attempt.id not in self._taken:
                    await self._collect(host, one)
                    self._taken.add(one.attempt.id)
            batch = await self._uploads.move(batch)
            if not batch:
                return
            await self._thread.call(self._store_collected, batch)
            kept = self._given_up | self._sealed
            with suppress(RunnerRefused):  # it keeps the attempt and reports it again at the next connection
                await host.forget([one.attempt.id for one in batch if one.attempt.id not in kept])
        except BackendError:
            if self._host is host:
                self._host = None  # the rest is collected at the next connection
            return
        await self._leave(batch)

    async def _finish(self, batch: list[Ended]) -> None:
        """Store what the host has given before it went away. It reports these attempts again when it is back."""
        await self._thread.call(self._store_collected, batch)
        await self._leave(batch)

    async def _leave(self, batch: list[Ended]) -> None:
        """Wait for these no more."""
        await self._uploads.drop([one for one in batch if one.attempt.id not in self._given_up | self._sealed])
        for one in batch:
            self._waiting.pop(one.attempt.id, None)
            self._taken.discard(one.attempt.id)

    async def _collect(self, host: Host, one: Ended) -> None:
        destination = self._home.attempt(self._run.id, one.key, one.attempt.number)
        try:
            secrets = self._unseen_secrets(one)
        except MissingSecret as error:
            self._sealed.add(one.attempt.id)
            await self._note(one, f"its files may hold a secret, and stay on the host until it is known here: {error}")
            return
        try:
            await host.collect(one.attempt.id, destination, secrets, listed_only=bool(one.secrets))
        except OSError as error:
            await self._give_up(one, str(error))
            return
        self._given_up.discard(one.attempt.id)
        end: JsonObject = one.attempt.end or {}
        if end.get("artifacts_error"):
            await self._note(
                one, f"{end.get('artifacts_left_out') or 'some'} artifacts are missing: {end['artifacts_error']}"
            )

    async def _go_without(self, batch: list[Ended]) -> None:
        for one in batch:
            await self._give_up(one, "its host is given up")
        await self._thread.call(self._store_collected, batch)
        for one in batch:
            self._waiting.pop(one.attempt.id, None)

    async def _give_up(self, one: Ended, why: str) -> None:
        """Missing files change no verdict and delay no run: they stay on the host, and an event says so."""
        self._given_up.add(one.attempt.id)
        await self._note(one, why)

    async def _note(self, one: Ended, why: str) -> None:
        data: JsonObject = {"error": why}
        await self._thread.call(
            self._store.events.note, self._run.id, "attempt.uncollected", data, one.key, one.attempt.id
        )

    def _unseen_secrets(self, one: Ended) -> dict[str, str]:
        """The secrets of an attempt whose runner died, or was given up, before it could redact the task's files.

        Raises MissingSecret.
        """
        end: JsonObject = one.attempt.end or {}
        if end.get("cause") != Kind.RUNNER_LOST and "artifacts" in end:
            return {}  # its runner knew them and has redacted the files
        return self._secrets(one.secrets) if one.secrets else {}

    def _store_collected(self, batch: list[Ended]) -> None:
        with self._store.batch():
            for one in batch:
                if one.attempt.id in self._sealed:
                    continue
                end: JsonObject = one.attempt.end or {}
                brought = () if one.attempt.id in self._given_up else end.get("artifacts") or ()
                self._store.attempts.collect(self._run, one.attempt, brought)
