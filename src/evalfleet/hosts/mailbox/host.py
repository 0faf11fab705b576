"""A host behind a mailbox, as the engine uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from evalfleet.errors import HostUnreachable
from evalfleet.hosts.mailbox.uploaded import ArchiveLink, Receipt, UploadedAttempts
from evalfleet.hosts.protocol.link import PROTOCOL
from evalfleet.hosts.remote.collect import Collection, CollectLimits
from evalfleet.hosts.remote.host import RemoteHost

_UPLOAD_S = 120.0
_LOOK_S = 0.2


async def collect_uploaded(
    uploads: UploadedAttempts, receipt: Receipt, destination: Path, secrets: Mapping[str, str], limits: CollectLimits
) -> None:
    """Bring the files of an uploaded attempt to `destination`, by the rules for files from any other host."""
    archive = destination.with_name(f"{destination.name}.tar")
    await uploads.fetch(receipt, archive)
    link = ArchiveLink(receipt.attempt, archive)
    try:
        await Collection(link, receipt.attempt, destination, limits).collect(secrets)
    finally:
        link.close()
        archive.unlink(missing_ok=True)


class MailboxHost(RemoteHost):
    """Implements `Host`: everything goes through the link, except that files of ended attempts come from the box."""

    def __init__(self, *parts: Any, uploads: UploadedAttempts, **more: Any) -> None:
        """
        Args:
            parts, more: as for `RemoteHost`.
        """
        super().__init__(*parts, **more)
        self._uploads = uploads

    async def collect(
        self, attempt_id: str, destination: Path, secrets: Mapping[str, str], *, listed_only: bool = False
    ) -> None:  # only listed files are ever uploaded
        if await anyio.Path(destination).exists():
            return
        receipt = await self._receipt(attempt_id)
        if receipt is not None:
            await collect_uploaded(self._uploads, receipt, destination, secrets, self._caps)

    async def forget(self, attempt_ids: Sequence[str]) -> None:
        await super().forget(attempt_ids)
        await self._uploads.drop(attempt_ids)

    async def _receipt(self, attempt_id: str) -> Receipt | None:
        """Wait until the pilot has uploaded the attempt; None if there is no such attempt there, or it has not ended."""
        deadline = anyio.current_time() + _UPLOAD_S
        while anyio.current_time() < deadline:
            receipt = await self._uploads.receipt(attempt_id)
            if receipt is not None:
                return receipt
            hello = await self._link.request("hello", protocol=PROTOCOL)
            if [one["state"] for one in hello["attempts"] if one["attempt"] == attempt_id] != ["ended"]:
                return None
            await anyio.sleep(_LOOK_S)
        raise HostUnreachable(f"the files of attempt {attempt_id} were not uploaded within {_UPLOAD_S:.0f} s")
