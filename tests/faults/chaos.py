"""Kills controllers, runners and tasks at seeded random moments, and counts what evalfleet lost: nothing.

    python tests/faults/chaos.py [--rounds 100] [--seed 1] [--tasks 200] [--workers 8] [--only KIND]

Kinds: controller, runner, task, mixed (one run on this machine); postgres (the same, with a server that crashes and whose connections
are cut); two-runs, broken-host, full-disk, copied-home, killer-tasks
(hosts over SSH that runs and homes share, or of which one breaks); pool-keeper (two runs on one rented pool).

A round that breaks keeps its folder and is named by its seed and number; `--first N --rounds 1` repeats it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.faults import chaos_processes as processes
from tests.faults.chaos_checks import Check, Tally
from tests.faults.chaos_plan import FLAVOURS, flavour_of
from tests.faults.chaos_round import Round
from tests.faults.sharing.checks import Check as SharedCheck
from tests.faults.sharing.keeper import keeper_round
from tests.faults.sharing.trouble import KINDS
from tests.faults.sharing.world import EmulatorContext

ROUND_LIMIT_S = 90.0
KEEPER = "pool-keeper"


def one_round(folder: Path, seed: int, number: int, *, tasks: int, workers: int, only: str | None = None) -> Tally:
    """Run and check one round. Raises Broken, after every process of it is ended; its folder stays."""
    flavour = flavour_of(number, only)
    if flavour in (*KINDS, KEEPER):
        return _shared_round(folder, f"{seed}/{number}/{flavour}", flavour)
    run = Round(folder, f"{seed}/{number}/{flavour}", flavour, tasks=tasks, workers=workers, limit_s=ROUND_LIMIT_S)
    try:
        run.run()
        return Check(run).all()
    except BaseException:
        (folder / "harness.log").write_text("\n".join(run.seen.log) + "\n")
        raise
    finally:
        processes.end_all(run.home)
        run.store.close()


def _shared_round(folder: Path, seed: str, kind: str) -> Tally:
    kills: Counter[str] = Counter()
    if kind == KEEPER:
        counts = keeper_round(folder, seed, kills)
        return Tally(rounds=1, kills=kills, tasks=counts["tasks"], attempts=counts["attempts"])
    world = EmulatorContext(folder, random.Random(seed))
    try:
        KINDS[kind](world, kills)
        world.see_through()
        counts = SharedCheck(world).all()
    finally:
        (folder / "harness.log").write_text("\n".join(world.log) + "\n")
        world.close()
    return Tally(rounds=1, kills=kills, tasks=counts["tasks"], attempts=counts["attempts"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--only", choices=FLAVOURS)
    parser.add_argument("--keep-going", action="store_true", help="go on after a broken round")
    return parser.parse_args()


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


def _table(total: Tally, wall_s: float) -> str:
    rows = [
        ("rounds", total.rounds),
        ("kills", f"{sum(total.kills.values())}: {_words(total.kills)}"),
        ("  at the moments", _words(total.moments)),
        ("tasks", total.tasks),
        ("attempts", total.attempts),
        ("re-attached", total.reattached),
        ("runner_lost", total.runner_lost),
        ("signalled", total.signalled),
        ("lost results", total.lost),
        ("counted twice", total.twice),
        ("restarted finished", total.restarted),
        ("left processes", total.left),
        ("wall time", f"{wall_s:.0f} s, {wall_s / max(1, total.rounds):.1f} s a round"),
    ]
    return "\n".join(f"{name:<20} {value}" for name, value in rows)


def main() -> int:
    args = _arguments()
    root = Path(tempfile.mkdtemp(prefix="evalfleet-chaos-"))
    total, begun, broken = Tally(), time.monotonic(), 0
    for number in range(args.first, args.first + args.rounds):
        folder = root / f"round-{number}"
        begun_round = time.monotonic()
        try:
            tally = one_round(folder, args.seed, number, tasks=args.tasks, workers=args.workers, only=args.only)
        except Exception as error:
            broken += 1
            print(f"round {number} of seed {args.seed} ({flavour_of(number, args.only)}) broke: {error}")
            print(f"  see {folder}: harness.log, controllers.log, home/", flush=True)
            if not args.keep_going:
                break
            continue
        total.add(tally)
        print(
            f"round {number:3d}  {flavour_of(number, args.only):<10}  {time.monotonic() - begun_round:5.1f} s  "
            f"{tally.attempts} attempts, {tally.reattached} re-attached, {tally.runner_lost} runner_lost; killed: {_words(tally.kills)}",
            flush=True,
        )
        shutil.rmtree(folder)
    print(_table(total, time.monotonic() - begun))
    if not broken:
        shutil.rmtree(root)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
