"""Hosts behind a mailbox keep the same promises as all others, whatever carries their boxes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.azurite import KEY, Azurite, azurite
from tests.support.bad_carrier import BadCarrier
from tests.support.pilots import in_an_hour, pilot, said_hello

from evalfleet.hosts.mailbox.backend import MailboxBackend, MailboxHostSpec
from evalfleet.hosts.mailbox.blobs.account import BlobLogin
from evalfleet.hosts.mailbox.blobs.boxes import BlobBoxes
from evalfleet.hosts.mailbox.boxes import FolderBoxes
from evalfleet.layout import Home
from evalfleet.testing.backend_contract import BackendContract

SPEC = MailboxHostSpec(name="w1", generation=1, slots=2)


class TestFolder(BackendContract):
    @pytest.fixture
    async def backend(self, home: Path, tmp_path: Path) -> AsyncIterator[MailboxBackend]:
        boxes = FolderBoxes(tmp_path / "boxes")
        box = await boxes.open("w1", 1, in_an_hour())
        with pilot(Home(home), box, tmp_path / "node"):
            yield await said_hello(MailboxBackend(Home(home), SPEC, boxes.carrier(box.address)))


class TestBadCarrier(BackendContract):
    """Over a carrier that delays, doubles, reorders and fails."""

    @pytest.fixture
    async def backend(
        self, home: Path, tmp_path: Path, request: pytest.FixtureRequest
    ) -> AsyncIterator[MailboxBackend]:
        boxes = FolderBoxes(tmp_path / "boxes")
        box = await boxes.open("w1", 1, in_an_hour())
        carrier = BadCarrier(boxes.carrier(box.address), seed=len(request.node.name))
        with pilot(Home(home), box, tmp_path / "node"):
            yield await said_hello(MailboxBackend(Home(home), SPEC, carrier))
        assert carrier.failed + carrier.doubled + carrier.delayed > 0


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with azurite(tmp_path_factory.mktemp("azurite") / "data") as server:
        yield server


@pytest.mark.slow
class TestBlobs(BackendContract):
    @pytest.fixture
    async def backend(self, home: Path, tmp_path: Path, storage: Azurite) -> AsyncIterator[MailboxBackend]:
        boxes = BlobBoxes(storage.url, BlobLogin(key=KEY), str(tmp_path))
        box = await boxes.open("w1", 1, in_an_hour())
        try:
            with pilot(Home(home), box, tmp_path / "node"):
                yield await said_hello(MailboxBackend(Home(home), SPEC, boxes.carrier(box.address)))
            await boxes.delete("w1", 1)
        finally:
            await boxes.aclose()
