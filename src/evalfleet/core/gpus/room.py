"""The free GPUs during one allocation, and the best set among them.

Ranking among the sets that will do: the worst link between two cards, then the balance of free memory (the least free against
the freest), then `0.6 x free memory share + 0.4 x idle share`, freest first. `pack` turns the last one around: the fullest cards
that will do are taken, so that large sets stay free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import comb
from typing import Any

from evalfleet.core.gpus.cards import Card, Lease, Reserved, Ticket, blocked, link

_MOST_SETS = 2000  # beyond that only sets around each card are compared
_BALANCE_STEPS = 20  # smaller differences of balance do not outweigh how busy the cards are


Ease = Callable[
    ["_Spot"], tuple[Any, ...]
]  # which cards to prefer, where not all sets can be compared; smaller is better


class _Spot:
    """One card: its leases, and what earlier tickets reserved of it."""

    def __init__(self, card: Card, leases: Sequence[Lease], now: float) -> None:
        self.card = card
        self.is_blocked = blocked(card, now, {one.pid for one in leases if one.pid is not None}) is not None
        self.is_whole = any(one.memory_mb is None for one in leases)
        self.is_leased = bool(leases)
        self.is_promised = False  # to somebody, whole
        self.promised_mb = 0
        self.left_mb = self._left(sum(one.memory_mb or 0 for one in leases))

    def _left(self, leased_mb: int) -> int | None:
        """What the leases leave, or what the card shows, whichever is less."""
        shown = self.card.shown_mb
        if shown is None or self.card.size_mb is None:
            return None
        return 0 if self.is_whole else max(0, min(self.card.size_mb - leased_mb, shown))

    @property
    def is_free(self) -> bool:
        return not self.is_leased

    def suits(self, ticket: Ticket) -> bool:
        """Whether it would do for the ticket if no lease was on it."""
        card = self.card
        if self.is_blocked or (ticket.places and card.index not in ticket.places):
            return False
        least = ticket.memory_mb or ticket.least_mb
        return least == 0 or (card.size_mb is not None and card.shown_mb is not None and card.size_mb >= least)

    def fits(self, ticket: Ticket) -> bool:
        """Whether the ticket can have it now."""
        if not self.suits(ticket) or self.is_promised:
            return False
        if ticket.memory_mb:
            return not self.is_whole and (self.left_mb or 0) - self.promised_mb >= ticket.memory_mb
        return not self.is_leased and not self.promised_mb and (self.left_mb or 0) >= ticket.least_mb

    def take(self, ticket: Ticket) -> None:
        self.is_leased = True
        if ticket.memory_mb:
            self.left_mb = (self.left_mb or 0) - ticket.memory_mb
        else:
            self.is_whole, self.left_mb = True, 0

    def promise(self, ticket: Ticket) -> None:
        if ticket.memory_mb:
            self.promised_mb += ticket.memory_mb
        else:
            self.is_promised = True

    @property
    def score(self) -> float:
        """How free it is, from 0 to 1; what is not known counts as taken."""
        card = self.card
        memory = (self.left_mb or 0) / card.memory_mb if card.memory_mb else 0.0
        return 0.6 * memory + 0.4 * card.idle


class Room:
    """Hosts in their order, with their cards."""

    def __init__(self, cards: Sequence[Card], leases: Sequence[Lease], now: float) -> None:
        on: dict[tuple[str, str], list[Lease]] = {}
        for lease in leases:
            on.setdefault((lease.host, lease.uuid), []).append(lease)
        self._hosts: dict[str, list[_Spot]] = {}
        for card in sorted(cards, key=lambda one: (one.host, one.index)):
            spot = _Spot(card, on.get((card.host, card.uuid), ()), now)
            self._hosts.setdefault(card.host, []).append(spot)

    def best(self, ticket: Ticket) -> list[Card] | None:
        """The best set that the ticket can have now, all of one host."""
        found: list[tuple[Any, list[_Spot]]] = []
        for host, spots in self._hosts.items():
            if host not in ticket.hosts:
                continue
            free = [spot for spot in spots if spot.fits(ticket)]
            others = -len(free) if not ticket.pack else len(free)
            for chosen in _sets(free, ticket.gpus):
                found.append(((*_rank(chosen, pack=ticket.pack), others), chosen))
        return [spot.card for spot in min(found, key=_first)[1]] if found else None

    def take(self, ticket: Ticket, cards: Iterable[Card]) -> None:
        for spot in self._of(cards):
            spot.take(ticket)

    def reserve(self, ticket: Ticket) -> Reserved | None:
        """Keep a set for a ticket that must wait: the one that it has, while that can come true. None: no set can."""
        found: list[tuple[Any, list[_Spot]]] = []
        host, uuids = ticket.reserved or ("", ())
        for name, spots in self._hosts.items():
            if name not in ticket.hosts:
                continue
            possible = [spot for spot in spots if spot.suits(ticket)]
            kept = [spot for spot in possible if name == host and spot.card.uuid in uuids]
            if len(kept) == ticket.gpus:
                found = [((), kept)]
                break
            ranked = [(_wait(chosen, kept), chosen) for chosen in _sets(possible, ticket.gpus, _ease(kept))]
            found.extend(ranked)
        if not found:
            return None
        chosen = min(found, key=_first)[1]
        for spot in chosen:
            spot.promise(ticket)
        return chosen[0].card.host, tuple(spot.card.uuid for spot in chosen)

    def _of(self, cards: Iterable[Card]) -> list[_Spot]:
        wanted = {(card.host, card.uuid) for card in cards}
        return [spot for spots in self._hosts.values() for spot in spots if (spot.card.host, spot.card.uuid) in wanted]


def _first(pair: tuple[Any, list[_Spot]]) -> Any:
    return pair[0]


def _rank(spots: Sequence[_Spot], *, pack: bool) -> tuple[float, ...]:
    """Smaller is better."""
    score = sum(spot.score for spot in spots) / len(spots)
    return (_worst_link(spots), -_balance(spots), score if pack else -score, *(spot.card.index for spot in spots))


def _wait(spots: Sequence[_Spot], kept: Sequence[_Spot]) -> tuple[float, ...]:
    """How much a set costs others and how soon it may be there; smaller is better."""
    promised = sum(spot.is_promised or spot.promised_mb > 0 for spot in spots)
    free = sum(spot.is_free for spot in spots)
    new = sum(spot not in kept for spot in spots)
    return (promised, new, free, _worst_link(spots), *(spot.card.index for spot in spots))


def _ease(kept: Sequence[_Spot]) -> Ease:
    return lambda spot: (spot.is_promised or spot.promised_mb > 0, spot not in kept, spot.is_free, spot.card.index)


def _worst_link(spots: Sequence[_Spot]) -> int:
    return max((link(one.card, other.card) for one, other in combinations(spots, 2)), default=0)


def _balance(spots: Sequence[_Spot]) -> int:
    free = [spot.left_mb or 0 for spot in spots]
    return int(_BALANCE_STEPS * min(free) / max(free)) if max(free) else _BALANCE_STEPS


def _sets(spots: Sequence[_Spot], count: int, ease: Ease | None = None) -> Iterable[list[_Spot]]:
    """Sets of that many; where there are too many to compare, those of the nearest around each card."""
    if comb(len(spots), count) <= _MOST_SETS:
        return map(list, combinations(spots, count))
    return [_around(spot, spots, count, ease or _freest) for spot in spots]


def _freest(spot: _Spot) -> tuple[Any, ...]:
    return (-spot.score, spot.card.index)


def _around(centre: _Spot, spots: Sequence[_Spot], count: int, ease: Ease) -> list[_Spot]:
    others = [spot for spot in spots if spot is not centre]
    others.sort(key=lambda spot: (link(centre.card, spot.card), ease(spot)))
    return sorted([centre, *others[: count - 1]], key=lambda spot: spot.card.index)
