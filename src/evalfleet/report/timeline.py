"""Worker lanes over time, as numbers: which attempt lies where. Pure; `charts` draws them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from evalfleet.answers.runs import Look
from evalfleet.report.live import natural

SCALE = 1000.0  # width of the whole in units
_LEAST = 1.2  # units; what is narrower is drawn together with its neighbour
_GAP_SHARE = 0.05  # a time without any attempt that is longer than this share of the busy time is cut out
_GAP_S = 30.0
_GAP_UNITS = 14.0
_TICKS = 7
_STEPS_S = (
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10_800,
    21_600,
    43_200,
    86_400,
)

Attempt = dict[str, Any]


class Bar(Struct, frozen=True, kw_only=True):
    """One attempt, or several neighbours of the same look that are too narrow to be told apart."""

    x: float
    width: float
    look: str
    attempts: tuple[Attempt, ...]


class Lane(Struct, frozen=True, kw_only=True):
    worker: str
    bars: tuple[Bar, ...]


class Cut(Struct, frozen=True, kw_only=True):
    """A time in which nothing ran, drawn narrow."""

    x: float
    width: float
    seconds: float


class Timeline(Struct, frozen=True, kw_only=True):
    lanes: tuple[Lane, ...]
    cuts: tuple[Cut, ...]
    ticks: tuple[tuple[float, float], ...]  # (place in units, seconds since the beginning)


def look_of(attempt: Attempt) -> Look:
    """How an attempt is coloured: by what it says about the task."""
    outcome = attempt["outcome"]
    if outcome is None:
        return "live"
    if outcome == "ok":
        return "pass" if attempt["success"] else "wrong"
    if outcome == "cancelled":
        return "off"
    return "own" if attempt["blame"] == "task" else "infra"


def timeline(attempts: Iterable[Attempt], now: float) -> Timeline | None:
    """Lay out all attempts that started; None if none did. Attempts carry `task_number`, `worker`, times and outcome."""
    spans = [(_start(one), max(_start(one), one["ended_at"] or now), one) for one in attempts]
    if not spans:
        return None
    axis = Axis([(start, end) for start, end, _ in spans])
    by_worker: dict[str, list[tuple[float, float, Attempt]]] = {}
    for span in sorted(spans, key=lambda span: span[0]):
        by_worker.setdefault(span[2]["worker"], []).append(span)
    lanes = tuple(Lane(worker=worker, bars=_bars(by_worker[worker], axis)) for worker in sorted(by_worker, key=natural))
    return Timeline(lanes=lanes, cuts=axis.cuts, ticks=axis.ticks())


def _start(attempt: Attempt) -> float:
    return attempt["started_at"] or attempt["claimed_at"]


def _bars(spans: Sequence[tuple[float, float, Attempt]], axis: Axis) -> tuple[Bar, ...]:
    bars: list[Bar] = []
    for start, end, attempt in spans:
        x, right = axis.place(start), axis.place(end)
        look = look_of(attempt)
        last = bars[-1] if bars else None
        if last and last.look == look and right - last.x < _LEAST:
            width = max(last.width, right - last.x)
            bars[-1] = Bar(x=last.x, width=width, look=look, attempts=(*last.attempts, attempt))
        else:
            bars.append(Bar(x=x, width=max(right - x, _LEAST / 2), look=look, attempts=(attempt,)))
    return tuple(bars)


class Axis:
    """Maps time to place, with long idle times cut out, so that a night's pause does not flatten the day."""

    def __init__(self, spans: Sequence[tuple[float, float]]) -> None:
        busy = _union(spans)
        self._begin = busy[0][0]
        least = max(_GAP_S, _GAP_SHARE * sum(end - start for start, end in busy))
        pieces = [busy[0]]
        for start, end in busy[1:]:
            if start - pieces[-1][1] > least:
                pieces.append((start, end))
            else:
                pieces[-1] = (pieces[-1][0], end)
        shown = sum(end - start for start, end in pieces) or 1.0
        self._per_second = (SCALE - _GAP_UNITS * (len(pieces) - 1)) / shown
        self._pieces: list[tuple[float, float, float]] = []
        x = 0.0
        for start, end in pieces:
            self._pieces.append((start, end, x))
            x += (end - start) * self._per_second + _GAP_UNITS

    @property
    def cuts(self) -> tuple[Cut, ...]:
        return tuple(
            Cut(x=x - _GAP_UNITS, width=_GAP_UNITS, seconds=start - before)
            for (_, before, _), (start, _, x) in zip(self._pieces, self._pieces[1:], strict=False)
        )

    def place(self, at: float) -> float:
        for start, end, x in reversed(self._pieces):
            if at >= start:
                return x + (min(at, end) - start) * self._per_second
        return 0.0

    def ticks(self) -> tuple[tuple[float, float], ...]:
        """Round times and their places, far enough apart to be written."""
        step = _round_step(SCALE / self._per_second / _TICKS)
        ticks: list[tuple[float, float]] = []
        for start, end, _ in self._pieces:
            for i in range(math.ceil((start - self._begin) / step), math.floor((end - self._begin) / step) + 1):
                x = self.place(self._begin + i * step)
                if not ticks or x - ticks[-1][0] >= SCALE / _TICKS / 2:
                    ticks.append((x, i * step))
        return tuple(ticks)


def _round_step(seconds: float) -> float:
    return next((step for step in _STEPS_S if step >= seconds), math.ceil(seconds / 86_400) * 86_400.0)


def _union(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    union: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    return union
