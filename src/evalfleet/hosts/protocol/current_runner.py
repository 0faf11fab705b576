"""A link to a runner of this version on another machine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio

from evalfleet.errors import RunnerUnavailable
from evalfleet.hosts.protocol.link import PROTOCOL, CommandRefused, RunnerLink
from evalfleet.model import JsonObject
from evalfleet.runner.build import build

_HELLO_S = 150.0  # the first answer may wait for a runner that ends what its dead predecessor left, on a host far away
_ENDED_S = 30.0


@asynccontextmanager
async def current_link(
    open_link: Callable[[], AbstractAsyncContextManager[RunnerLink]], fence: JsonObject
) -> AsyncGenerator[RunnerLink]:
    """A link to a runner of this version. One of another version is used only while it is busy and its protocol is compatible.

    Args:
        open_link: opens a link, and starts a runner of this version if none runs.
        fence: run, epoch and home, for the runner.
    """
    _, version = build()
    for is_second in (False, True):
        async with open_link() as link:
            try:
                hello = await in_time(link, "hello", protocol=PROTOCOL, notices=True, **fence)
            except CommandRefused as error:
                if error.code != "bad_request":
                    raise
                hello: JsonObject = {"version": None}
            if hello["version"] != version and not is_second and await _ended(link):
                continue
            if hello["version"] is None:
                raise RunnerUnavailable(
                    "its runner is of another evalfleet version with another protocol and still has tasks; "
                    "wait for them, or finish them with that version"
                )
            yield link
            return


async def in_time(link: RunnerLink, do: str, **fields: Any) -> JsonObject:
    """Send one of the first requests over a link. Raises RunnerUnavailable where the answer takes too long."""
    with anyio.move_on_after(_HELLO_S):
        return await link.request(do, **fields)
    raise RunnerUnavailable(f"its runner has not answered for {_HELLO_S:.0f} s")


async def _ended(link: RunnerLink) -> bool:
    """Ask the runner to end if it is idle; True if it has ended."""
    answer = await in_time(link, "shutdown", if_idle=True)
    if answer.get("ended"):
        with anyio.move_on_after(_ENDED_S):
            await link.gone.wait()
            return True
    return False
