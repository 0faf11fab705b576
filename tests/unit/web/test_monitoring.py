"""What Prometheus reads, and the dashboard and rules that are made of it: parsed by Prometheus' own client."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from tests.support.store import cases
from tests.support.web_client import Client, serving

from evalfleet.core.gpus.cards import Card
from evalfleet.core.hosts.load import Load, Sample
from evalfleet.daemon.alerts.service import AlertService
from evalfleet.model import HostState, Policy, TaskState
from evalfleet.store.open import open_store
from evalfleet.web.metrics import home as metrics
from evalfleet.web.metrics.exposition import METRICS

EXAMPLES = Path(__file__).parents[3] / "examples" / "monitoring"
_NAME = re.compile(r"\bevalfleet_[a-z_]+\b")
_FUNCTIONS = {
    *("sum", "rate", "increase", "changes", "histogram_quantile", "vector", "absent", "max", "min", "avg", "count"),
    *("by", "on", "group_left", "label_values", "and", "or", "unless"),
}


def filled(home: Path) -> str:
    """A home in which everything that can be told is there to be told."""
    with closing(open_store(home)) as store:
        run = cases.drive(store, 6, Policy(workers=3, attempts=1, budget_usd=100.0))
        for number in (1, 2):
            attempt = cases.claimed(store, run, number).attempt
            cases.finished(store, run, cases.with_verdict(attempt, score=1.0))
        failed = cases.claimed(store, run, 3).attempt
        cases.finished(store, run, cases.with_failure(failed, TaskState.FAILED))
        cases.claimed(store, run, 4)
        store.events.note(
            run.id, "alert.fired", {"rule": "budget", "subject": "50", "severity": "warning", "message": "m"}
        )
        load = Load(cpu=0.5, memory=0.25, disk=0.75, gpu=1.0, net_in_bps=1000.0, net_out_bps=10.0)
        store.loads.add({"h1": [Sample(at=store.now(), load=load)]})
        store.gpus.see("h1", [Card(host="h1", index=0, uuid="g", memory_mb=80, used_mb=8, utilization=50)], store.now())
        store.pools.create("cloud", "azure-vm", {"workers": 1})
        pool = store.pools.take("cloud", "me")
        (host,) = store.hosts.request("cloud", "c-", [{}])
        now = store.now()
        ready = replace(host, state=HostState.READY, usd_per_hour=2.0, made_at=now, allocated_since=now)
        cases.move_host(store, pool, ready)
        store.pools.leave(pool)
    return run.id


async def at_rest(_service: AlertService) -> None:
    """Nobody resolves the alert of `filled`, which has no cause."""


async def scraped(client: Client) -> dict[str, Any]:
    await client.ask("/metrics")  # so that there is an answer whose time can be told
    text = (await client.ask("/metrics")).body.decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


async def test_all_metrics_are_told_as_prometheus_wants_them(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metrics, "_KEPT_S", 0.0)
    monkeypatch.setattr(metrics, "_SHARE_OF_TIME", 0.0)
    monkeypatch.setattr(AlertService, "serve", at_rest)
    run = filled(home)
    async with serving(home, webhook="HOOK") as client:
        families = await scraped(client)
    # The client takes the suffix of counters for granted.
    names = {f"{name}_total" if family.type == "counter" else name for name, family in families.items()}
    assert names == set(METRICS), "each that is described is told"
    for name, family in families.items():
        kind, text = METRICS.get(name) or METRICS[f"{name}_total"]
        assert (family.type, family.documentation) == (kind, text)
    labels = {name: {key for one in family.samples for key in one.labels} for name, family in families.items()}
    assert all(keys <= _ALLOWED for keys in labels.values()), "nothing that a task chooses is a label"
    values = {(one.name, frozenset(one.labels.values())): one.value for f in families.values() for one in f.samples}

    def value(name: str, *labels: str) -> float:
        return values[f"evalfleet_{name}", frozenset(labels)]

    assert value("run_tasks", run, "done") == 2
    assert value("run_workers", "busy", run) == 1
    assert value("run_queue_wait_seconds_count", run) == 4
    assert value("run_attempt_seconds_count", run) == 3
    assert 0 < value("run_lease_left_seconds", run) <= 60
    assert value("host_disk_ratio", "h1") == 0.75
    assert value("gpus", "h1", "free") == 1
    assert value("gpu_utilization_ratio", "h1", "0") == 0.5
    assert value("gpu_memory_used_bytes", "h1", "0") == 8 << 20
    assert value("pool_hosts", "cloud", "ready") == 1
    assert value("pool_hourly_rate_usd", "cloud") == 2.0
    assert value("alerts_undelivered", "webhook") == 1
    assert value("http_request_duration_seconds_count", "/metrics", "GET") == 1
    assert value("http_request_duration_seconds_bucket", "+Inf", "/metrics", "GET") == 1


_ALLOWED = {
    *("run", "name", "state", "pool", "outcome", "kind", "blame", "host", "rule", "severity", "channel"),
    *("method", "route", "le", "gpu"),
}


async def test_a_thousand_runs_do_not_make_a_scrape_slow(home: Path):
    with closing(open_store(home)) as store, store.batch():
        for _ in range(1000):
            cases.submit(store, 3)
    async with serving(home) as client:
        begun = time.monotonic()
        text = (await client.ask("/metrics")).body.decode()
        took_s = time.monotonic() - begun
        again = time.monotonic()
        assert (await client.ask("/metrics")).body.decode() == text
        assert time.monotonic() - again < max(0.2, took_s / 2), "who asks at once gets the same again"
    infos = [line for line in text.splitlines() if line.startswith("evalfleet_run_info")]
    assert len(infos) == 200, "a bounded number of series"
    assert 'evalfleet_runs{state="queued"} 1000' in text
    assert len(text) < 3_000_000
    assert took_s < 5.0, took_s


# What is made of them


def known_names() -> set[str]:
    found: set[str] = set()
    for name, (kind, _) in METRICS.items():
        found.add(name)
        suffixes = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}.get(kind, ())
        found |= {name + suffix for suffix in suffixes}
        if suffixes:
            found.discard(name)
    return found


def expressions() -> list[str]:
    board = json.loads((EXAMPLES / "grafana-dashboard.json").read_text("utf-8"))
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    found += [one["definition"] for one in board["templating"]["list"] if "definition" in one]
    rules = yaml.safe_load((EXAMPLES / "alert-rules.yml").read_text("utf-8"))
    return found + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def wrong_with(expression: str) -> list[str]:
    """What can be said of PromQL without Prometheus: names, brackets, matchers, ranges, functions."""
    wrong = [name for name in _NAME.findall(expression) if name not in known_names()]
    bare = re.sub(r'"[^"]*"', '""', expression)
    for opening, closing_ in ("()", "{}", "[]"):
        if bare.count(opening) != bare.count(closing_):
            wrong.append(f"{opening} without {closing_}")
    wrong += [part for part in re.findall(r"\[([^\]]*)\]", bare) if not re.fullmatch(r"\d+[smhd]", part)]
    for part in re.findall(r"\{([^}]*)\}", bare):
        wrong += [one for one in part.split(",") if not re.fullmatch(r'\s*[a-z_]+\s*(=~|!~|=|!=)\s*""\s*', one)]
    wrong += [word for word in re.findall(r"\b([a-z_]+)\s*\(", bare) if word not in _FUNCTIONS]
    # A rate or a change is over a range, and a range is inside of one of them.
    calls = re.findall(r"\b(?:rate|increase|changes)\(\s*[a-z_]+(?:\{[^}]*\})?\[", bare)
    if len(calls) != bare.count("["):
        wrong.append("a range outside of a function over ranges")
    return wrong


def test_the_check_of_expressions_finds_mistakes():
    good = 'sum by (le) (rate(evalfleet_http_request_duration_seconds_bucket{route="/x"}[5m])) > 2'
    assert wrong_with(good) == []
    for bad in (
        "evalfleet_nonsense",
        "evalfleet_run_start_seconds",
        "sum(evalfleet_runs",
        "evalfleet_runs[5m]",
        "rate(evalfleet_run_start_seconds_sum[5 minutes])",
        "evalfleet_runs{state=running}",
        "summe(evalfleet_runs)",
    ):
        assert wrong_with(bad), bad


@pytest.mark.parametrize("expression", expressions())
def test_expressions_use_what_there_is(expression: str):
    assert wrong_with(expression) == []


def test_the_dashboard_can_be_imported():
    board = json.loads((EXAMPLES / "grafana-dashboard.json").read_text("utf-8"))
    assert (board["uid"], board["id"], board["schemaVersion"] >= 36) == ("evalfleet", None, True)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    places = [panel["gridPos"] for panel in board["panels"]]
    taken = {(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])}
    assert sum(p["w"] * p["h"] for p in places) == len(taken), "no panel lies on another"
    assert all(p["x"] + p["w"] <= 24 for p in places)
    shown = {name for expression in expressions() for name in _NAME.findall(expression)}
    base = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    asked_for = {
        "cost_usd",
        "estimated_total_usd",
        "hourly_rate_usd",
        "cost_per_task_usd",
        "retry_ratio",
        "start_seconds",
    }
    assert {f"evalfleet_run_{name}" for name in asked_for} <= base


def test_rules_say_what_and_how_bad():
    rules = yaml.safe_load((EXAMPLES / "alert-rules.yml").read_text("utf-8"))
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
    scrape = yaml.safe_load((EXAMPLES / "prometheus.yml").read_text("utf-8"))
    assert scrape["rule_files"] == ["alert-rules.yml"]
    assert scrape["scrape_configs"][0]["metrics_path"] == "/metrics"


def test_the_page_about_metrics_names_all_of_them():
    page = (EXAMPLES.parents[1] / "docs" / "howto" / "monitor.md").read_text("utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    told = {f"evalfleet_{name}" for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    assert told == set(METRICS)
