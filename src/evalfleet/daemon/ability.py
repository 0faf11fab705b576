"""What a controller needs to drive a run, and whether it has that: a folder, keys, and secrets."""

from __future__ import annotations

from evalfleet.config import Settings
from evalfleet.config.secrets import Secrets
from evalfleet.errors import EvalfleetError
from evalfleet.pools.kinds import registry
from evalfleet.pools.kinds.base import NeedsFiles
from evalfleet.store.controllers import Need
from evalfleet.store.home import place
from evalfleet.store.reader import StoreReader


class Ability:
    """Of this controller. Used by several threads."""

    def __init__(self, settings: Settings) -> None:
        self.member = place.member_of(settings.home)
        self.secrets = Secrets(settings.secrets)

    def look(self, store: StoreReader) -> Look:
        return Look(store, self)


class Look:
    """For many runs at one moment: what they have in common is looked up once."""

    def __init__(self, store: StoreReader, ability: Ability) -> None:
        self._store = store
        self._ability = ability
        self._pools: dict[str, str | None] = {}

    def lacks(self, pool: str | None, need: Need) -> str | None:
        """What this controller lacks to drive a run, in words that follow its name; None: nothing."""
        if need.member is not None and need.member != self._ability.member:
            return f"it can be driven in {self._store.home.folder(need.member)} only: {need.why}"
        if pool is not None:
            if pool not in self._pools:
                self._pools[pool] = self._lacks_of_pool(pool)
            if (lacks := self._pools[pool]) is not None:
                return lacks
        missing = self._ability.secrets.missing(need.secrets, user=need.user, project=need.project)
        return f"{self._ability.secrets.lack} {', '.join(missing)}" if missing else None

    def _lacks_of_pool(self, name: str) -> str | None:
        try:
            pools = registry.with_members(self._store, self._store.pools.get(name))
        except EvalfleetError:
            return None  # whoever drives the run says what is wrong with its pool
        for pool in pools:
            kind = registry.kind_of(pool)
            if kind.creates_machines and self._ability.member:
                return f"the keys to machines of pool {pool.name} are in {self._store.home.folder('')}"
            if isinstance(kind, NeedsFiles):
                gone = next((path for path in kind.needed_files(pool) if not path.expanduser().exists()), None)
                if gone is not None:
                    return f"the key {gone} to hosts of pool {pool.name} is not on this machine"
        return None
