"""Several controllers with folders of their own share the runs of one store on a server."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import sshd
from tests.support.controllers import Site, kill_machine
from tests.support.fleet import wait_for
from tests.support.postgres import Server

HOWTO = Path(__file__).parents[3] / "docs/howto/several-controllers.md"


@pytest.fixture
def site(postgres: Server, tmp_path: Path) -> Iterator[Site]:
    with postgres.schema() as schema:
        site = Site(tmp_path, postgres.url(schema))
        try:
            yield site
        finally:
            site.end()


def held(site: Site) -> list[int]:
    """How many runs each controller looks after."""
    return [len(one["runs"]) for one in site.json("a", "controllers")["controllers"]]


def test_a_folder_joins_and_says_what_waits_for_whom(site: Site) -> None:
    local = site.submit("a", "local", 1, ["true"], pool="")
    refused = site.run("b", "run", "local.jsonl", "--detach")
    assert (refused.returncode, "evalfleet store join" in refused.stderr) == (3, True)
    assert not (site.folder / "b" / "store.json").exists(), "nothing was changed"
    joined = site.json("b", "store", "join")
    assert joined == {"schema": joined["schema"], "folder": str(site.folder / "b"), "home": str(site.folder / "a")}
    again = site.run("b", "store", "join")
    assert (again.returncode, "has a store already" in again.stderr) == (2, True)
    assert "no controller is there" in site.json("b", "controllers")["waiting"][0]["why"]
    refused = site.run("b", "resume", local)
    assert (refused.returncode, f"{site.folder / 'a'} on" in refused.stderr) == (3, True), refused.stderr
    site.controller("b")
    found = wait_for(
        lambda: [one for one in site.json("a", "controllers")["waiting"] if "its tasks run on that" in one["why"]],
        "the controller to say what it lacks",
    )
    assert (found[0]["run"], f"{site.folder / 'a'} on" in found[0]["why"]) == (local, True)
    site.controller("a")
    wait_for(lambda: site.states("b")[local] == "completed", "the controller of the first folder to take it")
    copy = site.folder / "copy"
    subprocess.run(["cp", "-a", site.folder / "b", copy], check=True)
    refused = site.run("copy", "resume", local)
    assert (refused.returncode, "is a copy of" in refused.stderr) == (3, True)


@pytest.mark.slow
def test_runs_of_a_dead_controller_go_to_another_within_15_seconds(site: Site, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    go_on = tmp_path / "go_on"
    command = ["sh", "-c", f"echo $EVALFLEET_ATTEMPT >> {ledger}; until [ -e {go_on} ]; do sleep 0.1; done"]
    with sshd.host(tmp_path / "box") as box:
        (tmp_path / "hosts.toml").write_text(sshd.hosts_file([box], slots=8))
        made = site.run("a", "pool", "create", "lab", "--backend", "ssh", "--hosts", str(tmp_path / "hosts.toml"))
        assert made.returncode == 0, made.stderr
        runs = [site.submit("a", f"run{number}", 6, command) for number in range(4)]
        secret = site.submit("a", "secret", 1, ["sh", "-c", 'test "$TOKEN" = hush'], secrets=["TOKEN"])
        dies = site.controller("b", runs=2)
        wait_for(lambda: held(site) == [2], "the first controller to drive as many as it may")
        lives = site.controller("c", runs=4)
        wait_for(lambda: held(site) == [2, 2], "the second one to drive the others")
        wait_for(lambda: ledger.exists() and len(ledger.read_text().split()) == 8, "tasks of all four to start")
        (waiting,) = site.json("a", "controllers")["waiting"]
        assert (waiting["run"], waiting["why"].count("the environment lacks TOKEN")) == (secret, 2)
        kill_machine(site, dies, "b")
        since = time.monotonic()

        wait_for(lambda: held(site) == [4], "the other controller to take the runs")
        assert time.monotonic() - since < 15
        go_on.touch()
        (tmp_path / "secrets").mkdir()
        (tmp_path / "secrets" / "TOKEN").write_text("hush\n")
        (site.folder / "d").mkdir()
        (site.folder / "d" / "config.toml").write_text(f'[secrets]\nfile = "{tmp_path}/secrets/{{name}}"\n')
        site.controller("d")
        wait_for(lambda: set(site.states("a").values()) == {"completed"}, "all runs to end", 60)
        assert len(ledger.read_text().split()) == len(set(ledger.read_text().split())) == 24, "no task ran twice"
        for run in (*runs, secret):
            report = site.json("a", "report", run)
            assert (report["tasks"]["done"], report["scores"]["strict"]) == (report["tasks"]["total"], 1.0)
        assert lives.poll() is None


def test_the_commands_of_the_page_work(site: Site) -> None:
    """Those that it shows are typed here, in their order."""
    blocks = re.findall(r"```text\n(.*?)```", HOWTO.read_text(), re.DOTALL)
    words = [line.split() for block in blocks[:2] for line in block.splitlines()]
    assert [" ".join(line[:3]) for line in words if line[0] == "evalfleet"] == [
        "evalfleet controller --runs",
        "evalfleet store join",
        "evalfleet run tasks.jsonl",
    ]
    site.submit("a", "tasks", 1, ["true"], pool="")
    site.controller("b", runs=20)
    wait_for(lambda: site.json("a", "controllers")["controllers"], "the controller to enter itself")
    assert site.run("c", *words[2][1:]).returncode == 0
    assert f"{site.folder / 'b'}" in site.run("c", "controllers").stdout
