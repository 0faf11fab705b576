"""The load of hosts over time: samples, their packed form, and which of them are kept. Pure.

A series is cut into pieces of ten minutes. A piece is one short string of bytes; an hour later it is thinned to a sample a
minute, and after some days it is dropped. The mean of a minute is kept, so that what was used is not forgotten.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

PIECE_S = 600
THIN_AFTER_S = 3600.0
THIN_S = 60.0
KEPT_S = 14 * 86_400.0
LEAST_APART_S = 3.0  # several runs may use one host, and each of their controllers asks it
MOST_POINTS = 1500  # of one host in one answer

FRESH_S = 120.0  # so long around a sample of the host's own, those of its cloud are not needed
_SAMPLE = struct.Struct("<HHHHHff")  # tenths of a second in its piece, four shares, two rates
_CLOUD_SAMPLE = struct.Struct("<HHHHHffff")  # the same, and two rates of the disk
_UNKNOWN = 0xFFFF
_SCALE = 10_000
_MOST_BPS = 1e15


class Load(Struct, frozen=True, kw_only=True):
    """How busy a host was over the last few seconds: shares from 0 to 1, bytes per second. None: not known."""

    cpu: float | None = None
    memory: float | None = None
    disk: float | None = None
    net_in_bps: float | None = None
    net_out_bps: float | None = None
    gpu: float | None = None  # the mean over its GPUs
    disk_read_bps: float | None = None  # only its cloud tells
    disk_write_bps: float | None = None


class Sample(Struct, frozen=True, kw_only=True):
    """A load and its moment."""

    at: float
    load: Load
    from_cloud: bool = False  # its cloud measured it, not the host itself


def piece_of(at: float) -> int:
    """The moment at which the piece with `at` in it begins."""
    return int(at // PIECE_S) * PIECE_S


def pack(begins: int, samples: Iterable[Sample]) -> bytes:
    """Samples of the piece that begins then, in order."""
    return b"".join(_packed(begins, sample) for sample in samples)


def unpack(begins: int, data: bytes, *, from_cloud: bool = False) -> list[Sample]:
    """What was packed; bytes that are no whole sample are passed over."""
    form = _CLOUD_SAMPLE if from_cloud else _SAMPLE
    whole = len(data) - len(data) % form.size
    found: list[Sample] = []
    for tenths, cpu, memory, disk, gpu, *rates in form.iter_unpack(data[:whole]):
        net_in, net_out, read, write = [None if rate < 0 else rate for rate in (*rates, -1.0, -1.0)[:4]]
        load = Load(
            cpu=_share(cpu),
            memory=_share(memory),
            disk=_share(disk),
            gpu=_share(gpu),
            net_in_bps=net_in,
            net_out_bps=net_out,
            disk_read_bps=read,
            disk_write_bps=write,
        )
        found.append(Sample(at=begins + tenths / 10, load=load, from_cloud=from_cloud))
    return found


def filled(own: Sequence[Sample], cloud: Sequence[Sample]) -> list[Sample]:
    """The host's own samples, and those of its cloud where there are none of its own nearby; in order."""
    moments = [sample.at for sample in own]

    def is_missing(at: float) -> bool:
        place = bisect_left(moments, at - FRESH_S)
        return place == len(moments) or moments[place] > at + FRESH_S

    return sorted([*own, *(one for one in cloud if is_missing(one.at))], key=lambda one: one.at)


def thinned(samples: Sequence[Sample], apart_s: float = THIN_S) -> list[Sample]:
    """One sample for each so many seconds: the mean, at the moment of the last."""
    groups: dict[int, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(int(sample.at // apart_s), []).append(sample)
    return [
        Sample(at=group[-1].at, load=mean([one.load for one in group]), from_cloud=group[-1].from_cloud)
        for group in groups.values()
    ]


def bounded(samples: Sequence[Sample], most: int = MOST_POINTS) -> list[Sample]:
    """As many as an answer may hold, evenly."""
    if len(samples) <= most:
        return list(samples)
    span_s = samples[-1].at - samples[0].at
    return thinned(samples, max(1.0, span_s / most * 1.01))


def mean(loads: Sequence[Load]) -> Load:
    def of(part: Callable[[Load], float | None]) -> float | None:
        known = [value for value in map(part, loads) if value is not None]
        return sum(known) / len(known) if known else None

    return Load(
        cpu=of(lambda load: load.cpu),
        memory=of(lambda load: load.memory),
        disk=of(lambda load: load.disk),
        net_in_bps=of(lambda load: load.net_in_bps),
        net_out_bps=of(lambda load: load.net_out_bps),
        gpu=of(lambda load: load.gpu),
        disk_read_bps=of(lambda load: load.disk_read_bps),
        disk_write_bps=of(lambda load: load.disk_write_bps),
    )


def _packed(begins: int, sample: Sample) -> bytes:
    load = sample.load
    rates = [load.net_in_bps, load.net_out_bps]
    rates += [load.disk_read_bps, load.disk_write_bps] if sample.from_cloud else []
    return (_CLOUD_SAMPLE if sample.from_cloud else _SAMPLE).pack(
        min(PIECE_S * 10 - 1, max(0, round((sample.at - begins) * 10))),
        *(_scaled(share) for share in (load.cpu, load.memory, load.disk, load.gpu)),
        *(-1.0 if rate is None else min(rate, _MOST_BPS) for rate in rates),
    )


def _scaled(share: float | None) -> int:
    return _UNKNOWN if share is None else round(min(1.0, max(0.0, share)) * _SCALE)


def _share(value: int) -> float | None:
    return None if value == _UNKNOWN else value / _SCALE
