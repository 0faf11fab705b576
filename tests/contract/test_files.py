"""What every place for the files of attempts promises: folders of a home, and the library's memory, folders, Azure and S3."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.azurite import Azurite, azurite, azurite_environment
from tests.support.moto_server import ENVIRONMENT, s3_server

from evalfleet.errors import FilesUnreachable
from evalfleet.files.base import AttemptKey, FileStore, blocks, copy, read
from evalfleet.files.cache import Cache
from evalfleet.files.folder import FolderStore
from evalfleet.files.objects import ObjectStorage

ONE = AttemptKey.of("run1", "a task", 1)
ODD = [
    "with space",
    "=41",
    "%41",
    "ü",
    "a#b?c&d",
    "dot.",
    "…",
    "new\nline",
    "quote'\"",
    "\udcff\udcfe",
    "x" * 255,
    "ü" * 120,
]


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with azurite(tmp_path_factory.mktemp("azure") / "azurite") as server:
        yield server


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server("bucket") as address:
        yield address


@pytest.fixture(params=["home", "memory", "folder", "azure", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], FileStore]:
    """Opens the place, empty at first, as another process would."""
    kind = request.param
    if kind == "home":
        return lambda: FolderStore(tmp_path / "home")
    cache = Cache(tmp_path / "cache", 1 << 20, largest=1 << 18)
    if kind == "memory":
        from obstore.store import MemoryStore

        memory = MemoryStore()
        return lambda: ObjectStorage("memory:///", cache, store=memory)
    if kind == "folder":
        return lambda: ObjectStorage(f"file://{tmp_path}/kept here", cache)
    prefix = hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]
    if kind == "azure":
        set_all(monkeypatch, azurite_environment(request.getfixturevalue("azure")))
        return lambda: ObjectStorage(f"az://images/{prefix}/deep", cache)
    set_all(monkeypatch, {**ENVIRONMENT, "AWS_ENDPOINT_URL": request.getfixturevalue("s3")})
    return lambda: ObjectStorage(f"s3://bucket/{prefix}", cache)


def set_all(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def attempt(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def contents(found: Any) -> dict[str, bytes]:
    return {one.path: read(found, one.path, 1 << 30) or b"" for one in found.list()}


FILES = {"journal.jsonl": b"{}\n", "stdout.log": b"hello", "artifacts/deep/er/x.bin": os.urandom(5000), "empty": b""}


def test_what_was_put_is_there_for_another_process(place: Callable[[], FileStore], tmp_path: Path) -> None:
    store = place()
    assert store.get(ONE) is None
    assert store.keys() == []
    assert store.put(ONE, attempt(tmp_path / "a", FILES)) == 0
    found = place().get(ONE)
    assert found is not None
    assert contents(found) == FILES
    assert [one.path for one in found.list("artifacts")] == ["deep/er/x.bin"]
    assert [one.size for one in found.list("artifacts/deep")] == [5000]
    assert abs(found.list()[0].changed_at - (tmp_path / "a/artifacts/deep/er/x.bin").stat().st_mtime) < 0.01
    assert found.open("nothing") is None
    assert found.open("artifacts") is None
    assert found.open("../a") is None
    assert store.keys() == place().keys("run1") == [ONE]
    assert store.keys("run") == []


def test_ranges(place: Callable[[], FileStore], tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    store = place()
    store.put(ONE, attempt(tmp_path / "a", {"big": data, "small": b"0123456789"}))
    found = store.get(ONE)
    assert found is not None
    for name, whole in (("big", data), ("small", b"0123456789")):
        opened = found.open(name)
        assert opened is not None
        with opened:
            assert opened.size == len(whole)
            assert opened.read(3, 4) == whole[3:7]
            assert opened.read(len(whole) - 2, 100) == whole[-2:]
            assert opened.read(len(whole), 10) == opened.read(len(whole) + 5, 10) == opened.read(0, 0) == b""
            assert b"".join(blocks(opened, 1 << 20)) == whole
    assert read(found, "big", 100) is None
    assert read(found, "big", 100, whole=False) == data[:100]
    assert copy(found, "big", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data


def test_the_same_again_changes_nothing_and_other_files_are_kept_beside(
    place: Callable[[], FileStore], tmp_path: Path
) -> None:
    store = place()
    store.put(ONE, attempt(tmp_path / "a", FILES))
    again = attempt(tmp_path / "again", FILES)
    os.utime(again / "stdout.log", (1, 1))
    assert place().put(ONE, again) == 0
    assert store.keys() == [ONE]
    other = attempt(tmp_path / "other", {"stdout.log": b"late"})
    for _ in range(2):
        assert place().put(ONE, other) == 0
    late = AttemptKey(ONE.run, ONE.task, "1.late")
    assert place().keys() == [ONE, late]
    first, second = place().get(ONE), place().get(late)
    assert first is not None
    assert second is not None
    assert contents(first) == FILES
    assert contents(second) == {"stdout.log": b"late"}


def test_a_put_that_was_cut_off_shows_nothing_and_can_be_done_again(
    place: Callable[[], FileStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = attempt(tmp_path / "a", {f"f{number}": b"x" * 1000 for number in range(20)})

    class Killed(BaseException):
        pass

    def cut(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStorage, "_finish", cut)
        patched.setattr(Path, "rename", cut)
        with pytest.raises(Killed):
            place().put(ONE, folder)
    assert place().get(ONE) is None
    assert place().keys() == []
    place().put(ONE, folder)
    found = place().get(ONE)
    assert found is not None
    assert len(found.list()) == 20


def test_only_regular_files(place: Callable[[], FileStore], tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    folder = attempt(tmp_path / "a", {"kept": b"1", "deep/kept": b"2"})
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "folder").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    store = place()
    store.put(ONE, folder)
    found = store.get(ONE)
    assert found is not None
    assert contents(found) == {"kept": b"1", "deep/kept": b"2"}


def test_odd_names(place: Callable[[], FileStore], tmp_path: Path) -> None:
    files = {f"artifacts/{name}": name.encode("utf-8", "surrogateescape") for name in ODD}
    files |= {f"artifacts/d{number}/{name}/z": b"z" for number, name in enumerate(ODD)}
    store = place()
    store.put(ONE, attempt(tmp_path / "a", files))
    found = place().get(ONE)
    assert found is not None
    assert contents(found) == files
    assert [one.is_text for one in found.list("artifacts") if "\udcff" in one.path] == [False, False]


def test_delete(place: Callable[[], FileStore], tmp_path: Path) -> None:
    store, two = place(), AttemptKey(ONE.run, ONE.task, "10")
    for key in (ONE, two):
        store.put(key, attempt(tmp_path / key.name, FILES))
    store.delete(ONE)
    store.delete(ONE)
    assert store.get(ONE) is None
    assert place().keys() == [two]
    other = place().get(two)
    assert other is not None
    assert contents(other) == FILES
    store.put(ONE, attempt(tmp_path / "new", {"new": b"new"}))
    found = place().get(ONE)
    assert found is not None
    assert contents(found) == {"new": b"new"}


@pytest.mark.parametrize("place", ["memory", "folder", "azure", "s3"], indirect=True)
def test_two_put_the_same_attempt_at_once(place: Callable[[], FileStore], tmp_path: Path) -> None:
    folder = attempt(tmp_path / "a", FILES)
    errors: list[BaseException] = []

    def put() -> None:
        try:
            place().put(ONE, folder)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert place().keys() == [ONE]


def test_a_file_that_was_changed_in_the_storage_is_noticed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    store = ObjectStorage(f"file://{kept}", Cache(tmp_path / "cache", 1 << 20, largest=1 << 18))
    store.put(ONE, attempt(tmp_path / "a", {"stdout.log": b"true"}))
    (kept / "runs" / ONE.path / "stdout.log").write_bytes(b"fals")
    found = store.get(ONE)
    assert found is not None
    with pytest.raises(FilesUnreachable, match="was changed"):
        found.open("stdout.log")


@pytest.mark.parametrize("place", ["home", "folder"], indirect=True)
def test_an_attempt_of_1000_small_files(place: Callable[[], FileStore], tmp_path: Path) -> None:
    files = {f"artifacts/{number:04}.png": b"%d" % number for number in range(1000)}
    store = place()
    store.put(ONE, attempt(tmp_path / "a", files))
    found = place().get(ONE)
    assert found is not None
    assert len(found.list()) == 1000
    assert read(found, "artifacts/0999.png", 10) == b"999"
