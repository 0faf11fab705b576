"""A home whose store is on a PostgreSQL server, as a person uses it."""

from __future__ import annotations

import os
import signal

import pytest
from tests.support.fleet import Fleet, wait_for
from tests.support.postgres import Server
from tests.support.web_server import serve


@pytest.mark.slow
def test_a_home_moves_to_a_server_and_everything_works_there(fleet: Fleet, postgres: Server) -> None:
    tasks = [{"key": f"t_{number}", "command": ["/bin/true"]} for number in range(4)]
    fleet.json("run", fleet.tasks(tasks))
    with postgres.schema() as schema:
        copied = fleet.json("store", "copy", "home", postgres.url(schema))
        assert (copied["rows"]["run"], copied["rows"]["task"]) == (1, 4)
        assert not (fleet.home / "evalfleet.db").exists()
        assert fleet.json("report")["tasks"]["done"] == 4

        command = ["sh", "-c", f"echo begun >> {fleet.ledger}; sleep 0.5"]
        slow = [{"key": f"s_{number}", "command": command} for number in range(4)]
        controller = fleet.start("run", fleet.tasks(slow, "slow.jsonl"), "--workers", "2")
        wait_for(fleet.lines, "a task to start")
        postgres.cut()
        os.killpg(controller.pid, signal.SIGKILL)
        controller.wait()
        assert fleet.json("resume")["state"] == "completed"
        report = fleet.json("report")
        assert (report["tasks"]["done"], report["attempts"]["total"], len(fleet.lines())) == (4, 4, 4)

        served = serve(fleet)
        assert [run["state"] for run in served.get("runs")["runs"]] == ["completed", "completed"]
        postgres.cut()
        assert len(wait_for(lambda: served.get("runs")["runs"], "the server to reconnect")) == 2
        served.process.terminate()
        served.process.wait()
        assert fleet.command("store", "copy", postgres.url(schema), "home").returncode == 0
        assert len(fleet.json("status")["runs"]) == 2
