"""`evalfleet study`: a group; its commands lie in `evalfleet.cli.studies`."""

from __future__ import annotations

from evalfleet.cli.lazy_group import subgroup

COMMANDS: dict[str, str] = {
    "list": "List the studies.",
    "show": "Show a study: progress, best so far, every trial.",
    "best": "Print the best configuration.",
    "pause": "Start no more trials; running ones finish.",
    "resume": "Continue a study.",
    "add-trials": "Add trials to a study.",
    "retry-failed": "Give failed trials new attempts.",
    "export": "Write every trial, one per line.",
}

command = subgroup(
    "study",
    "evalfleet.cli.studies",
    COMMANDS,
    held={
        **dict.fromkeys(("list", "show", "best", "export"), "show"),
        **dict.fromkeys(("pause", "resume", "add-trials", "retry-failed"), "steer"),
    },
    help="Show and control studies; `evalfleet tune STUDY.toml` creates one.",
)
