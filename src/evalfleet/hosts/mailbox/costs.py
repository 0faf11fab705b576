"""What the requests to a box cost. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from evalfleet.hosts.mailbox.pilot_view import Beat  # brings cryptography

# List prices of the hot tier with LRS in East US; other regions differ by some cents. Deletions are free.
READ_USD = 0.004 / 10_000
WRITE_USD = 0.05 / 10_000  # lists, too
_SHORTEST_H = 1 / 60


class BoxCosts(Struct, frozen=True, kw_only=True):
    """The requests of a pilot and of all controllers to its box since it started."""

    requests: int
    requests_per_hour: float
    usd: float
    usd_per_hour: float


def box_costs(beat: Beat, address: str) -> BoxCosts:
    """What the beat's numbers mean for a box at that address. A folder costs nothing."""
    reads, writes = beat.reads + beat.controllers_reads, beat.writes + beat.controllers_writes
    hours = max((beat.at - beat.started_at) / 3600, _SHORTEST_H)
    usd = reads * READ_USD + writes * WRITE_USD if address.startswith(("https://", "http://")) else 0.0
    requests = reads + writes
    return BoxCosts(
        requests=requests, requests_per_hour=requests / hours, usd=usd, usd_per_hour=usd / hours if usd else 0.0
    )
