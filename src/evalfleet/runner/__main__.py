"""Command line of the runner."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COMMANDS = ("serve", "stdio", "look", "retire", "kill", "remove")
USAGE = "usage: runner.pyz %s --spool DIR [--idle SECONDS] [--homes ID,ID...]" % "|".join(COMMANDS)
DEFAULT_IDLE_S = 30.0
LEFT = "EVALFLEET_RUNNER_LEFT_ENVIRONMENT"
KEPT = frozenset(
    (
        "EVALFLEET_CONTAINER_LOCKS",
        "EVALFLEET_GPUS_GIVEN",
        "EVALFLEET_GPU_LOCKS",
        "EVALFLEET_IMDS",
        "EVALFLEET_NVML",
        "EVALFLEET_SLOT_LOCKS",
        "HOME",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "LOGNAME",
        "PATH",
        "TMPDIR",
        "TZ",
        "USER",
        "XDG_RUNTIME_DIR",
    )
)


def arguments(words: list[str]) -> tuple[str, str, float, list[str]]:
    """Command, spool, idle time and the ids of the caller's home.

    Raises:
        ValueError: an argument is missing or invalid.
    """
    if not words or words[0] not in COMMANDS or len(words) % 2 == 0:
        raise ValueError(USAGE)
    options = dict(zip(words[1::2], words[2::2]))
    if set(options) - {"--spool", "--idle", "--homes"} or not options.get("--spool"):
        raise ValueError(USAGE)
    idle_s = float(options.get("--idle", DEFAULT_IDLE_S))
    if not idle_s > 0:
        raise ValueError("--idle must be above 0")
    return words[0], options["--spool"], idle_s, options.get("--homes", "").split(",")


def leave_environment(program: str, words: list[str]) -> None:
    """Start again with a small environment: the initial environment of a process stays readable in /proc."""
    if os.environ.pop(LEFT, None) is None and set(os.environ) - KEPT:
        kept = {name: value for name, value in os.environ.items() if name in KEPT}
        kept[LEFT] = "1"  # once: a machine may put something into every environment
        os.execve(sys.executable, [sys.executable, "-I", "-S", program, *words], kept)


def main(program: str, words: list[str], version: str) -> int:
    """Returns the exit status; prints one line of JSON, except for `stdio` and `around`."""
    if words[:1] == ["around"]:  # not a runner, but the program around a task: it keeps the task's environment
        from .server.program import main as serving

        return serving(words[1:])
    try:
        command, spool, idle_s, homes = arguments(words)
    except ValueError as error:
        sys.stderr.write("%s\n" % error)
        return 2
    leave_environment(program, words)
    if command == "stdio":  # the modules only after the exec above, which would load everything twice
        from .stdio import stdio

        return stdio(spool, idle_s, version)
    import json

    try:
        line = _answer(command, spool, idle_s, homes, version)
    except OSError as error:
        line = {"error": "io_error", "message": str(error)}
    sys.stdout.write(json.dumps(line) + "\n")
    return 1 if "error" in line else 0


def _answer(command: str, spool: str, idle_s: float, homes: list[str], version: str) -> dict[str, Any]:
    if command == "serve":
        from .daemon import serve

        return serve(spool, idle_s, version)
    from .visit import status

    if command == "remove":
        return status.remove(spool, homes)
    known = {"look": status.look, "retire": status.retire, "kill": status.kill}
    return known[command](spool)
