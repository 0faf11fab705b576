"""The toy cloud as a backend of pools: `evalfleet pool create NAME --backend toy`. Its account is a folder in the home."""

import getpass
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from evalfleet.config import Settings
from evalfleet.errors import InputError, NotFound
from evalfleet.layout import Home
from evalfleet.pools.kinds.cloud import CloudKind

if TYPE_CHECKING:
    from evalfleet_sums.toy.cloud import ToyCloud


class ToyProvider:
    """Implements `CloudProvider`."""

    name = "toy"
    title = "Machines of the toy cloud"
    default_size = "small"
    default_regions = ("here",)
    account_help = "Use the home in which the pool was created"

    @property
    def login_user(self) -> str:
        return getpass.getuser()

    def is_configured(self, settings: Settings) -> bool:
        return _folder(settings).is_dir()

    def account(self, settings: Settings) -> dict[str, str]:
        return {"folder": str(_folder(settings))}

    def require_ready(self, settings: Settings) -> None:
        pass

    def speed(self, settings: Settings) -> float:
        return 1.0

    def size(self, name: str) -> str:
        if name != self.default_size:
            raise NotFound(f"size: there is no size {name!r}; the toy cloud has {self.default_size}")
        return name

    def region(self, name: str) -> str:
        if name not in self.default_regions:
            raise InputError(f"regions: there is no region {name!r}; the toy cloud has {self.default_regions[0]}")
        return name

    def memory_gb(self, size: str) -> float | None:
        return None

    def family(self, size: str) -> str:
        return size

    @asynccontextmanager
    async def open(self, settings: Settings, home: Home) -> AsyncGenerator["ToyCloud"]:
        from evalfleet_sums.toy.cloud import ToyCloud

        yield ToyCloud(_folder(settings))


def _folder(settings: Settings) -> Path:
    return settings.home.absolute() / "toy"


KIND = CloudKind(ToyProvider())
