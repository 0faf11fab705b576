"""Series of how busy hosts are: reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from evalfleet.core.hosts.load import PIECE_S, Sample, piece_of, unpack

if TYPE_CHECKING:
    from evalfleet.store.runs.queries import Database


class SeriesReader(Protocol):
    """The part of `StoreReader` that tells how busy hosts are and were."""

    def loads(self, host: str, since: float, until: float) -> list[Sample]:
        """Of one host, oldest first. What is older than an hour is a sample a minute."""
        ...

    def recent_loads(self, since: float) -> dict[str, list[Sample]]:
        """Of all hosts that said something since then; at most the last hour."""
        ...

    def hosts_of(self, run_id: str) -> list[str]:
        """Those on which the run has or had attempts, by name."""
        ...

    def time_sums(self, run_id: str) -> dict[str, Any]:
        """How long parts of a run took, each as a count and a sum of seconds: `start` (process to readiness), `dispatch`
        (claim to process), `queue_wait` (start of the run to the first claim of a task), `attempt`. And of now, where there
        is one: `oldest_claim` and `next_expiry` of live attempts, `waits_since` of the oldest task that may start."""
        ...

    def last_uses(self) -> dict[str, float]:
        """When each host last had an attempt. Reads all attempts."""
        ...


class SeriesWriter(Protocol):
    """The part of `Store` that keeps how busy hosts are."""

    def add_loads(self, samples: dict[str, list[Sample]]) -> None:
        """Keep samples of hosts; thin and drop old ones. One that is hardly later than the last of its host is left out. No event."""
        ...


class SeriesReading:
    """Implements `SeriesReader`."""

    _db: Database

    def loads(self, host: str, since: float, until: float) -> list[Sample]:
        pieces = self._db.rows("select_load_pieces", host=host, since=piece_of(since), until=until)
        found = [sample for row in pieces for sample in unpack(row["begins"], row["samples"])]
        return [sample for sample in found if since <= sample.at <= until]

    def recent_loads(self, since: float) -> dict[str, list[Sample]]:
        found: dict[str, list[Sample]] = {}
        for row in self._db.rows("select_last_pieces", since=piece_of(since)):
            samples = (one for one in unpack(row["begins"], row["samples"]) if one.at >= since)
            found.setdefault(row["host"], []).extend(samples)
        return {host: samples for host, samples in found.items() if samples}

    def hosts_of(self, run_id: str) -> list[str]:
        return sorted(row["host"] for row in self._db.rows("select_hosts_of_run", run_id=run_id))

    def time_sums(self, run_id: str) -> dict[str, Any]:
        ended = dict(self._db.rows("sum_times", run_id=run_id)[0])
        return {**ended, **dict(self._db.rows("select_live_times", run_id=run_id, now=self._db.now())[0])}

    def last_uses(self) -> dict[str, float]:
        return {row["host"]: row["at"] for row in self._db.rows("select_last_use")}

    def _last_load_at(self, host: str, at: float) -> float:
        """The moment of the last sample of a host at about `at`; long ago where there is none."""
        for begins in (piece_of(at), piece_of(at) - PIECE_S):
            for row in self._db.rows("select_load_piece", host=host, begins=begins):
                samples = unpack(begins, row["samples"])
                if samples:
                    return samples[-1].at
        return float("-inf")
