"""The program's entry: the table of commands, and the boundary where errors become exit codes.

A command's module is imported only when that command runs. It holds the click command of that name; a command that returns a
number ends the program with it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, cast

import click

from evalfleet.cli.lazy_group import LazyGroup
from evalfleet.errors import EvalfleetError

COMMANDS: dict[str, dict[str, str]] = {
    "Run": {
        "run": "Submit a task file or a benchmark, and drive it to the end.",
        "resume": "Continue a run that stopped, was interrupted or is paused.",
        "retry": "Give failed or held tasks new attempts.",
        "tune": "Search for the best parameters of a program.",
        "study": "Show and control studies.",
    },
    "Look": {
        "status": "List runs, or show the progress of one.",
        "watch": "Follow a run live until it ends.",
        "serve": "Serve the dashboard and drive queued runs.",
        "controller": "Drive queued runs, without a page.",
        "controllers": "List controllers, and what waits for one.",
        "report": "Show scores, failures and cost of a run.",
        "compare": "Say whether one run is better than another.",
        "export": "Write a run to files for other programs.",
        "import": "Import the results of another program as a run.",
        "tasks": "List the tasks of a run: filter, sort, failed only.",
        "logs": "Print the output of a task.",
        "artifacts": "List the files of a task, or print one.",
        "events": "Print a run's numbered events.",
        "alerts": "List alerts, and test the channels.",
    },
    "Steer": {
        "pause": "Start no more tasks of a run.",
        "amend": "Change the workers, budget or priority of a run.",
        "share": "Shares and quotas of users and projects.",
        "cancel": "End a run and its running tasks.",
        "hold": "Keep tasks from starting.",
        "release": "Let held tasks start again.",
        "quarantine": "Stop giving work to a worker or host.",
        "unquarantine": "Give work to a worker or host again.",
        "judge": "Judge a finished run's failures again.",
    },
    "Keep": {
        "pin": "Keep a run: nothing of it is removed.",
        "unpin": "Take the pin of a run away.",
        "prune": "Remove files of finished runs to make room.",
        "backup": "Back the home up while its runs go on.",
        "restore": "Make a home of a backup.",
    },
    "Team": {
        "login": "Sign in to a server of a team.",
        "logout": "Forget a server and its token.",
        "user": "Manage the users of a server.",
        "token": "Manage access tokens for the dashboard.",
        "audit": "List who did what, and when.",
    },
    "Machines": {
        "pool": "Manage named sets of machines for runs.",
        "gpus": "Show every GPU, its holder, and the queue.",
        "plan": "Plan machines, time and cost of a run.",
        "sizes": "Show machine sizes, and which can run KVM.",
        "prices": "Show or refresh the prices of machines.",
        "quota": "Show the core quota of the cloud account.",
        "reap": "Delete evalfleet's resources that are no longer needed.",
        "emulator": "Emulate Azure on this machine, for trials and tests.",
    },
    "This machine": {
        "agents": "List agents and what they need.",
        "benchmarks": "List benchmarks and what they need.",
        "prepare": "Make this machine ready for a benchmark.",
        "waa": "Golden images of Windows Agent Arena.",
        "store": "Move or share what a home remembers.",
        "files": "Move the files of attempts between a home and object storage.",
        "demo": "Run a benchmark here with two agents, and show the results.",
        "doctor": "Check this machine and clean up leftovers.",
        "version": "Show versions.",
    },
}
NAMES: tuple[str, ...] = tuple(name for section in COMMANDS.values() for name in section)
FORMER = ("estimate",)  # commands of version 0.1 that have another name now; they stay for one more version
_FOLDERS = {
    "runs": "run resume retry tune judge import",
    "results": "status watch report compare export tasks logs artifacts events",
    "machines": "gpus plan estimate reap emulator prepare",
    "keep": "prune",
    "home": "serve controller controllers alerts share token store files agents benchmarks demo doctor version",
    "team": "login logout user audit",
}
_SHARED = {
    "runs.steer": "pause amend cancel hold release quarantine unquarantine",
    "keep.pins": "pin unpin",
    "keep.backup": "backup restore",
    "machines.offers": "sizes prices quota",
}
MODULES: dict[str, str] = {
    "pool": "evalfleet.cli.pools.group",
    "study": "evalfleet.cli.studies.group",
    "waa": "evalfleet.cli.waa.group",
    **{name: f"evalfleet.cli.{folder}.{name}" for folder, names in _FOLDERS.items() for name in names.split()},
    **{name: f"evalfleet.cli.{module}" for module, names in _SHARED.items() for name in names.split()},
}

INTERRUPTED = 130
BROKEN_PIPE = 141  # what a shell shows for a program that SIGPIPE ended
INTERNAL_ERROR = 70


class _ReaderGone(BaseException):
    """The reader of standard output is gone, as after `| head`."""


class _Program(LazyGroup):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # click would end every such error with 1 and no word, also that of a socket inside the program.
            if not _reader_is_gone():
                raise RuntimeError("a connection broke") from error
            raise _ReaderGone from None


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        import evalfleet

        click.echo(f"evalfleet {evalfleet.__version__}")
        ctx.exit()


@click.group(
    cls=_Program,
    sections=COMMANDS,
    modules={name: MODULES[name] for name in (*NAMES, *FORMER)},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="RUN is an id, a unique prefix of one, or 'latest' (the default). Every command has --json and --help. "
    "Exit codes of run, resume, retry and watch: 0 enough tasks count; 1 too few do, the valid score is below "
    "--min-score, or cancelled; 2 bad usage or input; 3 paused; 130 interrupted, resumable.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
@click.option("--home", metavar="DIR", help="Folder with the database and the runs' files.  [default: ~/.evalfleet]")
def cli(home: str | None) -> None:
    """Run many long, flaky, expensive tasks on a fleet of machines, and keep every result."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the program and end the process.

    The one place where errors become a message and an exit code. A message goes to standard error, with and
    without `--json`, so that standard output holds the answer or nothing.
    """
    code = run(argv)
    gc.freeze()  # else Python looks for cycles in all that was imported, once more, which took a third of a short command
    sys.exit(code)


def run(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code. Raises nothing."""
    try:
        result: Any = cli.main(args=argv, prog_name="evalfleet", standalone_mode=False)
        sys.stdout.flush()
        _say_copies()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # noqa: BLE001 - the boundary
        return _code_of(error)
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _say_copies() -> None:
    """Report which of the opened homes are copies."""
    identity = sys.modules.get("evalfleet.store.home.identity")
    for words in identity.seen.values() if identity is not None else ():
        _say(f"{words}; what is shown is the copy's")


def _code_of(error: BaseException) -> int:
    """Print the error once to standard error, and choose the exit code."""
    cause = _cause(error)
    if isinstance(cause, click.ClickException):
        cause.show()
        return cause.exit_code
    if isinstance(cause, KeyboardInterrupt | click.Abort):
        return INTERRUPTED
    if isinstance(cause, _ReaderGone | BrokenPipeError):
        _silence_stdout()
        return BROKEN_PIPE
    from evalfleet import config

    if config.debug():
        import traceback

        traceback.print_exception(error)
    if isinstance(cause, EvalfleetError):
        _say(_printable(str(cause)))
        return cause.exit_code
    if isinstance(cause, OSError) and cause.strerror:
        _say(_printable(cause.strerror + (f": {cause.filename}" if cause.filename else "")))
        return EvalfleetError.exit_code
    _say(f"internal error: {type(cause).__name__}: {cause}\nRe-run with EVALFLEET_DEBUG=1 for the traceback.")
    return INTERNAL_ERROR


def _cause(error: BaseException) -> BaseException:
    """Return the error to report: in a group, the first that was raised on purpose, else the first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    causes = [_cause(inner) for inner in group.exceptions]
    return next((cause for cause in causes if isinstance(cause, EvalfleetError)), causes[0])


def _printable(message: str) -> str:
    """One line without control characters, whatever path or key it names."""
    from evalfleet.report.text import printable

    return printable(message)


def _say(message: str) -> None:
    click.echo(f"evalfleet: {message}", err=True)


def _reader_is_gone() -> bool:
    import select

    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return bool(poll.poll(0))
    except (OSError, ValueError):  # a stand-in without a file behind it, or closed
        return True


def _silence_stdout() -> None:
    """Keep the interpreter from complaining, at its end, about output without a reader."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
