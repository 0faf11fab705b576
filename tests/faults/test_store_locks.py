"""A second look at the database from the same process must not cost the first connection its locks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from evalfleet.model import Policy, TaskSpec, Verb
from evalfleet.store.open import open_reader, open_store

ASK = """
import sys, pathlib
from evalfleet.store.open import open_store
from evalfleet.model import Verb
store = open_store(pathlib.Path(sys.argv[1]))
store.requests.add(sys.argv[2], Verb.CANCEL, {}, "somebody")
store.close()
"""


def test_commits_of_others_are_seen_after_a_reader_came_and_went(home: Path):
    store = open_store(home)
    tasks = [TaskSpec(key="a", domain="a", command=("true",))]
    run = store.runs.submit("x", Policy(workers=1), tasks, folder="/", base_env={})
    reader = open_reader(home)
    assert reader is not None
    reader.close()
    for count in (1, 2, 3):
        subprocess.run([sys.executable, "-c", ASK, str(home), run.id], check=True, timeout=60)
        assert store.changed()
        assert [request.verb for request in store.requests.pending(run.id)] == [Verb.CANCEL] * count
        again = open_reader(home)
        assert again is not None
        assert len(again.requests.pending(run.id)) == count
        again.close()
    store.close()
