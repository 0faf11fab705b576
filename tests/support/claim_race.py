"""A controller of a test that does nothing but claim: `python -m tests.support.claim_race HOME RUN TASKS`.

It prints `ready`, and begins with its first line of input.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from tests.support.store import cases

from evalfleet.store.open import open_store


def main(home: str, run_id: str, tasks: str) -> None:
    with closing(open_store(Path(home))) as store:
        run = store.runs.begin(store.runs.take(run_id, "a racer"))
        assert run is not None
        print("ready", flush=True)
        sys.stdin.readline()
        made = [number for number in range(1, int(tasks) + 1) if store.attempts.claim(run, cases.new_claim(number))]
        print(len(made), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
