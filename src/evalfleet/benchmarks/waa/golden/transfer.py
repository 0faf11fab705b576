"""Large files from where they lie: a path, an `http(s)` address by parallel ranges, and a folder of them to and from a blob container."""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from evalfleet.benchmarks.waa.golden import manifest
from evalfleet.benchmarks.waa.golden.manifest import Golden, sha256_of
from evalfleet.errors import EnvironmentFailed

RANGE = 64 << 20
AT_ONCE = 8
TRIES = 4
TIMEOUT_S = 60.0
TOLD_S = 10.0
_ZEROS = bytes(1 << 20)

Say = Callable[[str], None]
T = TypeVar("T")


class TransferFailed(EnvironmentFailed):
    """A file could not be brought."""


def is_address(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def shown(address: str) -> str:
    """An address without its query: a shared access signature is a secret."""
    return urlunsplit(urlsplit(address)._replace(query="", fragment=""))


def signed(source: str, signature: str | None) -> str:
    """The source with its shared access signature, where it is an address that has none."""
    given = (signature or "").removeprefix("?")
    return f"{source}?{given}" if given and is_address(source) and "?" not in source else source


def within(address: str, name: str) -> str:
    """The address of a file in a container or folder; its query, such as a signature, stays."""
    parts = urlsplit(address)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}"))


def fetch(address: str, to: Path, say: Say, *, sha256: str | None = None) -> str:
    """Bring one file, by ranges at the same time where the server has them; returns its hash. Zeros take no space.

    Raises:
        TransferFailed: it cannot be brought, or is not the file that was asked for; nothing is left then.
    """
    partial = to.with_name(f"{to.name}.partial")
    try:
        size, has_ranges = _size_of(address)
        if size is None or not has_ranges:
            _whole(address, partial)
        else:
            _by_ranges(address, partial, size, say)
        found = sha256_of(partial)
        if sha256 is not None and found != sha256:
            raise TransferFailed(f"{shown(address)} is not the file that was asked for: SHA-256 {found}, not {sha256}")
        partial.replace(to)
        return found
    except OSError as error:
        raise TransferFailed(f"{shown(address)}: {error}") from None
    finally:
        partial.unlink(missing_ok=True)


def golden_at(address: str) -> Golden:
    """What the manifest at an address tells of its image. Raises TransferFailed."""
    try:
        return msgspec.json.decode(_get(within(address, manifest.NAME)), type=Golden)
    except (OSError, msgspec.DecodeError) as error:
        raise TransferFailed(f"{shown(address)} has no golden image: {manifest.NAME}: {error}") from None


def fetch_golden(source: str, to: Path, say: Say) -> Golden:
    """Bring a golden image from a folder or the address of one, checked by its manifest. Raises TransferFailed."""
    to.mkdir(parents=True, exist_ok=True)
    if not is_address(source):
        return _copy_golden(Path(source).expanduser(), to)
    golden = golden_at(source)
    for file in golden.files:
        say(f"brings {file.name} ({file.bytes / 1e9:.1f} GB) from {shown(source)}")
        fetch(within(source, file.name), to / file.name, say, sha256=file.sha256)
    manifest.write(to, golden)
    return golden


def copy(source: Path, to: Path) -> None:
    """Copy a file; where the file system can, without copying its blocks. Raises TransferFailed."""
    done = subprocess.run(
        ["cp", "--reflink=auto", "--sparse=always", str(source), str(to)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise TransferFailed(done.stderr.strip() or f"cp {source} failed")


def require_writable(address: str) -> None:
    """Raises TransferFailed where the blob container refuses to be written to. One that is not reached from here may be elsewhere.

    A block that no list names leaves nothing behind.
    """
    try:
        _put(within(address, manifest.DISK), _put_block(0), b"?", {})
    except urllib.error.HTTPError as error:
        error.close()
        raise TransferFailed(f"{shown(address)} cannot be written to: {error.code} {error.reason}") from None
    except OSError:
        pass


def store_golden(folder: Path, golden: Golden, address: str, say: Say) -> None:
    """Put an image into a blob container, whose address carries a signature that allows it. The manifest comes last.

    Raises TransferFailed.
    """
    for file in golden.files:
        say(f"stores {file.name} ({file.bytes / 1e9:.1f} GB) in {shown(address)}")
        _store(folder / file.name, within(address, file.name), say)
    _store(folder / manifest.NAME, within(address, manifest.NAME), say)


def differences_at(address: str, golden: Golden) -> list[str]:
    """What of a stored image is missing or has another size; its content is checked by who brings it. Raises TransferFailed."""
    if golden_at(address) != golden:
        return [f"{manifest.NAME} is of another image"]
    wrong: list[str] = []
    for file in golden.files:
        try:
            size = _size_of(within(address, file.name))[0]
        except OSError as error:
            wrong.append(f"{file.name}: {error}")
        else:
            wrong += [] if size in (file.bytes, None) else [f"{file.name} has {size} bytes, not {file.bytes}"]
    return wrong


def delete_golden(address: str, golden: Golden) -> None:
    """Delete a stored image, its manifest first, so that nobody brings half of it. What is gone already is fine.

    Raises TransferFailed.
    """
    for name in (manifest.NAME, *(file.name for file in golden.files)):
        try:
            _delete(within(address, name))
        except OSError as error:
            if getattr(error, "code", None) != 404:
                raise TransferFailed(f"{shown(address)}: {name}: {error}") from None


def _delete(address: str) -> None:
    headers = {"x-ms-version": "2021-12-02"}
    with _open(urllib.request.Request(address, headers=headers, method="DELETE")):
        pass


def _copy_golden(source: Path, to: Path) -> Golden:
    golden = manifest.read(source)
    if golden is None:
        raise TransferFailed(f"{source} has no golden image: there is no {manifest.NAME}")
    for file in golden.files:
        copy(source / file.name, to / file.name)
    wrong = manifest.differences(to, golden)
    if wrong:
        raise TransferFailed(f"{source} is damaged: {wrong[0]}")
    manifest.write(to, golden)
    return golden


def _size_of(address: str) -> tuple[int | None, bool]:
    """How long the file is, as far as the server says, and whether it has ranges: one byte is asked for."""
    with _open(urllib.request.Request(address, headers={"Range": "bytes=0-0"})) as answer:
        total = answer.headers.get("Content-Range", "").rpartition("/")[2]
        return (int(total) if total.isdigit() else None), answer.status == 206


def _whole(address: str, to: Path) -> None:
    with _open(urllib.request.Request(address)) as answer, to.open("wb") as file:
        shutil.copyfileobj(answer, file, 1 << 20)


def _by_ranges(address: str, to: Path, size: int, say: Say) -> None:
    progress = _Progress(size, say)
    with to.open("wb") as file:
        file.truncate(size)

        def bring(start: int) -> None:
            end = min(start + RANGE, size)
            _tried(lambda: _range(address, file.fileno(), start, end))
            progress.add(end - start)

        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(bring, range(0, size, RANGE)))


def _range(address: str, file: int, start: int, end: int) -> None:
    at = start
    with _open(urllib.request.Request(address, headers={"Range": f"bytes={start}-{end - 1}"})) as answer:
        if answer.status != 206:
            raise OSError(f"the server answered {answer.status} to a range")
        while chunk := answer.read(len(_ZEROS)):
            if chunk != _ZEROS[: len(chunk)]:
                os.pwrite(file, chunk, at)
            at += len(chunk)
    if at != end:
        raise OSError(f"the connection ended {end - at} bytes too early")


def _store(path: Path, address: str, say: Say) -> None:
    """Blocks at the same time, then their list: a blob is there whole or not at all."""
    size = path.stat().st_size
    progress = _Progress(size, say)
    starts = list(range(0, size, RANGE))
    ids = [_block(number) for number in range(len(starts))]

    def put(number: int) -> None:
        with path.open("rb") as file:
            file.seek(starts[number])
            data = file.read(RANGE)
        checksum = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        _tried(lambda: _put(address, _put_block(number), data, {"Content-MD5": checksum}))
        progress.add(len(data))

    try:
        with ThreadPoolExecutor(AT_ONCE // 2) as threads:  # a block is held in memory
            list(threads.map(put, range(len(starts))))
        listed = "".join(f"<Latest>{one}</Latest>" for one in ids)
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{listed}</BlockList>'.encode()
        _tried(lambda: _put(address, "comp=blocklist", body, {"Content-Type": "application/xml"}))
    except OSError as error:
        raise TransferFailed(f"{shown(address)}: {error}") from None


def _block(number: int) -> str:
    return base64.b64encode(f"{number:06d}".encode()).decode()


def _put_block(number: int) -> str:
    return f"comp=block&blockid={quote(_block(number), safe='')}"


def _put(address: str, query: str, data: bytes, headers: dict[str, str]) -> None:
    parts = urlsplit(address)
    target = urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, query)))))
    headers = {"x-ms-version": "2021-12-02", **headers}
    with _open(urllib.request.Request(target, data, headers, method="PUT")):
        pass


def _get(address: str) -> bytes:
    def get() -> bytes:
        with _open(urllib.request.Request(address)) as answer:
            return answer.read()

    return _tried(get)


def _tried(action: Callable[[], T]) -> T:
    for pause_s in _pauses():
        try:
            return action()
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in (408, 429):
                raise OSError(f"{error.code} {error.reason}") from None
            failed: OSError = OSError(f"{error.code} {error.reason}")
        except (OSError, http.client.HTTPException) as error:
            failed = OSError(str(error) or type(error).__name__)
        if pause_s is None:
            raise failed
        time.sleep(pause_s)
    raise AssertionError


def _pauses() -> Iterator[float | None]:
    yield from (2.0**number for number in range(TRIES - 1))
    yield None


def _open(request: urllib.request.Request) -> http.client.HTTPResponse:
    return urllib.request.urlopen(request, timeout=TIMEOUT_S)


class _Progress:
    """Says how far a transfer is, not too often."""

    def __init__(self, total: int, say: Say) -> None:
        self._total, self._say = total, say
        self._done, self._told = 0, time.monotonic()

    def add(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._told >= TOLD_S:
            self._told = now
            self._say(f"{self._done / 1e9:.1f} of {self._total / 1e9:.1f} GB")
