"""The storage account that carries messages of machines which cannot be called."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from evalfleet import config
from evalfleet.azure.settings import AzureSettings
from evalfleet.errors import ConfigError
from evalfleet.hosts.mailbox.blobs.account import BlobLogin
from evalfleet.hosts.mailbox.blobs.boxes import BlobBoxes, BlobStorage
from evalfleet.hosts.mailbox.boxes import Boxes, BoxStorage, FolderBoxes, FolderStorage

SCOPE = "https://storage.azure.com/.default"
KEY_VARIABLE = "AZURE_STORAGE_KEY"  # as Azure's own command line calls it
EMULATOR_ACCOUNT = "devstoreaccount1"
EMULATOR_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # of every Azurite
)


def open_boxes(settings: AzureSettings, credential: Any, owner: str) -> BlobBoxes:
    """The boxes of one pool; close them with `aclose`.

    Args:
        credential: of `Clients`; asked for a token unless the account's key is given.
        owner: such as HOME-POOL: no other pool sees the boxes.

    Raises ConfigError where no account is named.
    """
    if settings.storage is None:
        raise ConfigError(
            "azure.storage: not set; machines that cannot be called need a storage account: "
            "export EVALFLEET_AZURE_STORAGE=NAME, and give yourself the role Storage Blob Data Contributor on it."
        )
    return BlobBoxes(settings.storage, _login(settings, credential), owner, _certificate(settings))


@asynccontextmanager
async def opened_boxes(settings: AzureSettings, owner: str) -> AsyncGenerator[Boxes]:
    """The same inside the block, signed in as `settings` say; of an emulator also in a folder of this machine."""
    if settings.storage is not None and settings.storage.startswith("/"):
        yield FolderBoxes(Path(settings.storage) / owner)
        return
    from evalfleet.azure import clients  # brings Azure's libraries, which the emulator does without

    async with clients.opened(settings) as opened:
        boxes = open_boxes(settings, opened.credential, owner)
        try:
            yield boxes
        finally:
            with anyio.CancelScope(shield=True):
                await boxes.aclose()


@asynccontextmanager
async def opened_storage(settings: AzureSettings) -> AsyncGenerator[BoxStorage | None]:
    """The boxes of all homes and pools inside the block; None where the settings name no storage."""
    if settings.storage is None:
        yield None
        return
    if settings.storage.startswith("/"):
        yield FolderStorage(Path(settings.storage))
        return
    from evalfleet.azure import clients

    async with clients.opened(settings) as opened:
        storage = BlobStorage(settings.storage, _login(settings, opened.credential), _certificate(settings))
        try:
            yield storage
        finally:
            with anyio.CancelScope(shield=True):
                await storage.aclose()


def _certificate(settings: AzureSettings) -> str | None:
    return settings.certificate if (settings.storage or "").startswith("https:") else None


def _login(settings: AzureSettings, credential: Any) -> BlobLogin:
    if settings.storage is not None and settings.storage.endswith(f"/{EMULATOR_ACCOUNT}"):
        return BlobLogin(key=EMULATOR_KEY)
    key = config.environment().get(KEY_VARIABLE)
    if key:
        return BlobLogin(key=key)

    async def token() -> str:
        return (await credential.get_token(SCOPE)).token

    return BlobLogin(token=token)
