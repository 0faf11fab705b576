"""Brings one machine from what it is to what it should be, step by step, and goes on wherever an earlier controller died."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import anyio
from msgspec.structs import replace

from evalfleet.core.failures.kinds import one_line
from evalfleet.core.hosts.lifecycle import Seen, Stage, Step, next_step
from evalfleet.model import DesiredState, HostState, PoolHost
from evalfleet.pools.cloud.problems import Action, Cause, Problem, Refusal
from evalfleet.pools.cloud.protocol import ExplainsReach, RunsJobs
from evalfleet.pools.cloud.records import LABEL_OWNER, LABEL_WORKER, MachineView, Verb
from evalfleet.pools.cloud.waits import QUIET_S
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.creation import MachineCreation
from evalfleet.pools.machine.deadline import MachineDeadline, Unprotected
from evalfleet.pools.machine.facts import facts_of, keeps_box
from evalfleet.pools.machine.logs.failures import FailureLogs
from evalfleet.pools.machine.readiness.checks import CheckFailed, TimedChecks
from evalfleet.pools.machine.record import OPERATION_S, SLOW_S, Failed, MachineRecord

PATIENCE = 20  # refused looks and orders in a row, each after a longer pause
FAILURES = 3  # of operations that the cloud accepted: starts, stops, deletions
LAGS = 24  # polls that a machine which was ordered may not be found
ADDRESS_S = 300.0
SILENT_TRIES = 2  # machines that never answer, of a pool of which none ever has
Waits: TypeAlias = Callable[[], Awaitable[str | None]]


class MachineController:
    """One machine."""

    def __init__(self, context: PoolContext, host: PoolHost, waits: Waits | None = None) -> None:
        """
        Args:
            waits: which work on the machine must end, or be collected, before it is stopped or deleted; None: there is none.
        """
        self._context = context
        self._cloud = context.cloud
        self._record = MachineRecord(context, host)
        self._deadline = MachineDeadline(context, self._record)
        self._logs = FailureLogs(context, self._record)
        self._waits = waits
        self._moves_since: float | None = None  # since when the cloud is at something that we have no operation of
        self._waits_for: str | None = None  # what was written last of a wait

    async def move(self, **changes: Any) -> None:
        """Write down something of it. Raises NotOwned."""
        await self._record.move(**changes)

    async def reconcile(self) -> None:
        """Bring the machine to its desired state; return when it is reached, or waits for work to end.

        Raises NotOwned where the pool has another owner; Refusal where the cloud lets us do nothing, or has not for long.
        """
        refused = failed = 0
        while True:
            try:
                if await self._step():
                    return
                refused = 0
                if self._moves_since is None:
                    await self._say(None)
            except Failed as error:
                if await self._is_set_aside(error):
                    return
                failed += 1
                if failed >= FAILURES or error.problem.action is Action.GIVE_UP:
                    raise
                await anyio.sleep(self._context.pause_s(failed, error))
            except Refusal as error:
                refused += 1
                # Also what will never be allowed is tried twice: the machine may have gone between look and order.
                gives_up = error.problem.action is Action.GIVE_UP and refused >= 2
                if gives_up or self._context.gives_up(refused, error, PATIENCE):
                    raise
                pause_s = self._context.pause_s(refused, error)
                if pause_s >= QUIET_S:
                    await self._say(f"waits {pause_s:.0f} s: {error}")
                await anyio.sleep(pause_s)

    async def _say(self, wait: str | None) -> None:
        """Write what the machine waits for; None: it goes on."""
        record = self._record
        if wait is not None or (self._waits_for is not None and record.host.reason == self._waits_for):
            await record.move(reason=wait)
        self._waits_for = wait

    async def _step(self) -> bool:
        """Look, and do one thing. True: there is nothing more to do."""
        record = self._record
        if not await self._is_free():
            return False
        view = await self._cloud.view(record.name)
        if view is not None and not self._is_ours(view):
            return await self._give_up_name(view)
        if not await self._is_sure(view):
            await self._wait()
            return False
        record.see(view)
        step, waits = await self._next_step(view)
        match step:
            case Step.REST:
                return True
            case Step.DRAIN | Step.KEEP_BOX:
                await self._tell_wait(step, waits)
                return True
            case Step.WAIT:
                assert view is not None
                await self._await_move(view)
            case Step.CREATE:
                await MachineCreation(self._context, record, self._deadline).create()
            case Step.CLEAR:
                await self._clear(view, record.facts.problem)
            case Step.PREPARE:
                assert view is not None
                return await self._check_readiness(view)
            case Step.START:
                await self._start()
            case Step.STOP:
                await self._stop()
            case Step.DELETE:
                await self._delete()
            case Step.MARK_LOST:
                await self._mark_lost(view)
            case Step.STOPPED:
                await self._mark_stopped()
                return True
            case Step.GONE:
                await self._drop_parts()
                await record.stop_meter(state=HostState.GONE)
        return record.state is HostState.GONE

    async def _next_step(self, view: MachineView | None) -> tuple[Step, str | None]:
        """What to do, and which work is waited for."""
        record, context = self._record, self._context
        is_to_go = record.desired is not DesiredState.RUNNING or record.state is HostState.LOST
        waits = await self._waits() if self._waits is not None and is_to_go else None
        step = next_step(
            record.host,
            seen(view),
            busy=waits is not None,
            keeps_stopped=context.keeps_stopped,
            keeps_box=keeps_box(record.host, await context.record.now(), has_work=waits is not None),
        )
        if step is Step.WAIT and view is not None and view.stage is Stage.CREATING and record.facts.problem is not None:
            step = Step.CLEAR  # a creation that was given up, because it did not end
        return step, waits

    async def _tell_wait(self, step: Step, waits: str | None) -> None:
        """Write what work is waited for. One whose box alone is left says so only if it is to go: else why it was lost."""
        record = self._record
        if step is Step.DRAIN and (record.state, record.host.reason) != (HostState.DRAINING, waits):
            await record.move(state=HostState.DRAINING, reason=waits)
        if step is Step.KEEP_BOX and record.desired is DesiredState.GONE and record.host.reason != waits:
            await record.move(reason=waits)

    async def _is_free(self) -> bool:
        """Read the row; False while the cloud is at something that must end before anything else is ordered."""
        record = self._record
        await record.refresh()
        if record.must_end:
            await self._deadline.protect()
            if not await record.look():
                await anyio.sleep(record.pause_s)
                return False
        return True

    async def _wait(self) -> None:
        await anyio.sleep(self._cloud.poll_s)

    async def _await_move(self, view: MachineView) -> None:
        """Wait until what the cloud does with the machine is over; a deletion that does not end is asked for again, once."""
        now, limit_s = (
            await self._context.record.now(),
            self._context.wanted.deadline.get(self._context.first_check, OPERATION_S),
        )
        since = self._moves_since = self._moves_since or now
        if now - since >= limit_s:
            self._moves_since = None
            said = f"the cloud has shown {view.name} as {view.stage} for {limit_s / 60:g} min; look at it in the cloud's portal"
            raise Failed(Problem(cause=Cause.CONFLICT, action=Action.GIVE_UP, message=said))
        if now - since >= SLOW_S and self._waits_for is None:
            await self._say(f"the cloud has shown it as {view.stage} for over {SLOW_S / 60:g} min")
            if view.stage is Stage.DELETING:
                await self._cloud.delete(view.name)
        await self._wait()

    async def _is_sure(self, view: MachineView | None) -> bool:
        """False: the cloud took the order for it a moment ago and does not show it yet; it is there all the same, and costs."""
        record, at = self._record, self._record.facts.accepted_at
        if at is None or record.facts.problem is not None:
            return True
        if view is not None:
            await record.move(facts=replace(record.facts, accepted_at=None))
            return True
        return await self._context.record.now() - at >= LAGS * self._cloud.poll_s

    def _is_ours(self, view: MachineView) -> bool:
        """Names are unique only within a home, but a machine carries the mark of the key that it was created with."""
        return view.labels.get(LABEL_WORKER, "").rpartition(".")[2] in self._record.facts.keys

    async def _give_up_name(self, view: MachineView) -> bool:
        """Never touch a machine that another home created; the pool takes the next number instead."""
        maker = view.labels.get(LABEL_OWNER, "another home")
        reason = (
            f"there is a machine {view.name!r} that {maker} made; this one is left out, or choose another --name-prefix"
        )
        await self._record.stop_meter(state=HostState.GONE, reason=reason)
        return True

    async def _start(self) -> None:
        record = self._record
        if record.state is not HostState.STOPPED:
            reason = "found switched off, by its deadline or by another hand; it is started again"
            await record.stop_meter(state=HostState.STOPPED, reason=reason)
        await record.move()  # nothing new, but refused where the pool has another owner
        await record.begin(Verb.START, await self._cloud.start(record.name))

    async def _is_set_aside(self, error: Failed) -> bool:
        """A machine that cannot be started, because the cloud has none free where its disk is, stays off; another takes its
        place."""
        record = self._record
        is_start = record.desired is DesiredState.RUNNING and record.state is HostState.STOPPED
        if not is_start or error.problem.cause not in (Cause.CAPACITY, Cause.SKU):
            return False
        now, reason = await self._context.record.now(), f"cannot be started: {error}"
        await record.move(facts=replace(record.facts, unwell=reason, unwell_at=now, replaced=True), reason=reason)
        order = self._context.record.store.hosts.set_desired
        said = f"{reason}; another takes its place"
        await self._context.record.call(order, self._context.record.name, [record.name], DesiredState.STOPPED, said)
        return True

    # Getting ready

    async def _check_readiness(self, view: MachineView) -> bool:
        """True: it is ready, or rests in quarantine."""
        record = self._record
        if record.state is not HostState.PREPARING or not record.facts.is_reached:
            await self._arrive(view)
        if not record.facts.is_reached:
            await self._await_address(view)
            return False
        if not await self._has_deadline(view):
            return False
        try:
            await self._checks().run()
        except CheckFailed as failed:
            has_answered = failed.check not in ("ssh", "host_key")
            if not failed.replace:
                reason = await self._logs.told(str(failed), by_login=has_answered)
                await record.move(state=HostState.QUARANTINED, reason=reason)
                return True
            await self._clear(view, await self._unready(failed), by_login=has_answered)
            return False
        await record.refresh()
        if record.desired is not DesiredState.RUNNING or not await self._has_deadline(view):
            return False
        await record.move(state=HostState.READY, reason=None)
        return True

    def _checks(self) -> TimedChecks:
        # They bring SSH or cryptography, which stopping and deleting do without.
        if self._context.mailbox is not None:
            from evalfleet.pools.machine.readiness.pilot import PilotChecks

            return PilotChecks(self._context, self._record, self._context.mailbox)
        from evalfleet.pools.machine.readiness.readiness import ReadinessChecks

        return ReadinessChecks(self._context, self._record)

    async def _unready(self, failed: CheckFailed) -> Problem:
        """Why a machine is replaced. Silence is rather the network's fault than the machine's: where none of the pool has
        ever answered, the second that is silent is the last."""
        if isinstance(self._context.provider, RunsJobs):
            return Problem(cause=Cause.START, action=Action.WAIT, message=str(failed))
        if failed.check != "ssh":
            return _did_not_come_up(str(failed))
        provider, settings = self._context.provider, self._context.settings
        parts = [str(failed)]
        if failed.is_silent and isinstance(provider, ExplainsReach):
            parts.append(provider.reach_help(settings))
        console = (await self._console()).strip().splitlines()
        if console:
            parts.append(f"its console ends with {one_line(console[-1])!r}")
        problem = _did_not_come_up("; ".join(parts))
        plan = self._record.facts.plan
        is_hopeless = failed.is_silent and plan is not None and plan.tries >= SILENT_TRIES
        if is_hopeless and not await self._has_answered():
            return replace(problem, action=Action.GIVE_UP)
        return problem

    async def _console(self) -> str:
        try:
            return await self._cloud.log(self._record.name)
        except Refusal:
            return ""

    async def _has_answered(self) -> bool:
        """Whether any machine of the pool was ever logged in to: then it shows a key that it made itself."""
        facts = [facts_of(host) for host in await self._context.record.hosts(gone=True)]
        return any(each.host_key is not None and each.host_key not in each.keys.values() for each in facts)

    async def _has_deadline(self, view: MachineView) -> bool:
        """A machine that cannot have a deadline is deleted."""
        try:
            return await self._deadline.ensure(view)
        except Unprotected as error:
            await self._clear(view, error.problem)
            return False

    async def _await_address(self, view: MachineView) -> None:
        """Without a public address it cannot be reached; a new one may come a moment later than its machine."""
        since = self._record.host.allocated_since or self._record.host.updated_at
        limit_s = self._context.wanted.deadline.get("ssh", ADDRESS_S)
        if await self._context.record.now() - since < limit_s:
            await self._wait()
            return
        said = f"it has no public address after {limit_s:g} s; a policy of the subscription may forbid one"
        await self._clear(view, _did_not_come_up(said))

    async def _arrive(self, view: MachineView) -> None:
        """The machine runs: from now on it costs."""
        record = self._record
        self._context.purchases.succeeded()
        await record.start_meter()
        facts = record.facts
        # Which of the keys that were ever meant for it the machine was created with is in its label.
        mark = view.labels.get(LABEL_WORKER, "").rpartition(".")[2]
        made_with = facts.keys.get(mark)
        endpoint = await self._cloud.endpoint(record.name) if self._context.mailbox is None else None
        facts = replace(
            facts,
            address=endpoint.address if endpoint else None,
            port=endpoint.port if endpoint else facts.port,
            jump=endpoint.jump if endpoint else None,
            proxy=endpoint.proxy if endpoint else None,
            login_key=str(self._context.login.path.absolute()),
            host_key=facts.host_key or made_with,
            box=facts.boxes.get(mark),
            generation=facts.generation_of(mark),
            region=view.region,
            size=view.size,
            spot=view.spot,
            operation=None,
            problem=None,
            unwell=None,
            logs=None,
        )
        await record.move(
            state=HostState.PREPARING, facts=facts, reason=None, readiness_check=self._context.first_check
        )

    # Ending

    async def _stop(self) -> None:
        await self._keep_logs()
        await self._record.move(state=HostState.DRAINING, reason=None)
        await self._record.begin(Verb.STOP, await self._cloud.stop(self._record.name))

    async def _clear(self, view: MachineView | None, problem: Problem | None, *, by_login: bool = False) -> None:
        """Delete what a creation left behind, and remember why it failed; its logs are kept."""
        record = self._record
        if problem is None:
            problem = (view.problem if view else None) or _did_not_come_up("the VM did not come up")
        if view is not None:
            problem = replace(problem, message=await self._logs.told(problem.message, by_login=by_login))
        facts = replace(
            record.facts,
            problem=problem,
            operation=None,
            accepted_at=None,
            deadline_at=None,
            address=None,
            box=None,
            pilot=None,
            host_key=None,
            next_key=None,
            logs=None,
        )
        await record.stop_meter(state=HostState.CREATING, facts=facts, reason=problem.message)
        await self._delete()
        while record.facts.operation is not None and not await self._record.look():  # noqa: ASYNC110 - a cloud tells nobody
            await anyio.sleep(self._record.pause_s)
        await self._drop_parts()

    async def _drop_parts(self) -> None:
        """Delete what of a machine that is gone is no part of it: its deadline, and its boxes."""
        record = self._record
        await self._cloud.drop_deadline(record.name)
        if self._context.mailbox is not None:
            await self._context.mailbox.delete(record.name, len(record.facts.keys))

    async def _delete(self) -> None:
        record = self._record
        keeps = record.state in (HostState.LOST, HostState.CREATING, HostState.REQUESTED)
        if not keeps:
            await record.move(state=HostState.DRAINING, reason=None)
        try:
            continuation = await self._cloud.delete(record.name)
        except Refusal as error:
            if error.problem.cause is Cause.LOCKED:
                await self._stop_locked()
            raise
        if continuation is not None:
            await record.begin(Verb.DELETE, continuation)

    async def _stop_locked(self) -> None:
        """A lock that forbids to delete a machine may let it be stopped: then only its disk costs."""
        try:
            await self._cloud.stop(self._record.name)
        except Refusal:
            return  # that is locked, too; the refusal of the deletion is told

    async def _mark_stopped(self) -> None:
        facts = replace(self._record.facts, operation=None, problem=None)
        await self._record.stop_meter(state=HostState.STOPPED, facts=facts, reason=facts.unwell, readiness_check=None)

    async def _keep_logs(self) -> None:
        """Of a machine that is stopped because it is of no use. One that was given up is not asked: it would be paid for longer."""
        unwell = self._record.facts.unwell
        if unwell is not None:
            said = await self._logs.told(unwell, by_login=not self._record.host.forced)
            await self._record.move(facts=replace(self._record.facts, unwell=said))

    async def _mark_lost(self, view: MachineView | None) -> None:
        record = self._record
        reason = "taken back by the cloud" if record.facts.spot else "deleted outside evalfleet"
        if record.desired is not DesiredState.RUNNING and record.facts.box is not None:
            reason = "it is gone; its box is kept until the results in it are collected"
        is_taken = record.facts.spot
        if view is not None and view.problem is not None:
            reason = view.problem.message
            is_taken = is_taken or view.problem.cause is Cause.PREEMPTED
        reason = await self._logs.told(reason, by_login=False)
        now = await self._context.record.now()
        facts = replace(record.facts, preempted=is_taken, operation=None, lost_at=now)
        await record.stop_meter(state=HostState.LOST, facts=facts, reason=reason)


def seen(view: MachineView | None) -> Seen | None:
    return None if view is None else Seen(stage=view.stage, power=view.power, spot=view.spot)


def _did_not_come_up(message: str) -> Problem:
    return Problem(cause=Cause.PROVISIONING, action=Action.NEXT_REGION, message=message)
