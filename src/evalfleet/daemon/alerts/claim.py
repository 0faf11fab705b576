"""The claim to send alerts and to act on them. The store gives it to one service of all processes of a home, for the time of a lease."""

from __future__ import annotations

import uuid

from evalfleet.daemon.alerts.access import Access

LEASE_S = 30.0  # longer than one message may take


class Claim:
    """Used in the event loop's thread."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._token = uuid.uuid4().hex

    async def hold(self) -> bool:
        """Take the claim, or renew it. False: another service has it."""
        return await self._access.write(lambda store: store.daemon.claim_alerts(self._token, LEASE_S))

    async def release(self) -> None:
        await self._access.write(lambda store: store.daemon.release_alerts(self._token))
