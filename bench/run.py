"""`make bench`: how fast and how small evalfleet is, in one table.

    python bench/run.py [--rounds 5] [--only PART] [--strict] [--hosts 1000 --finished 1000000 --runs 100]

Ratios are taken within one run, in turn with the floor: `xargs -P` on the same commands, a bare browser loop on the same
tasks, local workers against hosts over SSH, a run alone against the same beside the dashboard, Optuna's processes; a makespan is
compared with its lower bound. Nothing is deleted before the end: on many file systems deletion slows the creation of files that
follows. `--strict` exits 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from beside import bench_beside
from browsing import bench_miniwob
from dashboard import bench_feed, served
from dispatching import bench_dispatch
from guests import bench_guests
from makespan import bench_makespan
from page_opening import bench_page
from processes import bench_commands, bench_few, bench_many
from renting import bench_cloud
from scale import ScaleSize, bench_scale
from storing import bench_store
from table import Line, print_end, print_lines
from tuning import bench_tuning

PARTS = ("few", "many", "store", "commands", "makespan", "scale", "cloud", "ssh", "web", "tuning", "miniwob", "vm")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--only", choices=PARTS)
    sizes = parser.add_argument_group(
        "scale", "1000 hosts, a million finished tasks, 100 runs: minutes, and 2 GB of disk"
    )
    sizes.add_argument("--hosts", type=int, default=200)
    sizes.add_argument("--finished", type=int, default=20_000)
    sizes.add_argument("--runs", type=int, default=10)
    args = parser.parse_args()
    size = ScaleSize(hosts=args.hosts, finished=args.finished, runs=args.runs)
    root = Path(tempfile.mkdtemp(prefix="evalfleet-bench-"))
    begun = time.monotonic()
    lines: list[Line] = []
    parts: dict[str, Callable[[], list[Line]]] = {
        "few": lambda: bench_few(root, args.rounds),
        "many": lambda: bench_many(root),
        "store": lambda: bench_store(root, min(args.rounds, 3)),
        "commands": lambda: bench_commands(root),
        "makespan": lambda: bench_makespan(root),
        "scale": lambda: bench_scale(root, size),
        "cloud": lambda: bench_cloud(root),
        "ssh": lambda: bench_dispatch(root),
        "web": lambda: [*bench_feed(root / "feed"), *bench_beside(root), *bench_page(root / "page", served)],
        "tuning": lambda: bench_tuning(root),
        "miniwob": lambda: bench_miniwob(root, min(args.rounds, 2)),  # minutes each
        "vm": bench_guests,
    }
    try:
        for name, part in parts.items():
            if args.only in (None, name):
                measured = part()
                print_lines(measured)
                lines += measured
        print_end(time.monotonic() - begun)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if args.strict and any(line.ok is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
