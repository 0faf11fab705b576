"""Windows Agent Arena through its stand-in, as several tests run it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from examples.fake_waa.arena import Arena
from tests.support.fleet import Fleet

from evalfleet.benchmarks.waa.catalogue import index

KEY = "sk-very-hidden-0123456789"
PAD, OTHER = (f"notepad/{task}" for task in index()["notepad"])


def names(count: int) -> tuple[str, ...]:
    # Names of containers are the machine's: several tests run at the same time.
    mark = uuid.uuid4().hex[:8]
    return tuple(f"waa-{mark}-{number}" for number in range(count))


def configure(fleet: Fleet, made: Arena, **more: object) -> None:
    limits = {"timeout": "60s", "stall": "8s", "guest_timeout": "30s", "poll": "100ms", "disk_gb": 0}
    (fleet.folder / "evalfleet.toml").write_text(made.config(**{**limits, **more}))


def run(fleet: Fleet, *args: str, code: int = 0, agent: str = "navi", key: str = KEY) -> dict[str, Any]:
    command = ("run", "waa", "--agent", agent, "--model", "gpt-4o", *args, "--json")
    process = fleet.start(*command, OPENAI_API_KEY=key)
    output, _ = process.communicate(timeout=280)
    assert process.returncode == code, output
    return json.loads(output)


def attempts(fleet: Fleet) -> list[dict[str, Any]]:
    """How every attempt ended, in the order of the ends."""
    ends = [event for event in fleet.events() if event["type"] == "attempt.finished"]
    return [{"task": event["task"], **event["data"]} for event in ends]


def carrying(container: str) -> list[int]:
    """Processes that run in a container."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(
                one.startswith(b"EVALFLEET_CONTAINER=") and one.endswith(f"/{container}".encode()) for one in environ
            ):
                found.append(int(entry.name))
    return found


def sleepers(container: str) -> list[int]:
    """Those that run.py started in a session of their own."""
    return [pid for pid in carrying(container) if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0")]
