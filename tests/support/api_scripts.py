"""What scripts do with the Python interface: tasks that wait, and handles to drive."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec
from tests.support.fleet import Fleet

import evalfleet


def sh(key: str, script: str = "exit 0", **words: Any) -> dict[str, Any]:
    return {"key": key, "command": ["sh", "-c", script], **words}


def gated(key: str = "a") -> dict[str, Any]:
    """A task that signs the ledger and ends when there is a file `go`."""
    return sh(key, f"echo {key} >> ledger; while [ ! -e go ]; do sleep 0.02; done")


def open_gate(fleet: Fleet) -> None:
    (fleet.folder / "go").touch()


def drive_until(run: evalfleet.RunHandle, condition: Callable[[], object]) -> None:
    for patience in count(1):  # a busy machine may need longer than one look to begin
        if condition():
            return
        with suppress(TimeoutError):
            run.wait(timeout=0.3 * patience)


def by_key(run: evalfleet.RunHandle) -> dict[str, evalfleet.TaskResult]:
    return {result.key: result for result in run.results()}


def plain(answer: Any) -> Any:
    """As JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(answer))
