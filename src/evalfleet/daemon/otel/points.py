"""The metrics of a run: how it stands, what it costs, how busy its hosts are."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import asdict

from evalfleet.daemon.otel.messages import Point
from evalfleet.model import Run
from evalfleet.report.summary import summarise
from evalfleet.store.reader import StoreReader

_LOADS = {
    "cpu": ("evalfleet.host.cpu.utilization", "1"),
    "memory": ("evalfleet.host.memory.utilization", "1"),
    "disk": ("evalfleet.host.disk.utilization", "1"),
    "gpu": ("evalfleet.host.gpu.utilization", "1"),
    "disk_read_bps": ("evalfleet.host.disk.read", "By/s"),
    "disk_write_bps": ("evalfleet.host.disk.write", "By/s"),
    "net_in_bps": ("evalfleet.host.network.receive", "By/s"),
    "net_out_bps": ("evalfleet.host.network.transmit", "By/s"),
}


def run_points(store: StoreReader, run: Run) -> Iterator[Point]:
    """As the store has it now."""
    now, told, of = store.now(), summarise(store, run, results=False), {"evalfleet.run.id": run.id}

    def point(name: str, unit: str, value: float | None, **more: str) -> Iterator[Point]:
        if value is not None:
            attributes = {**of, **{f"evalfleet.{key}": one for key, one in more.items()}}
            yield Point(name=f"evalfleet.run.{name}", unit=unit, at=now, value=float(value), attributes=attributes)

    for state, count in asdict(told.tasks).items():
        if state != "total":
            yield from point("tasks", "{task}", count, state=state)
    for outcome, count in told.attempts.by_outcome.items():
        yield from point("attempts", "{attempt}", count, outcome=str(outcome))
    yield from point("attempts", "{attempt}", len(store.attempts.live(run.id)), outcome="live")
    yield from point("cost", "USD", told.cost.total_usd)
    yield from point("waste", "USD", told.cost.waste_usd)
    yield from point("budget", "USD", told.cost.budget_usd)
    yield from point("score", "1", told.scores.strict, kind="strict")
    yield from point("score", "1", told.scores.valid, kind="valid")
    yield from point("coverage", "1", told.scores.coverage)


def host_points(store: StoreReader, hosts: frozenset[str], since: float) -> Iterator[Point]:
    """The loads of these hosts after a moment, each at its own time."""
    for host, samples in store.loads.recent(since).items():
        for sample in samples if host in hosts else ():
            for part, (name, unit) in _LOADS.items():
                value = getattr(sample.load, part)
                if value is not None and sample.at > since:
                    of = {"evalfleet.host": host}
                    yield Point(name=name, unit=unit, at=sample.at, value=value, attributes=of)
