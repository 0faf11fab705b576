"""Backups while runs go on, and homes that are made of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import Fleet, wait_for
from tests.support.postgres import Server

from evalfleet.errors import InputError, Owned, Refused, StoreCorrupt
from evalfleet.operations.housekeeping import backup as backups
from evalfleet.operations.housekeeping.backup import backup
from evalfleet.operations.housekeeping.prune import LOCK
from evalfleet.operations.housekeeping.restore import restore
from evalfleet.report.reader import opened
from evalfleet.store.open import open_store

LEAVES = 'echo said; echo "$0" > "$EVALFLEET_ARTIFACTS/kept.txt"; ln -s /etc/passwd "$EVALFLEET_ARTIFACTS/link"'


def finished(fleet: Fleet, name: str = "done", tasks: int = 2) -> None:
    rows = [{"key": f"t_{number}", "command": ["bash", "-c", LEAVES, name]} for number in range(tasks)]
    assert fleet.command("run", fleet.tasks(rows, name=f"{name}.jsonl"), "--name", name).returncode == 0


def at(fleet: Fleet, home: Path) -> Fleet:
    return Fleet(folder=fleet.folder, home=home)


def artifacts(home: Path) -> dict[str, str]:
    return {path.parts[-4] + path.parts[-3]: path.read_text() for path in home.glob("runs/*/*/*/artifacts/kept.txt")}


@pytest.mark.parametrize("name", ["backup", "backup.zip"])
def test_a_home_comes_back_whole_and_as_a_copy(fleet: Fleet, tmp_path: Path, name: str) -> None:
    finished(fleet)
    told = fleet.json("backup", str(tmp_path / name))
    assert told["rows"] > 10
    assert told["copied"] == told["files"] - 1
    new = at(fleet, tmp_path / "new")
    assert new.json("restore", str(tmp_path / name))["adopted"] is False
    assert artifacts(new.home) == artifacts(fleet.home)
    assert not list(new.home.glob("runs/*/*/*/artifacts/link"))
    assert new.json("report", "done")["scores"] == fleet.json("report", "done")["scores"]
    refused = new.command("retry", "done", "--only", "t_0")
    assert refused.returncode == 3
    assert "this home is a copy" in refused.stderr
    assert new.command("doctor", "--adopt").returncode in (0, 1)
    finished(new, "after")
    assert (new.home / "evalfleet.db").stat().st_mode & 0o077 == 0


def test_a_second_backup_copies_only_what_is_new(fleet: Fleet, tmp_path: Path) -> None:
    finished(fleet)
    first = backup(fleet.home, tmp_path / "b")
    finished(fleet, "more", tasks=1)
    second = backup(fleet.home, tmp_path / "b")
    assert 0 < second.copied < first.copied
    assert second.files == first.files + second.copied
    restore(tmp_path / "b", tmp_path / "new")
    assert artifacts(tmp_path / "new") == artifacts(fleet.home)


def test_it_is_consistent_while_a_run_goes_on(fleet: Fleet, tmp_path: Path) -> None:
    rows = [{"key": f"t_{number}", "command": ["bash", "-c", LEAVES]} for number in range(40)]
    process = fleet.start("run", fleet.tasks(rows), "-w", "2", "--name", "live")
    wait_for(lambda: len(artifacts(fleet.home)) > 3, "some attempts")
    done = backup(fleet.home, tmp_path / "b.zip")
    assert done.rows > 40
    assert process.wait(60) == 0
    restore(tmp_path / "b.zip", tmp_path / "new")
    with opened(tmp_path / "new") as reader:
        assert reader is not None
        run = reader.runs.find("live")
        ended = [one for one in reader.attempts.all_rows(run.id) if one["state"] == "ended"]
    assert len(ended) >= 3
    assert len(artifacts(tmp_path / "new")) >= len(ended)  # the files of all that the database calls ended are there
    new = at(fleet, tmp_path / "new")
    shutil.rmtree(fleet.home)
    assert new.command("resume", "live", "--adopt").returncode == 0
    assert new.json("report", "live")["tasks"]["done"] == 40


def test_a_home_is_never_overwritten(fleet: Fleet, tmp_path: Path) -> None:
    finished(fleet)
    backup(fleet.home, tmp_path / "b")
    with pytest.raises(Refused, match=r"is there already, and is never overwritten|the runner of .* is at work"):
        restore(tmp_path / "b", fleet.home)
    with closing(open_store(fleet.home)) as store:
        run = store.runs.take(store.runs.find("done").id, "a controller")
        with pytest.raises(Owned):
            restore(tmp_path / "b", fleet.home, replace=True)
        store.runs.leave(run)
    other = tmp_path / "other"
    restore(tmp_path / "b", other)
    done = restore(tmp_path / "b", other, replace=True)
    assert done.kept == f"{other}.before-restore-1"
    assert artifacts(Path(done.kept or "")) == artifacts(other)


def changed_file(folder: Path) -> None:
    next(folder.glob("runs/*/*/*/artifacts/kept.txt")).write_text("another")


def missing_file(folder: Path) -> None:
    next(folder.glob("runs/*/*/*/artifacts/kept.txt")).unlink()


def linked_file(folder: Path) -> None:
    file = next(folder.glob("runs/*/*/*/artifacts/kept.txt"))
    file.unlink()
    file.symlink_to("/etc/passwd")


def leaving_file(folder: Path) -> None:
    manifest = json.loads((folder / "backup.json").read_text())
    manifest["files"][0]["path"] = "../outside"
    (folder / "backup.json").write_text(json.dumps(manifest))


def damaged_database(folder: Path) -> None:
    with (folder / "evalfleet.db").open("r+b") as file:
        file.seek(4096 + 8)
        file.write(b"\xff" * 4000)


@pytest.mark.parametrize("change", [changed_file, missing_file, linked_file, leaving_file, damaged_database])
def test_a_backup_that_was_changed_is_refused(fleet: Fleet, tmp_path: Path, change: Any) -> None:
    finished(fleet)
    backup(fleet.home, tmp_path / "b")
    change(tmp_path / "b")
    with pytest.raises((InputError, StoreCorrupt)):
        restore(tmp_path / "b", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "outside").exists()


def test_a_bundle_that_was_changed_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    finished(fleet, tasks=1)
    backup(fleet.home, tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip") as good:
        content = {name: good.read(name) for name in good.namelist()}
    kept = next(name for name in content if name.endswith("kept.txt"))
    zeros = bytes(30_000_000)

    def written(name: str, change: dict[str, bytes], manifest: dict[str, str] | None = None) -> Path:
        path = tmp_path / f"{name}.zip"
        told = content["manifest.json"].decode()
        for old, new in (manifest or {}).items():
            assert old in told
            told = told.replace(old, new)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bad:
            for each, data in (content | change | {"manifest.json": told.encode()}).items():
                bad.writestr(each, data)
        return path

    bad = [
        written("changed", {kept: b"tone\n"}),
        written("more", {"extra": b"x"}),
        written("bomb", {kept: zeros}),
        tmp_path / "cut.zip",
    ]
    leaving = written("leaving", {}, {f'"{kept}"': '"../../outside"'})
    with zipfile.ZipFile(leaving, "a") as archive:
        archive.writestr("../../outside", content[kept])
    bad.append(leaving)
    link = tmp_path / "link.zip"
    with zipfile.ZipFile(link, "w") as archive:
        for each, data in content.items():
            info = zipfile.ZipInfo(each)
            info.external_attr = (0o120777 if each == kept else 0o100600) << 16
            archive.writestr(info, data)
    bad.append(link)
    (tmp_path / "cut.zip").write_bytes((tmp_path / "b.zip").read_bytes()[:-2000])
    for path in bad:
        with pytest.raises(InputError):
            restore(path, tmp_path / "new")
        assert not (tmp_path / "new").exists()
    assert not (tmp_path / "outside").exists()


def test_targets_that_are_something_else_are_refused(fleet: Fleet, tmp_path: Path) -> None:
    finished(fleet, tasks=1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with pytest.raises(InputError, match="holds something that no backup made"):
        backup(fleet.home, tmp_path / "mine")
    with pytest.raises(InputError, match="lies in the home"):
        backup(fleet.home, fleet.home / "b")
    backup(fleet.home, tmp_path / "b.zip")
    with pytest.raises(InputError, match="exists already"):
        backup(fleet.home, tmp_path / "b.zip")
    backup(fleet.home, tmp_path / "b")
    with closing(open_store(tmp_path / "other")), pytest.raises(InputError, match="a backup of another home"):
        backup(tmp_path / "other", tmp_path / "b")
    with closing(open_store(fleet.home)) as store:
        store.retention.lock(LOCK, "process 1 on here")
        with pytest.raises(Owned, match="process 1 on here"):
            backup(fleet.home, tmp_path / "b")


KILLED = """
import os, signal, sys
from pathlib import Path
from evalfleet.operations.housekeeping import backup, restore
module, name, turns = {"backup": backup, "restore": restore}[sys.argv[1]], sys.argv[2], int(sys.argv[3])
whole = getattr(module, name)
asked = iter(range(10_000))
def killed(*args):
    if next(asked) == turns:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(*args)
setattr(module, name, killed)
getattr(module, sys.argv[1])(Path(sys.argv[4]), Path(sys.argv[5]))
"""


def killed_in(operation: str, function: str, turns: int, *places: Path) -> None:
    argv = [sys.executable, "-c", KILLED, operation, function, str(turns), *map(str, places)]
    assert subprocess.run(argv, check=False, env=dict(os.environ)).returncode == -signal.SIGKILL


@pytest.mark.parametrize(("function", "turns"), [("_copy", 1), ("_put_in_place", 0)])
def test_a_killed_backup_leaves_the_former_one_and_is_made_again(
    fleet: Fleet, tmp_path: Path, function: str, turns: int
) -> None:
    finished(fleet)
    backup(fleet.home, tmp_path / "b")
    finished(fleet, "more")
    killed_in("backup", function, turns, fleet.home, tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "old")
    assert len(at(fleet, tmp_path / "old").json("status")["runs"]) == 1
    assert backup(fleet.home, tmp_path / "b").copied > 0
    restore(tmp_path / "b", tmp_path / "new")
    assert artifacts(tmp_path / "new") == artifacts(fleet.home)


def test_a_first_backup_that_was_killed_is_gone_on_with(fleet: Fleet, tmp_path: Path) -> None:
    finished(fleet)
    killed_in("backup", "_copy", 2, fleet.home, tmp_path / "b")
    with pytest.raises(InputError, match="is not a backup"):
        restore(tmp_path / "b", tmp_path / "new")
    backup(fleet.home, tmp_path / "b")
    killed_in("restore", "_copy", 2, tmp_path / "b", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    restore(tmp_path / "b", tmp_path / "new")
    assert artifacts(tmp_path / "new") == artifacts(fleet.home)


def test_killed_between_its_last_two_steps_either_database_is_found(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(fleet)
    backup(fleet.home, tmp_path / "b")
    finished(fleet, "more")
    real = Path.rename

    def stopping(path: Path, target: Path) -> Path:
        if path.name == "evalfleet.db.new":
            raise KeyboardInterrupt
        return real(path, target)

    monkeypatch.setattr(backups.Path, "rename", stopping)
    with pytest.raises(KeyboardInterrupt):
        backup(fleet.home, tmp_path / "b")
    monkeypatch.undo()
    restore(tmp_path / "b", tmp_path / "new")
    assert len(at(fleet, tmp_path / "new").json("status")["runs"]) == 2


def test_the_store_of_a_server_is_backed_up_and_restored_to_another(
    fleet: Fleet, postgres: Server, tmp_path: Path
) -> None:
    with postgres.home(tmp_path / "server_home") as home:
        served = at(fleet, home)
        finished(served)
        backup(home, tmp_path / "b")
        restore(tmp_path / "b", tmp_path / "here", adopt=False)
        assert at(fleet, tmp_path / "here").json("report", "done")["tasks"]["done"] == 2
        assert artifacts(tmp_path / "here") == artifacts(home)
