"""The former place of these names."""

from evalfleet.store.attempts.records import Claim, Claimed, Finish, Finished, Progress
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store

__all__ = ["Claim", "Claimed", "Finish", "Finished", "Progress", "Store", "StoreReader"]
