"""Benchmarks on hosts that have nothing of ours: a virtual environment is made there, the machine is proved, tasks run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sshd
from evalfleet import config
from evalfleet.benchmarks.miniwob import Miniwob
from fleet import Fleet
from sshd import Sshd
from wheelhouse import base_python, wheelhouse

MISSING = [need for need in Miniwob(config.Settings(home=Path())).requirements() if not need.present]

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(MISSING), reason="; ".join(f"{need.what} is missing: {need.install}" for need in MISSING)),
]

# No index answers there: what is not brought is not found.
NO_INDEX = "SetEnv HOME={home} XDG_RUNTIME_DIR=/nowhere PIP_INDEX_URL=http://127.0.0.1:9/ PIP_CONFIG_FILE=/dev/null PIP_RETRIES=0"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheelhouse(tmp_path_factory.mktemp("wheels"), "miniwob")


def host_at(folder: Path, name: str, key: Path) -> Sshd:
    place = folder / name
    return Sshd(place, name, NO_INDEX.format(home=place / "home"), user_key=key)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Sshd]]:
    """Two hosts with homes of their own, used by all tests here: what one brings there, the next finds."""
    sshd.require()
    folder = tmp_path_factory.mktemp("hosts")
    key = sshd.make_key(folder / "user_key")
    made = [host_at(folder, name, key) for name in ("one", "two")]
    yield made
    for host in made:
        host.close()


def pool_of(fleet: Fleet, hosts: list[Sshd], name: str = "lab", python: str | None = None, slots: int = 1) -> None:
    rows = [f'[defaults]\nuser = "{os.environ.get("USER", "root")}"\nslots = {slots}\npython = "{python or base_python()}"\n']
    rows += [
        f'[[host]]\nname = "{host.name}"\naddress = "127.0.0.1"\nport = {host.port}\n'
        f'key = "{host.user_key}"\nhost_key = "{host.host_key}"\n'
        for host in hosts
    ]
    (fleet.folder / "hosts.toml").write_text("\n".join(rows))
    done = fleet.command("pool", "create", name, "--backend", "ssh", "--hosts", "hosts.toml")
    assert done.returncode == 0, done.stderr


def told(fleet: Fleet, *args: str, code: int = 0, **env: str) -> tuple[Any, str]:
    process = fleet.start(*args, "--json", **env)
    output, _ = process.communicate(timeout=280)
    assert process.returncode == code, output
    said, _, last = output.rstrip().rpartition("\n")
    return json.loads(last), said


def test_hosts_are_prepared_and_run_a_benchmark(fleet: Fleet, hosts: list[Sshd], wheels: Path):
    pool_of(fleet, hosts)
    answer, said = told(fleet, "prepare", "miniwob", "--pool", "lab", "--wheels", str(wheels))
    print(said)
    assert answer["ready"] is True
