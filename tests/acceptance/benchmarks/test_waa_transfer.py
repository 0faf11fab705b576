"""Golden images on their way: by ranges over HTTP that fails, to and from real blob storage, from folder to folder."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from tests.support.azurite import azurite

from evalfleet.benchmarks.waa.golden import manifest, transfer
from evalfleet.benchmarks.waa.golden.manifest import Golden
from evalfleet.benchmarks.waa.golden.transfer import TransferFailed

MIB = 1 << 20


def told(_: str) -> None:
    pass


class Files(http.server.BaseHTTPRequestHandler):
    """One file, with ranges; the first answers fail as `faults` says."""

    data = b""
    ranges = True
    faults: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        fault = self.faults.pop() if self.faults else ""
        if fault.isdigit():
            self.send_error(int(fault))
            return
        start, end = 0, len(self.data)
        asked = self.headers.get("Range")
        if asked and self.ranges:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, end = int(first), int(last) + 1
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(self.data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        self.wfile.write(self.data[start : end - (1000 if fault == "cut" else 0)])

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(data: bytes, *faults: str, ranges: bool = True) -> Iterator[str]:
    handler = type("Handler", (Files,), {"data": data, "faults": list(faults), "ranges": ranges})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/disk?sig=secret"
        server.shutdown()


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "RANGE", MIB)
    monkeypatch.setattr(transfer, "_pauses", lambda: iter([0.0, 0.0, 0.0, None]))


@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_comes_whole_and_its_zeros_take_no_space(tmp_path: Path, ranges: bool) -> None:
    data = os.urandom(MIB + 5) + bytes(8 * MIB) + os.urandom(17)
    with serving(data, ranges=ranges) as address:
        transfer.fetch(address, tmp_path / "disk", told)
    assert (tmp_path / "disk").read_bytes() == data
    if ranges:
        assert (tmp_path / "disk").stat().st_blocks * 512 < 6 * MIB
    assert os.listdir(tmp_path) == ["disk"]


def test_ranges_that_fail_or_break_off_are_asked_for_again(tmp_path: Path) -> None:
    data = os.urandom(3 * MIB)
    with serving(data, "503", "cut", "") as address:
        transfer.fetch(address, tmp_path / "disk", told)
    assert (tmp_path / "disk").read_bytes() == data


def test_another_file_than_asked_for_is_refused_without_its_signature_in_the_message(tmp_path: Path) -> None:
    with serving(b"other") as address, pytest.raises(TransferFailed, match="not the file") as failed:
        transfer.fetch(address, tmp_path / "disk", told, sha256="0" * 64)
    assert "secret" not in str(failed.value)
    assert os.listdir(tmp_path) == []


def test_a_server_that_refuses_is_asked_once(tmp_path: Path) -> None:
    with serving(b"data", "404") as address, pytest.raises(TransferFailed, match="404"):
        transfer.fetch(address, tmp_path / "disk", told)


def image(folder: Path) -> Golden:
    folder.mkdir()
    (folder / "data.img").write_bytes(os.urandom(2 * MIB + 3) + bytes(3 * MIB))
    (folder / "windows.boot").touch()
    made = Golden(
        name="win11",
        created_at="2026-11-16T12:00:00+00:00",
        image="windowsarena/winarena:latest",
        digest=None,
        iso="setup.iso",
        iso_sha256="0" * 64,
        eula_accepted=True,
        programs=("Chrome",),
        stages_s={"install": 1200.0},
        evalfleet="1",
        files=manifest.files_in(folder),
    )
    manifest.write(folder, made)
    return made


def test_an_image_goes_to_blob_storage_and_comes_back(tmp_path: Path) -> None:
    made = image(tmp_path / "win11")
    with azurite(tmp_path / "azurite") as storage:
        transfer.store_golden(tmp_path / "win11", made, storage.address(), told)
        assert transfer.fetch_golden(storage.address("r"), tmp_path / "copy", told) == made
        assert manifest.differences(tmp_path / "copy", made) == []
        with pytest.raises(TransferFailed, match="403"):
            transfer.store_golden(tmp_path / "win11", made, storage.address("r"), told)
        with pytest.raises(TransferFailed, match=r"has no golden image.*403"):
            transfer.fetch_golden(storage.address("r", hours=-1), tmp_path / "late", told)
    assert manifest.read(tmp_path / "late") is None


def test_an_image_is_copied_from_a_folder_unless_it_is_damaged(tmp_path: Path) -> None:
    made = image(tmp_path / "win11")
    assert transfer.fetch_golden(str(tmp_path / "win11"), tmp_path / "copy", told) == made
    disk = tmp_path / "win11" / "data.img"
    disk.write_bytes(b"x" + disk.read_bytes()[1:])
    with pytest.raises(TransferFailed, match=r"data\.img was changed"):
        transfer.fetch_golden(str(tmp_path / "win11"), tmp_path / "other", told)
    assert manifest.read(tmp_path / "other") is None
