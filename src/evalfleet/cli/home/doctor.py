"""`evalfleet doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalfleet import config
from evalfleet.answers.home import Health
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import adopt_option, home_option, json_option
from evalfleet.errors import ConfigError
from evalfleet.report import text
from evalfleet.report.terminal.lines import Span, Style, columns, line, wrap

if TYPE_CHECKING:
    from evalfleet.cli.home.shared.doctor_checks import Check
    from evalfleet.config import Settings
    from evalfleet.report.terminal.lines import Line

PROBLEMS = 3


@click.command("doctor")
@click.option("--clean", is_flag=True, help="End orphaned processes and the idle runner of this home.")
@click.option("--azure", is_flag=True, help="Check the Azure account instead: sign-in, permissions, quotas, network.")
@click.option("--register", is_flag=True, help="With --azure: register the subscription for the services it needs.")
@click.option("--size", default=None, metavar="NAME", help="With --azure: the VM size to be bought.")
@click.option("--regions", default=None, metavar="NAMES", help="With --azure: regions, with commas between them.")
@click.option("--workers", type=click.IntRange(1), default=1, help="With --azure: how many VMs are to be bought.")
@click.option("--spot", is_flag=True, help="With --azure: as spot VMs.")
@adopt_option
@json_option
@home_option
def command(
    clean: bool,
    azure: bool,
    register: bool,
    size: str | None,
    regions: str | None,
    workers: int,
    spot: bool,
    adopt: bool,
    as_json: bool,
    home: str | None,
) -> int:
    """Check this machine and the home, or an Azure account, and say how to fix problems.

    Changes nothing unless --clean, --adopt or --register is given. Exit codes: 0 no problem (warnings are possible), 3 a problem.
    """
    from evalfleet.cli.home.shared.doctor_processes import clean as end_leftovers
    from evalfleet.cli.home.shared.doctor_processes import examine

    settings, broken = _settings(home)
    if azure:
        from evalfleet.cli.shared.account_checks import examine_account

        found = examine_account(settings, size, regions, workers, spot=spot, register=register)
        return _answered(settings, [*broken, *found], None, as_json=as_json)
    if adopt:
        from evalfleet.cli.shared.home_copies import take_place

        take_place(settings.home)
    done = end_leftovers(settings) if clean else None
    return _answered(settings, [*broken, *examine(settings)], done, as_json=as_json)


def _answered(settings: Settings, found: list[Check], done: list[str] | None, *, as_json: bool) -> int:
    """Print what was found, and return the exit code."""
    problems = sum(check.level == "problem" for check in found)
    if as_json:
        print_document(Health(home=str(settings.home), healthy=not problems, cleaned=done or [], checks=found))
    else:
        from evalfleet.report.terminal import lines

        lines.write(_shown(found, done), colour=settings.colour)
    return PROBLEMS if problems else 0


def _settings(home: str | None) -> tuple[Settings, list[Check]]:
    """The settings; where they cannot be read, the defaults and the reason."""
    from evalfleet.cli.home.shared.doctor_checks import problem

    try:
        return config.load(home), []
    except ConfigError as error:
        chosen = home or config.environment().get("EVALFLEET_HOME") or "~/.evalfleet"
        settings = config.Settings(home=Path(chosen).expanduser().absolute())
        return settings, [problem("settings", str(error), "correct it; the checks below use the defaults")]


def _shown(checks: list[Check], done: list[str] | None) -> list[Line]:
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
