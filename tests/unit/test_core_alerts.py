"""The rules of alerts: pure, so every moment can be tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evalfleet.core.alert_hosts import PoolFacts, pool_conditions
from evalfleet.core.alert_runs import LiveTask, RunFacts, conditions, stall_limit_s
from evalfleet.core.alerts import RULES, AlertLimits, Condition, Severity, latch
from evalfleet.model import Event, RunState
from evalfleet.web.alerts import fold

LIMITS = AlertLimits()
CALM = RunFacts(
    now=10_000.0, name="r", state=RunState.RUNNING, since=9_990.0, progressed_at=9_999.0, finished_at=9_999.0
)
LIVE = (LiveTask(key="a", elapsed_s=100.0, expected_s=None),)


def rules(limits: AlertLimits = LIMITS, **facts: Any) -> list[tuple[str, str]]:
    return [(one.rule, one.subject) for one in conditions(replace(CALM, **facts), limits)]


def test_a_calm_run_fires_nothing():
    assert rules(live=LIVE, waiting=5, durations=[10.0] * 10, recent=(True,) * 20, budget_usd=10.0) == []


def test_every_rule_is_described_once():
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    assert {rule.severity for rule in RULES} == set(Severity)


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


def test_the_end_is_told_once_per_end():
    assert rules(state=RunState.COMPLETED, ended_at=5.0) == [("finished", "5.000")]
    assert rules(state=RunState.RUNNING, ended_at=None) == []


def test_rules_can_be_off():
    off = AlertLimits(off=frozenset({"finished", "budget"}))
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


def test_alerts_are_their_events():
    def event(number: int, type: str, **data: Any) -> Event:
        return Event(number=number, run_id="r", at=float(number), type=type, task=None, attempt=None, data=data)

    told = fold(
        [
            event(1, "alert.fired", rule="budget", subject="80", severity="warning", message="m"),
            event(2, "alert.delivered", alert=1, what="fired", channel="webhook"),
            event(3, "alert.fired", rule="finished", subject="1", severity="info", message="m"),
            event(4, "alert.resolved", alert=1),
            event(5, "alert.resolved", alert=99),
        ]
    )
    assert [(one["state"], one["resolved_at"]) for one in told.values()] == [("resolved", 4.0), ("resolved", 3.0)]
    assert told[1]["delivered"] == [{"channel": "webhook", "what": "fired", "at": 2.0}]
