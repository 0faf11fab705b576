"""What a runner sees of GPUs: against a library that answers as NVIDIA's does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import nvidia

from evalfleet.hosts.base import gpus_of
from evalfleet.runner.gpu.devices import may_have_gpus
from evalfleet.runner.gpu.nvml import Nvml
from evalfleet.runner.gpu.probe import GpuProbe, ProcessOwners, read_stand_in

UUIDS = ("GPU-2", "MIG-100", "MIG-102", "GPU-1")  # in the order of the bus; the one without a name is left out


def test_what_the_library_says(tmp_path: Path):
    nvidia.put(tmp_path, 900, 4_000_000)
    rows = {row["uuid"]: row for row in Nvml(nvidia.library(tmp_path)).rows()}
    assert tuple(rows) == UUIDS
    first = rows["GPU-2"]
    assert (first["index"], first["pci"], first["name"]) == (0, "00000000:21:00.0", "NVIDIA Fake")
    assert (first["memory_mb"], first["used_mb"], first["reserved_mb"], first["utilization"]) == (81920, 900, 615, 7)
    assert [(one["pid"], one["memory_mb"], one["kind"]) for one in first["processes"]] == [
        (4_000_000, 900, "compute"),
        (1, 30, "graphics"),
    ]
    assert (rows["GPU-1"]["index"], rows["GPU-1"]["mig"], first["mig"]) == (3, None, False)
    assert (first["links"], rows["GPU-1"]["links"]) == ({"GPU-1": 4}, {"GPU-2": 4})
    many = rows["GPU-1"]["processes"]  # more than the first question had room for
    assert [one["pid"] for one in many] == list(range(4_000_000, 4_000_070))
    assert (many[0]["memory_mb"], many[69]["memory_mb"]) == (900, None)


def test_the_parts_of_a_split_card_are_the_devices(tmp_path: Path):
    rows = Nvml(nvidia.library(tmp_path, linked=True)).rows()
    parts = [row for row in rows if row["mig"]]
    assert [(row["index"], row["uuid"], row["parent"]) for row in parts] == [
        (3000, "MIG-100", "GPU-4"),
        (3002, "MIG-102", "GPU-4"),
    ]
    assert [len(row["processes"]) for row in parts] == [1, 0]  # of the whole card's, those of its instance
    assert [(row["utilization"], row["links"]) for row in parts] == [(None, {}), (None, {})]
    assert rows[0]["links"] == {"GPU-1": 0}


def test_an_old_driver_and_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = {row["uuid"]: row for row in Nvml(nvidia.library(tmp_path, old=True)).rows()}
    assert (rows["GPU-1"]["used_mb"], rows["GPU-1"]["reserved_mb"], rows["GPU-1"]["mig"]) == (615, None, None)
    assert (rows["GPU-4"]["memory_mb"], rows["GPU-4"]["used_mb"]) == (None, None)  # it does not tell
    assert rows["GPU-1"]["processes"][0]["pid"] == 7
    assert rows["GPU-1"]["links"] == {}
    names = ("libnothing.so.9", nvidia.library(tmp_path, init=9))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in names:
        monkeypatch.setenv("EVALFLEET_NVML", name)
        with pytest.raises(OSError, match=r"NVIDIA's library (cannot be loaded|finds no driver)"):
            GpuProbe(str(tmp_path), os.getpid())
    monkeypatch.delenv("EVALFLEET_NVML")
    monkeypatch.setattr("evalfleet.runner.gpu.devices.SIGNS", ())
    assert not may_have_gpus()


def test_whose_a_process_is(tmp_path: Path):
    """An attempt's, by its own mark, or because its parent's parent is one; also one that hid below the runner."""
    spool = str(tmp_path)
    nested = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], env={})"
    leaf = "import os; print(os.getpid(), flush=True); input()"
    for task, known in (
        (f"{spool}/attempts/a/task.json", (True, "a")),
        (f"{spool}-2/attempts/a/task.json", (False, None)),
        ("", (False, None)),
    ):
        with subprocess.Popen(
            [sys.executable, "-c", nested, leaf],
            env={"EVALFLEET_TASK": task},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            pid = int(process.stdout.readline())
            assert ProcessOwners(spool, 0).attempt_of(pid) == known
            assert ProcessOwners(spool, os.getpid()).attempt_of(pid) == (known if known[0] else (True, None))
            process.communicate(b"\n")


def test_a_file_takes_the_place_of_the_driver(tmp_path: Path):
    spool = str(tmp_path)
    assert read_stand_in(spool, 0) is None
    (tmp_path / "gpus.json").write_text(
        json.dumps([{"index": 0, "uuid": "GPU-a", "processes": [1, {"pid": 2}]}, 7, {}])
    )
    (row,) = read_stand_in(spool, 0) or []
    assert (row["index"], row["uuid"], row["used_mb"], row["links"]) == (0, "GPU-a", None, {})
    assert [(one["pid"], one["memory_mb"], one["ours"]) for one in row["processes"]] == [
        (1, None, False),
        (2, None, False),
    ]
    for text in ("{", "{}", "[", "3"):
        (tmp_path / "gpus.json").write_text(text)
        assert read_stand_in(spool, 0) == []


def test_what_a_runner_tells_is_read_as_it_is_and_no_word_is_a_number():
    rows = [
        {"index": 0, "uuid": "GPU-a", "memory_mb": 100, "used_mb": "[N/A]", "utilization": None, "processes": None},
        {
            "index": 1,
            "uuid": "GPU-b",
            "memory_mb": True,
            "used_mb": 3,
            "processes": [7],
            "foreign": [7],
            "links": {"GPU-a": 0},
        },
        {"index": 2},
        {"uuid": "GPU-c"},
    ]
    first, second = gpus_of("here", rows)
    assert (first.host, first.memory_mb, first.used_mb, first.utilization, first.processes) == (
        "here",
        100,
        None,
        None,
        None,
    )
    assert (second.memory_mb, second.foreign, second.processes) == (None, (7,), ({"pid": 7},))
    assert second.links == {"GPU-a": 0}
