"""Slots that several runners of a host share: never more at once, turns by run, nothing free while somebody waits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.runner import RunnerClient, RunnerSpool, a_spec, is_alive, wait_until

from evalfleet.model import JsonObject
from evalfleet.runner.host import lock_file

Maker = Callable[[str], RunnerSpool]


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Maker]:
    """Makes runners that share the slots of one host, each with a spool of its own."""
    made: list[RunnerSpool] = []

    def make(name: str) -> RunnerSpool:
        spool = RunnerSpool(tmp_path / name)
        spool.start(EVALFLEET_SLOT_LOCKS=str(tmp_path / "slots"))
        made.append(spool)
        return spool

    yield make
    for spool in made:
        spool.close()
        assert "Traceback" not in spool.log()


def want(client: RunnerClient, run: str, most: int, slots: int = 1) -> JsonObject:
    return client.must("want", run=run, epoch=1, slots=slots, most=most)


def kept(client: RunnerClient, run: str) -> JsonObject:
    """Wait until a slot is kept for the run."""
    while True:
        told = client.read()
        if told.get("notice") == "slots" and told["run"] == run and told["free"]:
            return told
        if "event" in told:
            client.events.append(told)


def test_a_slot_is_kept_for_one_run_at_a_time(runner: Maker) -> None:
    one, other = runner("one"), runner("other")
    with one.client() as here, other.client() as there:
        assert want(here, "a", 1)["free"] == 1
        told = want(there, "b", 1)
        assert (told["free"], told["others"], told["by"]) == (0, 1, ["run a"])
        here.launch("a.1", a_spec("true"), run="a", slots=1)
        here.end("a.1")
        want(here, "a", 0)
        assert kept(there, "b")["live"] == []


def test_what_is_kept_is_free_when_its_controller_goes(runner: Maker) -> None:
    one, other = runner("one"), runner("other")
    with other.client() as there:
        with one.client() as here:
            assert want(here, "a", 1)["free"] == 1
            assert want(there, "b", 1)["free"] == 0
        kept(there, "b")


def test_a_launch_without_a_kept_slot_waits_and_can_be_cancelled(runner: Maker) -> None:
    one, other = runner("one"), runner("other")
    with one.client() as here, other.client() as there:
        here.launch("a.1", a_spec("sleep", "300"), run="a", slots=1)
        here.event("a.1", "started")
        for name in ("b.1", "b.2"):
            there.launch(name, a_spec("true"), run="b", slots=1)
        there.must("cancel", run="b", epoch=1, attempt="b.2")
        assert there.end("b.2")["started_at"] is None
        assert there.of("b.1")[-1]["type"] == "launched"
        here.must("cancel", run="a", epoch=1, attempt="a.1")
        assert there.end("b.1")["exit_code"] == 0


def test_a_launch_that_waits_expires_once_nobody_is_there_for_it(runner: Maker) -> None:
    """It would start when nobody wants it any more, and keep its runner from ending until then."""
    one, other = runner("one"), runner("other")
    with one.client() as here, other.client() as there:
        here.launch("a.1", a_spec("sleep", "300"), run="a", slots=1)
        here.event("a.1", "started")
        with other.client() as gone:
            gone.launch("b.1", a_spec("true"), run="b", slots=1, valid_for_s=0.5)
            there.launch("b.2", a_spec("true"), run="b", slots=1, valid_for_s=0.5)
        journal = other.folder / "attempts" / "b.1" / "journal.jsonl"
        wait_until(lambda: '"expired"' in journal.read_text(), "the end of the one that nobody waits for")
        there.must("ping")
        assert [each["type"] for each in there.of("b.2")] == ["launched"]
        here.must("cancel", run="a", epoch=1, attempt="a.1")
        assert there.end("b.2")["exit_code"] == 0
        there.must("attach", attempt="b.1", **{"from": 0})
        end = there.end("b.1")
        assert (end["cause"], end["started_at"]) == ("expired", None)


def test_who_outlives_the_runner_keeps_its_slot(runner: Maker) -> None:
    """An orphan of a dead runner disturbs a newcomer just as if the runner lived; it ends with the next runner of its spool."""
    one, other = runner("one"), runner("other")
    with one.client() as here, other.client() as there:
        here.launch("a.1", a_spec("sleep", "300"), run="a", slots=1)
        pid = here.event("a.1", "started")["pid"]
        one.kill()
        assert is_alive(pid)
        assert want(there, "b", 1)["free"] == 0
        one.start(EVALFLEET_SLOT_LOCKS=str(one.folder.parent / "slots"))
        kept(there, "b")
        assert not is_alive(pid)


def test_runs_take_turns(runner: Maker) -> None:
    """One that came later with little gets every other slot, in the same runner and in another one."""
    one, other = runner("one"), runner("other")
    order: list[str] = []
    with one.client() as first, one.client() as second, other.client() as third:
        clients = {"a": first, "b": second, "c": third}
        for run, client in clients.items():
            want(client, run, 1)
        for turn in range(9):
            run = "abc"[turn % 3]
            if turn:
                kept(clients[run], run)
            name = f"{run}.{turn}"
            clients[run].launch(name, a_spec("true"), run=run, slots=1)
            clients[run].event(
                name, "launched"
            )  # its end could come with the next notice, which must not be passed over
            order.append(run)
    assert "".join(order) == "abcabcabc"


def test_a_slot_is_not_left_free_for_who_does_not_take_it(runner: Maker) -> None:
    one, other = runner("one"), runner("other")
    info = one.info()
    assert info is not None
    with one.client() as here, other.client() as there:
        there.launch("b.1", a_spec("sleep", "300"), run="b", slots=1)
        there.event("b.1", "started")
        want(here, "a", 1)  # it stands in the line,
        os.kill(info.pid, 19)  # and hears nothing when its turn comes
        there.must("cancel", run="b", epoch=1, attempt="b.1")
        there.end("b.1")
        begun = time.monotonic()
        want(there, "b", 1)
        kept(there, "b")
        assert time.monotonic() - begun < 10
        os.kill(info.pid, 18)


def test_each_home_uses_no_more_than_it_counts(runner: Maker) -> None:
    """Where they disagree, all together use no more than the larger number."""
    small, large = runner("small"), runner("large")
    with small.client() as few, large.client() as many:
        assert want(many, "b", 9, slots=2)["free"] == 2
        assert want(few, "a", 9, slots=1)["free"] == 0
        want(many, "b", 1, slots=2)
        assert want(few, "a", 9, slots=1)["free"] == 1
        assert want(many, "b", 9, slots=2)["free"] == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_that_cannot_be_trusted_is_said(runner: Maker, tmp_path: Path) -> None:
    one = runner("one")
    (tmp_path / "slots").mkdir(mode=0o700)
    os.chown(tmp_path / "slots", 12345, 12345)
    with one.client() as here:
        told = want(here, "a", 1)
        assert told["free"] == 0
        assert "an administrator must repair it" in told["trouble"]
        os.chown(tmp_path / "slots", 0, 0)
        kept(here, "a")


def test_tickets_of_the_dead_do_not_count(runner: Maker, tmp_path: Path) -> None:
    one = runner("one")
    with one.client() as here:
        want(here, "a", 1)
        (tmp_path / "slots" / "0-dead.ticket").touch()
        here.launch("a.1", a_spec("true"), run="a", slots=1)
        here.end("a.1")
        wait_until(lambda: want(here, "a", 1)["free"], "the next one", 0.9)
        assert not list((tmp_path / "slots").glob("*.ticket"))


def test_a_lock_file_that_cannot_be_used_costs_one_slot_alone(runner: Maker, tmp_path: Path) -> None:
    one = runner("one")
    (tmp_path / "slots").mkdir(mode=0o1777)
    (tmp_path / "slots" / "3.lock").mkdir()
    with one.client() as here:
        told = want(here, "a", 3, slots=3)
        assert (told["free"], told["others"]) == (2, 0)
        assert "slots/3.lock cannot be used" in told["trouble"]
        told = want(here, "a", 2, slots=3)
        assert (told["free"], told["trouble"]) == (2, None)


def test_a_second_name_takes_no_slot_and_is_not_written_through(runner: Maker, tmp_path: Path) -> None:
    """Anybody can give a lock file a second name, and to a file of ours the name of a slot."""
    mine = tmp_path / "mine"
    mine.write_text("precious")
    (tmp_path / "slots").mkdir(mode=0o1777)
    os.link(mine, tmp_path / "slots" / "1.lock")
    (tmp_path / "slots" / "2.lock").touch()
    os.link(tmp_path / "slots" / "2.lock", tmp_path / "slots" / "another")
    with runner("one").client() as here:
        told = want(here, "a", 2, slots=2)
        assert (told["free"], told["trouble"]) == (2, None)
    assert mine.read_text() == "precious"


def test_a_lock_file_is_open_to_all_from_the_first_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is killed after making it leaves none that locks other users out; what an older one left is repaired by its owner."""
    folder = tmp_path / "slots"
    umask = os.umask(0o077)
    try:
        with monkeypatch.context() as patched:
            os.close(lock_file.open_lock(str(folder), "0.lock", make=True))
            patched.setattr(os, "fchmod", None)
            os.close(lock_file.open_lock(str(folder), "1.lock", make=True))
        (folder / "2.lock").touch(0o600)
        os.close(lock_file.open_lock(str(folder), "2.lock", make=True))
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(umask)
    assert [(folder / f"{n}.lock").stat().st_mode & 0o777 for n in (1, 2)] == [0o666, 0o666]
