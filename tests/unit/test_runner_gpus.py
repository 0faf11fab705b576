"""What a runner tells of GPUs, against a library that answers as NVIDIA's does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evalfleet.runner.gpus import Gpus

# Three cards: an idle one with a process, one that tells neither its use nor its processes (as MIG does), one without a name.
SOURCE = """
#include <stdio.h>
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned gpu, memory; } use;
typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } process;
int nvmlInit_v2(void) { return INIT; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)(unsigned long)(i + 1); return 0; }
int nvmlDeviceGetUUID(void *h, char *s, unsigned n) {
    if (h == (void *)3) return 3;
    snprintf(s, n, "GPU-%lu", (unsigned long)h - 1); return 0; }
int nvmlDeviceGetName(void *h, char *s, unsigned n) { snprintf(s, n, "NVIDIA Fake"); return 0; }
int nvmlDeviceGetMemoryInfo(void *h, memory *m) { m->total = 80ULL << 30; m->used = 615ULL << 20; m->free = m->total - m->used; return 0; }
int nvmlDeviceGetUtilizationRates(void *h, use *u) { if (h == (void *)2) return 3; u->gpu = 7; u->memory = 1; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, process *p) {
    if (h == (void *)2) return 3;
    p[0].pid = PID; p[0].memory = 1 << 20; *n = 1; return 0; }
"""


def library(folder: Path, pid: int, init: int = 0) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (folder / "nvml.c").write_text(SOURCE)
    made = folder / f"nvml-{pid}-{init}.so"
    command = [compiler, "-shared", "-fPIC", f"-DPID={pid}", f"-DINIT={init}", "-o", str(made), str(folder / "nvml.c")]
    subprocess.run(command, check=True)
    return str(made)


def test_what_the_library_says(tmp_path: Path):
    found = Gpus(str(tmp_path), library(tmp_path, os.getpid())).look()
    first = {"index": 0, "uuid": "GPU-0", "name": "NVIDIA Fake", "memory_mb": 81920, "used_mb": 615, "utilization": 7}
    assert found[0] == {**first, "foreign": [os.getpid()]}
    assert (found[1]["utilization"], found[1]["foreign"]) == (None, [])
    assert len(found) == 2  # a card that does not say who it is cannot be leased


def test_a_process_of_an_attempt_is_not_foreign(tmp_path: Path):
    task = str(tmp_path / "attempts" / "a" / "task.json")
    for spool, ours in ((tmp_path, True), (tmp_path / "other", False)):
        with subprocess.Popen(
            [sys.executable, "-c", "print(flush=True); input()"],
            env={"EVALFLEET_TASK": task},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()  # it is that program by now
            found = Gpus(str(spool), library(tmp_path, process.pid)).look()
            process.kill()
        assert found[0]["foreign"] == ([] if ours else [process.pid])


def test_no_library_or_no_driver_means_no_gpus(tmp_path: Path):
    assert Gpus(str(tmp_path), "libnothing.so.9").look() == []
    assert Gpus(str(tmp_path), library(tmp_path, 1, init=9)).look() == []


def test_a_file_takes_the_place_of_the_library(tmp_path: Path):
    gpus = Gpus(str(tmp_path), "libnothing.so.9")
    (tmp_path / "gpus.json").write_text(json.dumps([{"index": 0, "uuid": "GPU-a"}]))
    assert gpus.look() == [{"index": 0, "uuid": "GPU-a", "foreign": []}]
    (tmp_path / "gpus.json").write_text("{")
    assert gpus.look() == []
