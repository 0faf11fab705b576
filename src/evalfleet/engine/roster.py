"""The workers that a run may use: the slots of its hosts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


class Roster:
    """Hosts in their order, each with its workers `host-1`, `host-2`, … A worker keeps its name and place for good.

    Args:
        most: how many workers the run asked for. A host that sets no limit of its own has so many.
    """

    def __init__(self, most: int, hosts: Iterable[tuple[str, int | None]]) -> None:
        self._given = dict(hosts)
        self.is_remote = None not in self._given.values()
        self.barred: frozenset[str] = frozenset()  # workers, and hosts, that get no more work
        self.resize(most)

    def resize(self, most: int) -> None:
        """Let the run have so many workers from now on. Fixed shards would move."""
        self.most = most
        self._slots = {name: most if slots is None else slots for name, slots in self._given.items()}
        turns = max(self._slots.values(), default=0)
        # One of each host in turn, so that fixed shards lie on all hosts.
        everybody = [
            f"{name}-{turn}" for turn in range(1, turns + 1) for name, slots in self._slots.items() if turn <= slots
        ]
        self.shards: Sequence[str] = everybody[:most]

    @property
    def hosts(self) -> Collection[str]:
        return self._slots.keys()

    def is_barred(self, worker: str) -> bool:
        return worker in self.barred or host_of(worker) in self.barred

    def workers(self, host: str) -> list[str]:
        return [f"{host}-{turn}" for turn in range(1, self._slots.get(host, 0) + 1)]


def host_of(worker: str) -> str:
    """Return the host whose slot a worker is."""
    return worker.rpartition("-")[0]
