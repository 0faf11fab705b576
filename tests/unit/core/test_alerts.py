"""The rules of alerts: pure, so every moment can be tried."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evalfleet.answers.alerts import Delivery
from evalfleet.core.alerts.host_checks import (
    HostFacts,
    PoolFacts,
    Reaped,
    host_conditions,
    pool_conditions,
    reap_conditions,
)
from evalfleet.core.alerts.rules import RULES, Action, Condition, Severity, latch
from evalfleet.core.alerts.run_checks import LiveTask, RunFacts, Unstarted, conditions, stall_limit_s
from evalfleet.core.alerts.settings import AlertSettings, RuleSettings
from evalfleet.core.hosts.load import Load, Sample
from evalfleet.core.transitions import ALERT_EDGES
from evalfleet.daemon.alerts.outbox import waiting
from evalfleet.daemon.alerts.run_facts import pulling, step_times, unstarted
from evalfleet.daemon.alerts.state import fold
from evalfleet.model import AlertState, Event, RunState

LIMITS = AlertSettings()
CALM = RunFacts(
    now=10_000.0, name="r", state=RunState.RUNNING, since=9_990.0, progressed_at=9_999.0, finished_at=9_999.0
)
LIVE = (LiveTask(key="a", elapsed_s=100.0, expected_s=None),)


def rules(limits: AlertSettings = LIMITS, **facts: Any) -> list[tuple[str, str]]:
    return [(one.rule, one.subject) for one in conditions(replace(CALM, **facts), limits)]


def test_a_calm_run_fires_nothing():
    assert rules(live=LIVE, waiting=5, durations=[10.0] * 10, recent=(True,) * 20, budget_usd=10.0) == []


def test_every_rule_is_described_once():
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    assert {rule.severity for rule in RULES} == set(Severity)


def test_the_page_about_alerts_describes_every_rule():
    text = (Path(__file__).parents[3] / "docs" / "howto" / "be-told.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \| ([^|]*)\|$", text.partition("## Change a rule")[0], re.MULTILINE)
    severities = {name: severity.split()[-1] for name, severity, _ in rows}
    assert severities == {rule.name: str(rule.severity) for rule in RULES}
    actions = {name: set(re.findall(r"`(\w+)`", words)) for name, _, words in rows}
    assert actions == {rule.name: {str(action) for action in rule.actions} - {"notify"} for rule in RULES}


@pytest.mark.parametrize(
    ("idle_s", "durations", "fires"),
    [
        (599.0, [], False),
        (601.0, [], True),
        (100.0, [30.0] * 5, True),  # 3 times the median
        (80.0, [30.0] * 5, False),
        (59.0, [0.1] * 5, False),  # never before a minute
        (61.0, [0.1] * 5, True),
    ],
)
def test_no_progress(idle_s: float, durations: list[float], fires: bool):
    at = 10_000.0 - idle_s
    found = rules(live=LIVE, since=0.0, progressed_at=at, finished_at=at, durations=durations)
    assert found == ([("no_progress", "")] if fires else [])
    assert rules(live=(), waiting=0, since=0.0, progressed_at=at, finished_at=at, durations=durations) == []
    assert rules(state=RunState.PAUSED, cause="operator", live=LIVE, progressed_at=at, durations=durations) == []


def test_steps_without_an_end_are_no_progress_either():
    found = rules(live=LIVE, since=0.0, progressed_at=9_999.0, finished_at=9_000.0, durations=[30.0] * 9)
    assert found == [("no_progress", "")]
    assert rules(live=LIVE, since=9_990.0, progressed_at=None, finished_at=None, durations=[30.0] * 9) == []


def test_nobody_drives_it():
    assert rules(driven=False, since=9_950.0) == []
    assert rules(driven=False, since=9_900.0) == [("undriven", "")]


def test_paused_by_itself_or_by_a_person():
    assert rules(state=RunState.PAUSED, cause="budget") == [("paused", "budget")]
    assert rules(state=RunState.PAUSED, cause="operator") == []


def test_budget_tells_each_share_once():
    assert rules(budget_usd=10.0, cost_usd=4.99) == []
    assert rules(budget_usd=10.0, cost_usd=8.5) == [("budget", "50"), ("budget", "80")]
    found = conditions(replace(CALM, budget_usd=10.0, cost_usd=10.0), LIMITS)
    assert [(one.subject, one.severity) for one in found][-1] == ("100", Severity.CRITICAL)
    assert rules(budget_usd=20.0, cost_usd=8.5) == [], "raising the budget resolves it"
    assert rules(budget_usd=0.0, cost_usd=8.5) == []


def test_workers_breaker_rates_and_slow_tasks():
    assert rules(lost=frozenset({"b", "a"})) == [("worker_lost", "a"), ("worker_lost", "b")]
    assert rules(quarantined=frozenset({"w"})) == [("quarantine", "w")]
    assert rules(breaker="quota") == [("breaker", "")]
    assert rules(recent=(False,) * 9) == []
    assert rules(recent=(False,) * 6 + (True,) * 5) == [("failure_rate", "")]
    assert rules(tried=19, retried=19) == []
    assert rules(tried=20, retried=5) == [("retry_rate", "")]
    slow = (LiveTask(key="a", elapsed_s=301.0, expected_s=150.0), LiveTask(key="b", elapsed_s=50.0, expected_s=1.0))
    assert rules(live=slow) == [("slow_task", "a")]


def test_a_full_disk_is_told_while_a_controller_waits_for_room():
    assert rules(disk="it has 0.10 GB free") == [("disk_full", "")]
    assert rules(disk="it has 0.10 GB free", driven=False, since=9_950.0) == []


def test_the_end_is_told_once_per_end():
    assert rules(state=RunState.COMPLETED, ended_at=5.0) == [("finished", "5.000")]
    assert rules(state=RunState.RUNNING, ended_at=None) == []


def test_rules_can_be_off():
    off = AlertSettings(off=("finished", "budget"))
    assert rules(off, state=RunState.COMPLETED, ended_at=5.0, budget_usd=1.0, cost_usd=1.0) == []


def test_an_idle_pool_that_costs_money():
    assert pool_conditions(PoolFacts(name="p", idle_s=899.0, usd_per_hour=1.0), LIMITS) == []
    assert pool_conditions(PoolFacts(name="p", idle_s=9e9, usd_per_hour=0.0), LIMITS) == []
    (found,) = pool_conditions(PoolFacts(name="p", idle_s=900.0, usd_per_hour=1.5), LIMITS)
    assert "$1.50" in found.message


def test_a_condition_fires_once_and_is_resolved_once():
    one = Condition(rule="budget", subject="80", severity=Severity.WARNING, message="m")
    assert latch({}, set(), [one]).fired == (one,)
    assert latch({("budget", "80"): 7}, set(), [one]) == latch({}, set(), [])
    assert latch({("budget", "80"): 7}, set(), []).resolved == (7,)
    assert latch({}, {("budget", "80")}, [one]).fired == ()


def test_the_limit_follows_the_run():
    assert stall_limit_s([100.0] * 5, LIMITS) == 300.0
    assert stall_limit_s([100.0] * 4, LIMITS) == 600.0


def event(number: int, type: str, /, attempt: str | None = None, **data: Any) -> Event:
    return Event(number=number, run_id="r", at=float(number), type=type, task="t", attempt=attempt, data=data)


def test_alerts_are_their_events():
    told = fold(
        [
            event(1, "alert.fired", rule="budget", subject="80", severity="warning", message="m"),
            event(2, "alert.delivered", alert=1, what="fired", channel="webhook"),
            event(3, "alert.fired", rule="finished", subject="1", severity="info", message="m"),
            event(4, "alert.resolved", alert=1),
            event(5, "alert.resolved", alert=99),
        ]
    )
    assert [(one.state, one.resolved_at) for one in told.values()] == [("resolved", 4.0), ("resolved", 3.0)]
    assert told[1].delivered == [Delivery(channel="webhook", what="fired", at=2.0)]
    assert [what for _, what in waiting(told, "webhook")] == ["resolved", "fired"], "notices are told once"
    assert [what for _, what in waiting(told, "other")] == ["fired", "resolved", "fired"]


def test_an_alert_moves_only_along_the_edges():
    fired = event(1, "alert.fired", rule="budget", subject="80", severity="warning", message="m")
    notice = event(1, "alert.fired", rule="finished", subject="1", severity="info", message="m")
    begins = {AlertState.FIRING: [fired], AlertState.RESOLVED: [fired, event(2, "alert.resolved", alert=1)]}
    taken: set[tuple[AlertState, AlertState]] = set()
    for before, events in [*begins.items(), (AlertState.RESOLVED, [notice])]:
        [was] = fold(events).values()
        assert was.state == before
        for type_ in ("alert.fired", "alert.delivered", "alert.acted", "alert.resolved", "alert.unknown"):
            now = fold(
                [
                    *events,
                    event(
                        9,
                        type_,
                        alert=1,
                        rule="budget",
                        subject="80",
                        severity="info",
                        message="m",
                        channel="c",
                        what="fired",
                    ),
                ]
            )[1]
            if now.state != before:
                taken.add((before, AlertState(now.state)))
            elif before is AlertState.RESOLVED:
                assert now.resolved_at == was.resolved_at, "it is resolved once"
    assert taken == set(ALERT_EDGES)


STEPPING = (LiveTask(key="a", elapsed_s=900.0, expected_s=None, attempt="r.1.1", steps=True, quiet_s=70.0),)


def test_no_step_on_any_task():
    steps = [2.0] * 9
    busy: dict[str, Any] = {"since": 0.0, "progressed_at": 9_999.0, "finished_at": 9_999.0, "step_times": steps}
    assert rules(live=STEPPING, stepped_at=9_941.0, **busy) == [], "never before a minute"
    assert rules(live=STEPPING, stepped_at=9_939.0, **busy) == [("no_progress", "")]
    assert rules(live=LIVE, stepped_at=9_000.0, **busy) == [], "who tells of no steps is not measured by them"
    slow: dict[str, Any] = busy | {"step_times": [30.0] * 5}
    assert rules(live=STEPPING, stepped_at=9_912.0, **slow) == []
    assert rules(live=STEPPING, stepped_at=9_909.0, **slow) == [("no_progress", "")]
    quick = AlertSettings(stall_least_s=1.0)
    (found,) = conditions(replace(CALM, live=STEPPING, stepped_at=9_990.0, **busy), quick)
    assert found.attempts == ("r.1.1",), "what is stuck can be tried elsewhere"


def test_steps_are_timed_by_attempt():
    events = [
        event(40, "attempt.progressed", "b", step=5),
        event(30, "attempt.progressed", "a", step=4),
        event(20, "attempt.progressed", "a", step=2),
        event(12, "attempt.progressed", "a", step=None),
        event(10, "attempt.progressed", "a", step=1),
    ]
    assert step_times(events) == [5.0, 10.0], "one event may tell of two steps"


def test_a_failure_rate_above_the_runs_own():
    latest = (False,) * 8 + (True,) * 12
    assert rules(recent=latest, judged=20, failed=8) == [], "40% are not too many by themselves"
    assert rules(recent=latest, judged=120, failed=8) == [("failure_rate", "")], "of a run that never failed before"
    assert rules(recent=latest, judged=120, failed=48) == [], "of one that always failed so often"
    assert rules(recent=(False,) + (True,) * 19, judged=120, failed=1) == [], "one is no trend"


def test_what_did_not_start():
    late = Unstarted(worker="h-1", host="h", key="t", evidence="not ready")
    (found,) = conditions(replace(CALM, unstarted=(late,)), LIMITS)
    assert (found.rule, found.subject, found.host) == ("not_started", "h-1", "h")
    events = [
        event(9, "attempt.finished", "r.3.1", worker="h-3", kind="environment_failed", evidence="no"),
        event(8, "attempt.readied", "r.3.1", worker="h-3"),
        event(7, "attempt.finished", "r.2.2", worker="h-2", outcome="ok"),
        event(6, "attempt.finished", "r.2.1", worker="h-2", kind="start_timeout", evidence="no"),
        event(5, "attempt.finished", "r.1.1", worker="h-1", kind="start_timeout", evidence="late"),
        event(4, "attempt.finished", "r.4.1", worker="h-4", kind="environment_failed", evidence="container"),
    ]
    assert [(one.worker, one.evidence) for one in unstarted(events)] == [("h-1", "late"), ("h-4", "container")]


def test_a_long_pull():
    assert rules(pulling=(("h", 9_701.0),)) == []
    assert rules(pulling=(("h", 9_699.0),)) == [("image_pull", "h")]
    events = [
        event(100, "worker.pulling", host="a", took_s=5.0),
        event(101, "worker.pulling", host="b"),
        event(110, "worker.desired", host="a"),
        event(120, "worker.pulled", host="b"),
        event(130, "worker.pulling", host="c"),
        event(131, "worker.quarantined", host="c"),
    ]
    assert pulling(events) == (("a", 95.0),)
    stuck = PoolFacts(now=1000.0, name="p", idle_s=0.0, usd_per_hour=0.0, pulling=(("h", 1.0),), reason="no quota")
    assert [(one.rule, one.subject) for one in pool_conditions(stuck, LIMITS)] == [("breaker", ""), ("image_pull", "h")]
    unready = PoolFacts(name="p", idle_s=0.0, usd_per_hour=0.0, unready=(("h", "disk: full"),))
    assert [(one.rule, one.host) for one in pool_conditions(unready, LIMITS)] == [("not_started", "h")]


def loads(now: float, *, seconds: int, every: int = 5, cpu: float = 1.0) -> list[Sample]:
    return [Sample(at=now - back, load=Load(cpu=cpu)) for back in range(seconds, -1, -every)]


@pytest.mark.parametrize(
    ("cost_usd", "told"),
    [
        (7.9, []),
        (8.0, [("80", Severity.WARNING)]),
        (10.0, [("80", Severity.WARNING), ("100", Severity.CRITICAL)]),
    ],
)
def test_a_pool_that_has_spent_its_budget(cost_usd: float, told: list[tuple[str, Severity]]):
    facts = PoolFacts(name="p", idle_s=0.0, usd_per_hour=1.0, cost_usd=cost_usd, budget_usd=10.0)
    found = pool_conditions(facts, LIMITS)
    assert [(one.subject, one.severity) for one in found] == told
    assert {one.rule for one in found} <= {"pool_budget"}
    assert pool_conditions(replace(facts, budget_usd=None), LIMITS) == []
    assert pool_conditions(facts, AlertSettings(off=("pool_budget",))) == []


def test_starts_that_fail_and_overload_are_critical():
    unready = PoolFacts(name="p", idle_s=0.0, usd_per_hour=0.0, unready=(("h", "disk: full"),))
    assert [one.severity for one in pool_conditions(unready, LIMITS)] == [Severity.CRITICAL]
    late = (Unstarted(worker="h-1", host="h", key="a", evidence="no answer"),)
    found = conditions(replace(CALM, unstarted=late), LIMITS)
    assert [(one.rule, one.severity) for one in found] == [("not_started", Severity.CRITICAL)]
    assert next(rule.severity for rule in RULES if rule.name == "overload") is Severity.CRITICAL


def test_an_overload_must_last_and_then_stay_away():
    def parts(samples: list[Sample], firing: str = "") -> list[str]:
        facts = HostFacts(now=10_000.0, name="h", samples=samples, firing=frozenset(filter(None, [firing])))
        return [one.subject for one in host_conditions(facts, LIMITS)]

    assert parts(loads(10_000.0, seconds=290)) == [], "not long enough"
    assert parts(loads(10_000.0, seconds=305)) == ["cpu"]
    assert parts(loads(10_000.0, seconds=305, cpu=0.94)) == []
    dip = loads(10_000.0, seconds=305)
    dip[20] = replace(dip[20], load=Load(cpu=0.5))
    assert parts(dip) == []
    assert parts(dip, firing="cpu") == ["cpu"], "a short dip does not end what was told"
    calm = [*dip[:-13], *loads(10_000.0, seconds=60, cpu=0.2)]
    assert parts(calm, firing="cpu") == []
    assert parts(loads(10_000.0, seconds=305, every=61)) == [], "a host that hardly answers is another matter"
    assert parts(loads(9_900.0, seconds=305), firing="cpu") == [], "and so is one that is silent"


def test_what_a_reaper_found_is_a_notice():
    (found,) = reap_conditions([Reaped(number=7, found=4, left=0, names=("a", "b", "c", "d"))], LIMITS)
    assert (found.subject, "gone now" in found.message, "a, b, c, …" in found.message) == ("7", True, True)
    (left,) = reap_conditions([Reaped(number=8, found=1, left=1, names=("a",))], LIMITS)
    assert "evalfleet reap" in left.message


def test_nothing_stays_wrong_with_a_run_that_is_over():
    spent = Condition(rule="budget", subject="50", severity=Severity.WARNING, message="m")
    more = replace(spent, subject="100")
    assert latch({("budget", "50"): 7}, set(), [spent, more], over=True).resolved == (7,)
    assert latch({("budget", "50"): 7}, {("budget", "50")}, [spent, more], over=True).fired == (more,)


def test_rules_are_set_in_the_configuration():
    limits = AlertSettings(
        off=("budget", "paused"),
        rules={
            "slow_task": RuleSettings(action=Action.RETRY, severity=Severity.CRITICAL),
            "budget": RuleSettings(enabled=True),
            "finished": RuleSettings(enabled=False),
        },
    )
    assert {rule.name for rule in RULES if limits.is_off(rule.name)} == {"paused", "finished"}
    assert (limits.action("slow_task"), limits.action("budget")) == (Action.RETRY, Action.NOTIFY)
    slow = (LiveTask(key="a", elapsed_s=301.0, expected_s=150.0),)
    (found,) = conditions(replace(CALM, live=slow), limits)
    assert found.severity is Severity.CRITICAL
    with pytest.raises(ValueError, match="no rule 'nonsense'"):
        AlertSettings(off=("nonsense",))
    with pytest.raises(ValueError, match="is not an action of this rule"):
        AlertSettings(rules={"idle_pool": RuleSettings(action=Action.PAUSE)})
