"""Puts the files of ended attempts into the box at once, so that they outlive the node. Only the controller can read them."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from typing import IO, cast

from . import names
from .keys import signed
from .runner_process import RunnerError
from .sealed import SealedWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .carrier import Carrier, Upload
    from .keys import Identity, PublicIdentity
    from .runner_process import RunnerClient

FIXED = ("journal.jsonl", "stdout.log", "stderr.log", "result.json", "events.jsonl", "task.json")
PIECE = 1 << 19
FILE_BYTES = 4 << 30
ALL_BYTES = 32 << 30


class AttemptUpload:
    """Writes the archives of attempts."""

    def __init__(self, carrier: Carrier, identity: Identity, controller: PublicIdentity, generation: int) -> None:
        self._carrier = carrier
        self._identity = identity
        self._controller = controller
        self._generation = generation

    def put(self, client: RunnerClient, attempt: dict[str, Any]) -> None:
        """Upload the files of one ended attempt. Raises OSError."""
        name = str(attempt["attempt"])
        upload = _Summed(self._carrier.upload(names.archive(name)))
        try:
            sealed = SealedWriter(self._controller, upload.write)
            file = cast("IO[bytes]", sealed)
            with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive:
                journal = self._add_all(archive, client, name)
            sealed.finish()
            upload.finish()
        finally:
            upload.discard()
        fields = {
            "attempt": name,
            "run": attempt["run"],
            "generation": self._generation,
            "size": upload.size,
            "sha256": upload.sum.hexdigest(),
            "has_end": journal,
        }
        self._carrier.put(names.receipt(name), signed(self._identity, "receipt", fields))

    def drop(self, attempts: list[str]) -> None:
        self._carrier.delete([one for name in attempts for one in (names.receipt(name), names.archive(name))])

    def _add_all(self, archive: tarfile.TarFile, client: RunnerClient, name: str) -> bool:
        journal = _Remote(client, name, "journal.jsonl")
        listed = _artifacts(journal.all())
        total = 0
        for path in (*FIXED, *("artifacts/" + one for one in listed or ())):
            file = _Remote(client, name, path)
            if file.size is None or file.size > FILE_BYTES or total + file.size > ALL_BYTES:
                continue  # missing or too large: the controller says so when it collects
            total += file.size
            entry = tarfile.TarInfo(path)
            entry.size = file.size
            archive.addfile(entry, io.BufferedReader(file, PIECE))
        return listed is not None


class _Summed:
    """An upload that knows its size and sum."""

    def __init__(self, upload: Upload) -> None:
        self._upload = upload
        self.finish = upload.finish
        self.discard = upload.discard
        self.size = 0
        self.sum = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self.size += len(data)
        self.sum.update(data)
        self._upload.write(data)


class _Remote(io.RawIOBase):
    """A file of an attempt, read through its runner, which follows no links and knows what is not on the disk yet."""

    def __init__(self, client: RunnerClient, attempt: str, path: str) -> None:
        super().__init__()
        self._client = client
        self._attempt = attempt
        self._path_there = path
        self._offset = 0
        try:
            self.size: int | None = int(self._fetch(1)["size"])
        except FileNotFoundError:
            self.size = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.size is None:
            return 0
        wanted = min(len(buffer), PIECE, self.size - self._offset)
        if wanted <= 0:
            return 0
        data = base64.b64decode(self._fetch(wanted)["data"])[:wanted]
        if not data:
            raise OSError("%s of attempt %s shrank while it was read" % (self._path_there, self._attempt))
        buffer[: len(data)] = data
        self._offset += len(data)
        return len(data)

    def all(self) -> bytes:
        return io.BufferedReader(self, PIECE).read()

    def _fetch(self, limit: int) -> dict[str, Any]:
        try:
            return self._client.request(
                "fetch", attempt=self._attempt, path=self._path_there, offset=self._offset, limit=limit
            )
        except RunnerError as error:
            raise FileNotFoundError(str(error)) from None


def _artifacts(journal: bytes) -> list[str] | None:
    """The artifacts that the end record lists; None if there is no end record."""
    try:
        end = json.loads(journal.decode().splitlines()[-1])
        if end.get("type") != "ended":
            return None
        return [str(one["path"]) for one in end.get("artifacts") or ()]
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
