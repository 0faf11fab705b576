"""What a task costs more on 40 hosts over SSH than on 40 workers of this machine, in the same minute on the same machine."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

from emulating import Emulator, emulator, keep
from measuring import Measured, await_runner_gone, fleet
from processes import write_tasks
from table import Line, expect

from evalfleet.azure.provider import AzureProvider
from evalfleet.pools.machine.reach import ssh_spec
from evalfleet.pools.settings import settings_of
from evalfleet.store.open import open_reader

HOSTS = 40
TASKS = 400
ROUNDS = 2
LIMIT_MS = 50.0
POOL = "bench"  # of the VMs
NAME = "boxes"  # the same ones, as hosts that are there


@dataclass(frozen=True, slots=True)
class Drive:
    """One run."""

    measured: Measured
    waits_ms: list[float]  # of each attempt, from its claim to its start
    cpu_s: tuple[float, float] = (0.0, 0.0)  # of the SSH servers, and of the programs that they started


def bench_dispatch(root: Path) -> list[Line]:
    tasks = write_tasks(root / "dispatch.jsonl", TASKS)
    warm = write_tasks(root / "warm.jsonl", HOSTS)
    home = root / "dispatch"
    remote: list[Drive] = []
    local: list[Drive] = []
    with emulator() as here:
        keep(here, root / "boxes", HOSTS)
        hosts = _write_hosts(root / "hosts.toml", root / "boxes")
        expect(fleet(home, "pool", "create", NAME, "--backend", "ssh", "--hosts", str(hosts)), 0)
        _drive(home, warm, "--pool", NAME)  # the first run brings the runner to each host, and starts it
        for number in range(ROUNDS):
            local.append(_drive(root / f"dispatch-local-{number}", tasks, "--workers", str(HOSTS)))
            remote.append(_drive(home, tasks, "--pool", NAME, here=here))
            await_runner_gone(root / f"dispatch-local-{number}")
    near, far = (min(one.measured.wall_s for one in drives) for drives in (local, remote))
    over_ms = (far - near) / TASKS * 1000
    rss = max(one.measured.rss_mb for one in remote)
    best = min(remote, key=lambda one: one.measured.wall_s)
    return [
        Line(f"{TASKS} /bin/true, {HOSTS} local workers", f"{near:.2f} s; {_waits(local)}"),
        Line(f"{TASKS} /bin/true, {HOSTS} hosts over SSH", f"{far:.2f} s; {_waits(remote)}"),
        Line("  ratio", f"{far / near:.1f}x"),
        Line("  overhead a task", f"{over_ms:.1f} ms", f"< {LIMIT_MS:.0f} ms", over_ms < LIMIT_MS),
        Line(
            "  CPU: controller; SSH servers; programs on hosts",
            f"{best.measured.cpu_s:.1f}; {best.cpu_s[0]:.1f}; {best.cpu_s[1]:.1f} s",
        ),
        Line("  controller: peak memory", f"{rss:.0f} MB"),
    ]


def _drive(home: Path, tasks: Path, *words: str, here: Emulator | None = None) -> Drive:
    before = here.cpu_s() if here else (0.0, 0.0)
    done = fleet(home, "run", str(tasks), *words)
    expect(done, 0)
    after = here.cpu_s() if here else (0.0, 0.0)
    store = open_reader(home)
    assert store is not None
    try:
        attempts = store.attempts.all(store.runs.newest()[0].id)
    finally:
        store.close()
    started = [(one.started_at - one.claimed_at) * 1000 for one in attempts if one.started_at is not None]
    return Drive(done, started, (after[0] - before[0], after[1] - before[1]))


def _waits(drives: list[Drive]) -> str:
    waits = sorted(min(drives, key=lambda one: one.measured.wall_s).waits_ms)
    return f"start {statistics.median(waits):.0f} ms median, {waits[int(len(waits) * 0.95)]:.0f} p95"


def _write_hosts(path: Path, home: Path) -> Path:
    """The VMs of the pool in that home, as a hosts file."""
    store = open_reader(home)
    assert store is not None
    try:
        wanted = settings_of(store.pools.get(POOL))
        specs = [ssh_spec(AzureProvider(), host, wanted.slots) for host in store.hosts.of_pool(POOL)]
    finally:
        store.close()
    rows = [
        f'[[host]]\nname = "{spec.name}"\naddress = "{spec.login.address}"\nport = {spec.login.port}\nuser = "{spec.login.user}"\n'
        f'key = "{spec.key}"\nhost_key = "{spec.host_key}"\n'
        for spec in specs
    ]
    path.write_text("\n".join(rows))
    return path
