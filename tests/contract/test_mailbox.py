"""Hosts behind a mailbox keep the same promises as all others, whatever carries their boxes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.pilots import in_an_hour, pilot, said_hello

from evalfleet.hosts.mailbox.backend import MailboxBackend, MailboxHostSpec
from evalfleet.hosts.mailbox.boxes import FolderBoxes
from evalfleet.layout import Home
from evalfleet.testing.backend_contract import BackendContract


class TestFolder(BackendContract):
    @pytest.fixture
    async def backend(self, home: Path, tmp_path: Path) -> AsyncIterator[MailboxBackend]:
        boxes = FolderBoxes(tmp_path / "boxes")
        box = await boxes.open("w1", 1, in_an_hour())
        with pilot(Home(home), box, tmp_path / "node"):
            spec = MailboxHostSpec(name="w1", generation=1, slots=2)
            yield await said_hello(MailboxBackend(Home(home), spec, boxes.carrier(box.address)))
