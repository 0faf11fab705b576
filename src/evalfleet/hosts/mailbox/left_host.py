"""A host whose node is gone for good, and whose box still holds what ended there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import msgspec

from evalfleet.hosts.base import AttemptEvent, Departure, HostInfo, Inbox, KnownAttempt, Launch
from evalfleet.hosts.mailbox.host import collect_uploaded
from evalfleet.hosts.mailbox.uploaded import ArchiveLink, Receipt, UploadedAttempts
from evalfleet.hosts.remote.collect import CollectLimits
from evalfleet.model import JsonObject

LOOK_S = 30.0  # between two lists of a box: hardly anything comes into it any more
_LAST = 1 << 30  # the number of an event after all others


class LeftHost:
    """Implements `Host` over the uploaded attempts alone: it tells ends and gives files. Attempts that are not there, and new ones,
    end with the cause for which the node is gone."""

    def __init__(
        self,
        info: HostInfo,
        run_id: str,
        inbox: Inbox,
        uploads: UploadedAttempts,
        limits: CollectLimits,
        why: Departure,
    ) -> None:
        self.info = info
        self._run_id = run_id
        self._inbox = inbox
        self._uploads = uploads
        self._limits = limits
        self._why = why
        self._found: dict[str, Receipt] = {}
        self._listed_at: float | None = None
        self.is_lost = False

    async def known(self) -> list[KnownAttempt]:
        now = anyio.current_time()
        if self._listed_at is None or now - self._listed_at >= LOOK_S:
            self._found = {one.attempt: one for one in await self._uploads.list() if one.has_end}
            self._listed_at = now
        return [KnownAttempt(one.attempt, live=False) for one in self._found.values() if one.run == self._run_id]

    @property
    def others(self) -> Sequence[KnownAttempt]:
        return [KnownAttempt(one.attempt, live=False) for one in self._found.values() if one.run != self._run_id]

    async def clear(self, run_id: str, epoch: int, *, stop: Sequence[str], forget: Sequence[str]) -> None:
        await self.forget(forget)

    async def launch(self, launches: Sequence[Launch]) -> None:
        self._end([one.attempt_id for one in launches])

    async def want(self, slots: int) -> None:
        pass

    async def observe(self, attempt_id: str, after: int) -> bool:
        receipt = await self._uploads.receipt(attempt_id)
        if receipt is None or not receipt.has_end:
            self._end([attempt_id])
            return True
        with TemporaryDirectory() as folder:
            archive = Path(folder) / "archive.tar"
            await self._uploads.fetch(receipt, archive)
            link = ArchiveLink(attempt_id, archive)
            try:
                lines = link.read("journal.jsonl").splitlines()
            finally:
                link.close()
        events = [msgspec.json.decode(line, type=dict[str, object]) for line in lines]
        self._inbox.put([one for one in map(_event, events) if one.number > after])
        return True

    async def stop(self, attempt_ids: Sequence[str], reason: str) -> None:
        pass

    async def collect(
        self, attempt_id: str, destination: Path, secrets: Mapping[str, str], *, listed_only: bool = False
    ) -> None:
        if await anyio.Path(destination).exists():
            return
        receipt = await self._uploads.receipt(attempt_id)
        if receipt is None:
            raise FileNotFoundError(f"its files were not uploaded before its node was gone: {self._why.message}")
        await collect_uploaded(self._uploads, receipt, destination, secrets, self._limits)

    async def forget(self, attempt_ids: Sequence[str]) -> None:
        await self._uploads.drop(attempt_ids)
        for attempt_id in attempt_ids:
            self._found.pop(attempt_id, None)

    async def lost(self) -> None:
        await anyio.sleep_forever()

    async def preemption_notice(self) -> str:
        return self._why.message

    def _end(self, attempt_ids: Sequence[str]) -> None:
        message = f"{self._why.message} (host {self.info.name})"
        end: JsonObject = {"cause": self._why.cause, "message": message, "errno": None}
        self._inbox.put([AttemptEvent(one, _LAST, 0.0, "ended", end) for one in attempt_ids])


def _event(event: JsonObject) -> AttemptEvent:
    return AttemptEvent(event["attempt"], event["event"], event["at"], event["type"], event)
