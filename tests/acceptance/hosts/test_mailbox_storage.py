"""Storage that fails for a while costs time and no work; a grant that is refused for good ends the pilot."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from tests.support.pilots import in_an_hour, pilot, said_hello

from evalfleet.azure.storage import EMULATOR_KEY
from evalfleet.emulator.faults import Fault, Faults
from evalfleet.emulator.storage import Storage, find_azurite
from evalfleet.errors import InputError
from evalfleet.hosts.base import Inbox
from evalfleet.hosts.mailbox.backend import MailboxBackend, MailboxHostSpec
from evalfleet.hosts.mailbox.blobs.account import BlobLogin
from evalfleet.hosts.mailbox.blobs.boxes import BlobBoxes
from evalfleet.hosts.mailbox.costs import box_costs
from evalfleet.hosts.mailbox.pilot_view import PilotView
from evalfleet.layout import Home
from evalfleet.testing.backend_contract import Watcher, launch

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def faults() -> Faults:
    return Faults(random.Random(7))


@pytest.fixture
async def storage(tmp_path: Path, faults: Faults) -> AsyncIterator[Storage]:
    try:
        find_azurite()
    except InputError as error:
        pytest.skip(str(error))
    async with Storage(faults.taken, tmp_path / "storage").running() as found:
        yield found


async def test_outages_of_storage_are_survived(storage: Storage, faults: Faults, home: Path, tmp_path: Path):
    boxes = BlobBoxes(storage.url, BlobLogin(key=EMULATOR_KEY), "pool")
    try:
        box = await boxes.open("w1", 1, in_an_hour())
        with pilot(Home(home), box, tmp_path / "node") as node:
            pinned = []
            spec = MailboxHostSpec(name="w1", generation=1, slots=2)
            carrier = boxes.carrier(box.address)
            backend = await said_hello(MailboxBackend(Home(home), spec, carrier, pin=pinned.append))
            inbox = Inbox()
            async with backend.acquire("run1", 1, inbox) as host:
                for fault in (
                    Fault(op="blob.*", preset="storage_outage", times=12),
                    Fault(op="blob.*", drop=True, probability=0.1, times=5),
                    Fault(op="blob.get", delay=0.5, probability=0.1, times=5),
                ):
                    faults.add(fault)
                watcher = Watcher(inbox)
                await host.launch([launch("run1.1.1", "true")])
                await watcher.until("run1.1.1")
                await host.collect("run1.1.1", tmp_path / "there", {})
                assert faults.listed()[0]["used"] == 12
            assert (tmp_path / "there" / "journal.jsonl").exists()
            beat = await PilotView(carrier, 1, pinned[0]).beat()
            assert beat is not None
            assert box_costs(beat, box.address).requests > 0
            assert "sig=" not in node.log(), "a log never shows the right to enter"
    finally:
        await boxes.aclose()


async def test_an_order_and_an_event_take_under_two_seconds_also_after_a_quiet_while(
    storage: Storage, home: Path, tmp_path: Path
):
    """By the clock of one machine: from the order to the task's process, and from there to the controller."""
    boxes = BlobBoxes(storage.url, BlobLogin(key=EMULATOR_KEY), "pool")
    marks = tmp_path / "marks"
    try:
        box = await boxes.open("w1", 1, in_an_hour())
        with pilot(Home(home), box, tmp_path / "node"):
            spec = MailboxHostSpec(name="w1", generation=1, slots=2)
            backend = await said_hello(MailboxBackend(Home(home), spec, boxes.carrier(box.address)))
            inbox = Inbox()
            async with backend.acquire("run1", 1, inbox) as host:
                watcher = Watcher(inbox)
                orders, events = [], []
                for number, quiet_s in enumerate((0.0, 4.0, 6.5)):
                    await anyio.sleep(quiet_s)  # in which both sides ask more and more rarely
                    attempt, ordered = f"run1.{number + 1}.1", time.time()
                    await host.launch([launch(attempt, "/bin/sh", "-c", f"date +%s.%N >> {marks}")])
                    await watcher.until(attempt)
                    told, ran = time.time(), float(marks.read_text().split()[-1])
                    orders.append(ran - ordered)
                    events.append(told - ran)
        assert max(orders) < 2.0, orders
        assert max(events) < 2.0, events
    finally:
        await boxes.aclose()


async def test_a_grant_that_is_refused_ends_a_pilot_at_its_start(
    storage: Storage, faults: Faults, home: Path, tmp_path: Path
):
    boxes = BlobBoxes(storage.url, BlobLogin(key=EMULATOR_KEY), "pool")
    try:
        box = await boxes.open("w1", 1, in_an_hour())
        faults.add(Fault(op="blob.*", preset="sas_expired"))
        with pilot(Home(home), box, tmp_path / "node") as node:
            assert await anyio.to_thread.run_sync(node.process.wait, 60) == 3
            assert "AuthenticationFailed" in node.log()
            assert "sig=" not in node.log()
    finally:
        await boxes.aclose()
