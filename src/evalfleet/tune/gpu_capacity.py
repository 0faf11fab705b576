"""Whether the GPUs have room for as many parallel trials as a study asks for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from evalfleet.core.gpus.cards import Card
from evalfleet.model import Requests


def crowding(
    parallel: int, asked: Collection[Requests], hosts: Iterable[Sequence[Card]], allowed: Sequence[int]
) -> str | None:
    """Return a warning if the hosts' GPUs have room for fewer parallel trials than the study asks for, else None.

    Args:
        asked: what trials of the study ask for; the smallest of them counts.
        hosts: the GPUs of each.
        allowed: only these indices; none: all.
    """
    least = min(asked, key=lambda one: (one.gpus, one.gpu_memory_mb), default=None)
    if least is None or not least.gpus:
        return None
    cards = [[card for card in host if not allowed or card.index in allowed] for host in hosts]
    total = sum(len(host) for host in cards)
    if not total:
        return None  # what no host can carry is held, and says so itself
    carried = sum(_carried(host, least) for host in cards)
    if carried >= parallel:
        return None
    share = f" with {least.gpu_memory_mb:,} MB" if least.gpu_memory_mb else ""
    needs = f"{least.gpus} {'GPU' if least.gpus == 1 else 'GPUs'}{share}"
    return (
        f"{parallel} parallel trials were requested, but {total} {'GPU carries' if total == 1 else 'GPUs carry'} at most {carried} "
        f"that need {needs} each; the others wait for a free GPU"
    )


def _carried(cards: Sequence[Card], each: Requests) -> int:
    if not each.gpu_memory_mb:
        return len(cards) // each.gpus
    seats = sum(_free_mb(card) // each.gpu_memory_mb for card in cards)
    return seats // each.gpus


def _free_mb(card: Card) -> int:
    """What a trial may have of it at most: a driver takes some of every card."""
    taken = card.base_mb if card.base_mb is not None else card.used_mb
    return max(0, (card.memory_mb or 0) - (taken or 0))
