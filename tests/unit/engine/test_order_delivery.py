"""Orders on their way to one host."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from evalfleet.engine.hosts.delivery import OrderDelivery
from evalfleet.errors import RunnerUnavailable
from evalfleet.hosts.base import Launch

pytestmark = pytest.mark.anyio


class _Deaf:
    """A host that loses the first word about its slots."""

    def __init__(self) -> None:
        self.wanted: list[int] = []
        self.calls = 0

    async def want(self, slots: int) -> None:
        self.calls += 1
        if self.calls == 1:
            raise RunnerUnavailable("it went astray")
        self.wanted.append(slots)

    async def launch(self, launches: Sequence[Launch]) -> None: ...


async def test_a_lost_word_about_slots_is_said_again():
    host, delivery = _Deaf(), OrderDelivery(patience_s=5.0)
    delivery.use(host)  # pyright: ignore[reportArgumentType]
    async with anyio.create_task_group() as group:
        group.start_soon(delivery.serve)
        for _ in range(3):
            delivery.put((), (), "", (), want=2)
            await delivery.delivered()
        group.cancel_scope.cancel()
    assert host.wanted == [2], "again after it was lost, and not after it was heard"
