"""A process that keeps pools, for tests that kill it: imports everything once, then forks one keeper for each line.

Reads JSON lines `{"home": …, "pool": …, "environ": {…}}`. For each it says `{"pid": …}` at once, and `{"status": …}`, as
`os.waitpid` gives it, when that keeper has ended.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import anyio

from evalfleet import config
from evalfleet.pools.controller import own_pool
from evalfleet.store.open import open_store
from evalfleet.store.thread import StoreThread


async def keep(order: dict[str, Any]) -> None:
    settings = config.load(Path(order["home"]), environ=order["environ"], folder=Path(order["home"]))
    store = open_store(settings.home)
    async with own_pool(settings, store, StoreThread(), order["pool"], f"keeper {os.getpid()}") as controller:
        await controller.settle()
    store.close()


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                anyio.run(keep, json.loads(line))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print(json.dumps({"pid": pid}), flush=True)
        print(json.dumps({"status": os.waitpid(pid, 0)[1]}), flush=True)


if __name__ == "__main__":
    main()
