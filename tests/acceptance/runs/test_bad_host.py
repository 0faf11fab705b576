"""Two real hosts, one of which breaks in the middle of a run while the other is busy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.fleet import Fleet, wait_for
from tests.support.machines import Hosts, pool
from tests.support.sshd import Sshd

# On the good host a task takes a while. The bad one answers at once, but its second task waits until it was broken.
AGENT = """#!/bin/sh
if [ -e "$HOME/slow" ]; then exec sleep 0.5; fi
if [ -e "$HOME/ran" ]; then until [ -e "$HOME/broken" ]; do sleep 0.02; done; fi
touch "$HOME/ran"
"""
IN_HOME = "../../../../../agent"  # seen from an attempt's work folder: each host has a program of its own
SAYS = """#!/bin/sh
echo '{"error": "no display", "error_kind": "environment_failed"}' > "$EVALFLEET_RESULT"
"""


def install(host: Sshd, text: str = AGENT) -> Path:
    program = host.home / "agent"
    made = host.home / "agent.new"
    made.write_text(text)
    made.chmod(0o755)
    made.rename(program)
    return program


BREAKS: dict[str, Callable[[Sshd], object]] = {
    "launch_failed": lambda host: (host.home / "agent").unlink(),
    "bad_exit": lambda host: install(host, "#!/bin/sh\nexit 1\n"),
    "environment_failed": lambda host: install(host, SAYS),
}


@pytest.mark.parametrize(("kind", "attempts"), [("launch_failed", 1), ("bad_exit", 3), ("environment_failed", 1)])
@pytest.mark.slow
def test_a_host_that_breaks_in_the_middle_costs_a_handful_of_attempts(
    fleet: Fleet, hosts: Hosts, kind: str, attempts: int
):
    bad, good = hosts("ab")
    for host in (bad, good):
        install(host)
    (good.home / "slow").touch()
    pool(fleet, [bad, good])
    path = fleet.tasks([{"key": f"t_{n}", "command": [IN_HOME]} for n in range(12)], attempts=attempts)
    run = fleet.start("run", path, "--pool", "lab")
    wait_for((bad.home / "ran").exists, "a first task on the bad host")
    BREAKS[kind](bad)
    (bad.home / "broken").touch()
    code, said = run.wait(60), run.stdout.read() if run.stdout else ""
    assert code == 0, said
    summary = fleet.json("report", "latest")
    assert (summary["scores"]["valid"], summary["scores"]["coverage"]) == (1.0, 1.0)
    ends = [event["data"] for event in fleet.events() if event["type"] == "attempt.finished"]
    wasted = [end for end in ends if end["outcome"] != "ok"]
    assert 0 < len(wasted) <= 6
    assert {end["kind"] for end in wasted} == {kind}
    assert "host a is quarantined" in said
