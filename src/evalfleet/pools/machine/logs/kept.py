"""Logs of machines that failed, kept as files beside the runs that used them. The machine itself is often gone a minute later."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct

from evalfleet.errors import EvalfleetError
from evalfleet.hosts.late_redaction import without_credentials
from evalfleet.layout import Home
from evalfleet.pools.machine.logs.logs import MachineLogs

LIMIT_CHARS = 256_000  # of one log: its end
MOST_LOGS = 12  # of one machine
MOST_TIMES = 5  # that one machine's failures are kept with a run
MOST_MACHINES = 40  # that are kept with a run: what is wrong with more of them is the same
_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class KeptLog(Struct, frozen=True, kw_only=True):
    """One file."""

    log: str
    path: Path
    run: str | None  # None: no run used the pool
    at: float
    size: int


async def read_all(logs: MachineLogs, limit_s: float) -> dict[str, str]:
    """What can be had of a machine that failed, within the time; empty logs are left out."""
    texts: dict[str, str] = {}
    with anyio.move_on_after(limit_s):
        named = [*await logs.cloud_names(), *await logs.login_names()]
        for log in named[:MOST_LOGS]:
            try:
                text = await logs.read(log, LIMIT_CHARS)
            except EvalfleetError as error:
                text = f"[evalfleet: cannot be read: {error}]\n"
            if text.strip():
                texts[log] = text
    return texts


async def keep(
    home: Home, pool: str, host: str, runs: Sequence[str], texts: Mapping[str, str], secrets: Mapping[str, str]
) -> str | None:
    """Write the logs beside each of the runs, or beside the pool where there is no run. Returns the folder, below the home; None:
    nothing was kept, because enough is there already, or the disk does not take it."""
    clean = {log: without_credentials(text, secrets) for log, text in texts.items()}
    above = [home.machine_logs(run, host) for run in runs] or [home.pool_machine_logs(pool, host)]
    written = await anyio.to_thread.run_sync(lambda: [folder for one in above if (folder := _written(one, clean))])
    return str(written[0].relative_to(home.path)) if written else None


def _written(above: Path, texts: Mapping[str, str]) -> Path | None:
    try:
        above.parent.mkdir(parents=True, exist_ok=True)
        if not above.exists() and len(os.listdir(above.parent)) >= MOST_MACHINES:
            return None
        above.mkdir(exist_ok=True)
        number = sum(name.isdigit() for name in os.listdir(above)) + 1
        if number > MOST_TIMES:
            return None
        folder = above / str(number)
        partial = above / f".{number}.partial"
        partial.mkdir(exist_ok=True)
        for log, text in texts.items():
            (partial / f"{_NAME.sub('+', log)}.log").write_text(text, "utf-8", "replace")
        partial.replace(folder)
    except OSError:
        return None
    return folder


def kept(home: Home, pool: str, host: str) -> list[KeptLog]:
    """What was kept of a machine, newest first."""
    folders = [*home.path.glob(f"runs/*/machines/{host}/*"), *home.pool_machine_logs(pool, host).glob("*")]
    found = [
        KeptLog(
            log=file.stem.replace("+", "/"),
            path=file,
            run=folder.parts[-4] if folder.parts[-5] == "runs" else None,
            at=file.stat().st_mtime,
            size=file.stat().st_size,
        )
        for folder in folders
        if folder.name.isdigit()
        for file in sorted(folder.glob("*.log"))
    ]
    return sorted(found, key=lambda one: (-one.at, one.log))
