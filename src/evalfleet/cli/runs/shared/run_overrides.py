"""Options of `run` that go before what a task file or a benchmark says of its run."""

from __future__ import annotations

import click
from msgspec import Struct
from msgspec.structs import replace

from evalfleet.cli.shared.options import duration_option, gathered
from evalfleet.taskfile import Submission


class Overrides(Struct, frozen=True, kw_only=True):
    """What was given; None where nothing was."""

    timeout_s: float | None = None
    attempts: int | None = None
    accept: float | None = None
    speculate: bool | None = None

    def applied(self, submission: Submission) -> Submission:
        given = {name: getattr(self, name) for name in self.__struct_fields__ if getattr(self, name) is not None}
        return replace(submission, policy=replace(submission.policy, **given)) if given else submission


override_options = gathered(
    "overrides",
    Overrides,
    duration_option("--timeout", "timeout_s", help="Time limit of one attempt, such as 15m.  [default: the run's]"),
    click.option(
        "--attempts",
        type=click.IntRange(1, 1_000_000),
        help="Attempts per task when the task itself fails.  [default: the run's]",
    ),
    click.option(
        "--accept",
        type=click.FloatRange(0, 1),
        metavar="SHARE",
        help="Minimum coverage for exit code 0.  [default: the run's]",
    ),
    click.option(
        "--speculate/--no-speculate",
        default=None,
        help="Double tasks on slow hosts near the end.  [default: the run's, else not]",
    ),
)
"""Gives the command `overrides: Overrides`."""
