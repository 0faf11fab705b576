"""Makes a pool of VMs ready, in a process of its own, so that its time, memory and profile are those of a controller.

    python bench/keep_pool.py HOME VMS REPORT [PROFILE]

The cloud is the one that the environment names. REPORT gets the seconds, as JSON; PROFILE the figures of cProfile.
"""

from __future__ import annotations

import cProfile
import json
import sys
import time
from collections import Counter
from pathlib import Path

import anyio

from evalfleet import config
from evalfleet.azure import sizes
from evalfleet.pools.controller import own_pool
from evalfleet.pools.settings import PoolSettings
from evalfleet.store.open import open_store
from evalfleet.store.thread import StoreThread

NAME = "bench"
LIMIT_S = 120


async def settle(home: Path, vms: int) -> dict[str, object]:
    settings = config.load(home, folder=home.parent)
    store = open_store(settings.home)
    thread = StoreThread()
    wanted = PoolSettings(workers=vms, regions=("eastus",), size=(sizes.DEFAULT_SIZE,))
    try:
        begun = time.perf_counter()
        await thread.call(store.pools.create, NAME, "azure-vm", wanted.to_json())
        with anyio.fail_after(LIMIT_S):
            async with own_pool(settings, store, thread, NAME, "bench") as controller:
                await controller.settle()
        wall_s = time.perf_counter() - begun
        return {"wall_s": wall_s, "states": Counter(str(host.state) for host in store.hosts.of_pool(NAME))}
    finally:
        store.close()


def main() -> None:
    home, vms, report = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    profile = cProfile.Profile() if len(sys.argv) > 4 else None
    if profile:
        profile.enable()
    done = anyio.run(settle, home, vms)
    if profile:
        profile.disable()
        profile.dump_stats(sys.argv[4])
    report.write_text(json.dumps(done))


if __name__ == "__main__":
    main()
