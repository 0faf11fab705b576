"""`evalfleet study`: a group; its commands lie in `evalfleet.cli.studies`."""

from __future__ import annotations

from evalfleet.cli.lazy_group import subgroup

COMMANDS: dict[str, str] = {
    "list": "List the studies.",
    "show": "Show a study: progress, best so far, every trial.",
    "best": "Print the best configuration, to paste.",
    "pause": "Start no more trials; those that run go on.",
    "resume": "Go on with a study.",
    "add-trials": "Let a study try more.",
    "retry-failed": "Give failed trials new attempts.",
    "export": "Write every trial, one per line.",
}

command = subgroup(
    "study",
    "evalfleet.cli.studies",
    COMMANDS,
    help="Look at studies and steer them: `evalfleet tune STUDY.toml` makes one.",
)
