"""Brings one machine from what it is to what it should be, step by step, and goes on wherever an earlier one died."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import anyio
from msgspec.structs import replace

from evalfleet.azure.error_causes import Action, Cause, Problem, classify
from evalfleet.azure.offers import Offering
from evalfleet.azure.requests.vm import TAG_OWNER, TAG_WORKER
from evalfleet.azure.responses import VmView
from evalfleet.azure.vm_facts import Operation, VmFacts, facts_of
from evalfleet.azure.vms import Refusal, Verb
from evalfleet.core.hosts.lifecycle import HOUR_S, Seen, Step, metered, next_step
from evalfleet.model import DesiredState, HostState, PoolHost
from evalfleet.pools.machine.context import SCHEDULE_S, PoolContext
from evalfleet.pools.machine.creation import MachineCreation

PATIENCE = 20  # refused looks and orders in a row, each after a longer pause
FAILURES = 3  # of operations that the cloud accepted: starts, stops, deletions
PROTECTIONS = 6  # times that a deadline is asked for, each after a longer pause
RENEW_AT = 0.25  # of the deadline's length, gone by: then it is moved
LAGS = 24  # polls that a machine which was ordered may not be found
ADDRESS_S = 300.0
_ON = "running"
Waits: TypeAlias = Callable[[], Awaitable[str | None]]


class Failed(Refusal):
    """An operation that the cloud accepted has failed."""


class MachineController:
    """One host. Everything that it decides by is in the store or in the cloud; nothing is only in its memory."""

    def __init__(self, context: PoolContext, host: PoolHost, waits: Waits | None = None) -> None:
        """
        Args:
            waits: which work on the host must end, or be collected, before it is stopped or deleted; None: there is none.
        """
        self.context = context
        self.host = host
        self._waits = waits
        self._vms = context.vms
        self._unprotected = 0  # times in a row that a deadline was refused
        self._protect_at = 0.0  # when it may be asked for again
        self._powers: set[str | None] = set()  # that we saw ourselves: what happened before nobody can tell exactly

    @property
    def facts(self) -> VmFacts:
        return facts_of(self.host)

    async def reconcile(self) -> PoolHost:
        """Bring the host to its desired state; return when it rests, or waits for its work to end.

        Raises:
            NotOurs: the pool has another owner.
            Refusal: the cloud lets us do nothing, or has not for long.
        """
        refused = failed = 0
        while True:
            try:
                if await self._step():
                    return self.host
                refused = 0
            except Failed as error:
                failed += 1
                if failed >= FAILURES:
                    raise
                await anyio.sleep(self.context.pause_s(failed, error))
            except Refusal as error:
                refused += 1
                # Also what nobody will ever allow is tried twice: the machine may have gone between look and order.
                if refused >= (2 if error.problem.action is Action.GIVE_UP else PATIENCE):
                    raise
                await anyio.sleep(self.context.pause_s(refused, error))

    async def _step(self) -> bool:
        """Look, and do one thing. True: there is nothing more to do."""
        self.host = await self.context.fresh(self.host)
        if self._must_wait():
            await self.protect()
            if not await self.look():
                await self._wait()
                return False
        view = await self._vms.view(self.host.name)
        if view is not None and not self._is_ours(view):
            return await self._give_up_name(view)
        if not await self._is_sure(view):
            await self._wait()
            return False
        self._powers.add(view.power if view else None)
        return await self._towards(view)

    async def _towards(self, view: VmView | None) -> bool:
        is_to_go = self.host.desired is not DesiredState.RUNNING
        waits = await self._waits() if self._waits is not None and is_to_go else None
        match next_step(self.host, _seen(view), busy=waits is not None):
            case Step.REST:
                return True
            case Step.DRAIN:
                if (self.host.state, self.host.reason) != (HostState.DRAINING, waits):
                    await self.move(state=HostState.DRAINING, reason=waits)
                return True
            case Step.WAIT:
                await self._wait()
            case Step.CREATE:
                await MachineCreation(self).create()
            case Step.CLEAR:
                await self._clear(view, self.facts.problem)
            case Step.PREPARE:
                assert view is not None
                return await self._check_readiness(view)
            case Step.START:
                await self._start()
            case Step.DEALLOCATE:
                await self.move(state=HostState.DRAINING, reason=None)
                await self.begin(Verb.DEALLOCATE, await self._vms.deallocate(self.host.name))
            case Step.DELETE:
                await self._delete()
            case Step.MARK_LOST:
                await self._mark_lost()
            case Step.STOPPED:
                facts = replace(self.facts, operation=None, problem=None)
                await self._stop_meter(state=HostState.STOPPED, facts=facts, reason=facts.unwell, readiness_check=None)
                return True
            case Step.GONE:
                await self._vms.drop_deadline(self.host.name)
                await self._stop_meter(state=HostState.GONE)
        return self.host.state is HostState.GONE

    async def move(self, *, facts: VmFacts | None = None, **changes: Any) -> None:
        """Write down how far the host is."""
        before = self.host.state
        written = self.host.facts if facts is None else facts.to_json()
        self.host = await self.context.move(replace(self.host, facts=written, **changes), before)

    async def begin(self, verb: Verb, continuation: str) -> None:
        await self.move(facts=replace(self.facts, operation=Operation(verb=verb, continuation=continuation)))

    async def look(self) -> bool:
        """Look once how far our operation is. True: it is over, well or not; a failed creation leaves its problem."""
        facts = self.facts
        assert facts.operation is not None
        verb = Verb(facts.operation.verb)
        offering = Offering(size=facts.size, region=facts.region, spot=facts.spot)
        progress = await self._vms.poll(verb, self.host.name, facts.operation.continuation, offering)
        if not progress.done:
            return False
        if progress.problem is None or verb is not Verb.CREATE:
            await self.move(facts=replace(facts, operation=None))
        else:
            problem = progress.problem
            await self.move(facts=replace(facts, operation=None, problem=problem), reason=problem.message)
        if progress.problem is not None and verb is not Verb.CREATE:
            raise Failed(progress.problem)
        return True

    async def _is_sure(self, view: VmView | None) -> bool:
        """False: the cloud took the order for it a moment ago and does not show it yet; it is there all the same, and costs."""
        at, lag_s = self.facts.accepted_at, LAGS * self.context.azure.poll_s
        if at is None or self.facts.problem is not None:
            return True
        if view is not None:
            await self.move(facts=replace(self.facts, accepted_at=None))
            return True
        return await self.context.now() - at >= lag_s

    def _must_wait(self) -> bool:
        """Whether what was ordered must end before anything else is; only a machine that is to go need not start first."""
        operation = self.facts.operation
        return operation is not None and (self.host.desired is not DesiredState.GONE or operation.verb == Verb.DELETE)

    async def _wait(self) -> None:
        await anyio.sleep(self.context.azure.poll_s)

    async def _stop_meter(self, **changes: Any) -> None:
        """The machine does not run any more. Since when, where it stopped with nobody looking, is a fair guess."""
        now, deadline_at = await self.context.now(), self.facts.deadline_at
        at = now if deadline_at is None else min(now, deadline_at)
        if self.host.state is HostState.DRAINING and _ON not in self._powers:
            at = min(at, self.host.updated_at)  # when it was ordered
        self.host = metered(self.host, at, running=False)
        await self.move(**changes)

    def _is_ours(self, view: VmView) -> bool:
        """Names are ours in our home only; but whoever made the VM put the mark of its key into a tag."""
        return view.tags.get(TAG_WORKER, "").rpartition(".")[2] in self.facts.keys

    async def _give_up_name(self, view: VmView) -> bool:
        """Never touch a machine that somebody else made; the pool takes the next number instead."""
        maker = view.tags.get(TAG_OWNER, "somebody else")
        reason = (
            f"there is a machine {view.name!r} that {maker} made; this one is left out, or choose another --name-prefix"
        )
        await self._stop_meter(state=HostState.GONE, reason=reason)
        return True

    async def _start(self) -> None:
        if self.host.state is not HostState.STOPPED:
            reason = "found switched off, by its deadline or by another hand; it is started again"
            await self._stop_meter(state=HostState.STOPPED, reason=reason)
        await self.move()  # nothing new, but refused where the pool has another owner
        await self.begin(Verb.START, await self._vms.start(self.host.name))

    # Getting ready

    async def _check_readiness(self, view: VmView) -> bool:
        """True: it is ready, or rests in quarantine."""
        from evalfleet.pools.machine.readiness import (  # brings SSH, which stopping and deleting do without
            CheckFailed,
            ReadinessChecks,
        )

        if self.host.state is not HostState.PREPARING or self.facts.address is None:
            await self._arrive(view)
        if self.facts.address is None:
            await self._await_address(view)
            return False
        if not await self._has_deadline(view):
            return False
        try:
            await ReadinessChecks(self).run()
        except CheckFailed as failed:
            if not failed.replace:
                await self.move(state=HostState.QUARANTINED, reason=str(failed))
                return True
            problem = Problem(cause=Cause.PROVISIONING, action=Action.NEXT_REGION, message=str(failed))
            await self._clear(view, problem)
            return False
        self.host = await self.context.fresh(self.host)
        if self.host.desired is not DesiredState.RUNNING or not await self._has_deadline(view):
            return False
        await self.move(state=HostState.READY, reason=None)
        return True

    async def _await_address(self, view: VmView) -> None:
        """Without a public address nobody reaches it; a new one may come a moment later than its machine."""
        since = self.host.allocated_since or self.host.updated_at
        limit_s = self.context.wanted.deadlines.get("ssh", ADDRESS_S)
        if await self.context.now() - since < limit_s:
            await self._wait()
            return
        said = f"it has no public address after {limit_s:g} s; a policy of the subscription may forbid one"
        await self._clear(view, Problem(cause=Cause.PROVISIONING, action=Action.NEXT_REGION, message=said))

    async def _arrive(self, view: VmView) -> None:
        """The machine runs: from now on it costs, and has a deadline that does not need us."""
        self.context.made()
        now = await self.context.now()
        # One that ran already when we came has done so since it was ordered, which was written down just before.
        since = now if len(self._powers) > 1 else self.host.updated_at
        self.host = metered(replace(self.host, made_at=self.host.made_at or since), since, running=True)
        facts = self.facts
        # Which of the keys that were ever meant for it the VM was made with is in its tag.
        made_with = facts.keys.get(view.tags.get(TAG_WORKER, "").rpartition(".")[2])
        facts = replace(
            facts,
            address=await self._vms.address(view),
            port=self.context.azure.ssh_port,
            login_key=str(self.context.login.path.absolute()),
            host_key=facts.host_key or made_with,
            region=view.region,
            size=view.size,
            spot=view.spot,
            operation=None,
            problem=None,
            unwell=None,
        )
        await self.move(state=HostState.PREPARING, facts=facts, reason=None, readiness_check="arm")

    # Its deadline

    async def renew(self, view: VmView) -> None:
        """Move the machine's deadline: it stops by itself so long after we were last here."""
        await self.expire(view, await self.context.deadline_s())
        length_s = self.context.wanted.max_hours * HOUR_S
        await self._vms.renew(view, await self.context.now() + length_s)

    async def expire(self, view: VmView, left_s: float) -> None:
        """Let the machine stop by itself after so much time, but for the next `renew`."""
        await self._set_deadline(view.region, view.tags, left_s)

    async def protect(self, tags: Mapping[str, str] | None = None) -> None:
        """Give a machine that was ordered its deadline, also while it is being made. What is refused is asked for again,
        later: without one it does not become ready.

        Args:
            tags: of the machine, where they are known already.
        """
        facts = self.facts
        is_ordered = facts.operation is not None and facts.operation.verb == Verb.CREATE
        if facts.deadline_at is not None or not is_ordered or anyio.current_time() < self._protect_at:
            return
        try:
            if tags is None:
                view = await self._vms.view(self.host.name)
                if view is None:
                    return
                tags = view.tags
            await self._set_deadline(facts.region, tags, await self.context.deadline_s())
        except Refusal as error:
            await self._refused_deadline(error)

    async def _has_deadline(self, view: VmView) -> bool:
        """Whether the cloud has its deadline, as it says itself; else it is given one. One that cannot have any is deleted."""
        at = self.facts.deadline_at
        now = await self.context.now()
        try:
            is_near = at is None or at - now < (1 - RENEW_AT) * await self.context.deadline_s()
            if at is None or is_near or not await self._vms.has_deadline(self.host.name, at):
                await self.renew(view)
            return True
        except Refusal as error:
            await self._refused_deadline(error)
            if self._unprotected < (2 if error.problem.action is Action.GIVE_UP else PROTECTIONS):
                await anyio.sleep(max(0.0, self._protect_at - anyio.current_time()))
                return False
            said = f"no deadline can be set for it, and without one it would run for ever: {error}"
            await self._clear(view, replace(error.problem, action=Action.GIVE_UP, message=said))
            return False

    async def _refused_deadline(self, error: Refusal) -> None:
        self._unprotected += 1
        pause_s = self.context.azure.poll_s * 2 ** min(self._unprotected, 6)
        self._protect_at = anyio.current_time() + pause_s
        facts = replace(self.facts, deadline_refused=str(error))
        await self.move(facts=facts, reason=f"has no deadline yet: {error}")

    async def _set_deadline(self, region: str, tags: Mapping[str, str], left_s: float) -> None:
        at = await self.context.now() + min(left_s, SCHEDULE_S)
        await self._vms.set_deadline(self.host.name, region, tags, at)
        self._unprotected = 0
        self.host = await self.context.fresh(self.host)
        facts = replace(self.facts, deadline_at=at, deadline_refused=None)
        await self.move(facts=facts, reason=None if self.facts.deadline_refused else self.host.reason)

    # Ending

    async def _clear(self, view: VmView | None, problem: Problem | None) -> None:
        """Delete what a creation left behind, and remember why it failed."""
        if problem is None and view is not None and view.failure is not None:
            problem = classify(view.failure, region=view.region, size=view.size, spot=view.spot)
        if problem is None:
            problem = Problem(cause=Cause.PROVISIONING, action=Action.NEXT_REGION, message="the VM did not come up")
        facts = replace(
            self.facts,
            problem=problem,
            operation=None,
            accepted_at=None,
            deadline_at=None,
            address=None,
            host_key=None,
            next_key=None,
        )
        await self._stop_meter(state=HostState.CREATING, facts=facts, reason=problem.message)
        await self._delete()
        while self.facts.operation is not None and not await self.look():
            await self._wait()
        await self._vms.drop_deadline(self.host.name)

    async def _delete(self) -> None:
        keeps = self.host.state in (HostState.LOST, HostState.CREATING, HostState.REQUESTED)
        if not keeps:
            await self.move(state=HostState.DRAINING, reason=None)
        continuation = await self._vms.delete(self.host.name)
        if continuation is not None:
            await self.begin(Verb.DELETE, continuation)

    async def _mark_lost(self) -> None:
        facts = self.facts
        reason = "taken back by the cloud" if facts.spot else "deleted by somebody else"
        facts = replace(facts, preempted=facts.spot, operation=None)
        await self._stop_meter(state=HostState.LOST, facts=facts, reason=reason)


def _seen(view: VmView | None) -> Seen | None:
    return None if view is None else Seen(provisioning=view.provisioning, power=view.power, spot=view.spot)
