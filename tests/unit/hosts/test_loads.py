"""How busy hosts are: measured from /proc, packed, thinned."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from evalfleet.core.hosts.load import Load, Sample, bounded, pack, thinned, unpack
from evalfleet.hosts.load import load_of
from evalfleet.runner.host import load as hostload
from evalfleet.runner.host.load import HostLoad, disk_share, memory_share, ticks, traffic

STAT = b"cpu  100 0 50 800 50 0 0 0 7 0\ncpu0 1 2 3\n"
DEVICES = b"""Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 9000       9    0    0    0     0          0         0     9000       9    0    0    0     0       0          0
  eth0: 1000       9    0    0    0     0          0         0      200       9    0    0    0     0       0          0
docker0: 777       9    0    0    0     0          0         0      777       9    0    0    0     0       0          0
"""


class Machine:
    """A /proc whose counters a test moves, and a clock."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.now = 1000.0
        (folder / "net").mkdir()
        monkeypatch.setattr(hostload.time, "monotonic", lambda: self.now)
        self.say(0, 0, 0, 0)
        (folder / "meminfo").write_bytes(b"MemTotal:  1000000 kB\nMemFree: 1 kB\nMemAvailable:  250000 kB\n")

    def say(self, busy: int, idle: int, received: int, sent: int) -> None:
        (self.folder / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\n")
        head = "\n".join(DEVICES.decode().splitlines()[:2])
        (self.folder / "net" / "dev").write_text(f"{head}\n  eth0: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_counters():
    assert ticks(STAT) == (150, 1000), "waiting for a disk is idle, and guests are part of users"
    assert ticks(b"") is None
    assert traffic(DEVICES) == (1000, 200), "what never leaves the machine is no traffic"
    assert traffic(b"") is None


def test_shares_are_over_the_time_since_the_last_look(machine: Machine):
    load = HostLoad(str(machine.folder), str(machine.folder))
    assert load.look() is None, "there is nothing to compare with"
    machine.now += 5
    machine.say(300, 100, 5000, 500)
    told = load.look()
    assert told is not None
    assert (told["cpu"], told["net_in_bps"], told["net_out_bps"]) == (0.75, 1000.0, 100.0)
    assert 0 < told["disk"] < 1
    machine.now += 1
    machine.say(9000, 100, 5000, 500)
    assert load.look() is told, "another controller asked a moment ago"
    machine.now += 600
    assert load.look() is None, "the mean of ten minutes says nothing of now"
    machine.now += 5
    machine.say(9100, 100, 10, 10)  # a device went away
    told = load.look()
    assert told is not None
    assert (told["cpu"], told["net_in_bps"]) == (1.0, None)


def test_memory_is_that_of_the_limit_that_we_live_under(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = b"MemTotal:  1000000 kB\nMemAvailable:  250000 kB\n"
    for name, value in {"max": 100 << 20, "current": 90 << 20}.items():
        (tmp_path / name).write_text(f"{value}\n")
    (tmp_path / "stat").write_text(f"anon 5\ninactive_file {10 << 20}\n")
    monkeypatch.setattr(hostload, "_MEMORY_LIMITS", ())
    assert memory_share(text) == 0.75
    monkeypatch.setattr(hostload, "_MEMORY_LIMITS", ([str(tmp_path / name) for name in ("max", "current", "stat")],))
    assert memory_share(text) == 0.8, "files that can be had back are free"
    (tmp_path / "max").write_text("max\n")
    assert memory_share(text) == 0.75
    assert memory_share(b"") is None
    assert disk_share(str(tmp_path / "absent")) is None


def test_this_machine_tells_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hostload, "FRESH_S", 0.0)
    load = HostLoad(str(tmp_path))
    load.look()
    end = hostload.time.monotonic() + 0.05
    while hostload.time.monotonic() < end:
        pass
    told = load.look()
    assert told is not None
    assert all(value is not None and value >= 0 for value in told.values()), told


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({}, None),
        ({"load": None}, None),
        ({"load": {}}, Load()),
        ({"load": {"cpu": 7, "memory": "x", "disk": -1, "net_in_bps": float("nan")}}, Load(cpu=1.0)),
        ({"load": {"cpu": 0.5}, "gpus": [{"utilization": 30}, {"utilization": None}]}, Load(cpu=0.5, gpu=0.3)),
    ],
)
def test_what_a_runner_says_is_not_trusted(answer: dict[str, Any], expected: Load | None):
    assert load_of(answer) == expected


def test_packing_gives_back_what_it_was_given():
    whole = Load(cpu=0.1234, memory=1.0, disk=0.0, net_in_bps=1.5e9, net_out_bps=0.0, gpu=0.5)
    samples = [Sample(at=1200.0, load=Load()), Sample(at=1799.9, load=whole)]
    data = pack(1200, samples)
    assert unpack(1200, data) == samples
    assert len(data) == 2 * 18
    assert unpack(1200, data[:-1]) == samples[:1], "a torn piece is read as far as it goes"
    (huge,) = unpack(0, pack(0, [Sample(at=0.0, load=Load(cpu=9.0, net_in_bps=1e300))]))
    assert huge.load.cpu == 1.0
    assert struct.calcsize("<HHHHHff") == 18


def test_an_answer_has_a_bounded_number_of_points():
    samples = [Sample(at=float(n), load=Load(cpu=0.5)) for n in range(0, 50_000, 5)]
    few = bounded(samples, 100)
    assert 80 <= len(few) <= 101
    assert bounded(samples, 10_000) == samples
    assert thinned([]) == []
