"""What the rest of evalfleet may ask of a store about GPUs. Part of `store.base.Store`.

Contract of every implementation: a GPU is never leased beyond what it has, whoever asks and however many ask at once. Those who
wait are served by `core.gpus.grant`. A lease or ticket whose owner is gone holds up nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from evalfleet.core.gpus.allocation import Grant
from evalfleet.core.gpus.cards import Card, Lease, Ticket
from evalfleet.model import Device, Run

CLEAN_S = 30.0  # a card in quarantine that looks well for so long is taken back
AVOID_S = 10.0  # how long nobody gets a card that an attempt found taken
RENEW_S = 1.0  # how often a ticket says that its owner looks
TICKET_S = 5.0  # a ticket at which nobody looked for so long is passed over, until somebody does
PROGRAM_S = 30.0  # the same for a lease of a program on another machine, which cannot be asked whether it lives


class Ask(Struct, frozen=True, kw_only=True):
    """GPUs of one host, for one task or program."""

    gpus: int
    hosts: frozenset[str]  # that it may go to now
    task_number: int | None = None
    memory_mb: int = 0  # of each; 0: whole cards
    least_mb: int = 0  # so much of a whole card must be free
    places: tuple[int, ...] = ()  # which cards, by index; (): all
    pack: bool = False
    waits: bool = True  # False: it takes what is left over now, and has no ticket


class Program(Struct, frozen=True, kw_only=True):
    """A process that leases GPUs for itself. Known by when it began on which boot of its machine, for pids come again."""

    token: str
    name: str  # for a person
    pid: int
    born: str
    boot: str


class Turn(Struct, frozen=True, kw_only=True):
    """What became of asking."""

    grants: Mapping[int | None, Grant]  # by task; what is not among them waits
    number: int  # of `gpu_turn`, at that moment


class GpuReader(Protocol):
    """Reading."""

    def gpus(self) -> list[Card]:
        """All that were seen, by host and place."""
        ...

    def gpu_leases(self, others: Iterable[str] = ()) -> list[Lease]:
        """Leases of live attempts and programs. An attempt whose own lease has expired counts as long as it is among
        `others`, which its host is known to run."""
        ...

    def gpu_tickets(self) -> list[Ticket]:
        """Those who wait and whose owners live, in the order in which they are served."""
        ...

    def gpu_turn(self) -> int:
        """Another number as soon as somebody who waits may go on. Cheap enough to ask often."""
        ...

    def is_gpu_turn(self, owner: str) -> bool:
        """Whether a ticket of that run or program would be served now: only then it is worth a transaction to ask."""
        ...


class GpuWriter(Protocol):
    """Writing."""

    def see_gpus(self, host: str, cards: Sequence[Card], seen_at: float) -> None:
        """Keep what a host shows. An older look than the one that is kept, or than the last release of a card, changes
        nothing. A card in quarantine that looks well for `CLEAN_S` is taken back: event `gpu.pardoned`."""
        ...

    def ask_gpus(self, run: Run, asks: Sequence[Ask], others: Iterable[str] = ()) -> Turn:
        """Let tasks of a run have GPUs, or wait for them. What is granted is leased by `claim`, in the same transaction. Tasks
        that are not asked for wait no more."""
        ...

    def lease_gpus(self, program: Program, ask: Ask, others: Iterable[str] = ()) -> tuple[Device, ...] | None:
        """Let a program have all that it asks for; None: it waits, and its place in the queue stays while it asks again.
        A program that has GPUs is told those."""
        ...

    def renew_gpus(self, program: Program) -> bool:
        """Say that the program lives. False: its lease is not its own any more."""
        ...

    def free_gpus(self, program: Program) -> None:
        """Give back what the program has, and its place in the queue."""
        ...

    def avoid_gpus(self, host: str, uuids: Collection[str]) -> None:
        """Somebody else was there: nobody gets these for `AVOID_S`, or until they look well."""
        ...

    def quarantine_gpu(self, run: Run, host: str, uuid: str, reason: str) -> None:
        """Give it to nobody. Event `gpu.quarantined`."""
        ...

    def pardon_gpu(self, host: str, uuid: str, by: str) -> None:
        """Take it back. Event `gpu.pardoned`. Raises NotFound, and WrongState where it is not in quarantine."""
        ...
