"""`evalfleet doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from evalfleet.answers.home import Health
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import adopt_option, home_option, json_option

if TYPE_CHECKING:
    from pathlib import Path

    from evalfleet.cli.shared.doctor_checks import Check
    from evalfleet.config import Settings
    from evalfleet.hosts.local.orphans import RunnerView, Stray
    from evalfleet.report.terminal.lines import Line
    from evalfleet.store.reader import StoreReader

PROBLEMS = 3
_SHOWN = 3


@click.command("doctor")
@click.option("--clean", is_flag=True, help="End orphaned processes and the idle runner of this home.")
@adopt_option
@json_option
@home_option
def command(clean: bool, adopt: bool, as_json: bool, home: str | None) -> int:
    """Check this machine and the home, and say how to fix problems.

    Changes nothing unless --clean or --adopt is given. Exit codes: 0 no problem (warnings are possible), 3 a problem.
    """
    settings, broken = _settings(home)
    if adopt:
        from evalfleet.cli.shared.home_copies import take_place

        take_place(settings.home)
    done = _clean(settings) if clean else []
    doctor_checks = [*broken, *_examine(settings)]
    problems = sum(check.level == "problem" for check in doctor_checks)
    if as_json:
        print_document(Health(home=str(settings.home), healthy=not problems, cleaned=done, checks=doctor_checks))
    else:
        from evalfleet.report.terminal import lines

        lines.write(_shown(doctor_checks, done if clean else None), colour=settings.colour)
    return PROBLEMS if problems else 0


def _settings(home: str | None) -> tuple[Settings, list[Check]]:
    """The settings; where they cannot be read, the defaults and the reason."""
    from pathlib import Path

    from evalfleet import config
    from evalfleet.cli.shared.doctor_checks import problem
    from evalfleet.errors import ConfigError

    try:
        return config.load(home), []
    except ConfigError as error:
        chosen = home or config.environment().get("EVALFLEET_HOME") or "~/.evalfleet"
        settings = config.Settings(home=Path(chosen).expanduser().absolute())
        return settings, [problem("settings", str(error), "correct it; the checks below use the defaults")]


def _clean(settings: Settings) -> list[str]:
    """End processes that are not needed; returns what was done, in words."""
    from evalfleet.hosts.local import orphans as leftovers
    from evalfleet.layout import Home

    spool = Home(settings.home).spool
    ended = [one for one in leftovers.lost_runners(spool) if leftovers.end(one, spool)]
    ended += leftovers.end_orphans(spool)
    done = [f"ended {_name(one)}" for one in ended]
    runner = leftovers.end_idle_runner(spool)
    if runner is not None:
        done.append(f"ended the idle runner, process {runner.pid}")
    return done


def _name(stray: Stray) -> str:
    from evalfleet.report import text

    of = f" of attempt {stray.attempt}" if stray.attempt else ""
    return f"process {stray.pid}{of} ({text.clip(text.printable(stray.command), 60)})"


def _examine(settings: Settings) -> Iterator[Check]:
    from pathlib import Path

    from evalfleet.cli.shared import doctor_checks
    from evalfleet.hosts.local import orphans as leftovers
    from evalfleet.layout import Home

    home, spool = settings.home, Home(settings.home).spool
    yield doctor_checks.check_python()
    yield doctor_checks.check_sqlite()
    yield doctor_checks.check_home(home)
    yield doctor_checks.check_file_system(home)
    yield from doctor_checks.check_disks(home, Path("/tmp"))
    yield doctor_checks.check_open_files()
    view = leftovers.runner_view(spool)
    yield from _from_store(home, spool, view)
    yield doctor_checks.check_runner_python(settings.local.python)
    yield _check_socket_folder()
    yield from _check_guests(settings)
    yield _check_runner(view, settings)
    yield from _check_leftovers(spool)


def _from_store(home: Path, spool: Path, view: RunnerView) -> Iterator[Check]:
    """What the database says, as far as it can be read."""
    import sqlite3

    import msgspec

    from evalfleet.cli.shared import doctor_checks
    from evalfleet.errors import StoreError
    from evalfleet.report.reader import opened
    from evalfleet.store.database.file import FILE

    broken: StoreError | None = None
    found: list[Check] = []
    try:
        with opened(home) as reader:
            if reader is not None:
                found = [
                    doctor_checks.check_identity(home),
                    _check_runs(reader, view),
                    doctor_checks.check_clock(reader),
                ]
            found.append(_check_spool(reader, spool, view))
    except StoreError as error:
        broken = error
    except (sqlite3.Error, msgspec.MsgspecError, ValueError, KeyError, TypeError) as error:
        broken = StoreError(f"{home / FILE} cannot be understood ({error}); restore a backup")
    yield doctor_checks.check_database(home, broken)
    yield from found
    yield _check_write_lock(home)


def _check_write_lock(home: Path) -> Check:
    from evalfleet.cli.shared.doctor_checks import Check, warning
    from evalfleet.hosts.local.orphans import lock_holder

    held = lock_holder(home / "write.lock")
    if held is None:
        return Check(name="write lock", message="free")
    return warning(
        "write lock",
        f"held by {_name(held)}",
        f"if it hangs, end it: kill {held.pid}; no stored data is lost",
    )


def _check_runs(reader: StoreReader, view: RunnerView) -> Check:
    """Runs that should be driven and are not, and those whose tasks go on without a controller."""
    from evalfleet.cli.shared.doctor_checks import Check, warning
    from evalfleet.model import RunState
    from evalfleet.report import text

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
    from evalfleet.cli.shared.doctor_checks import Check, warning
    from evalfleet.hosts.local.orphans import spooled
    from evalfleet.report import text

    waiting = [attempt for attempt in spooled(spool) if attempt not in view.live]
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
    from evalfleet import config
    from evalfleet.cli.shared.doctor_checks import Check, problem
    from evalfleet.hosts.local.orphans import socket_folder

    folder, wrong = socket_folder(config.environment().get("XDG_RUNTIME_DIR"))
    if wrong is None:
        return Check(name="socket folder", message=str(folder))
    return problem("socket folder", wrong, f"remove {folder}, or set XDG_RUNTIME_DIR to a folder of your own")


def _check_guests(settings: Settings) -> Iterator[Check]:
    """Where guests are configured: QEMU, the image, whether KVM works, and memory."""
    from evalfleet.cli.shared.doctor_checks import Check, problem, warning

    if "vm" not in settings.tables:
        return
    from evalfleet.environments.vm import checks
    from evalfleet.environments.vm.settings import VmSettings

    for found in checks.recheck(settings.table("vm", VmSettings)):
        if not found.holds:
            yield problem(found.name, found.seen, found.remedy)
        elif found.remedy:
            yield warning(found.name, found.seen, found.remedy)
        else:
            yield Check(name=found.name, message=found.seen)


def _check_runner(view: RunnerView, settings: Settings) -> Check:
    from evalfleet import duration
    from evalfleet.cli.shared.doctor_checks import Check, warning
    from evalfleet.hosts.local.orphans import speaks_ours
    from evalfleet.report import text

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
    if not speaks_ours(info):
        return warning(
            "runner",
            f"{shown}, of another evalfleet, with {text.count(count, 'live attempt')}",
            "finish its runs with that version, or `evalfleet doctor --clean` once it is idle",
        )
    if count:
        return Check(name="runner", message=f"{shown}, {text.count(count, 'live attempt')}")
    return Check(name="runner", message=f"{shown}, idle; it ends on its own, or now with --clean")


def _check_leftovers(spool: Path) -> Iterator[Check]:
    from evalfleet.cli.shared.doctor_checks import Check, problem
    from evalfleet.hosts.local.orphans import lost_runners, orphans
    from evalfleet.report import text

    left = orphans(spool)
    remedy = "evalfleet doctor --clean   ends them"
    if left:
        attempts = {one.attempt for one in left}
        of = f"{text.count(len(left), 'process', 'processes')} of {text.count(len(attempts), 'attempt')}"
        yield problem("processes", f"no runner looks after {of}, such as {_name(left[0])}", remedy)
    runners = lost_runners(spool)
    if runners:
        pids = ", ".join(str(one.pid) for one in runners)
        yield problem("processes", f"the spool was removed under a runner that still runs: process {pids}", remedy)
    if not left and not runners:
        yield Check(name="processes", message="none is orphaned")


def _shown(checks: list[Check], done: list[str] | None) -> list[Line]:
    from evalfleet.report import text
    from evalfleet.report.terminal.lines import Span, Style, columns, line, wrap

    width = columns()
    styles = {"ok": Style.GOOD, "warning": Style.WARN, "problem": Style.BAD}
    names = max(len(check.name) for check in checks)
    shown: list[Line] = []
    if done is not None:
        shown += [line(one) for one in done or ["nothing to clean"]] + [line()]
    for check in checks:
        head = Span(text.pad(check.level, 9), styles[check.level])
        said = line(head, text.pad(check.name, names + 2), text.printable(check.message))
        shown += wrap(said, width, indent=names + 11)
        if check.remedy:
            remedy = line(" " * (names + 11), Span("→ ", Style.FAINT), text.printable(check.remedy))
            shown += wrap(remedy, width, indent=names + 13)
    problems = sum(check.level == "problem" for check in checks)
    warnings = sum(check.level == "warning" for check in checks)
    verdict = Span(text.count(problems, "problem"), Style.BAD) if problems else Span("no problem", Style.GOOD)
    shown += [line(), line(verdict, f", {text.count(warnings, 'warning')}")]
    return shown
