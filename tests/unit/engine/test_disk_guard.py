"""Nothing starts while the home's disk is almost full; what runs goes on, and the run goes on by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.engine_play import PATIENT, Play, end_all, host, opened, played

from evalfleet.daemon.alerts.run_facts import full_disk
from evalfleet.engine.placement import admission, disk_guard
from evalfleet.engine.placement.disk_guard import DiskGuard, Space, kept_free
from evalfleet.report.live import live_state

pytestmark = pytest.mark.anyio

GB = 10**9


def test_how_much_is_kept() -> None:
    assert kept_free(None, 1000 * GB) == GB
    assert kept_free(None, 2 * GB) == GB // 10
    assert kept_free(3 * GB, 2 * GB) == 3 * GB
    assert kept_free(0, 2 * GB) == 0


async def test_a_run_waits_for_room_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [5 * GB]

    class Watched(DiskGuard):
        def __init__(self, *given: object) -> None:
            super().__init__(*given, space=lambda _: Space(free[0], 100 * GB))  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(admission, "DiskGuard", Watched)
    monkeypatch.setattr(disk_guard, "LOOK_S", 0.0)  # at every step
    box = host("box", slots=1)

    def waits(play: Play) -> tuple[str | None, str | None]:
        with opened(tmp_path) as reader:
            return live_state(reader, play.run).waits, full_disk(reader.events.workers(play.run.id))

    async with played(Play(tmp_path, 3, box), replace(PATIENT, home=tmp_path)) as play:
        await play.launched(box)
        free[0] = GB - 1
        end_all(box)
        await play.until(lambda: "worker.disk_full" in dict(play.types()), "word of it")
        live, told = waits(play)
        assert live == told
        assert "999 MB free, and 1,000 MB are kept; `evalfleet prune` makes room" in str(told)
        assert len(play.attempts()) == 1
        free[0] = 2 * GB
        await play.until(lambda: "worker.disk_freed" in dict(play.types()), "room")
        assert waits(play) == (None, None)
        await play.finish()
    play.assert_all_ok()
