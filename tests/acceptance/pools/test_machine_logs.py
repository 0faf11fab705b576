"""Logs of machines of an emulated cloud: asked for by every front end, and kept when a machine fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.rented import NAME, rented
from tests.support.web_server import serve
from tests.support.web_site import Site, site

import evalfleet
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import Scenario
from evalfleet.model import DesiredState, Policy, RunState, TaskSpec

ONE = "evalfleet-1"


def submitted(here: Site, **task: object) -> str:
    """A run that goes on with the pool."""
    spec = TaskSpec(key="t", domain="d", command=("true",), **task)  # pyright: ignore[reportArgumentType]
    run = here.store.runs.submit("x", Policy(pool="p1"), [spec], folder="/", base_env={})
    begun = here.store.runs.begin(here.store.runs.take(run.id, "test"))
    assert begun.state is RunState.RUNNING
    return run.id


@pytest.mark.anyio
async def test_a_machine_that_fails_leaves_its_logs_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", "a-very-secret-word")
    broken = Scenario(fault=[Fault(op="host.boot", preset="docker_down")])
    async with site(tmp_path, broken) as here:
        run = submitted(here, secrets=("PLANTED",))
        journal = "mkdir -p ../etc/evalfleet/journal; echo setup got $WORD >../etc/evalfleet/journal/cloud-final"
        place = 'cd "$(dirname "$(command -v docker)")"; WORD=a-very-secret-word; '
        here.wants(workers=1, setup=f"{place}{journal}; exit 3")
        await here.settle()
        folder = f"runs/{run}/machines/{ONE}/1"
        assert here.host(ONE).reason == f"setup: exit status 3: it said nothing; its logs are in {folder}"
        kept = {file.stem: file.read_text() for file in (here.settings.home / folder).iterdir()}
        assert set(kept) == {"boot", "cloud-init", "docker"}
        assert kept["cloud-init"] == "setup got [secret PLANTED]\n"
        assert "failed to start daemon" in kept["docker"]
        assert "evalfleet-1 login" in kept["boot"]
        assert here.told("worker.logs_kept") == ["worker.logs_kept"]
        here.wants(workers=0, setup=None)
        here.set_desired(DesiredState.GONE)
        await here.settle()
        assert here.states() == {}
        assert (here.settings.home / folder).exists()


@pytest.mark.anyio
async def test_a_machine_that_never_answers_leaves_its_console(tmp_path: Path) -> None:
    silent = Scenario(fault=[Fault(op="host.boot", preset="no_ssh", times=1)])
    async with site(tmp_path, silent) as here:
        run = submitted(here)
        here.wants(workers=1, deadline={"ssh": 0.5})
        await here.settle()
        assert here.states() == {ONE: "ready"}
        plan = here.facts(ONE).plan
        assert plan is not None
        [problem] = plan.problems
        assert problem.message.endswith(f"; its logs are in runs/{run}/machines/{ONE}/1")
        assert [file.name for file in (here.settings.home / f"runs/{run}/machines/{ONE}/1").iterdir()] == ["boot.log"]
        assert here.facts(ONE).logs is None  # those are of the machine before this one


@pytest.mark.slow
def test_logs_are_asked_for_by_command_python_and_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with rented(tmp_path, 400) as here:
        fleet = here.fleet
        here.create("--workers", "2")
        started = fleet.command("pool", "ssh", ONE, "docker run --detach --name win windowsarena/winarena:latest")
        assert started.returncode == 0, started.stderr
        listed = fleet.json("pool", "logs", NAME, ONE, "--list")
        assert [(row["log"], row["source"]) for row in listed["logs"]] == [
            ("boot", "cloud"),
            *[(log, "login") for log in ("cloud-init", "docker", "container/win")],
        ]
        shown = fleet.command("pool", "logs", NAME, ONE, "--container", "win")
        assert (shown.returncode, shown.stdout) == (0, "emulated container win of windowsarena/winarena:latest\n")
        booted = fleet.command("pool", "logs", "--boot", "--lines", "1")
        assert booted.stdout.splitlines() == [f"{host} | {host} login: " for host in (ONE, "evalfleet-2")]
        both = [json.loads(line) for line in fleet.command("pool", "logs", "--docker", "--json").stdout.splitlines()]
        assert [(row["host"], row["log"], row["kept"]) for row in both] == [
            (host, "docker", False) for host in (ONE, "evalfleet-2")
        ]
        none = fleet.command("pool", "logs", NAME, ONE, "--container", "other")
        assert (none.returncode, "No such container: other" in none.stderr) == (2, True)
        assert fleet.command("pool", "logs", NAME, ONE, "--log", "nonsense").returncode == 2
        assert fleet.command("pool", "logs", NAME, "other", "--boot").returncode == 2

        monkeypatch.chdir(fleet.folder)
        for name, value in here.settings.items():
            monkeypatch.setenv(name, value)
        pool = evalfleet.open_pool(NAME, home=fleet.home)
        assert [row.log for row in pool.logs(ONE).logs] == ["boot", "cloud-init", "docker", "container/win"]
        assert pool.log(ONE, "container/win").text == shown.stdout
        server = serve(fleet)
        path = f"pools/{NAME}/hosts/{ONE}/logs"
        assert server.get(path)["logs"] == listed["logs"]
        told = server.get(f"{path}/cloud-init?lines=1")
        assert (told["log"], told["text"].count("\n"), told["kept"]) == ("cloud-init", 1, False)
        assert server.ask(f"/api/v1/{path}/nonsense").status == 404

        assert fleet.command("pool", "stop", NAME, "--worker", ONE).returncode == 0
        lost = fleet.command("pool", "logs", NAME, ONE, "--docker")
        assert (lost.returncode, f"host {ONE} is stopped" in lost.stderr) == (3, True)
        assert f"{ONE} login" in fleet.command("pool", "logs", NAME, ONE, "--boot").stdout  # needs no login
        here.leave()
