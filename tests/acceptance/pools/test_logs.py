"""`evalfleet pool logs` and `screenshot` of hosts on which something really runs."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import uuid
from pathlib import Path

from examples.fake_waa.arena import arena
from tests.support import machines
from tests.support.fleet import DEADLINE_S, Fleet, wait_for
from tests.support.machines import Hosts, pool, until

from evalfleet.testing.pages import picture


def slow_task(fleet: Fleet, *more: str) -> str:
    """A task that says something, leaves a picture, and waits for a file."""
    program = "\n".join(
        [
            "import os, sys, time, pathlib",
            "print('hello from the task', flush=True)",
            "print('token is', os.environ.get('TOKEN'), file=sys.stderr, flush=True)",
            "folder = pathlib.Path(os.environ['EVALFLEET_ARTIFACTS'])",
            *more,
            f"pathlib.Path({str(fleet.ledger)!r}).write_text('begun\\n')",
            f"while not os.path.exists({str(fleet.folder / 'go')!r}): time.sleep(0.05)",
            "print('goodbye', flush=True)",
            # Its files go with it: whoever follows them must have seen its last words before.
            f"while not os.path.exists({str(fleet.folder / 'end')!r}): time.sleep(0.05)",
        ]
    )
    (fleet.folder / "task.py").write_text(program)
    return fleet.tasks(
        [{"key": "slow_1", "command": ["python3", "task.py"], "secrets": ["TOKEN"]}], files=["task.py", "shot.png"]
    )


def test_logs_show_the_runner_and_live_attempts_but_no_secret(fleet: Fleet, hosts: Hosts):
    pool(fleet, hosts("ab"))
    assert "nothing is logged there" in fleet.command("pool", "logs").stderr
    (fleet.folder / "shot.png").write_bytes(picture())
    run = fleet.start("run", slow_task(fleet), "--pool", "lab", TOKEN="very-secret-word")
    wait_for(fleet.lines, "the task")
    wait_for(lambda: "hello from the task" in fleet.command("pool", "logs").stdout, "its first line")
    shown = fleet.command("pool", "logs", "lab", "--lines", "1000")
    assert shown.returncode == 0
    assert re.search(r"^[ab] \| runner \| .*listening on", shown.stdout, re.MULTILINE)
    assert re.search(r"^([ab]) \| slow_1 stdout \| hello from the task$", shown.stdout, re.MULTILINE)
    assert re.search(r"^([ab]) \| slow_1 stderr \| token is \[secret TOKEN\]$", shown.stdout, re.MULTILINE)
    assert "very-secret-word" not in shown.stdout + shown.stderr
    (busy,) = {line[0] for line in shown.stdout.splitlines() if "slow_1" in line}
    rows = [
        json.loads(line)
        for line in fleet.command("pool", "logs", "--worker", f"{busy}-1", "--json").stdout.splitlines()
    ]
    assert {"host": busy, "key": "slow_1", "stream": "stdout", "text": "hello from the task"}.items() <= next(
        row for row in rows if row["source"] != "runner" and row["stream"] == "stdout"
    ).items()
    idle = fleet.command("pool", "logs", "--worker", "b" if busy == "a" else "a")
    assert "slow_1" not in idle.stdout
    (fleet.folder / "go").touch()
    (fleet.folder / "end").touch()
    assert run.wait(DEADLINE_S) == 0
    assert "slow_1" not in fleet.command("pool", "logs").stdout  # it is over, and collected


def test_logs_are_followed_across_a_broken_connection_without_a_line_twice(fleet: Fleet, hosts: Hosts):
    (host,) = hosts("a")
    pool(fleet, [host])
    (fleet.folder / "shot.png").write_bytes(picture())
    run = fleet.start("run", slow_task(fleet), "--pool", "lab", TOKEN="very-secret-word")
    wait_for(fleet.lines, "the task")
    tail = fleet.start("pool", "logs", "-f")
    assert tail.stdout is not None
    lines: list[str] = []
    until(tail.stdout, lines, "hello from the task")
    host.cut()
    until(tail.stdout, lines, "connected again")
    (fleet.folder / "go").touch()
    until(tail.stdout, lines, "goodbye")
    (fleet.folder / "end").touch()
    until(tail.stdout, lines, "attempt is over")
    assert sum("hello from the task" in line for line in lines) == 1
    assert run.wait(DEADLINE_S) == 0
    os.killpg(tail.pid, signal.SIGINT)
    rest, _ = tail.communicate(timeout=DEADLINE_S)
    assert (tail.returncode, "Traceback" in rest) == (130, False)


def test_a_host_that_is_not_reached_is_named_beside_the_logs_of_others(fleet: Fleet, hosts: Hosts):
    one, two = hosts("ab")
    pool(fleet, [one, two])
    one.spool.joinpath("attempts").mkdir(parents=True)
    one.spool.joinpath("runner.log").write_text("first\nsecond\nthird\n")
    two.stop()
    done = fleet.command("pool", "logs", "--lines", "2")
    assert done.returncode == 3
    assert done.stdout == "a | runner | second\na | runner | third\n"
    assert "host b: " in done.stderr


def test_a_screenshot_is_the_newest_picture_of_a_live_attempt(fleet: Fleet, hosts: Hosts):
    pool(fleet, hosts("a"))
    none = fleet.command("pool", "screenshot", "a")
    assert none.returncode == 3
    assert "host a has no screen to show" in none.stderr
    assert "no live attempt" in none.stderr
    (fleet.folder / "shot.png").write_bytes(picture(20, 10))
    task = slow_task(
        fleet,
        "old, new = folder / 'step_1.png', folder / 'step_2.png'",
        f"old.write_bytes({picture()!r})",
        "os.utime(old, (1, 1))",
        "new.write_bytes(open('shot.png', 'rb').read())",
        "(folder / 'half.png').write_bytes(new.read_bytes()[:-5])",
        "(folder / 'link.png').symlink_to('/etc/hostname')",
    )
    run = fleet.start("run", task, "--pool", "lab", TOKEN="very-secret-word")
    wait_for(fleet.lines, "the task")
    done = fleet.command("pool", "screenshot", "a-1")
    assert re.fullmatch(r"a\.png: attempt \S+, (now|\d+ s old)\n", done.stdout), done.stderr
    assert (fleet.folder / "a.png").read_bytes() == picture(20, 10)
    told = fleet.json("pool", "screenshot", "a", "--to", "b.png")
    assert (told["host"], told["file"]) == ("a", "b.png")
    piped = machines.begun(fleet, "pool", "screenshot", "a", "--to", "-", stdout=subprocess.PIPE)
    assert piped.communicate(timeout=DEADLINE_S)[0] == picture(20, 10)
    (fleet.folder / "go").touch()
    (fleet.folder / "end").touch()
    assert run.wait(DEADLINE_S) == 0


def test_a_screenshot_of_windows_comes_out_of_its_container(fleet: Fleet, hosts: Hosts, tmp_path: Path):
    pool(fleet, hosts("a"))
    name = f"waa-{uuid.uuid4().hex[:8]}"
    with arena(tmp_path / "arena", (name,)) as made:
        (fleet.folder / "evalfleet.toml").write_text(made.config())
        told = fleet.json("pool", "screenshot", "a", "--to", "screen.png")
        assert told["of"] == f"container {name}"
        assert (fleet.folder / "screen.png").read_bytes() == picture()
        other = fleet.command("pool", "screenshot", "a", "--container", "other")
        assert (other.returncode, "No such container: other" in other.stderr) == (3, True)


def test_a_reader_that_goes_away_is_no_error(fleet: Fleet, hosts: Hosts):
    (host,) = hosts("a")
    pool(fleet, [host])
    host.spool.joinpath("attempts").mkdir(parents=True)
    log = host.spool / "runner.log"
    log.write_text("one\ntwo\n")
    more = functools.partial(log.write_text, "one\ntwo\nthree\n")
    assert machines.left_by_its_reader(fleet, "pool", "logs", "-f", then=more) == (141, b"")
