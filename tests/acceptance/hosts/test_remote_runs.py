"""A real run on a rented machine, watched from outside while it goes on: by `evalfleet serve`, over SSH alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from tests.support.fleet import wait_for
from tests.support.rented import PATIENCE_S, Rented, rented
from tests.support.web_server import Served, serve

from evalfleet.testing.pages import picture

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]
LIMIT = cast("Any", aiohttp.ClientWSTimeout)(ws_receive=60)  # made by a library that the checker cannot see through
# Prints, leaves a step with its screenshot, shows a desktop, and ends when somebody types into it.
TASK = """
import json, os, pathlib, socket
folder = pathlib.Path(os.environ["EVALFLEET_RESULT"]).parent
artifacts = pathlib.Path(os.environ["EVALFLEET_ARTIFACTS"])
(artifacts / "step_1.png").write_bytes(pathlib.Path("shot.png").read_bytes())
(artifacts / "trajectory.jsonl").write_text(json.dumps({"step": 1, "screenshot": "step_1.png", "note": "looked"}) + "\\n")
with open(os.environ["EVALFLEET_EVENTS"], "a") as events:
    events.write(json.dumps({"step": 1}) + "\\n")
here = os.open(folder, os.O_PATH)
server = socket.socket(socket.AF_UNIX)
server.bind("/proc/self/fd/%d/vnc.sock" % here)
server.listen()
print("the desktop is up", flush=True)
typed = b""
while not typed.endswith(b"a"):
    viewer, _ = server.accept()
    viewer.sendall(b"RFB 003.008\\n")
    typed = b""
    while data := viewer.recv(4096):
        typed += data
        if typed.endswith(b"a"):
            break
print("somebody typed", flush=True)
"""
HELLO = b"RFB 003.008\n\x01\x01"
KEY = bytes([4, 1, 0, 0, 0, 0, 0, 0x61])
PLACE = "/api/v1/runs/latest/tasks/1/attempts/1"


async def typed(server: Served, path: str, token: str) -> bytes:
    """Type one key into a desktop; what it said first."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(
            f"ws://127.0.0.1:{server.port}{path}",
            headers={"Authorization": f"Bearer {token}"},
            protocols=["binary"],
            timeout=LIMIT,
        ) as ws,
    ):
        said = await ws.receive_bytes(timeout=60)
        await ws.send_bytes(HELLO + KEY)
        return said


def begin(here: Rented) -> Served:
    fleet = here.fleet
    here.create("--workers", "1")
    server = serve(fleet)
    (fleet.folder / "task.py").write_text(TASK)
    (fleet.folder / "shot.png").write_bytes(picture(9))
    task = {"key": "a", "command": ["python3", "task.py"]}
    fleet.command("run", fleet.tasks([task], files=["task.py", "shot.png"]), "--pool", "p1", "--detach")
    return server


def test_a_run_on_a_rented_machine_is_seen_and_used_live(tmp_path: Path):
    with rented(tmp_path, 100) as here:
        server = begin(here)
        log = f"{PLACE}/logs/stdout"
        wait_for(
            lambda: (said := server.ask(log)).status == 200 and "desktop is up" in said.json["text"], "its first words"
        )
        assert server.ask(log).json["live"]
        seen = server.ask(PLACE).json
        assert [frame["note"] for frame in seen["film"]["frames"]] == ["looked"]
        assert (seen["desktop"], seen["problem"]) == ({"vnc": True, "screenshot": True}, None)
        assert server.ask(f"{PLACE}/files/step_1.png").body == picture(9)
        worker = wait_for(
            lambda: next((one for one in server.get("runs/latest")["workers"] if one["screen"]), None), "the lane"
        )
        host = worker["host"]
        assert server.ask(f"{PLACE}/screenshot").body == picture(9)
        assert server.ask(f"/api/v1/pools/p1/hosts/{host}/screenshot").body == picture(9)
        reader = here.fleet.json("token", "new", "guest")["token"]
        for path in (f"{PLACE}/vnc", f"/api/v1/pools/p1/hosts/{host}/vnc"):
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                asyncio.run(typed(server, f"{path}?control=1", reader))
        assert asyncio.run(typed(server, f"/api/v1/pools/p1/hosts/{host}/vnc", reader)) == b"RFB 003.008\n"
        assert server.ask(PLACE).json["live"], "a reader's key does not arrive"
        asyncio.run(typed(server, f"{PLACE}/vnc?control=1", server.token))
        wait_for(lambda: server.get("runs/latest")["state"] == "completed", "the end of the task", PATIENCE_S)
        said = wait_for(lambda: "typed" in (now := server.ask(log).json)["text"] and now, "its last words")
        assert (said["live"], said["text"]) == (False, "the desktop is up\nsomebody typed\n")
        assert server.ask(f"{PLACE}/screenshot").body == picture(9), "it lies in the home now"
        verbs = [event["data"]["verb"] for event in here.fleet.events() if event["type"] == "run.requested"]
        assert verbs == ["take_over"]
