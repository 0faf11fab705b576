"""Series of how busy hosts are: writing."""

from __future__ import annotations

from evalfleet.core.hosts.load import (
    KEPT_S,
    LEAST_APART_S,
    PIECE_S,
    THIN_AFTER_S,
    Sample,
    pack,
    piece_of,
    thinned,
    unpack,
)
from evalfleet.store.runs.events import Recording

_AT_A_TIME = 100  # pieces that one writer thins: whoever comes after a long time must not hold up others


class SeriesKeeping(Recording):
    """Implements `SeriesWriter`."""

    def add_loads(self, samples: dict[str, list[Sample]]) -> None:
        with self._db.transaction():
            begun = [self._append(host, sample) for host, several in samples.items() for sample in several]
            if any(begun):
                self._thin(self.now())

    def _append(self, host: str, sample: Sample) -> bool:
        """True: it is the first of its piece."""
        if sample.at - self._last_load_at(host, sample.at) < LEAST_APART_S:
            return False
        begins = piece_of(sample.at)
        before = self._db.rows("select_load_piece", host=host, begins=begins)
        data = (before[0]["samples"] if before else b"") + pack(begins, [sample])
        self._db.rows("put_load_piece", host=host, begins=begins, thin=0, samples=data)
        return not before

    def _thin(self, now: float) -> None:
        for row in self._db.rows("select_thick_pieces", before=now - THIN_AFTER_S - PIECE_S, limit=_AT_A_TIME):
            few = thinned(unpack(row["begins"], row["samples"]))
            self._db.rows(
                "put_load_piece", host=row["host"], begins=row["begins"], thin=1, samples=pack(row["begins"], few)
            )
        self._db.rows("drop_old_pieces", before=now - KEPT_S)
