"""What `evalfleet doctor` checks and ends: the processes of this machine, and what the home's database says of runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from evalfleet import config, duration
from evalfleet.answers.home import Check
from evalfleet.cli.home.shared import doctor_checks as checks
from evalfleet.cli.home.shared.doctor_checks import problem, warning
from evalfleet.config import Settings
from evalfleet.errors import StoreError
from evalfleet.hosts.local import orphans as leftovers
from evalfleet.hosts.local.orphans import RunnerView, StrayProcess
from evalfleet.layout import Home
from evalfleet.model import RunState
from evalfleet.report import text
from evalfleet.report.reader import opened
from evalfleet.store.database.file import FILE
from evalfleet.store.reader import StoreReader

_SHOWN = 3


def clean(settings: Settings) -> list[str]:
    """End processes that are not needed; returns what was done, in words."""
    spool = Home(settings.home).spool
    ended = [one for one in leftovers.lost_runners(spool) if leftovers.end(one, spool)]
    ended += leftovers.end_orphans(spool)
    done = [f"ended {_name(one)}" for one in ended]
    runner = leftovers.end_idle_runner(spool)
    if runner is not None:
        done.append(f"ended the idle runner, process {runner.pid}")
    return done


def _name(stray: StrayProcess) -> str:
    of = f" of attempt {stray.attempt}" if stray.attempt else ""
    return f"process {stray.pid}{of} ({text.clip(text.printable(stray.command), 60)})"


def examine(settings: Settings) -> Iterator[Check]:
    home, spool = settings.home, Home(settings.home).spool
    yield checks.check_python()
    yield checks.check_sqlite()
    yield checks.check_home(home)
    yield checks.check_file_system(home)
    yield from checks.check_disks(home, Path("/tmp"))
    yield checks.check_open_files()
    yield from checks.check_files(settings)
    view = leftovers.runner_view(spool)
    yield from _from_store(home, spool, view)
    yield checks.check_runner_python(settings.local.python)
    yield _check_socket_folder()
    yield from _check_guests(settings)
    yield _check_runner(view, settings)
    yield from _check_leftovers(spool)


def _from_store(home: Path, spool: Path, view: RunnerView) -> Iterator[Check]:
    """What the database says, as far as it can be read."""
    broken: StoreError | None = None
    found: list[Check] = []
    try:
        with opened(home) as reader:
            if reader is not None:
                found = [
                    checks.check_identity(home),
                    _check_runs(reader, view),
                    checks.check_clock(reader),
                ]
            found.append(_check_spool(reader, spool, view))
    except StoreError as error:
        broken = error
    except (sqlite3.Error, msgspec.MsgspecError, ValueError, KeyError, TypeError) as error:
        broken = StoreError(f"{home / FILE} cannot be understood ({error}); restore a backup")
    yield checks.check_database(home, broken)
    yield from found
    yield _check_write_lock(home)


def _check_write_lock(home: Path) -> Check:
    held = leftovers.lock_holder(home / "write.lock")
    if held is None:
        return Check(name="write lock", message="free")
    return warning(
        "write lock",
        f"held by {_name(held)}",
        f"if it hangs, end it: kill {held.pid}; no stored data is lost",
    )


def _check_runs(reader: StoreReader, view: RunnerView) -> Check:
    """Runs that should be driven and are not, and those whose tasks go on without a controller."""
    live = [_run_of(attempt) for attempt in view.live]
    alone = [
        run
        for run in reader.runs.newest()
        if (run.state is RunState.RUNNING or run.id in live) and reader.runs.driver(run.id) is None
    ]
    if not alone:
        return Check(name="runs", message="none is left without a controller")
    tasks = sum(live.count(run.id) for run in alone)
    going = f"; {text.count(tasks, 'task')} of {'it' if len(alone) == 1 else 'them'} still run{'s' * (tasks == 1)}"
    return warning(
        "runs",
        f"no controller drives {_some([run.id for run in alone])}{going if tasks else ''}",
        f"evalfleet resume {alone[0].id}   goes on with it; evalfleet cancel {alone[0].id}   ends it",
    )


def _check_spool(reader: StoreReader | None, spool: Path, view: RunnerView) -> Check:
    """Attempts whose results wait for a controller."""
    waiting = [attempt for attempt in leftovers.spooled(spool) if attempt not in view.live]
    known = {run.id for run in reader.runs.newest()} if reader else set[str]()
    runs = sorted({_run_of(attempt) for attempt in waiting})
    alone = [run for run in runs if reader is None or reader.runs.driver(run) is None]
    count = sum(_run_of(attempt) in alone for attempt in waiting)
    if not count:
        return Check(name="spool", message="no attempt waits to be collected")
    ours = [run for run in alone if run in known]
    return warning(
        "spool",
        f"{text.count(count, 'attempt')} of {_some(alone)} {'waits' if count == 1 else 'wait'} to be collected",
        f"evalfleet resume {ours[0]}   collects"
        if ours
        else f"no such run is in this home; remove them: rm -r {spool}/attempts/{alone[0]}.*",
    )


def _run_of(attempt: str) -> str:
    return attempt.rsplit(".", 2)[0]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"run{'s' * (len(names) > 1)} {', '.join(names[:_SHOWN])}{more}"


def _check_socket_folder() -> Check:
    folder, wrong = leftovers.socket_folder(config.environment().get("XDG_RUNTIME_DIR"))
    if wrong is None:
        return Check(name="socket folder", message=str(folder))
    return problem("socket folder", wrong, f"remove {folder}, or set XDG_RUNTIME_DIR to a folder of your own")


def _check_guests(settings: Settings) -> Iterator[Check]:
    """Where guests are configured: QEMU, the image, whether KVM works, and memory."""
    if "vm" not in settings.tables:
        return
    from evalfleet.environments.vm.checks import recheck
    from evalfleet.environments.vm.settings import VmSettings

    for found in recheck(settings.table("vm", VmSettings)):
        if not found.holds:
            yield problem(found.name, found.seen, found.remedy)
        elif found.remedy:
            yield warning(found.name, found.seen, found.remedy)
        else:
            yield Check(name=found.name, message=found.seen)


def _check_runner(view: RunnerView, settings: Settings) -> Check:
    info, count = view.info, len(view.live)
    if info is None:
        return Check(
            name="runner", message="one is starting" if view.starting else "none runs; the next run starts one"
        )
    shown = f"process {info.pid}, version {info.version}"
    if not view.answers:
        return warning(
            "runner",
            f"{shown}, does not answer",
            f"a controller ends it after {duration.show(settings.lease.duration_s)} of silence; at once: kill -9 {info.pid}",
        )
    if not leftovers.speaks_ours(info):
        return warning(
            "runner",
            f"{shown}, of another evalfleet, with {text.count(count, 'live attempt')}",
            "finish its runs with that version, or `evalfleet doctor --clean` once it is idle",
        )
    if count:
        return Check(name="runner", message=f"{shown}, {text.count(count, 'live attempt')}")
    return Check(name="runner", message=f"{shown}, idle; it ends on its own, or now with --clean")


def _check_leftovers(spool: Path) -> Iterator[Check]:
    left = leftovers.orphans(spool)
    remedy = "evalfleet doctor --clean   ends them"
    if left:
        attempts = {one.attempt for one in left}
        of = f"{text.count(len(left), 'process', 'processes')} of {text.count(len(attempts), 'attempt')}"
        yield problem("processes", f"no runner looks after {of}, such as {_name(left[0])}", remedy)
    runners = leftovers.lost_runners(spool)
    if runners:
        pids = ", ".join(str(one.pid) for one in runners)
        yield problem("processes", f"the spool was removed under a runner that still runs: process {pids}", remedy)
    if not left and not runners:
        yield Check(name="processes", message="none is orphaned")
