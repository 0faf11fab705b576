"""Which running tasks are worth a second copy: those on a host that is slow against its peers. Pure.

Durations are compared as shares of what their tasks usually take, so that a host with long tasks is not taken for a slow
one. A task that is merely long is never doubled: a second chance for it could raise a score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

SLOW = 1.5  # times the median of its peers
LEAST = 2  # verdicts of a host that tell
SILENT = 3.0  # times the slowest verdict of its peers: a host that has given none by then is slow, too


class Running(Struct, frozen=True, kw_only=True):
    """A live attempt. `share`: the time that it has run, as a share of what its task usually takes."""

    attempt: str
    host: str
    share: float


def slow_hosts(shares: Mapping[str, Sequence[float]]) -> frozenset[str]:
    """Hosts whose verdicts took much longer than those of the others.

    Args:
        shares: of each host, how long its verdicts took, as shares of what their tasks usually take.
    """
    from statistics import median

    paces = {host: median(found) for host, found in shares.items() if len(found) >= LEAST}
    return frozenset(
        host
        for host, pace in paces.items()
        if (others := [one for name, one in paces.items() if name != host]) and pace >= SLOW * median(others)
    )


def worth_a_copy(running: Iterable[Running], shares: Mapping[str, Sequence[float]]) -> list[Running]:
    """The attempts to double, the one that has run longest first."""
    slow = slow_hosts(shares)

    def is_slow(one: Running) -> bool:
        if one.host in slow:
            return True
        peers = [share for host, found in shares.items() if host != one.host for share in found]
        return not shares.get(one.host) and len(peers) >= LEAST and one.share >= SILENT * max(peers)

    return sorted(filter(is_slow, running), key=lambda one: -one.share)
