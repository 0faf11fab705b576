"""Which queued run a process takes next."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.support.store import cases

from evalfleet.daemon import run_children
from evalfleet.model import Ownership, Policy
from evalfleet.store.open import open_store


def test_queued_runs_are_taken_by_user_then_priority_then_age(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "home")) as store:
        made = {
            name: cases.submit(store, policy=Policy(priority=priority), ownership=Ownership(owner=name[0])).id
            for name, priority in (("a1", 0), ("a2", 0), ("a3", 5), ("b1", 0))
        }
        turn = [one.id for one in run_children._in_turn(store)]  # pyright: ignore[reportPrivateUsage]
        assert turn == [made[name] for name in ("a3", "b1", "a1", "a2")]
