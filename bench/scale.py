"""How far one controller goes: the real dispatcher on the real store, with simulated hosts, runners and time.

Every trial is a process of its own (`scale_trial.py`). What is judged is CPU time, because wall time is mostly the disk's and that
of other programs; both are shown. Finished tasks are copies of one that was driven, made by the database.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from msgspec import Struct
from table import Line

STEP_MS = 20.0
RSS_MB = 400.0
GROWTH = 1.5  # times what a step costs with no task finished
_LIMIT_S = 480


class ScaleSize(Struct, frozen=True, kw_only=True):
    """The largest of each series."""

    hosts: int = 200
    slots: int = 10
    finished: int = 20_000
    runs: int = 10


def bench_scale(root: Path, size: ScaleSize) -> list[Line]:
    lines: list[Line] = []
    by_hosts = {hosts: _trial(root, size, hosts=hosts) for hosts in _series(size.hosts)}
    for hosts, found in by_hosts.items():
        lines.append(Line(f"{hosts} hosts x {size.slots} slots, simulated", _words(found)))
    most = by_hosts[size.hosts]
    long = _trial(root, size, hosts=size.hosts, finished=size.finished)
    many = _trial(root, size, hosts=size.hosts, runs=size.runs)
    lines += [
        Line("  step, CPU p95", f"{most['cpu']['p95']:.1f} ms", f"< {STEP_MS:.0f} ms", most["cpu"]["p95"] < STEP_MS),
        Line("  end to next start, CPU", f"{_pair(most['end_to_start'])} ms p50, p95"),
        Line("  decisions a second of CPU", f"{most['a_cpu_s']:.0f}"),
        Line("  leases renewed, CPU", f"{_pair(most['renewals'])} ms p50, p95"),
        Line(f"with {size.finished} finished tasks", _words(long)),
        _grows("  step to that without", long["cpu"]["p50"] / most["cpu"]["p50"]),
        Line("  take over such a run", f"{long['take_over_s']:.1f} s CPU"),
        Line(
            "  store for each finished task", f"{(long['store_mb'] - most['store_mb']) * 1000 / size.finished:.1f} kB"
        ),
        Line("  memory", f"{long['rss_mb']:.0f} MB", f"< {RSS_MB:.0f} MB", long["rss_mb"] < RSS_MB),
        Line(f"{size.runs} runs at once in one process", _words(many)),
        Line("  slots told to hosts, for each decision", f"{many['wants'] / max(1, many['decisions']):.1f}"),
    ]
    return lines


def _series(most: int) -> list[int]:
    return sorted({max(1, most // 100), max(1, most // 10), most})


def _grows(what: str, times: float) -> Line:
    return Line(what, f"{times:.2f}x", f"< {GROWTH:.1f}x", times < GROWTH)


def _trial(root: Path, size: ScaleSize, *, hosts: int, finished: int = 0, runs: int = 1) -> dict[str, Any]:
    asked = {"hosts": hosts, "slots": size.slots, "runs": runs, "finished": finished, "ends": 400, "steps": 1200}
    home = root / f"scale-{hosts}-{finished}-{runs}"
    program = str(Path(__file__).with_name("scale_trial.py"))
    done = subprocess.run(
        [sys.executable, program, str(home), json.dumps(asked)], capture_output=True, timeout=_LIMIT_S, check=False
    )
    if done.returncode:
        raise SystemExit(f"bench: a trial of scale failed; the figures would mean nothing\n{done.stderr.decode()}")
    return json.loads(done.stdout)


def _words(found: dict[str, Any]) -> str:
    return f"step CPU {_pair(found['cpu'])}, wall {_pair(found['wall'])} ms; {found['live']} live, {found['rss_mb']:.0f} MB"


def _pair(told: dict[str, float]) -> str:
    return f"{told['p50']:.1f} {told['p95']:.1f}"
