"""What several ask for at the same time is fetched once."""

from __future__ import annotations

import asyncio

import pytest

from evalfleet.errors import NotFound
from evalfleet.web.coalescing import Shared

pytestmark = pytest.mark.anyio


async def test_one_fetch_for_all_who_ask_and_who_leaves_stops_nobody():
    shared: Shared[int] = Shared(60.0, 10)
    fetched: list[int] = []
    go = asyncio.Event()

    async def fetch() -> int:
        fetched.append(1)
        await go.wait()
        return 7

    waiting = [asyncio.ensure_future(shared.get("a", fetch)) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    go.set()
    told = await asyncio.gather(*waiting, return_exceptions=True)
    assert told[1:] == [7, 7, 7, 7]
    assert await shared.get("a", fetch) == 7
    assert len(fetched) == 1
    shared.forget("a")
    assert await shared.get("a", fetch) == 7
    assert len(fetched) == 2


async def test_errors_are_shared_and_old_answers_are_fetched_again():
    shared: Shared[int] = Shared(0.0, 2)
    tried: list[int] = []

    async def fail() -> int:
        tried.append(1)
        await asyncio.sleep(0)
        raise NotFound("nothing")

    told = await asyncio.gather(*(shared.get("a", fail) for _ in range(3)), return_exceptions=True)
    assert [str(one) for one in told] == ["nothing"] * 3
    assert len(tried) == 1
    await asyncio.sleep(0.01)  # longer than an answer is good: not at all
    with pytest.raises(NotFound):
        await shared.get("a", fail)
    assert len(tried) == 2
