"""What carries a box, on the pilot's side: a folder, or a container of blobs behind a signed address."""

from __future__ import annotations

import base64
import os
import re
import threading
import urllib.error
import urllib.parse
import urllib.request
import uuid
from xml.etree import ElementTree

from .pace import BLOBS, FOLDER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

    from .pace import Pace

    class Upload(Protocol):
        """A large object that is written in pieces. It appears when it is finished."""

        def write(self, data: bytes) -> None: ...

        def finish(self) -> None: ...

        def discard(self) -> None: ...

    class Carrier(Protocol):
        """The objects of one box. Methods raise CarrierError when the carrier does not work now, BoxClosed when it refuses us."""

        pace: Pace
        traffic: Traffic

        def put(self, name: str, data: bytes, new: bool = False) -> None:
            """Write an object. Raises FileExistsError if `new` is set and it exists."""
            ...

        def get(self, name: str, start: int = 0, limit: int | None = None) -> bytes | None:
            """The bytes of an object; None if there is none."""
            ...

        def list(self, prefix: str) -> list[tuple[str, int]]:
            """Names and sizes of the objects whose names begin so, in order."""
            ...

        def delete(self, names: Iterable[str]) -> None:
            """Delete objects. Missing ones are ignored."""
            ...

        def upload(self, name: str) -> Upload: ...


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*/?", re.ASCII)
TIMEOUT_S = 30.0
BLOCK = 4 << 20
VERSION = "2021-12-02"
NOT_THERE, EXISTS, REFUSED = 404, (409, 412), (401, 403)


class CarrierError(OSError):
    """The carrier did not answer, or failed. Trying again may help."""


class BoxClosed(CarrierError):
    """The carrier refuses us: the grant expired or was withdrawn, or the box was deleted."""


class Traffic:
    """Counts requests, by what they cost: reads, writes (with lists), and deletions, which are free."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reads = 0
        self.writes = 0
        self.deletions = 0
        self._reported = (0, 0)

    def read(self) -> None:
        with self._lock:
            self.reads += 1

    def write(self) -> None:
        with self._lock:
            self.writes += 1

    def deletion(self) -> None:
        with self._lock:
            self.deletions += 1

    def unreported(self) -> tuple[int, int]:
        """Reads and writes since the last call."""
        with self._lock:
            (reads, writes), self._reported = self._reported, (self.reads, self.writes)
            return self.reads - reads, self.writes - writes

    def add(self, reads: int, writes: int) -> None:
        with self._lock:
            self.reads += reads
            self.writes += writes


def open_carrier(grant: str) -> Carrier:
    """The carrier that a grant leads to: the signed address of a container, or the path of a folder."""
    if grant.startswith(("https://", "http://")):
        return BlobCarrier(grant)
    return FolderCarrier(grant)


class FolderCarrier:
    """A folder, such as one on a file system that all nodes of a cluster share."""

    pace = FOLDER

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.traffic = Traffic()

    def put(self, name: str, data: bytes, new: bool = False) -> None:
        self.traffic.write()
        upload = FileUpload(self._path(name), new=new)
        try:
            upload.write(data)
            upload.finish()
        except FileExistsError:
            raise
        except OSError as error:
            raise self._problem(error) from error
        finally:
            upload.discard()

    def get(self, name: str, start: int = 0, limit: int | None = None) -> bytes | None:
        self.traffic.read()
        path = self._path(name)
        for is_second in (False, True):
            try:
                with open(path, "rb") as file:
                    file.seek(start)
                    return file.read(-1 if limit is None else limit)
            except FileNotFoundError:
                if is_second:
                    break
                # A network file system remembers for a while what was missing; listing the folder makes it look again.
                try:
                    os.listdir(os.path.dirname(path))
                except FileNotFoundError:
                    break
                except OSError as error:
                    raise self._problem(error) from error
            except OSError as error:
                raise self._problem(error) from error
        if not os.path.isdir(self._folder):
            raise BoxClosed("the folder %s is gone" % self._folder)
        return None

    def list(self, prefix: str) -> list[tuple[str, int]]:
        self.traffic.write()
        if not os.path.isdir(self._folder):
            raise BoxClosed("the folder %s is gone" % self._folder)
        top = os.path.join(self._folder, os.path.dirname(prefix))
        found: list[tuple[str, int]] = []
        for parent, _, names in os.walk(top):
            for name in names:
                path = os.path.join(parent, name)
                below = os.path.relpath(path, self._folder)
                if not name.startswith(".") and below.startswith(prefix):
                    try:
                        found.append((below, os.stat(path).st_size))
                    except FileNotFoundError:
                        pass
        return sorted(found)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.traffic.deletion()
            try:
                os.unlink(self._path(name))
            except FileNotFoundError:
                pass
            except OSError as error:
                raise self._problem(error) from error

    def upload(self, name: str) -> Upload:
        self.traffic.write()
        return FileUpload(self._path(name), new=False)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, checked(name))

    def _problem(self, error: OSError) -> CarrierError:
        if isinstance(error, PermissionError) or not os.path.isdir(self._folder):
            return BoxClosed(str(error))
        return CarrierError(str(error))


class FileUpload:
    """A file that appears under its name when it is complete and on the disk."""

    def __init__(self, path: str, *, new: bool) -> None:
        folder, name = os.path.split(path)
        self._path = path
        self._new = new
        self._partial = os.path.join(folder, ".%s.%s" % (name, uuid.uuid4().hex))
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._file = os.fdopen(os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def finish(self) -> None:
        """Raises FileExistsError if the file must be new and is not."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if self._new:
            os.link(self._partial, self._path)
        else:
            os.rename(self._partial, self._path)

    def discard(self) -> None:
        self._file.close()
        try:
            os.unlink(self._partial)
        except FileNotFoundError:
            pass


class BlobCarrier:
    """A container of Azure's blob storage, by an address that is signed for it."""

    pace = BLOBS

    def __init__(self, address: str) -> None:
        self._base, _, self._query = address.partition("?")
        self._base = self._base.rstrip("/")
        self.traffic = Traffic()

    def put(self, name: str, data: bytes, new: bool = False) -> None:
        self.traffic.write()
        headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"}
        if new:
            headers["If-None-Match"] = "*"
        status, _ = self._ask("PUT", name, data, headers, passes=EXISTS if new else ())
        if status in EXISTS:
            raise FileExistsError(name)

    def get(self, name: str, start: int = 0, limit: int | None = None) -> bytes | None:
        self.traffic.read()
        headers: dict[str, str] = {}
        if start or limit is not None:
            headers["Range"] = "bytes=%d-%s" % (start, "" if limit is None else start + limit - 1)
        status, data = self._ask("GET", name, None, headers, passes=(NOT_THERE, 416))
        return None if status == NOT_THERE else b"" if status == 416 else data

    def list(self, prefix: str) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        marker = ""
        while True:
            self.traffic.write()
            query = {"restype": "container", "comp": "list", "prefix": prefix, "marker": marker}
            page, marker = parse_list(self._ask("GET", None, None, {}, query)[1])
            found += page
            if not marker:
                return found

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.traffic.deletion()
            self._ask("DELETE", name, None, {}, passes=(NOT_THERE,))

    def upload(self, name: str) -> Upload:
        return BlockUpload(self, name)

    def put_block(self, name: str, block: str, data: bytes) -> None:
        self.traffic.write()
        self._ask("PUT", name, data, {}, {"comp": "block", "blockid": block})

    def put_list(self, name: str, blocks: list[str]) -> None:
        self.traffic.write()
        self._ask("PUT", name, block_list(blocks), {}, {"comp": "blocklist"})

    def _ask(
        self,
        method: str,
        name: str | None,
        data: bytes | None,
        headers: dict[str, str],
        query: dict[str, str] | None = None,
        passes: tuple[int, ...] = (),
    ) -> tuple[int, bytes]:
        more = urllib.parse.urlencode(query or {})
        path = "/" + urllib.parse.quote(checked(name)) if name is not None else ""
        address = "%s%s?%s" % (self._base, path, "&".join(part for part in (more, self._query) if part))
        request = urllib.request.Request(address, data, dict(headers, **{"x-ms-version": VERSION}), method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                told = error.read(4096)
            code = error.headers.get("x-ms-error-code") or ""
            if error.code in REFUSED or code.startswith("Container"):
                raise BoxClosed("%s: status %d %s" % (shown(self._base), error.code, code)) from None
            if error.code in passes:
                return error.code, told
            raise CarrierError("%s: status %d %s" % (shown(self._base), error.code, code)) from None
        except OSError as error:  # its text may hold the signed address
            raise CarrierError("%s: %s" % (shown(self._base), getattr(error, "reason", None) or type(error))) from None


class BlockUpload:
    """A blob that is written in blocks."""

    def __init__(self, carrier: BlobCarrier, name: str) -> None:
        self._carrier = carrier
        self._name = name
        self._buffer = bytearray()
        self._blocks: list[str] = []

    def write(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= BLOCK:
            self._put(bytes(self._buffer[:BLOCK]))
            del self._buffer[:BLOCK]

    def finish(self) -> None:
        if not self._blocks:
            self._carrier.put(self._name, bytes(self._buffer))
            return
        if self._buffer:
            self._put(bytes(self._buffer))
        self._carrier.put_list(self._name, self._blocks)

    def discard(self) -> None:
        """Blocks that no list names are dropped by the service."""

    def _put(self, data: bytes) -> None:
        block = base64.b64encode(b"%08d" % len(self._blocks)).decode()
        self._carrier.put_block(self._name, block, data)
        self._blocks.append(block)


def checked(name: str) -> str:
    """Raises ValueError for a name that could lead out of the box."""
    if not NAME.fullmatch(name):
        raise ValueError("%r is not a name of an object" % name)
    return name


def shown(address: str) -> str:
    """The address without its signature."""
    return address.partition("?")[0]


def parse_list(data: bytes) -> tuple[list[tuple[str, int]], str]:
    """A page of names and sizes, and the marker of the next page."""
    try:
        page = ElementTree.fromstring(data.decode("utf-8-sig"))
        found = [
            (blob.findtext("Name") or "", int(blob.findtext("Properties/Content-Length") or 0))
            for blob in page.iter("Blob")
        ]
    except (ElementTree.ParseError, ValueError) as error:
        raise CarrierError("a list of blobs cannot be read: %s" % error) from None
    return found, page.findtext("NextMarker") or ""


def block_list(blocks: list[str]) -> bytes:
    listed = "".join("<Latest>%s</Latest>" % block for block in blocks)
    return ('<?xml version="1.0" encoding="utf-8"?><BlockList>%s</BlockList>' % listed).encode()
