"""How busy the hosts of a run are and were, by columns, as a chart wants it."""

from __future__ import annotations

from evalfleet.answers.runs import HostSeries, HostSeriesList
from evalfleet.core.hosts.load import Sample, bounded
from evalfleet.errors import NotFound
from evalfleet.store.reader import StoreReader

_PARTS = ("cpu", "memory", "disk", "net_in_bps", "net_out_bps", "gpu")
_MOST_HOSTS = 200


def host_series(store: StoreReader, text: str, host: str | None, since: float) -> HostSeriesList:
    """`hosts`: of each its samples by columns, from the run's start (or `since`) to its end.

    Raises NotFound.
    """
    with store.snapshot():
        run = store.runs.find(text)
        hosts = store.attempts.hosts(run.id)
        if host is not None and host not in hosts:
            raise NotFound(f"run {run.id} used no host {host!r}; it used: {', '.join(hosts[:20]) or 'none'}")
        ends = store.now() if run.ended_at is None else run.ended_at
        begins = min(ends, max(since, run.started_at or run.created_at))
        chosen = hosts[:_MOST_HOSTS] if host is None else [host]
        rows = [(name, bounded(store.loads.of_host(name, begins, ends))) for name in chosen]
    return HostSeriesList(run=run.id, hosts=[_columns(name, samples) for name, samples in rows])


def _columns(host: str, samples: list[Sample]) -> HostSeries:
    columns = {part: [_rounded(getattr(sample.load, part)) for sample in samples] for part in _PARTS}
    return HostSeries(host=host, at=[round(sample.at, 1) for sample in samples], **columns)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
