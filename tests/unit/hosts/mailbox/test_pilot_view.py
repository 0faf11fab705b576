"""A pilot is taken for alive by its beats, whatever its clock shows; and it ends by itself when its box is closed for good."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from evalfleet.hosts.mailbox.carrier import FolderCarrier
from evalfleet.hosts.mailbox.pilot_view import FRESH_S, PilotFacts, PilotView
from evalfleet.pilot.carrier import BoxClosed
from evalfleet.pilot.keys import BadSignature, Identity, introduction, signed

pytestmark = pytest.mark.anyio
PILOT, THIEF = Identity(b"1" * 32), Identity(b"2" * 32)
FACTS = PilotFacts(identity=PILOT.public.text, generation=1)


@pytest.fixture
def carrier(tmp_path: Path) -> FolderCarrier:
    return FolderCarrier(str(tmp_path))


async def beat(carrier: FolderCarrier, number: int, at: float, pilot: Identity = PILOT, generation: int = 1) -> None:
    fields = {"number": number, "generation": generation, "at": at, "started_at": 0.0}
    await carrier.put("beat", signed(pilot, "beat", fields))


async def test_beats_tell_life_from_silence(carrier: FolderCarrier):
    view = PilotView(carrier, 1, FACTS)

    async def is_alive(now: float) -> bool:
        return await view.is_alive(0.0, lambda: now)

    assert not await is_alive(1000.0), "there is no beat yet"
    await beat(carrier, 1, 1000.0)
    assert await is_alive(1000.0 + FRESH_S - 1)
    assert not await is_alive(1000.0 + FRESH_S + 1)
    assert not await is_alive(1000.0 - FRESH_S - 1), "a clock that is far ahead proves nothing"


async def test_a_node_with_a_wrong_clock_is_alive_while_its_beats_change(carrier: FolderCarrier):
    view = PilotView(carrier, 1, FACTS)
    await beat(carrier, 1, 5.0)
    async with anyio.create_task_group() as group:
        group.start_soon(beat, carrier, 2, 35.0)
        assert await view.is_alive(20.0, lambda: 1e9)


async def test_forged_beats_and_hellos_are_refused(carrier: FolderCarrier):
    view = PilotView(carrier, 1, FACTS)
    await beat(carrier, 1, 0.0, THIEF)
    with pytest.raises(BadSignature):
        await view.beat()
    await beat(carrier, 1, 0.0, generation=2)
    with pytest.raises(BadSignature, match="generation"):
        await view.beat()
    for pilot, generation in ((THIEF, 1), (PILOT, 2)):
        await carrier.put("hello", introduction(pilot, "token", {"generation": generation}))
        with pytest.raises(BadSignature):
            await view.hello("token")
    await carrier.put("hello", introduction(PILOT, "token", {"generation": 1, "slots": "many"}))
    with pytest.raises(BadSignature, match="not valid"):
        await view.hello("token")


async def test_a_box_that_is_gone_is_closed(tmp_path: Path):
    with pytest.raises(BoxClosed):
        await PilotView(FolderCarrier(str(tmp_path / "gone")), 1, FACTS).beat()
