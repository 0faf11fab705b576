"""Runs whose files are kept in object storage: real processes, an S3 server that comes and goes, and kills at every step."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.azurite import azurite, azurite_environment
from tests.support.fleet import Fleet, wait_for
from tests.support.machines import Hosts, pool
from tests.support.moto_server import ENVIRONMENT, s3_server
from tests.support.web_server import serve

ROOT = Path(__file__).parents[3]
SECRET = ENVIRONMENT["AWS_SECRET_ACCESS_KEY"]
SCRIPT = (
    'echo out; echo begun >> {ledger}; mkdir "$EVALFLEET_ARTIFACTS/d"; echo kept > "$EVALFLEET_ARTIFACTS/d/ü #1.txt"'
)


def tasks(fleet: Fleet, count: int) -> str:
    command = ["sh", "-c", SCRIPT.format(ledger=fleet.ledger)]
    return fleet.tasks([{"key": f"t/{number} ü", "command": command} for number in range(count)])


def folder_of(fleet: Fleet) -> Path:
    """Let the fleet keep its files in a folder, as in object storage."""
    place = fleet.folder / "kept elsewhere"
    settings = f'[files]\nurl = "file://{place}"\ncache_mb = 1\n'
    fleet.home.mkdir(exist_ok=True)
    (fleet.home / "config.toml").write_text(settings.replace(" ", "%20").replace("%20=%20", " = "))
    return place


def collected(fleet: Fleet) -> list[Path]:
    """Attempts whose files are in the home."""
    return sorted(path for path in fleet.home.glob("runs/*/*/*") if path.parent.name != "machines")


def manifests(place: Path) -> list[Path]:
    return sorted(place.glob("runs/*/*/*.json"))


def check_files(fleet: Fleet, count: int) -> None:
    """All files are there once, whatever was lost of this machine."""
    assert collected(fleet) == []
    for number in range(count):
        key = f"t/{number} ü"
        assert fleet.command("logs", "latest", key, "--stdout").stdout == "out\n"
        assert [one["path"] for one in fleet.json("artifacts", "latest", key)["artifacts"]] == ["d/ü #1.txt"]
        assert fleet.command("artifacts", "latest", key, "d/ü #1.txt").stdout == "kept\n"


STEPS = {
    "before the first file": ("evalfleet.files.objects.ObjectStorage", "put", "before"),
    "before the manifest": ("evalfleet.files.objects.ObjectStorage", "_finish", "before"),
    "after the manifest": ("evalfleet.files.objects.ObjectStorage", "_finish", "after"),
    "after the end is stored": ("evalfleet.files.folder.FolderStore", "delete", "before"),
    "after the files left the home": ("evalfleet.files.folder.FolderStore", "delete", "after"),
}
KILLER = """
import importlib, os, signal, sys
if os.environ.get("KILL_AT"):
    place, name, when = os.environ["KILL_AT"].split()
    module, _, owner = place.rpartition(".")
    owner = getattr(importlib.import_module(module), owner)
    original = getattr(owner, name)
    def killed(*args, **more):
        if when == "after":
            original(*args, **more)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(owner, name, killed)
"""


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_controller_that_is_killed_at_any_step_loses_and_doubles_nothing(fleet: Fleet, step: str) -> None:
    place = folder_of(fleet)
    (fleet.folder / "sitecustomize.py").write_text(KILLER)
    killing = {"PYTHONPATH": str(fleet.folder), "KILL_AT": " ".join(STEPS[step])}
    done = fleet.command("run", tasks(fleet, 2), "--workers", "1", **killing)
    assert done.returncode == -signal.SIGKILL
    wait_for(fleet.lines, "a task to run")
    assert fleet.json("resume")["state"] == "completed"
    report = fleet.json("report")
    assert (report["tasks"]["done"], report["attempts"]["total"], len(fleet.lines())) == (2, 2, 2)
    assert len(manifests(place)) == 2
    left = collected(fleet)  # a folder that is stored already may be left; it is moved like any other
    assert len(left) <= 1
    assert (
        fleet.command("files", "copy", "home", f"file://{str(place).replace(' ', '%20')}", "--remove").returncode == 0
    )
    assert len(manifests(place)) == 2
    check_files(fleet, 2)


@contextmanager
def s3(fleet: Fleet) -> Iterator[str]:
    """An S3 server, which the commands of the fleet use."""
    with s3_server("bucket") as address:
        fleet.env |= {**ENVIRONMENT, "AWS_ENDPOINT_URL": address, "EVALFLEET_FILES_URL": "s3://bucket/team/a"}
        yield address


@pytest.mark.slow
def test_a_storage_that_is_down_keeps_attempts_collecting_and_changes_no_verdict(fleet: Fleet) -> None:
    with s3(fleet) as address:
        pass  # it is down
    port = int(address.rpartition(":")[2])
    controller = fleet.start("run", tasks(fleet, 3), "--workers", "2")
    wait_for(lambda: fleet.json("status")["runs"], "the run")
    wait_for(lambda: fleet.json("report")["tasks"]["done"] == 3, "verdicts")
    wait_for(lambda: "files.unreachable" in types(fleet), "the trouble to be told")
    assert fleet.json("status")["runs"][0]["state"] == "running"
    assert "attempt.collected" not in types(fleet)
    served = serve(fleet)
    wait_for(lambda: "files" in {one["rule"] for one in fleet.json("alerts")["alerts"]}, "an alert")
    assert len(collected(fleet)) == 3
    assert fleet.command("logs", "latest", "t/1 ü", "--stdout").stdout == "out\n"
    served.kill()
    os.killpg(controller.pid, signal.SIGKILL)
    controller.wait()
    again = fleet.start("resume")
    with s3_server("bucket", port=port):
        assert again.wait(60) == 0
        assert types(fleet).count("attempt.collected") == 3
        assert types(fleet)[-1:] != ["files.unreachable"]
        assert "files.reached" in types(fleet)
        assert (fleet.json("report")["attempts"]["total"], len(fleet.lines())) == (3, 3)
        shutil.rmtree(fleet.home / "runs")
        shutil.rmtree(fleet.home / "cache", ignore_errors=True)
        check_files(fleet, 3)
    told = "".join(path.read_text(errors="replace") for path in fleet.folder.rglob("*") if path.is_file())
    assert SECRET not in told


def types(fleet: Fleet) -> list[str]:
    return [event["type"] for event in fleet.events()]


@pytest.mark.slow
def test_what_is_in_storage_is_read_by_page_report_and_exports(fleet: Fleet) -> None:
    with s3(fleet):
        picture = "printf '\\211PNG\\r\\n\\032\\n' > $EVALFLEET_ARTIFACTS/a.png"
        events = 'echo \'{"step": 1, "screenshot": "a.png"}\' >> $EVALFLEET_EVENTS'
        large = "head -c 40000000 /dev/zero | tr '\\0' x > $EVALFLEET_ARTIFACTS/large.bin"
        run = fleet.json(
            "run", fleet.tasks([{"key": "one", "command": ["sh", "-c", f"{picture}; {events}; {large}"]}])
        )["run"]
        assert collected(fleet) == []
        done = fleet.command("report", "--html", str(fleet.folder / "report.html"))
        assert done.returncode == 0, done.stderr
        assert "data:image/png" in (fleet.folder / "report.html").read_text()
        assert fleet.command("export", "--format", "evalfleet", "--to", str(fleet.folder / "out")).returncode == 0
        (exported,) = (fleet.folder / "out").rglob("large.bin")
        assert exported.stat().st_size == 40_000_000
        served = serve(fleet)
        base = f"runs/{run}/tasks/1/attempts/1"
        facts = served.get(base)
        assert [one["path"] for one in facts["artifacts"]] == ["a.png", "large.bin"]
        assert facts["desktop"]["screenshot"] is True
        asked = f"/api/v1/{base}"
        whole = served.ask(f"{asked}/files/large.bin")
        assert (whole.status, len(whole.body)) == (200, 40_000_000)
        part = served.ask(f"{asked}/files/large.bin", Range="bytes=10-19")
        assert (part.status, part.body, part.headers["content-range"]) == (206, b"x" * 10, "bytes 10-19/40000000")
        assert served.ask(f"{asked}/files/large.bin", Range="bytes=-5").body == b"xxxxx"
        assert served.ask(f"{asked}/files/large.bin", Range="bytes=40000000-").status == 416
        assert served.ask(f"{asked}/screenshot").body.startswith(b"\x89PNG")
        assert not [
            path for path in (fleet.home / "cache").rglob("*") if path.is_file() and path.stat().st_size > 1 << 24
        ]
    assert served.ask(f"{asked}/files/large.bin", Range="bytes=10-19").status == 503
    assert [one["path"] for one in served.get(base)["artifacts"]] == ["a.png", "large.bin"]


@pytest.mark.slow
def test_doctor_tries_the_place_and_tells_no_secret(fleet: Fleet) -> None:
    def told(**env: str) -> str:
        done = fleet.command("doctor", "--json", **env)
        (check,) = (one for one in json.loads(done.stdout)["checks"] if one["name"] == "files")
        assert SECRET not in done.stdout + done.stderr
        return f"{check['level']}: {check['message']} {check['remedy'] or ''}"

    with s3(fleet):
        assert told().startswith("ok: s3://bucket/team/a")
        assert "no such bucket" in told(EVALFLEET_FILES_URL="s3://no-such-bucket/x")
    assert "does not answer" in told()
    assert told(EVALFLEET_FILES_URL=f"file://{fleet.folder}/there").startswith("ok")


@pytest.mark.slow
def test_files_of_old_runs_stay_readable_and_can_be_moved(fleet: Fleet) -> None:
    fleet.json("run", tasks(fleet, 2))
    old = collected(fleet)
    assert len(old) == 2
    place = folder_of(fleet)
    address = f"file://{str(place).replace(' ', '%20')}"
    assert fleet.command("logs", "latest", "t/1 ü", "--stdout").stdout == "out\n"
    first = fleet.json("files", "copy", "home", address)
    assert (first["attempts"], first["copied"], first["removed"]) == (2, 2, 0)
    assert collected(fleet) == old
    moved = fleet.json("files", "copy", "home", address, "--remove")
    assert (moved["attempts"], moved["copied"], moved["removed"]) == (2, 0, 2)
    check_files(fleet, 2)
    back = fleet.json("files", "copy", address, "home", "--remove")
    assert (back["copied"], back["removed"]) == (2, 2)
    assert collected(fleet) == old
    assert manifests(place) == []
    assert (old[0] / "stdout.log").read_text() == "out\n"


@pytest.mark.slow
def test_files_of_a_host_over_ssh(fleet: Fleet, hosts: Hosts) -> None:
    place = folder_of(fleet)
    pool(fleet, hosts("ab"))
    done = fleet.json("run", tasks(fleet, 4), "--pool", "lab")
    assert done["tasks"]["done"] == 4
    assert len(manifests(place)) == 4
    check_files(fleet, 4)


@pytest.mark.slow
def test_the_commands_of_the_page(fleet: Fleet, tmp_path: Path) -> None:
    page = (
        (ROOT / "docs/howto/keep-files-in-object-storage.md").read_text("utf-8").replace("az://runs/", "az://images/")
    )
    settings, commands = re.findall(r"```(?:toml\n|text\n(?=evalfleet ))(.*?)```", page, re.DOTALL)
    fleet.json("run", tasks(fleet, 2))
    with azurite(tmp_path / "azurite") as server:
        fleet.env |= azurite_environment(server)
        (fleet.home / "config.toml").write_text(settings)
        for line in commands.splitlines():
            done = fleet.command(*line.removeprefix("evalfleet ").split())
            assert done.returncode == 0, done.stdout + done.stderr
        check_files(fleet, 2)
        fleet.json("run", tasks(fleet, 2))
        check_files(fleet, 2)
