"""The backends of the example plug-in, installed as pip does it: pools are created, used and deleted by the commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support import plugin, sshd
from tests.support.fleet import Fleet


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plugin.install(tmp_path_factory.mktemp("plugin"))


@pytest.fixture
def plugged(fleet: Fleet, installed: Path) -> Fleet:
    fleet.env["PYTHONPATH"] = str(installed)
    return fleet


def test_a_run_uses_a_pool_of_process_trees(plugged: Fleet):
    made = plugged.json("pool", "create", "trees", "--backend", "process-trees", "--option", "count=2")
    assert made == {"pool": "trees", "backend": "process-trees", "hosts": 2, "workers": 2, "by": None}
    # A run begins with one attempt. After it two tasks wait for each other: they are at work at the same time, one on
    # each host.
    meet = "touch $1.here; for _ in $(seq 600); do [ -e $2.here ] && exit 0; sleep 0.05; done; kill $$"
    rows = [
        {"key": one, "command": ["/bin/sh", "-c", meet, "meet", str(plugged.folder / one), str(plugged.folder / two)]}
        for one, two in (("a", "b"), ("b", "a"))
    ]
    first = {"key": "first", "command": ["true"]}
    summary = plugged.json("run", plugged.tasks([first, *rows]), "--pool", "trees", "--workers", "2")
    met = {row["worker"][: len("trees-1")] for row in summary["results"] if row["key"] != "first"}
    assert (summary["tasks"]["done"], met) == (3, {"trees-1", "trees-2"})
    assert (plugged.home / "trees" / "trees-1" / "spool").is_dir()

    assert plugged.json("pool", "delete", "trees") == {"deleted": "trees", "left": {}, "cost_usd": None}
    assert list((plugged.home / "trees").iterdir()) == []
    assert plugged.left_processes() == []
    assert Path(plugged.json("logs", "latest", "a")["folder"]).is_dir(), "what was collected stays"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--option", "count=none"), "option count: must be a whole number from 1 to 64"),
        (("--option", "cout=2"), "option cout: is not known"),
        (("--size", "large"), "size: is not for process-trees, which takes: options"),
    ],
)
def test_bad_options_create_no_pool(plugged: Fleet, option: tuple[str, ...], said: str):
    done = plugged.command("pool", "create", "trees", "--backend", "process-trees", *option)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert plugged.json("pool", "list")["pools"] == []


def test_a_run_uses_a_pool_of_the_toy_cloud(plugged: Fleet):
    sshd.require()
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    made = plugged.json("pool", "create", "play", "--backend", "toy", "--workers", "2")
    try:
        assert [host["state"] for host in made["hosts"]] == ["ready", "ready"]
        rows = [{"key": key, "command": ["/bin/sh", "-c", "echo $HOME"]} for key in ("a", "b", "c")]
        summary = plugged.json("run", plugged.tasks(rows), "--pool", "play", "--workers", "2")
        assert summary["tasks"]["done"] == 3
        said = Path(plugged.json("logs", "latest", "a")["folder"]) / "stdout.log"
        assert said.read_text().startswith(str(plugged.home / "toy")), "it ran on a machine of the cloud"
    finally:
        plugged.json("pool", "delete", "play", "--yes", "--force")
    assert [path.name for path in (plugged.home / "toy").iterdir()] == [".lock"]
    assert plugged.json("pool", "list")["pools"] == []
