"""Pools over HTTP, from zero to nothing: a real server, real processes that keep pools, an emulated cloud."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import wait_for
from tests.support.rented import NAME, Rented, rented
from tests.support.web_server import Served, serve

NEW = {"name": NAME, "backend": "azure-vm", "regions": "eastus", "workers": 2, "max_hours": 2, "budget_usd": 50}


def states(server: Served) -> list[str]:
    return sorted(row["state"] for row in server.get(f"pools/{NAME}")["hosts"])


def until(server: Served, *wanted: str) -> list[dict[str, Any]]:
    wait_for(lambda: states(server) == sorted(wanted), f"machines that are {wanted}")
    return server.get(f"pools/{NAME}")["hosts"]


def keepers(here: Rented) -> list[int]:
    return [pid for pid in here.fleet.controllers() if b"settle" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def requests(here: Rented) -> list[tuple[str, str]]:
    told = here.told("pool.requested", f"pool:{NAME}")
    return [(event["data"]["verb"], event["data"]["by"].partition(" (")[0]) for event in told]


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_pool_lives_and_ends_over_http_through_deaths_of_its_server(tmp_path: Path):
    with rented(tmp_path, 60) as here:
        server = serve(here.fleet)
        made = server.post("pools", NEW, 201)
        assert (made["pool"], made["workers"], made["by"]) == (NAME, 2, "this server")
        # In the middle of it all, server and keeper die: the next server takes the pool again.
        wait_for(lambda: len(states(server)) == 2, "two machines that are asked for")
        server.kill()
        for pid in keepers(here):
            os.kill(pid, signal.SIGKILL)
        server = serve(here.fleet)
        hosts = until(server, "ready", "ready")
        pool = server.get(f"pools/{NAME}")
        assert pool["breaker"] is None
        wait_for(lambda: server.get(f"pools/{NAME}")["quota"], "what was seen of the quota")
        quota = server.get(f"pools/{NAME}")["quota"]
        assert (quota["region"], quota["used"] >= 2, quota["limit"] > quota["used"]) == ("eastus", True, True)
        assert all(row["idle_share"] == 1.0 and row["vnc"] and row["deadline_at"] for row in hosts)

        # The server dies alone: its keeper goes on, and the next server finds the pool kept.
        server.post(f"pools/{NAME}/scale", {"workers": 3})
        wait_for(lambda: keepers(here), "a process that keeps the pool")
        server.kill()
        server = serve(here.fleet)
        until(server, "ready", "ready", "ready")

        name = hosts[0]["host"]
        assert server.post(f"pools/{NAME}/stop", {"worker": name})["machines"] == [name]
        (stopped,) = [row for row in until(server, "ready", "ready", "stopped") if row["state"] == "stopped"]
        assert stopped["host"] == name
        assert stopped["vnc"] is False
        server.post(f"pools/{NAME}/start", {"worker": name})
        until(server, "ready", "ready", "ready")
        wait_for(lambda: not keepers(here), "the end of the process, which leaves the pool to whoever uses it")

        assert server.post(f"pools/{NAME}/delete")["deleting"] is True
        wait_for(lambda: server.ask(f"/api/v1/pools/{NAME}").status == 404, "the end of the pool")
        assert here.is_empty(), here.leaks()
        assert set(here.births().values()) == {1}
        assert requests(here) == [(verb, "token serve") for verb in ("create", "scale", "stop", "start", "delete")]
        wait_for(lambda: not keepers(here), "the end of the last process")


@pytest.mark.slow
def test_stopping_a_machine_of_a_pool_that_creates_no_more_buys_nothing(tmp_path: Path):
    """Its missing machine could be had again by now. Only `start`, `scale` and a run ask for it."""
    scenario = tmp_path / "sold-out.toml"
    scenario.write_text('[[fault]]\nop = "vm.create"\npreset = "allocation_failed"\nskip = 1\n')
    with rented(tmp_path, 0, "--scenario", str(scenario)) as here:
        done = here.fleet.command("pool", "create", NAME, "--backend", "azure-vm", "--regions", "eastus", "-w", "2")
        assert done.returncode == 3, done.stdout + done.stderr
        (name,) = [host for host, state in here.states().items() if state == "ready"]
        reason, asked = here.status()["reason"], len(here.events("vm.creating"))
        here.control("DELETE", "faults")
        server = serve(here.fleet)
        server.post(f"pools/{NAME}/stop", {"worker": name})
        until(server, "stopped")
        wait_for(lambda: not keepers(here), "the end of the process that stopped it")
        assert (here.status()["reason"], len(here.events("vm.creating"))) == (reason, asked)
        assert here.fleet.command("pool", "settle", NAME).returncode == 3
        assert len(here.events("vm.creating")) == asked
        server.post(f"pools/{NAME}/start", {})
        until(server, "ready", "ready")


@pytest.mark.long
def test_what_a_killed_command_asked_for_is_carried_out(tmp_path: Path):
    with rented(tmp_path, 60) as here:
        command = here.fleet.start("pool", "create", NAME, "--backend", "azure-vm", "--regions", "eastus", "-w", "1")
        wait_for(lambda: here.events("vm.creating"), "a machine that is on its way")
        command.kill()
        command.wait()
        onlooker = serve(here.fleet, "--no-drive")
        reply = onlooker.ask(f"/api/v1/pools/{NAME}/stop", "POST", {})
        assert (reply.status, "manages no pools" in reply.json["error"]["message"]) == (409, True)
        assert onlooker.ask("/api/v1/pools", "POST", {**NEW, "name": "other"}).status == 409
        server = serve(here.fleet)
        until(server, "ready")
        server.post(f"pools/{NAME}/delete")
        wait_for(lambda: onlooker.ask(f"/api/v1/pools/{NAME}").status == 404, "the end of the pool")
        assert here.is_empty(), here.leaks()
