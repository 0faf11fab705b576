"""What to do next with a rented machine, in every situation; that it ends; what it costs; how a pool follows demand."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evalfleet.core.hosts.lifecycle import (
    Change,
    Demand,
    Power,
    Seen,
    Stage,
    Step,
    cost_usd,
    counts_as_worker,
    drains_work,
    follow,
    is_due,
    metered,
    next_step,
    total_usd,
)
from evalfleet.core.transitions import allowed
from evalfleet.model import DesiredState, HostState, PoolHost

POWERS = (None, *Power)
SEEN = (
    None,
    *(Seen(stage=p, power=w, spot=s) for p, w, s in itertools.product(Stage, POWERS, (False, True))),
)


def host(number: int = 1, **changes: object) -> PoolHost:
    made = PoolHost(
        name=f"w-{number}", pool="p", number=number, desired=DesiredState.RUNNING, state=HostState.READY, reason=None, readiness_check=None,
        facts={}, usd_per_hour=1.0, kept_usd_per_hour=0.1, made_at=None, allocated_since=None, allocated_s=0.0,
        created_at=0.0, updated_at=0.0, gone_at=None,
    )  # fmt: skip
    return replace(made, **changes)  # pyright: ignore[reportArgumentType]


# Where a step may take a host, as the machine's controller takes it.
TAKES_TO: dict[Step, tuple[HostState, ...]] = {
    Step.REST: (),
    Step.WAIT: (),
    Step.DRAIN: (HostState.DRAINING,),
    Step.KEEP_BOX: (),
    Step.CREATE: (HostState.CREATING, HostState.GONE),
    Step.CLEAR: (HostState.CREATING,),
    Step.PREPARE: (HostState.PREPARING,),
    Step.START: (HostState.STOPPED,),
    Step.STOP: (HostState.DRAINING,),
    Step.MARK_LOST: (HostState.LOST,),
    Step.STOPPED: (HostState.STOPPED,),
    Step.GONE: (HostState.GONE,),
}


@pytest.mark.parametrize("desired", list(DesiredState))
@pytest.mark.parametrize("state", list(HostState))
def test_every_step_of_a_host_follows_an_edge(state: HostState, desired: DesiredState):
    for seen, busy, keeps, box in itertools.product(SEEN, (False, True), (False, True), (False, True)):
        if state is HostState.REQUESTED and seen is not None:
            continue  # no machine was ordered under its name; whatever is there is another's, and the name is given up
        step = next_step(host(desired=desired, state=state), seen, busy=busy, keeps_stopped=keeps, keeps_box=box)
        unborn = state in (HostState.REQUESTED, HostState.CREATING)
        if step is Step.DELETE:  # what is lost or was never there stays so until it is gone
            after: tuple[HostState, ...] = () if unborn or state is HostState.LOST else (HostState.DRAINING,)
        else:
            after = TAKES_TO[step]
        assert all(one is state or allowed(state, one) for one in after), (state, desired, seen, busy, step)


@pytest.mark.parametrize("state", list(HostState))
@pytest.mark.parametrize("desired", list(DesiredState))
def test_no_situation_leads_astray(desired: DesiredState, state: HostState) -> None:
    for seen, busy in itertools.product(SEEN, (False, True)):
        step = next_step(host(desired=desired, state=state), seen, busy=busy)
        case = f"{seen} busy={busy}: {step}"
        if state is HostState.GONE:
            assert step is Step.REST, case
        if seen is None:  # no order can be given to what is not there
            assert step in (Step.REST, Step.CREATE, Step.MARK_LOST, Step.GONE), case
        else:  # nothing is made twice, nor written off while it is there
            assert step not in (Step.CREATE, Step.GONE), case
        if busy and step in (Step.DELETE, Step.STOP):  # work is cut short only where there can be none any more
            is_off = seen is not None and seen.power in (Power.OFF, Power.RELEASED, Power.STOPPING)
            assert state is HostState.LOST or is_off, case
        if step in (Step.PREPARE, Step.START, Step.CREATE):
            assert desired is DesiredState.RUNNING, case
        if step is Step.STOP:
            assert desired is DesiredState.STOPPED, case
        if step is Step.DELETE:
            assert desired is DesiredState.GONE or state is HostState.LOST, case


@pytest.mark.parametrize(
    ("desired", "state", "seen", "step"),
    [
        (DesiredState.RUNNING, HostState.READY, Seen(stage=Stage.MADE, power=Power.RELEASED, spot=True), Step.MARK_LOST),
        (DesiredState.RUNNING, HostState.STOPPED, Seen(stage=Stage.MADE, power=Power.RELEASED, spot=True), Step.START),
        (DesiredState.RUNNING, HostState.DRAINING, Seen(stage=Stage.MADE, power=Power.RELEASED, spot=True), Step.START),
        (DesiredState.RUNNING, HostState.READY, Seen(stage=Stage.MADE, power=Power.RELEASED), Step.START),
        (DesiredState.RUNNING, HostState.CREATING, Seen(stage=Stage.FAILED), Step.CLEAR),
        (DesiredState.RUNNING, HostState.QUARANTINED, Seen(stage=Stage.MADE, power=Power.RUNNING), Step.REST),
        (DesiredState.STOPPED, HostState.REQUESTED, None, Step.GONE),
        (DesiredState.STOPPED, HostState.READY, Seen(stage=Stage.MADE, power=Power.OFF), Step.STOP),
        (DesiredState.STOPPED, HostState.STOPPED, Seen(stage=Stage.MADE, power=Power.RELEASED), Step.REST),
        (DesiredState.GONE, HostState.CREATING, Seen(stage=Stage.CREATING), Step.DELETE),
        (DesiredState.RUNNING, HostState.READY, None, Step.MARK_LOST),
        (DesiredState.RUNNING, HostState.LOST, None, Step.GONE),
    ],
)  # fmt: skip
def test_the_steps_that_matter(desired: DesiredState, state: HostState, seen: Seen | None, step: Step) -> None:
    assert next_step(host(desired=desired, state=state), seen) is step


OFF = Seen(stage=Stage.MADE, power=Power.RELEASED)


@pytest.mark.parametrize(
    ("desired", "state", "seen", "step"),
    [
        (DesiredState.STOPPED, HostState.READY, Seen(stage=Stage.MADE, power=Power.RUNNING), Step.DELETE),
        (DesiredState.STOPPED, HostState.DRAINING, None, Step.GONE),
        (DesiredState.RUNNING, HostState.READY, OFF, Step.MARK_LOST),
        (DesiredState.RUNNING, HostState.PREPARING, OFF, Step.CLEAR),
        (DesiredState.RUNNING, HostState.CREATING, OFF, Step.CLEAR),
        (DesiredState.RUNNING, HostState.LOST, OFF, Step.DELETE),
    ],
)
def test_what_a_cloud_does_not_keep_is_deleted_where_it_would_be_stopped(
    desired: DesiredState, state: HostState, seen: Seen | None, step: Step
) -> None:
    assert next_step(host(desired=desired, state=state), seen, keeps_stopped=False) is step


@pytest.mark.parametrize("state", list(HostState))
def test_what_a_cloud_does_not_keep_is_never_stopped_or_started(state: HostState) -> None:
    for desired, seen, busy in itertools.product(DesiredState, SEEN, (False, True)):
        step = next_step(host(desired=desired, state=state), seen, busy=busy, keeps_stopped=False)
        assert step not in (Step.START, Step.STOP, Step.STOPPED), (desired, seen, busy)


RUNS = Seen(stage=Stage.MADE, power=Power.RUNNING)


@pytest.mark.parametrize(
    ("desired", "state", "forced", "seen", "step"),
    [
        # The machine never waits for its box: it costs.
        (DesiredState.RUNNING, HostState.READY, False, OFF, Step.MARK_LOST),
        (DesiredState.RUNNING, HostState.LOST, False, OFF, Step.DELETE),
        (DesiredState.RUNNING, HostState.LOST, False, None, Step.KEEP_BOX),
        # Nor does one that is of no use, which is stopped by force; but a person may force that nothing is kept.
        (DesiredState.STOPPED, HostState.QUARANTINED, True, RUNS, Step.DELETE),
        (DesiredState.STOPPED, HostState.DRAINING, True, None, Step.MARK_LOST),
        (DesiredState.STOPPED, HostState.LOST, True, None, Step.KEEP_BOX),
        (DesiredState.GONE, HostState.DRAINING, True, None, Step.GONE),
        (DesiredState.GONE, HostState.LOST, True, None, Step.GONE),
        # A machine that drains and is taken away meanwhile leaves its box, too.
        (DesiredState.GONE, HostState.DRAINING, False, None, Step.MARK_LOST),
        (DesiredState.GONE, HostState.LOST, False, None, Step.KEEP_BOX),
        (DesiredState.GONE, HostState.CREATING, False, None, Step.GONE),
        (DesiredState.GONE, HostState.GONE, False, None, Step.REST),
    ],
)
def test_a_box_outlives_its_machine(
    desired: DesiredState, state: HostState, forced: bool, seen: Seen | None, step: Step
) -> None:
    one = host(desired=desired, state=state, forced=forced)
    assert next_step(one, seen, busy=True, keeps_stopped=False, keeps_box=True) is step
    if step is Step.KEEP_BOX:
        assert next_step(one, seen, keeps_stopped=False) is Step.GONE, "it goes when everything is collected"


@pytest.mark.parametrize(
    ("step", "desired", "state", "reason", "drains", "due"),
    [
        (Step.REST, DesiredState.RUNNING, HostState.READY, None, False, False),
        (Step.DELETE, DesiredState.GONE, HostState.DRAINING, "t", False, True),
        (Step.DRAIN, DesiredState.GONE, HostState.READY, None, True, True),
        (Step.DRAIN, DesiredState.GONE, HostState.DRAINING, "t", True, False),
        (Step.DRAIN, DesiredState.GONE, HostState.DRAINING, "another", True, True),
        # A pool that is used goes on without waiting for a box; one that is deleted says what it waits for.
        (Step.KEEP_BOX, DesiredState.RUNNING, HostState.LOST, "taken", False, False),
        (Step.KEEP_BOX, DesiredState.GONE, HostState.LOST, "taken", True, True),
        (Step.KEEP_BOX, DesiredState.GONE, HostState.LOST, "t", True, False),
    ],
)
def test_what_waits_for_work_is_told_once(
    step: Step, desired: DesiredState, state: HostState, reason: str | None, drains: bool, due: bool
) -> None:
    one = host(desired=desired, state=state, reason=reason)
    assert drains_work(one, step) is drains
    assert is_due(one, step, "t") is due


@dataclass
class Model:
    """One machine, in a cloud that does what it is told, and lets an operation take a look's time."""

    host: PoolHost
    seen: Seen | None
    fails: int = 0  # creations that will fail
    born: int = 0

    def settle(self) -> None:
        """What was under way is over."""
        if self.seen is None:
            return
        if self.seen.stage is Stage.DELETING:
            self.seen = None
        elif self.seen.stage is Stage.CREATING and self.fails:
            self.fails -= 1
            self.seen = replace(self.seen, stage=Stage.FAILED)
        elif self.seen.stage is Stage.CREATING:
            self.seen = replace(self.seen, stage=Stage.MADE, power=Power.RUNNING)
        else:
            ends = {Power.STARTING: Power.RUNNING, Power.STOPPING: Power.RELEASED, None: Power.RUNNING}
            power = ends.get(self.seen.power, self.seen.power)
            self.seen = replace(self.seen, stage=Stage.MADE, power=power)

    def act(self, step: Step) -> None:
        state = self.host.state
        match step:
            case Step.CREATE:
                assert self.seen is None, "made twice"
                self.born += 1
                self.seen, state = Seen(stage=Stage.CREATING), HostState.CREATING
            case Step.CLEAR:
                self.seen, state = replace(self._there(), stage=Stage.DELETING), HostState.CREATING
            case Step.PREPARE:
                state = HostState.READY
            case Step.START:
                self.seen, state = replace(self._there(), power=Power.STARTING), HostState.STOPPED
            case Step.STOP:
                self.seen, state = replace(self._there(), power=Power.STOPPING), HostState.DRAINING
            case Step.DELETE:
                self.seen = replace(self._there(), stage=Stage.DELETING)
                keeps = state in (HostState.LOST, HostState.REQUESTED, HostState.CREATING)
                state = state if keeps else HostState.DRAINING
            case Step.MARK_LOST:
                state = HostState.LOST
            case Step.STOPPED:
                state = HostState.STOPPED
            case Step.GONE:
                state = HostState.GONE
            case Step.WAIT | Step.REST | Step.DRAIN:
                pass
        self.host = replace(self.host, state=state)

    def _there(self) -> Seen:
        assert self.seen is not None
        return self.seen

    def run(self) -> None:
        """Look and act until it rests."""
        for _ in range(20):
            step = next_step(self.host, self.seen)
            if step is Step.REST:
                return
            self.act(step)
            self.settle()
        raise AssertionError(f"does not end: {self}")


def is_reached(model: Model) -> bool:
    state, seen = model.host.state, model.seen
    if state is HostState.GONE:
        return seen is None
    if model.host.desired is DesiredState.STOPPED:
        return state is HostState.STOPPED and seen is not None and seen.power is Power.RELEASED
    return state in (HostState.READY, HostState.QUARANTINED) and seen is not None and seen.power is not Power.RELEASED


@pytest.mark.parametrize("state", list(HostState))
@pytest.mark.parametrize("desired", list(DesiredState))
def test_every_situation_ends(desired: DesiredState, state: HostState) -> None:
    # A row is closed only when its machine is gone; what comes to be later is a stray, which has no row.
    for seen in SEEN if state is not HostState.GONE else [None]:
        model = Model(host(desired=desired, state=state), seen)
        model.run()
        assert is_reached(model), f"{seen}: {model}"
        if desired is DesiredState.GONE:
            assert model.host.state is HostState.GONE
        assert model.born <= 1


_WISHES = st.lists(st.tuples(st.sampled_from(DesiredState), st.integers(0, 6)), max_size=6)
_BLOWS = st.sampled_from(["nothing", "evicted", "deleted", "deadline"])


@given(changes=_WISHES, blow=_BLOWS, spot=st.booleans(), fails=st.integers(0, 2))
def test_wishes_that_change_on_the_way_are_reached(
    changes: list[tuple[DesiredState, int]], blow: str, spot: bool, fails: int
) -> None:
    model = Model(host(state=HostState.REQUESTED), None, fails=fails)
    for desired, looks in changes:
        if model.host.desired is not DesiredState.GONE:  # as in the store: what is to go stays so
            model.host = replace(model.host, desired=desired)
        for _ in range(looks):
            model.act(next_step(model.host, model.seen))
            model.settle()
            if model.seen is not None:
                model.seen = replace(model.seen, spot=spot)
    if model.seen is not None and blow == "deleted":
        model.seen = None
    elif model.seen is not None and blow in ("evicted", "deadline"):
        model.seen = replace(model.seen, stage=Stage.MADE, power=Power.RELEASED)
    model.run()
    assert is_reached(model), model


# Money


def test_a_machine_costs_while_it_runs_and_its_disk_while_it_exists() -> None:
    one = host(usd_per_hour=2.0, kept_usd_per_hour=0.5, made_at=0.0, allocated_s=1800.0)
    assert cost_usd(one, 7200.0) == pytest.approx(1.0 + 1.0)
    running = replace(one, allocated_since=3600.0)
    assert cost_usd(running, 7200.0) == pytest.approx(1.0 + 2.0 + 1.0)
    gone = replace(one, state=HostState.GONE, gone_at=3600.0)
    assert cost_usd(gone, 1e9) == pytest.approx(1.0 + 0.5)
    assert cost_usd(host(), 1e9) == 0.0  # asked for, and never made
    assert total_usd([one, running], 7200.0) == pytest.approx(2.0 + 4.0)


@given(moments=st.lists(st.tuples(st.booleans(), st.floats(0, 100)), max_size=20))
def test_the_meter_counts_what_ran_once(moments: list[tuple[bool, float]]) -> None:
    one, now, ran, on = host(kept_usd_per_hour=0.0, usd_per_hour=3600.0), 0.0, 0.0, False
    for running, passed_s in moments:
        now += passed_s
        ran += passed_s if on else 0.0
        one, on = metered(one, now, running=running), running
        assert metered(one, now + 5, running=running) == one  # said again, nothing changes
    assert cost_usd(one, now) == pytest.approx(ran)


def test_a_clock_that_goes_back_costs_nothing() -> None:
    one = metered(host(made_at=100.0), 100.0, running=True)
    assert cost_usd(one, 50.0) == 0.0
    assert metered(one, 50.0, running=False).allocated_s == 0.0


# How many


def _follow(
    hosts: list[PoolHost], wanted: int, *, idle: dict[str, float] | None = None, busy: tuple[str, ...] = ()
) -> Change:
    return follow(hosts, Demand(wanted=wanted, least=1, most=5), 60.0, 1000.0, idle or {}, busy)


def test_what_is_stopped_is_started_before_more_is_asked_for() -> None:
    asleep = [host(n, desired=DesiredState.STOPPED, state=HostState.STOPPED) for n in (1, 2)]
    assert _follow(asleep, 3) == Change(start=("w-1", "w-2"), request=1)
    falling_asleep = [host(1, desired=DesiredState.STOPPED, state=HostState.DRAINING)]
    assert _follow(falling_asleep, 1) == Change(start=("w-1",))
    leaving = [host(1, desired=DesiredState.GONE, state=HostState.DRAINING), host(2, state=HostState.LOST)]
    assert _follow(leaving, 1) == Change(request=1)


def test_a_pool_stays_within_its_limits() -> None:
    assert _follow([], 100) == Change(request=5)
    assert _follow([], 0) == Change(request=1)
    idle = {f"w-{n}": 0.0 for n in range(1, 4)}
    assert _follow([host(n) for n in range(1, 4)], 0, idle=idle) == Change(shed=("w-3", "w-2"))


def test_only_what_was_idle_for_long_is_let_go() -> None:
    hosts = [host(1), host(2), host(3), host(4, state=HostState.PREPARING), host(5, state=HostState.QUARANTINED)]
    idle = {"w-1": 900.0, "w-2": 950.0, "w-3": 0.0, "w-4": 0.0, "w-5": 0.0}
    assert _follow(hosts, 0, idle=idle, busy=("w-3",)) == Change(shed=("w-1",))


_HOSTS = st.lists(st.tuples(st.sampled_from(DesiredState), st.sampled_from(HostState)), max_size=8)


@given(kinds=_HOSTS, wanted=st.integers(0, 10))
def test_following_is_done_at_once(kinds: list[tuple[DesiredState, HostState]], wanted: int) -> None:
    hosts = [host(n, desired=desired, state=state) for n, (desired, state) in enumerate(kinds, 1)]
    change = _follow(hosts, wanted, idle={each.name: 0.0 for each in hosts})
    started = [replace(each, desired=DesiredState.RUNNING) if each.name in change.start else each for each in hosts]
    shed = [replace(each, desired=DesiredState.STOPPED) if each.name in change.shed else each for each in started]
    after = [*shed, *(host(100 + n, state=HostState.REQUESTED) for n in range(change.request))]
    assert not (change.shed and (change.start or change.request))
    assert _follow(after, wanted, idle={each.name: 0.0 for each in after}) == Change()
    assert sum(counts_as_worker(each) for each in after) >= max(1, min(5, wanted))
