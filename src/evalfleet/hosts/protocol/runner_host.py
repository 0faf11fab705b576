"""A host behind a link to its runner. Backends add how files are collected."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from evalfleet.hosts.base import AttemptEvent, HostInfo, Inbox, KnownAttempt, Launch, SlotReport, gpus_of
from evalfleet.hosts.load import load_of
from evalfleet.hosts.protocol.link import PROTOCOL, CommandRefused, OnEvents, RunnerLink, raise_refusal
from evalfleet.model import PYTHON, JsonObject

# Answers that say something about the controller or the connection, not about the attempt that was to be launched.
_OURS = frozenset({"foreign_home", "stale_epoch", "shutting_down"})
# One that raced with the notice that the machine goes is no more the task's fault than those that were launched. A runner that
# answers and cannot keep what it is given has a host that cannot work; only where it says nothing of the kind, we know no better.
_CAUSES = {"draining": "preempted", "io_error": "host_failed"}


def into(inbox: Inbox) -> OnEvents:
    """A callback for `RunnerLink` that puts events into the engine's inbox."""
    return lambda events: inbox.put(
        [AttemptEvent(event["attempt"], event["event"], event["at"], event["type"], event) for event in events]
    )


class RunnerHost:
    """Implements `Host` except for `collect`."""

    def __init__(
        self,
        link: RunnerLink,
        inbox: Inbox,
        info: HostInfo,
        run_id: str,
        epoch: int,
        *,
        python: str | None,
        slots: int | None = None,
        claim: JsonObject | None = None,
    ) -> None:
        """
        Args:
            python: the value of `{python}` on this host; None if it has none.
            slots: how many attempts it runs at a time, over all runs; None if they are not counted.
            claim: whose run it is, see `Home.claim`.
        """
        self._link = link
        self._python = python
        self._inbox = inbox
        self._info = info if slots is None else replace(info, room=SlotReport())
        self._fence: JsonObject = {"run": run_id, "epoch": epoch, **(claim or {})}
        self._slots = slots
        link.on_slots = self._told_slots
        self._others: tuple[KnownAttempt, ...] = ()

    @property
    def info(self) -> HostInfo:
        return self._info

    async def known(self) -> list[KnownAttempt]:
        asked_at = time.monotonic()
        answer = await self._link.request("hello", protocol=PROTOCOL, notices=True, load=True, **self._fence)
        ours = [one for one in answer["attempts"] if one["run"] == self._fence["run"]]
        theirs = [one for one in answer["attempts"] if one["run"] != self._fence["run"]]
        self._others = tuple(KnownAttempt(one["attempt"], one["state"] == "running") for one in theirs)
        live = frozenset(one.attempt_id for one in self._others if one.live)
        self._info = replace(self._info, others=live, age_s=answer.get("age_s"))
        if "gpus" in answer:
            devices = gpus_of(self._info.name, answer["gpus"])
            looked_at = asked_at - float(answer.get("gpus_age_s") or 0)
            self._info = replace(self._info, gpus=len(devices), devices=devices, looked_at=looked_at)
        self._info = replace(self._info, load=load_of(answer))
        return [KnownAttempt(one["attempt"], one["state"] == "running") for one in ours]

    async def want(self, slots: int) -> None:
        if self._info.room is None:
            return
        try:
            self._told_slots(await self._link.request("want", **self._fence, slots=self._slots, most=slots))
        except CommandRefused as error:
            if error.code != "bad_request":
                raise
            self._info = replace(self._info, room=None)  # a busy runner of an older version, which counts none
            self._inbox.poke()

    def _told_slots(self, told: JsonObject) -> None:
        room = SlotReport(
            free=int(told["free"]),
            live=frozenset(told["live"]),
            others=int(told["others"]),
            by=tuple(map(str, told["by"])),
            trouble=told.get("trouble"),
        )
        if self._info.room is not None and room != self._info.room:
            self._info = replace(self._info, room=room)
            self._inbox.poke()

    @property
    def others(self) -> Sequence[KnownAttempt]:
        return self._others

    async def clear(self, run_id: str, epoch: int, *, stop: Sequence[str], forget: Sequence[str]) -> None:
        fence = {"run": run_id, "epoch": epoch}
        await self._all({"do": "cancel", **fence, "attempt": one, "reason": "its run is over"} for one in stop)
        await self._all({"do": "ack", **fence, "attempt": one} for one in forget)

    async def launch(self, launches: Sequence[Launch]) -> None:
        now = self._link.their_time()
        counted = {} if self._info.room is None else {"slots": self._slots}
        answers = await self._link.send_many(
            {
                "do": "launch",
                **self._fence,
                **(counted if launch.takes_slot else {}),
                "attempt": launch.attempt_id,
                "valid_for_s": launch.valid_for_s,
                "not_after": None if now is None else now + launch.valid_for_s,
                "spec": self._resolved(launch.spec),
                "secrets": launch.secrets,
            }
            for launch in launches
        )
        for launch, answer in zip(launches, answers, strict=True):
            if answer.get("error") in _OURS:
                raise_refusal(answer)
            if not answer.get("ok"):
                cause = _CAUSES.get(str(answer.get("error")), "backend_error")
                message = f"{answer.get('message')} (host {self._info.name})"
                self._end(launch.attempt_id, cause, message, answer.get("errno"))

    async def observe(self, attempt_id: str, after: int) -> bool:
        answer = await self._link.request("attach", attempt=attempt_id, **{"from": after + 1})
        return answer.get("known") is True

    async def stop(self, attempt_ids: Sequence[str], reason: str) -> None:
        await self._all({"do": "cancel", **self._fence, "attempt": one, "reason": reason} for one in attempt_ids)

    async def forget(self, attempt_ids: Sequence[str]) -> None:
        await self._all({"do": "ack", **self._fence, "attempt": one} for one in attempt_ids)

    @property
    def is_lost(self) -> bool:
        return self._link.gone.is_set()

    async def lost(self) -> None:
        await self._link.gone.wait()

    async def preemption_notice(self) -> str:
        return await self._link.preemption_notice()

    def _resolved(self, spec: JsonObject) -> JsonObject:
        program, *words = spec["command"]
        return spec if program != PYTHON or self._python is None else {**spec, "command": [self._python, *words]}

    def _end(self, attempt_id: str, cause: str, message: str, errno: int | None) -> None:
        """The end of an attempt that never started."""
        end: JsonObject = {"cause": cause, "message": message, "errno": errno}
        self._inbox.put([AttemptEvent(attempt_id, 0, 0.0, "ended", end)])

    async def _all(self, messages: Iterable[JsonObject]) -> None:
        for answer in await self._link.send_many(messages):
            raise_refusal(answer)
