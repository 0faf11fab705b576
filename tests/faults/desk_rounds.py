"""Play all tasks of desk with the oracle, again and again, with few workers and with many: every verdict must be 1.0.

python tests/faults/desk_rounds.py --rounds 5 --workers 1 4 8
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.fleet import Fleet, fleet_at

APPLICATIONS = ("Xvfb", "openbox", "dbus-daemon", "soffice", "mousepad", "galculator", "pcmanfm", "xterm")


def play(fleet: Fleet, workers: int, *more: str) -> tuple[dict[str, float | None], int]:
    """Run desk once; return the score of each task and the number of attempts."""
    process = fleet.start("run", "desk", "--agent", "oracle", "--workers", str(workers), "--json", *more)
    output, _ = process.communicate(timeout=3600)
    summary = json.loads(output.splitlines()[-1])
    return {row["key"]: row["score"] for row in summary["results"]}, summary["attempts"]["total"]


def left(fleet: Fleet) -> list[str]:
    """Return the processes of desktops that outlived their attempts."""
    return [process for process in fleet.left_processes() if any(name in process for name in APPLICATIONS)]


def one(workers: int) -> str:
    """Play one round; return what is wrong with it, or nothing."""
    with tempfile.TemporaryDirectory(prefix="desk-rounds-") as folder:
        for fleet in fleet_at(Path(folder)):
            scores, attempts = play(fleet, workers)
            wrong = sorted(key for key, score in scores.items() if score != 1.0)
            if wrong:
                return f"not solved: {', '.join(wrong)}"
            if attempts != len(scores):
                return f"{attempts} attempts for {len(scores)} tasks"
            deadline = time.monotonic() + 10
            while left(fleet) and time.monotonic() < deadline:
                time.sleep(0.1)
            if left(fleet):
                return f"left behind: {left(fleet)}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 8])
    chosen = parser.parse_args()
    failed = 0
    for workers in chosen.workers:
        for number in range(1, chosen.rounds + 1):
            begun = time.monotonic()
            problem = one(workers)
            failed += bool(problem)
            took_s = time.monotonic() - begun
            print(f"{workers} workers, round {number}: {problem or 'all solved'}, {took_s:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
