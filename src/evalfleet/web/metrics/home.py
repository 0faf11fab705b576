"""What Prometheus reads: `/metrics`. As many series as there are live runs and hosts, up to a bound, however many runs ended."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from aiohttp import web

from evalfleet.answers.gpus import GpuList
from evalfleet.config import AlertSettings, Settings
from evalfleet.core.hosts.lifecycle import total_usd
from evalfleet.daemon.alerts.outbox import waiting
from evalfleet.daemon.alerts.state import fold
from evalfleet.model import HostState, JsonObject, RunState
from evalfleet.pools.kinds.registry import creates_machines, speed_of
from evalfleet.report.gpus import gpus_facts
from evalfleet.store.reader import StoreReader
from evalfleet.web.context import Site
from evalfleet.web.metrics.exposition import CONTENT, Sample, exposition, sample
from evalfleet.web.metrics.run import run_samples
from evalfleet.web.routes import Route

_RUNS = 200  # the newest that are not over; each is a set of series
_ENDED_S = 300.0  # a run stays for so long after its end: its last figures are to be seen once more
_POOLS = 100
_HOSTS = 500
_GPUS = 500
_FRESH_S = 60.0  # what a host said longer ago says nothing of now
_KEPT_S = 1.0
_SHARE_OF_TIME = 5  # figures that took t to compute are kept for at least so many t


def route(site: Site) -> Route:
    kept: dict[str, tuple[float, float, str]] = {}

    async def handler(_request: web.Request) -> web.Response:
        asked_at = time.monotonic()
        until, _, text = kept.get("text", (0.0, 0.0, ""))
        if asked_at >= until:
            text = await site.readers.call(lambda store: exposition(samples(store, site)))
            took_s = time.monotonic() - asked_at
            kept["text"] = (time.monotonic() + max(_KEPT_S, _SHARE_OF_TIME * took_s), took_s, text)
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT, "Cache-Control": "no-store"})

    return Route(method="GET", path="/metrics", handler=handler, text="for Prometheus", media="text/plain")


def samples(store: StoreReader, site: Site) -> Iterator[Sample]:
    for state, count in store.runs.counts().items():
        yield from sample("runs", count, state=str(state))
    yield from sample("events_total", store.events.last_number())
    yield from sample("feed_readers", site.feed.readers)
    yield from alert_samples(store, site.settings.alerts)
    yield from latency_samples(site.latency.rows())
    yield from host_samples(store)
    yield from gpu_samples(gpus_facts(store))
    yield from pool_samples(store, site.settings)
    for run_id in _shown(store):
        yield from run_samples(store, run_id)


def _shown(store: StoreReader) -> list[str]:
    live = store.runs.page(limit=_RUNS, states=[RunState.QUEUED, RunState.RUNNING, RunState.PAUSED])
    over = store.runs.page(limit=_RUNS - len(live) or 1, states=[RunState.COMPLETED, RunState.CANCELLED])
    since = store.now() - _ENDED_S
    found = [row["run"] for row in (*live, *over)]
    return [run.id for run in found if run.ended_at is None or run.ended_at >= since][:_RUNS]


def alert_samples(store: StoreReader, settings: AlertSettings) -> Iterator[Sample]:
    alerts = fold(store.events.alerts())
    firing: dict[tuple[str, str], int] = {}
    fired: dict[str, int] = {}
    for alert in alerts.values():
        rule, severity = alert.rule, alert.severity
        fired[rule] = fired.get(rule, 0) + 1
        if alert.state == "firing":
            firing[rule, severity] = firing.get((rule, severity), 0) + 1
    for (rule, severity), count in firing.items():
        yield from sample("alerts_firing", count, rule=rule, severity=severity)
    for rule, count in fired.items():
        yield from sample("alerts_fired_total", count, rule=rule)
    for channel in settings.channels:
        yield from sample("alerts_undelivered", len(waiting(alerts, channel)), channel=channel)


def latency_samples(rows: Iterable[JsonObject]) -> Iterator[Sample]:
    name = "http_request_duration_seconds"
    for row in rows:
        where = {"method": str(row["method"]), "route": str(row["route"])}
        for bound, count in row["buckets"]:
            yield from sample(name, count, "_bucket", **where, le=f"{bound:g}")
        yield from sample(name, row["count"], "_bucket", **where, le="+Inf")
        yield from sample(name, row["sum_s"], "_sum", **where)
        yield from sample(name, row["count"], "_count", **where)


def host_samples(store: StoreReader) -> Iterator[Sample]:
    for host, count in sorted(store.hosts.live_counts().items())[:_HOSTS]:
        yield from sample("host_attempts", count, host=host)
    for host, series in sorted(store.loads.recent(store.now() - _FRESH_S).items())[:_HOSTS]:
        load = series[-1].load
        yield from sample("host_cpu_ratio", load.cpu, host=host)
        yield from sample("host_memory_ratio", load.memory, host=host)
        yield from sample("host_disk_ratio", load.disk, host=host)
        yield from sample("host_gpu_ratio", load.gpu, host=host)
        yield from sample("host_receive_bytes_per_second", load.net_in_bps, host=host)
        yield from sample("host_transmit_bytes_per_second", load.net_out_bps, host=host)


def gpu_samples(told: GpuList) -> Iterator[Sample]:
    """Of GPUs that are leased; a host's own figure is there for all."""
    if not told.gpus and not told.waiting:
        return
    states: dict[tuple[str, str], int] = {}
    for card in told.gpus[:_GPUS]:
        state = "quarantined" if card.quarantine else "leased" if card.holders else "free"
        states[card.host, state] = states.get((card.host, state), 0) + 1
        where = {"host": str(card.host), "gpu": str(card.index)}
        busy = card.utilization
        yield from sample("gpu_utilization_ratio", None if busy is None else busy / 100, **where)
        yield from sample("gpu_memory_used_bytes", _bytes(card.used_mb), **where)
        yield from sample("gpu_memory_bytes", _bytes(card.memory_mb), **where)
    for (host, state), count in sorted(states.items()):
        yield from sample("gpus", count, host=host, state=state)
    yield from sample("gpu_waiting", len(told.waiting))


def _bytes(megabytes: int | None) -> float | None:
    return None if megabytes is None else float(megabytes << 20)


def pool_samples(store: StoreReader, settings: Settings) -> Iterator[Sample]:
    """Of pools whose machines we make; of others nothing is known but their names."""
    for pool in store.pools.all()[:_POOLS]:
        rows = store.hosts.of_pool(pool.name, gone=True)
        if not rows and not creates_machines(pool):
            continue
        for state in HostState:
            count = sum(row.state is state for row in rows)
            if state is not HostState.GONE:
                yield from sample("pool_hosts", count, pool=pool.name, state=str(state))
        rate = sum(row.usd_per_hour for row in rows if row.allocated_since is not None)
        kept = sum(row.kept_usd_per_hour for row in rows if row.made_at is not None and row.gone_at is None)
        yield from sample("pool_paused", pool.reason is not None, pool=pool.name)
        yield from sample("pool_cost_usd", total_usd(rows, store.now()), pool=pool.name)
        yield from sample("pool_hourly_rate_usd", (rate + kept) / speed_of(pool, settings), pool=pool.name)
