"""What Prometheus reads: `/metrics`, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from aiohttp import web

from evalfleet.model import Outcome, RunState
from evalfleet.report.runs import open_breaker
from evalfleet.report.summary import summarise
from evalfleet.store.base import StoreReader
from evalfleet.web.alerts import firing_of
from evalfleet.web.routes import Route
from evalfleet.web.site import Site

_CONTENT = "text/plain; version=0.0.4; charset=utf-8"
_RUNS = 200  # the newest; each is a set of series
_LIVE = (RunState.QUEUED, RunState.RUNNING, RunState.PAUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    name: str
    value: float
    labels: Mapping[str, str]


_KINDS: dict[str, tuple[str, str]] = {
    "evalfleet_runs": ("gauge", "Runs by state."),
    "evalfleet_events_total": ("counter", "Number of the newest event."),
    "evalfleet_feed_readers": ("gauge", "Readers of the live feed."),
    "evalfleet_alerts_firing": ("gauge", "Alerts that are firing, by rule."),
    "evalfleet_run_info": ("gauge", "One for each run that is not over, with its name and state."),
    "evalfleet_run_driven": ("gauge", "1: a controller drives it."),
    "evalfleet_run_tasks": ("gauge", "Tasks of a run by state."),
    "evalfleet_run_attempts": ("gauge", "Attempts of a run by outcome; live ones are `live`."),
    "evalfleet_run_failures": ("gauge", "Failed attempts of a run by kind and blame."),
    "evalfleet_run_workers": ("gauge", "Workers that a run may use, and those that are busy."),
    "evalfleet_run_cost_usd": ("gauge", "What a run has cost."),
    "evalfleet_run_waste_usd": ("gauge", "What it spent on attempts without a verdict."),
    "evalfleet_run_estimated_total_usd": ("gauge", "What it will have cost."),
    "evalfleet_run_hourly_rate_usd": ("gauge", "What it costs an hour."),
    "evalfleet_run_cost_per_task_usd": ("gauge", "What a decided task cost."),
    "evalfleet_run_budget_usd": ("gauge", "What it may cost."),
    "evalfleet_run_retry_rate": ("gauge", "Share of tried tasks that needed more than one attempt."),
    "evalfleet_run_coverage": ("gauge", "Share of tasks that count in the valid score."),
    "evalfleet_run_score": ("gauge", "Strict and valid score."),
    "evalfleet_run_breaker_open": ("gauge", "1: the breaker is open."),
    "evalfleet_run_oldest_attempt_seconds": ("gauge", "Age of the oldest live attempt."),
    "evalfleet_run_start_seconds": ("gauge", "Mean time from claim to ready of live attempts."),
    "evalfleet_host_attempts": ("gauge", "Live attempts by host."),
}


def route(site: Site) -> Route:
    async def handler(_request: web.Request) -> web.Response:
        readers = site.feed.readers
        text = await site.readers.call(lambda store: exposition(samples(store, readers)))
        return web.Response(body=text.encode(), headers={"Content-Type": _CONTENT, "Cache-Control": "no-store"})

    return Route(method="GET", path="/metrics", handler=handler, text="for Prometheus", answer="text/plain")


def exposition(found: Iterable[Sample]) -> str:
    """The text format: all samples of a name together, after what they mean."""
    by_name: dict[str, list[Sample]] = {}
    for sample in found:
        by_name.setdefault(sample.name, []).append(sample)
    lines: list[str] = []
    for name, group in by_name.items():
        kind, text = _KINDS[name]
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        for sample in group:
            labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in sample.labels.items())
            lines.append(f"{name}{{{labels}}} {sample.value:.10g}" if labels else f"{name} {sample.value:.10g}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def samples(store: StoreReader, readers: int) -> Iterator[Sample]:
    counts = {str(state): 0 for state in RunState}
    live: list[str] = []
    for run in store.runs(100_000):
        counts[run.state] += 1
        if run.state in _LIVE and len(live) < _RUNS:
            live.append(run.id)
    yield from (_sample("evalfleet_runs", count, state=state) for state, count in counts.items())
    yield _sample("evalfleet_events_total", store.last_number())
    yield _sample("evalfleet_feed_readers", readers)
    rules: dict[str, int] = {}
    for alert in firing_of(store.alert_events()):
        rules[alert["rule"]] = rules.get(alert["rule"], 0) + 1
    yield from (_sample("evalfleet_alerts_firing", count, rule=rule) for rule, count in rules.items())
    yield from (_sample("evalfleet_host_attempts", n, host=host) for host, n in store.host_loads().items())
    for run_id in live:
        yield from _of_run(store, run_id)


def _of_run(store: StoreReader, run_id: str) -> Iterator[Sample]:
    with store.snapshot():
        run = store.run(run_id)
        told = summarise(store, run, results=False)
        attempts = store.live_attempts(run_id)
        breaker = open_breaker(store, run)
        driven = store.driver(run_id) is not None
        now = store.now()

    def sample(name: str, value: float | None, /, **labels: str) -> Iterator[Sample]:
        if value is not None:
            yield _sample(f"evalfleet_run_{name}", value, run=run_id, **labels)

    yield from sample("info", 1, name=run.name, state=str(run.state), pool=run.policy.pool or "")
    yield from sample("driven", driven)
    for state, count in told["tasks"].items():
        if state != "total":
            yield from sample("tasks", count, state=state)
    for outcome in Outcome:
        yield from sample("attempts", told["attempts"]["by_outcome"][outcome], outcome=str(outcome))
    yield from sample("attempts", len(attempts), outcome="live")
    for kind in told["failure_kinds"]:
        yield from sample("failures", kind["attempts"], kind=kind["kind"], blame=kind["blame"])
    yield from sample("workers", run.policy.workers, state="allowed")
    yield from sample("workers", len({row["worker"] for row in attempts}), state="busy")
    cost = told["cost"]
    yield from sample("cost_usd", cost["total_usd"])
    yield from sample("waste_usd", cost["waste_usd"])
    yield from sample("estimated_total_usd", cost["estimated_total_usd"])
    yield from sample("hourly_rate_usd", cost["hourly_rate_usd"])
    yield from sample("cost_per_task_usd", cost["cost_per_task_usd"])
    yield from sample("budget_usd", cost["budget_usd"])
    yield from sample("retry_rate", told["retry_rate"])
    yield from sample("coverage", told["scores"]["coverage"])
    yield from sample("score", told["scores"]["strict"], kind="strict")
    yield from sample("score", told["scores"]["valid"], kind="valid")
    yield from sample("breaker_open", breaker is not None)
    yield from sample("oldest_attempt_seconds", max((now - row["claimed_at"] for row in attempts), default=None))
    starts = [row["ready_at"] - row["claimed_at"] for row in attempts if row["ready_at"]]
    yield from sample("start_seconds", sum(starts) / len(starts) if starts else None)


def _sample(name: str, value: float, /, **labels: str) -> Sample:
    return Sample(name=name, value=float(value), labels=labels)
