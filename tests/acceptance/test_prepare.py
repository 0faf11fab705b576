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
    rows = [
        f'[defaults]\nuser = "{os.environ.get("USER", "root")}"\nslots = {slots}\npython = "{python or base_python()}"\n'
    ]
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


TASKS = ("--task", "click-button", "--task", "enter-text", "--task", "click-link", "--task", "click-test")


@pytest.mark.slow
def test_hosts_are_prepared_and_run_a_benchmark(fleet: Fleet, hosts: list[Sshd], wheels: Path):
    pool_of(fleet, hosts)
    answer, said = told(fleet, "prepare", "miniwob", "--pool", "lab", "--wheels", str(wheels))
    assert (answer["benchmark"], answer["pool"], answer["ready"]) == ("miniwob", "lab", True)
    for row in answer["hosts"]:
        assert [rung["rung"] for rung in row["rungs"]] == ["ssh", "tools", "Chromium", "the package miniwob==1.1.0"]
        assert f"evalfleet: {row['host']}: makes a virtual environment" in said
    for host in hosts:
        (tools,) = (path for path in (host.home / ".evalfleet" / "tools").iterdir() if path.is_dir())
        assert answer["hosts"][0]["rungs"][3]["seen"].startswith(str(hosts[0].home)), "it is that of the host"
        assert not (tools / "wheels").exists()
    summary, said = told(fleet, "run", "miniwob", "--agent", "oracle", "--pool", "lab", *TASKS)
    assert "virtual environment" not in said, "it is there"
    assert {row["key"]: row["score"] for row in summary["results"]} == dict.fromkeys(
        ("click-button_0", "enter-text_0", "click-link_0", "click-test_0"), 1.0
    )
    assert {event["data"]["worker"] for event in fleet.events() if event["type"] == "attempt.claimed"} == {
        "one-1",
        "two-1",
    }
    left = Path(fleet.json("logs", "latest", "click-button_0")["folder"]) / "artifacts"
    assert {"step_1.png", "final.png", "trajectory.jsonl"} <= {path.name for path in left.iterdir()}
