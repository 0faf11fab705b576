"""How fast a run may ask: the pure rules by an injected clock, and the file that processes share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.fleet import wait_for

from evalfleet.agents.llm import governor, governor_file
from evalfleet.agents.llm.governor import Limits, Pace, Turn, answered, holds, refused, take_turn
from evalfleet.agents.llm.governor_file import Governor, pace_file
from evalfleet.errors import EnvironmentFailed
from evalfleet.testing.clock import FakeClock

NONE = Limits()
RNG = Random(1)


def turns(pace: Pace, limits: Limits, now: float, count: int) -> tuple[Pace, list[Turn]]:
    found: list[Turn] = []
    for _ in range(count):
        pace, turn = take_turn(pace, limits, now)
        found.append(turn)
    return pace, found


def test_without_limits_and_refusals_nobody_waits():
    _, found = turns(Pace(), NONE, 100.0, 20)
    assert {turn.at for turn in found} == {100.0}


def test_configured_requests_are_spread():
    _, found = turns(Pace(), Limits(requests_per_minute=30), 100.0, 4)
    assert [turn.at for turn in found] == [100.0, 102.0, 104.0, 106.0]


def test_a_refusal_stops_everybody_and_halves_the_rate():
    pace = Pace()
    for now in (100.0, 101.0, 102.0):
        pace, turn = take_turn(pace, NONE, now)
    early = turn  # pyright: ignore[reportPossiblyUnboundVariable]
    pace = refused(pace, early, 102.0, 5.0, RNG)
    assert not holds(pace, early, 108.0), "a turn of before the refusal is void"
    pace, found = turns(pace, NONE, 103.0, 3)
    assert [turn.at for turn in found] == [107.0, 109.0, 111.0]
    assert not holds(pace, found[0], 106.9)
    assert holds(pace, found[0], 107.0)


def test_refusals_of_one_burst_count_once():
    pace, found = turns(Pace(), NONE, 100.0, 8)
    first = refused(pace, found[0], 100.1, 1.0, RNG)
    pace = first
    for turn in found[1:]:
        pace = refused(pace, turn, 100.2, 2.0, RNG)
    assert (pace.distance_s, pace.generation, pace.refusals) == (first.distance_s, 1, 1)
    assert pace.paused_until == 102.2


def test_without_a_word_from_the_endpoint_the_pause_doubles():
    pace, pauses, now = Pace(), list[float](), 100.0
    for _ in range(9):
        pace, turn = take_turn(pace, NONE, now)
        pace = refused(pace, turn, turn.at, None, Random(3))
        pauses.append(pace.paused_until - turn.at)
        now = pace.paused_until
    chance = 0.5 + Random(3).random()
    assert pauses == pytest.approx([chance * min(60, 2**n) for n in range(9)])


def test_answers_give_the_rate_back_little_by_little():
    pace, turn = take_turn(Pace(distance_s=1.0), NONE, 100.0)
    faster = answered(pace, turn, 10)
    assert 1 / faster.distance_s == pytest.approx(1.0 + 1 / 60)
    stale = replace(turn, generation=-1)
    assert answered(pace, stale, 10).distance_s == 1.0, "an answer to a question of before says nothing"
    assert answered(replace(pace, distance_s=0.02), turn, 10).distance_s == 0.0


def test_tokens_flow_like_water():
    limits = Limits(tokens_per_minute=6000)  # 100 a second, 1000 at once
    pace, found = turns(Pace(), limits, 100.0, 4)
    assert [turn.at for turn in found] == [100.0, 100.0, 110.0, 120.0]
    pace = answered(pace, found[0], 3000)
    assert pace.usual_tokens == pytest.approx(1600)
    _, after = take_turn(pace, limits, 100.0)
    assert after.at == 150.0, "what was used beyond the expected is waited for"


@given(
    rate=st.floats(1, 600),
    steps=st.lists(st.tuples(st.floats(0, 5), st.sampled_from(["take", "answer", "refuse"])), max_size=60),
)
def test_no_more_than_the_configured_rate_whatever_happens(rate: float, steps: list[tuple[float, str]]):
    limits, pace, now, given_turns = Limits(requests_per_minute=rate), Pace(), 50.0, list[Turn]()
    for wait, what in steps:
        now += wait
        if what == "take" or not given_turns:
            pace, turn = take_turn(pace, limits, now)
            given_turns.append(turn)
        elif what == "answer":
            pace = answered(pace, given_turns[-1], 100)
        else:
            pace = refused(pace, given_turns[-1], now, None, RNG)
        assert 0 <= pace.distance_s <= 15
        assert pace.paused_until <= now + 90
    for generation in {turn.generation for turn in given_turns}:
        moments = [turn.at for turn in given_turns if turn.generation == generation]
        assert all(b - a >= 60 / rate - 1e-6 for a, b in pairwise(moments))


# The file


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return pace_file("run1.3.1", "http://x/v1", "m")


def test_attempts_of_a_run_share_a_private_file(path: Path, tmp_path: Path):
    assert pace_file("run1.9.2", "http://x/v1", "m") == path
    assert pace_file("run2.9.2", "http://x/v1", "m") != path
    assert pace_file("run1.9.2", "http://x/v1", "n") != path
    assert pace_file("run1.9.2", "http://y/v1", "m") != path
    assert pace_file(None, "http://x/v1", "m") != path
    assert pace_file("../../etc.1.1", "http://x/v1", "m").is_relative_to(tmp_path)
    assert [part.stat().st_mode & 0o777 for part in (path.parent, path.parent.parent)] == [0o700, 0o700]


def test_one_hears_of_anothers_refusal(path: Path):
    clock = FakeClock()
    one, other = (Governor(path, NONE, clock=clock) for _ in range(2))
    theirs = other.take_turn()
    one.refused(one.take_turn(), 30.0)
    assert not other.holds(theirs)
    assert other.take_turn().at == clock() + 30.0
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("left", [b"", b"{", b'{"boot": 1}\n', b"\xff\xfe", b"[]\n", b"\0" * 200], ids=repr)
def test_a_torn_file_is_repaired(path: Path, left: bytes):
    path.write_bytes(left)
    shared = Governor(path, NONE)
    shared.refused(shared.take_turn(), 60.0)
    assert json.loads(path.read_text())["pace"]["generation"] == 1


def test_a_shorter_state_leaves_no_rest_of_a_longer_one(path: Path):
    shared = Governor(path, NONE)
    for _ in range(40):
        turn = shared.take_turn()
    shared.refused(turn, 0.0)  # pyright: ignore[reportPossiblyUnboundVariable]
    assert path.read_text().count("\n") == 1
    assert shared.holds(shared.take_turn()) in (True, False)


def test_a_state_of_another_boot_is_forgotten(path: Path, monkeypatch: pytest.MonkeyPatch):
    before = Governor(path, NONE)
    before.refused(before.take_turn(), 500.0)
    monkeypatch.setattr(governor_file, "_boot", lambda: "another")
    clock = FakeClock()
    assert Governor(path, NONE, clock=clock).take_turn().at == clock()


HOLD = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(file, fcntl.LOCK_EX)
os.write(file, b'{"torn')
print("held", flush=True)
sys.stdin.read()
"""


def test_a_killed_holder_blocks_nobody_and_a_stopped_one_not_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        monkeypatch.setattr(governor_file, "_LOCK_S", 0.2)
        shared = Governor(path, NONE)
        assert shared.take_turn().generation == 0, "goes on without the file"
        assert path.read_bytes() == b'{"torn', "and leaves it alone"
        holder.send_signal(signal.SIGKILL)
        holder.wait(30)
        wait_for(lambda: bool(shared.take_turn() and path.read_bytes().endswith(b"}\n")), "the lock")
    finally:
        holder.kill()
        holder.wait(30)
        holder.stdin.close()
        holder.stdout.close()


def test_runs_of_other_days_are_removed(path: Path):
    Governor(path, NONE).take_turn()
    old = path.parent.parent / "oldrun"
    old.mkdir()
    (old / "x.json").touch()
    for each in (old / "x.json", old):
        os.utime(each, (1, 1))
    pace_file("run1.4.1", "http://x/v1", "m")
    assert not old.exists()
    assert path.exists()


def test_a_folder_that_others_can_enter_is_refused(path: Path):
    path.parent.parent.chmod(0o755)
    with pytest.raises(EnvironmentFailed, match="can be used by other users"):
        pace_file("run1.4.1", "http://x/v1", "m")


def test_a_pause_is_bounded():
    pace = governor.paused(Pace(), 100.0, 1e9)
    assert pace.paused_until == 100.0 + governor.LONGEST_PAUSE_S
