"""What goes wrong in a round where things are shared or half broken. All of it follows from the seed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.faults.chaos_round import Broken
from tests.faults.sharing.world import EmulatorContext

TASKS = 12


def two_runs(world: EmulatorContext, tally: Counter[str]) -> None:
    """Two runs of one home and one of another on the same hosts; controllers and runners die, connections are cut."""
    first, second = world.home(), world.home("other")
    world.submit(first, "one", TASKS, max_lost=20)
    world.submit(first, "two", TASKS // 2, max_lost=20)
    world.submit(second, "three", TASKS // 2, max_lost=20)
    for count in sorted(world.rng.sample(range(1, 2 * TASKS - 4), 4)):
        world.until_ends(count)
        _strike(world, tally)


def _strike(world: EmulatorContext, tally: Counter[str]) -> None:
    kind = world.rng.choice(("controller", "controller", "runner", "cut"))
    if kind == "controller":
        run = world.rng.choice(world.runs)
        if run.kill():
            world.note(f"killed the controller of {run.name}")
            tally["controller"] += 1
            time.sleep(world.rng.choice((0.0, 0.3)))  # what happens without a controller is part of the round
            run.drive()
        return
    host = world.rng.choice(list(world.hosts.values()))
    if kind == "cut":
        tally["cut"] += bool(host.cut())
    elif (info := host.runner()) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(info.pid, signal.SIGKILL)
            tally["runner"] += 1
    world.note(f"{kind} of {host.name}")


def broken_host(world: EmulatorContext, tally: Counter[str]) -> None:
    """A host breaks in the middle, so that everything that it starts fails; with one attempt for each task as well."""
    how = world.rng.choice(("gone", "exit", "environment"))
    attempts = world.rng.choice((1, 3))
    world.submit(world.home(), "one", TASKS, attempts=attempts)
    world.until_ends(world.rng.randint(2, 4))
    name = world.rng.choice(list(world.hosts))
    (world.folder / "broken" / name).write_text(how)
    world.note(f"{name} is broken: {how}, attempts = {attempts}")
    tally[f"host broken: {how}"] += 1


def full_disk(world: EmulatorContext, tally: Counter[str]) -> None:
    """The disk of one host fills in the middle, and stays full."""
    host = world.hosts["b"]
    place = host.home / ".evalfleet"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)], check=True)
    world.note("b has a small disk")
    try:
        world.submit(world.home(), "one", 2 * TASKS)
        world.until_ends(world.rng.randint(2, 5))
        with contextlib.suppress(OSError), (place / "fill").open("wb") as file:
            while True:
                file.write(b"x" * 4096)
                file.flush()
        tally["disk full"] += 1
        world.see_through()
    finally:
        (place / "fill").unlink(missing_ok=True)
        host.close()
        subprocess.run(["umount", "-l", str(place)], check=True)


def copied_home(world: EmulatorContext, tally: Counter[str]) -> None:
    """Somebody copies a home that works, and resumes the copy; the original's tasks and hosts feel nothing."""
    home = world.home()
    run = world.submit(home, "one", TASKS)
    world.until_ends(world.rng.randint(1, 4))
    if world.rng.random() < 0.5 and run.kill():
        tally["controller"] += 1
    copy = world.folder / "copy"
    shutil.copytree(home.home, copy, symlinks=True, ignore=_not_the_sockets)
    asked = home.command("resume", "one", EVALFLEET_HOME=str(copy))
    world.note(f"a copy was resumed: {asked.returncode}, {asked.stderr.strip()[-200:]}")
    if asked.returncode == 0 or "copy" not in asked.stderr:
        raise Broken(f"a copy of a home was driven: {asked.returncode}, {asked.stdout} {asked.stderr}")
    tally["copy resumed"] += 1
    if not run.goes_on():
        run.drive()


def _not_the_sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if Path(folder, name).is_socket()]


def killer_tasks(world: EmulatorContext, tally: Counter[str]) -> None:
    """Tasks that kill their runner: they are held in the end, and those beside them lose nothing."""
    world.submit(world.home(), "one", TASKS, killers=world.rng.randint(1, 2), max_lost=4)
    tally["killer"] += 1


KINDS: dict[str, Callable[[EmulatorContext, Counter[str]], None]] = {
    "two-runs": two_runs,
    "broken-host": broken_host,
    "full-disk": full_disk,
    "copied-home": copied_home,
    "killer-tasks": killer_tasks,
}
