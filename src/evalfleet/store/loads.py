"""How busy hosts are and were: samples, kept in pieces of time; old ones are thinned, then dropped."""

from __future__ import annotations

from typing import Any

from evalfleet.core.hosts.load import (
    KEPT_S,
    LEAST_APART_S,
    PIECE_S,
    THIN_AFTER_S,
    Sample,
    filled,
    pack,
    piece_of,
    thinned,
    unpack,
)
from evalfleet.store.database.base import Database

_CLOUD = "cloud:"  # before the name of a host: the series that its cloud measured
_AT_A_TIME = 100  # pieces that one call thins: after a long pause a writer must not hold up others


class LoadQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def of_host(self, host: str, since: float, until: float) -> list[Sample]:
        """The samples of one host, oldest first; where it sent none, those of its cloud. Of what is older than an hour there is
        one sample a minute."""
        own, cloud = self._series(host, since, until), self._series(f"{_CLOUD}{host}", since, until)
        return filled(own, cloud) if cloud else own

    def recent(self, since: float) -> dict[str, list[Sample]]:
        """The samples of all hosts of which there are any since then, as in `of_host`; at most those of the last hour."""
        found: dict[str, list[Sample]] = {}
        for row in self._db.rows("select_last_pieces", since=piece_of(since)):
            samples = (one for one in _unpacked(row["host"], row) if one.at >= since)
            found.setdefault(row["host"], []).extend(samples)
        hosts = {name.removeprefix(_CLOUD) for name in found}
        merged = {host: filled(found.get(host, []), found.get(f"{_CLOUD}{host}", [])) for host in hosts}
        return {host: samples for host, samples in sorted(merged.items()) if samples}

    def _series(self, key: str, since: float, until: float) -> list[Sample]:
        pieces = self._db.rows("select_load_pieces", host=key, since=piece_of(since), until=until)
        found = [sample for row in pieces for sample in _unpacked(key, row)]
        return [sample for sample in found if since <= sample.at <= until]


class Loads(LoadQueries):
    def add(self, samples: dict[str, list[Sample]]) -> None:
        """Keep samples of hosts; thin and drop old ones. A sample that is hardly later than the last of its host is left
        out. No event."""
        with self._db.transaction():
            begun = [
                self._append(_key(host, sample), sample) for host, several in samples.items() for sample in several
            ]
            if any(begun):
                self._thin(self._db.now())

    def _append(self, host: str, sample: Sample) -> bool:
        """True: it is the first of its piece."""
        if sample.at - self._last_at(host, sample.at) < LEAST_APART_S:
            return False
        begins = piece_of(sample.at)
        before = self._db.rows("select_load_piece", host=host, begins=begins)
        data = (before[0]["samples"] if before else b"") + pack(begins, [sample])
        self._db.rows("put_load_piece", host=host, begins=begins, thin=0, samples=data)
        return not before

    def _last_at(self, host: str, at: float) -> float:
        """The moment of the last sample of a host at about `at`; long ago where there is none."""
        for begins in (piece_of(at), piece_of(at) - PIECE_S):
            for row in self._db.rows("select_load_piece", host=host, begins=begins):
                samples = unpack(begins, row["samples"], from_cloud=host.startswith(_CLOUD))
                if samples:
                    return samples[-1].at
        return float("-inf")

    def _thin(self, now: float) -> None:
        for row in self._db.rows("select_thick_pieces", older_than=now - THIN_AFTER_S - PIECE_S, limit=_AT_A_TIME):
            few = thinned(_unpacked(row["host"], row))
            self._db.rows(
                "put_load_piece", host=row["host"], begins=row["begins"], thin=1, samples=pack(row["begins"], few)
            )
        self._db.rows("drop_old_pieces", older_than=now - KEPT_S)


def _key(host: str, sample: Sample) -> str:
    return f"{_CLOUD}{host}" if sample.from_cloud else host


def _unpacked(key: str, row: Any) -> list[Sample]:
    return unpack(row["begins"], row["samples"], from_cloud=key.startswith(_CLOUD))
