"""The files of ended attempts in a box. They can be read after the node is gone."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import tarfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct

from evalfleet.errors import HostUnreachable
from evalfleet.hosts.mailbox.carrier import Carrier
from evalfleet.hosts.mailbox.stream import insist
from evalfleet.model import JsonObject
from evalfleet.pilot import names
from evalfleet.pilot.carrier import CarrierError
from evalfleet.pilot.keys import BadSignature, Identity, PublicIdentity, read_signed
from evalfleet.pilot.sealed import SealedReader

PIECE = 4 << 20
OUTAGE_S = 60.0


class Receipt(Struct, frozen=True, kw_only=True):
    """What the pilot signed after it had uploaded an attempt."""

    attempt: str
    run: str
    generation: int
    size: int
    sha256: str
    has_end: bool


class UploadedAttempts:
    """The archives of one box. Methods raise HostUnreachable where the carrier fails or an archive is forged."""

    def __init__(self, carrier: Carrier, controller: Identity, pilot: PublicIdentity, generation: int) -> None:
        self._carrier = carrier
        self._controller = controller
        self._pilot = pilot
        self._generation = generation

    async def list(self) -> list[Receipt]:
        """What is there, by attempt. Forged receipts are left out."""
        try:
            found = await insist(lambda: self._carrier.list(names.ATTEMPTS), OUTAGE_S)
        except CarrierError as error:
            raise HostUnreachable(f"its box: {error}") from error
        attempts = [name[len(names.ATTEMPTS) : -len(".json")] for name, _ in found if name.endswith(".json")]
        receipts: list[Receipt] = []
        for attempt in attempts:
            with suppress(HostUnreachable):
                receipt = await self.receipt(attempt)
                if receipt is not None:
                    receipts.append(receipt)
        return receipts

    async def receipt(self, attempt_id: str) -> Receipt | None:
        """The receipt of an attempt; None if it is not uploaded."""
        try:
            data = await insist(lambda: self._carrier.get(names.receipt(attempt_id)), OUTAGE_S)
            if data is None:
                return None
            found = msgspec.convert(read_signed(self._pilot, "receipt", data), Receipt)
        except (CarrierError, BadSignature, msgspec.ValidationError) as error:
            raise HostUnreachable(f"its box: {error}") from error
        if (found.attempt, found.generation) != (attempt_id, self._generation):
            raise HostUnreachable(f"its box: the receipt of attempt {attempt_id} belongs to another attempt")
        return found

    async def fetch(self, receipt: Receipt, target: Path) -> None:
        """Bring an archive here and open it. Raises OSError where it cannot be written."""
        name, total = names.archive(receipt.attempt), hashlib.sha256()
        reader, at = SealedReader(self._controller), 0
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            async with await anyio.open_file(target, "wb") as file:
                while at < receipt.size:
                    start = at
                    data = await insist(lambda start=start: self._carrier.get(name, start, PIECE), OUTAGE_S)
                    if not data:
                        raise BadSignature(f"the archive of attempt {receipt.attempt} is cut short")
                    at += len(data)
                    total.update(data)
                    await file.write(reader.feed(data))
                reader.finish()
                if total.hexdigest() != receipt.sha256:
                    raise BadSignature(f"the archive of attempt {receipt.attempt} is not the one that was uploaded")
        except (CarrierError, BadSignature) as error:
            await anyio.Path(target).unlink(missing_ok=True)
            raise HostUnreachable(f"its box: {error}") from error

    async def drop(self, attempt_ids: Iterable[str]) -> None:
        """Delete archives whose files are stored here."""
        wanted = [one for name in attempt_ids for one in (names.receipt(name), names.archive(name))]
        try:
            await insist(lambda: self._carrier.delete(wanted), OUTAGE_S)
        except CarrierError as error:
            raise HostUnreachable(f"its box: {error}") from error


class ArchiveLink:
    """Answers `hello` and `fetch` from an archive, as the runner of its attempt would: see `hosts.remote.collect.AttemptSource`."""

    def __init__(self, attempt_id: str, archive: Path) -> None:
        self._attempt_id = attempt_id
        self._file = archive.open("rb")
        try:
            with tarfile.open(fileobj=self._file, mode="r:") as found:
                self._places = {one.name: (one.offset_data, one.size) for one in found if one.isreg()}
        except BaseException as error:
            self._file.close()
            if isinstance(error, tarfile.TarError):
                raise OSError(errno.EBADMSG, f"the archive of attempt {attempt_id} is damaged: {error}") from error
            raise

    def close(self) -> None:
        self._file.close()

    def read(self, path: str) -> bytes:
        """A whole file; empty if it is not there."""
        offset, size = self._places.get(path, (0, 0))
        return os.pread(self._file.fileno(), size, offset)

    async def send_many(self, messages: Iterable[JsonObject]) -> list[JsonObject]:
        return await anyio.to_thread.run_sync(lambda: [self._answer(one) for one in messages])

    def _answer(self, message: JsonObject) -> JsonObject:
        if message["do"] == "hello":
            return {"ok": True, "attempts": [{"attempt": self._attempt_id, "state": "ended"}]}
        place = self._places.get(message["path"])
        if place is None:
            return {"ok": False, "errno": errno.ENOENT, "message": f"{message['path']} was not uploaded"}
        offset, size = place
        start = min(int(message["offset"]), size)
        data = os.pread(self._file.fileno(), min(int(message["limit"]), size - start), offset + start)
        return {"ok": True, "data": base64.b64encode(data).decode(), "size": size}
