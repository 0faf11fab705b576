"""`--min-score` and `--min-coverage`: what a run must have reached for exit code 0, for CI."""

from __future__ import annotations

import click
from msgspec import Struct
from msgspec.structs import replace

from evalfleet.answers.summary import Summary
from evalfleet.cli.shared.options import gathered
from evalfleet.model import Run
from evalfleet.report.text import percent

_HAIR = 1e-9  # 7 of 10 reach 0.7, whatever the last digit of a float says


class Thresholds(Struct, frozen=True, kw_only=True):
    """The thresholds given, None where not given. They apply to one command and are not stored with the run."""

    min_score: float | None = None  # of the valid score
    min_coverage: float | None = None  # in place of the run's `accept`

    @property
    def given(self) -> str | None:
        """The first option that was given."""
        names = (("--min-score", self.min_score), ("--min-coverage", self.min_coverage))
        return next((name for name, value in names if value is not None), None)

    def check(self, run: Run) -> None:
        """Raises click.UsageError for a study: it has a best configuration and no score."""
        if self.given and run.policy.study is not None:
            raise click.UsageError(
                f"{self.given} is for runs, and {run.id} is a study, which has no score. Without it the exit code says "
                "whether a configuration keeps all limits of the study."
            )

    def applied(self, summary: Summary) -> Summary:
        """The summary to show, with the minimum coverage given here."""
        if self.min_coverage is None:
            return summary
        reached = summary.scores.coverage >= self.min_coverage - _HAIR
        return replace(summary, accept=self.min_coverage, accepted=reached)

    def code(self, summary: Summary) -> int:
        """The exit code of a command that showed this summary. Prints missed thresholds to standard error."""
        from evalfleet.report.summary import BELOW, OK, exit_code

        valid = summary.scores.valid
        low = self.min_score is not None and (valid is None or valid < self.min_score - _HAIR)
        if low:
            said = (
                "nothing counts, so there is no valid score"
                if valid is None
                else f"the valid score is {percent(valid)}"
            )
            click.echo(f"evalfleet: {said}; wanted by --min-score: {(self.min_score or 0) * 100:g}%", err=True)
        code = exit_code(summary)
        return BELOW if low and code == OK else code


def share(text: str) -> float:
    """A share of 1, written as 0.7 or as 70%. Raises ValueError, with what is right."""
    number, percent = (text[:-1], True) if text.endswith("%") else (text, False)
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        meant = f"; {text} of a hundred is {text}%" if not percent and 1 < value <= 100 else ""
        raise ValueError(f"expected a share such as 0.7 or 70%, from 0 to 1 or from 0% to 100%, got {text!r}{meant}")
    return value


def _share(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    try:
        return None if value is None else share(value.strip())
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


threshold_options = gathered(
    "thresholds",
    Thresholds,
    click.option(
        "--min-score",
        callback=_share,
        metavar="SHARE",
        help="Exit with 1 if the valid score is below this, such as 0.7 or 70%.",
    ),
    click.option(
        "--min-coverage",
        callback=_share,
        metavar="SHARE",
        help="Exit with 1 if coverage is below this, such as 0.95 or 95%.  [default: the run's accept]",
    ),
)
"""Gives the command `thresholds: Thresholds`."""
