"""What an operator does on the page besides pausing and cancelling: one browser, one server, many steps."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import Fleet, wait_for
from tests.support.page_view import BUILT, CHROMIUM, MISSING, View, viewed
from tests.support.web_server import Served, serve

pytestmark = [pytest.mark.skipif(CHROMIUM is None or not BUILT, reason=MISSING), pytest.mark.slow]

GATED = "echo $EVALFLEET_ATTEMPT >> ledger; until [ -e gate ]; do sleep 0.05; done"
HOSTS = '[[host]]\nname = "box1"\naddress = "127.0.0.1"\nuser = "nobody"\nslots = 2\n'
# A task that shows a picture, says that it took a step, and waits.
PAINTER = """
import base64, os, pathlib, time
folder = pathlib.Path(os.environ["EVALFLEET_RESULT"]).parent / "artifacts"
folder.mkdir(exist_ok=True)
dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
(folder / "step_1.png").write_bytes(base64.b64decode(dot))
with open(os.environ["EVALFLEET_EVENTS"], "a") as events:
    events.write('{"step": 1}\\n')
while not os.path.exists("gate"):
    time.sleep(0.05)
"""


@contextmanager
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A real web server that is told of alerts."""
    messages: list[dict[str, Any]] = []

    class Taking(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Taking) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/hook", messages
        server.shutdown()
        thread.join()


def verbs(fleet: Fleet, run: str) -> list[str]:
    return [event["data"]["verb"] for event in fleet.events(run) if event["type"] == "run.requested"]


def make_a_run(fleet: Fleet, view: View) -> str:
    """By the form: first with a mistake that the page sees, then with one that the server sees, then right."""
    view.click("New run")
    view.sees("New run", "A benchmark")
    view.until("document.querySelector('[name=benchmark]').options.length > 0", "the benchmarks")
    view.js("document.querySelector('input[type=radio][value=tasks]').click()")
    rows = [{"key": key, "command": ["sh", "-c", GATED]} for key in ("a", "b", "c", "d")]
    view.fill(rows='{"key": "a"', name="made here", workers="2")
    view.click("Create the run")
    view.sees("line 1 is not JSON")
    view.fill(rows='{"key": "a"}')
    view.click("Create the run")
    view.until("document.querySelector('.refused')?.innerText.includes('command')", "what the server said against it")
    view.shoot("run-new-refused-1280-light")
    view.fill(
        rows="\n".join(json.dumps(row) for row in [*rows, {"key": "bad", "command": ["false"]}]),
        folder=str(fleet.folder),
    )
    view.click("Create the run")
    view.sees("made here", "Workers over time")
    return str(view.js("location.pathname")).rpartition("/")[2]


def steer_its_workers(fleet: Fleet, server: Served, view: View, run: str) -> None:
    wait_for(lambda: len(fleet.lines()) == 2, "two tasks to start")
    view.go(f"/runs/{run}?tab=workers")
    view.confirm("Quarantine", "Quarantine local-1?", "Quarantine", reason="it is slow")
    view.sees("In quarantine", "local-1")
    assert server.get(f"runs/{run}")["quarantined"] == ["local-1"]
    view.confirm("Let it work", "Let local-1 work again?", "Let it work")
    view.lacks("In quarantine")
    view.confirm("Workers and budget", "Change made here", "Change", workers="3")
    view.sees("3 workers")
    wait_for(lambda: len(fleet.lines()) == 3, "the third worker to take a task")
    view.confirm("Workers and budget", "Change made here", "Change", budget_usd="7")
    view.sees("of $7.00")
    told = server.get(f"runs/{run}")
    assert (told["policy"]["workers"], told["cost"]["budget_usd"]) == (3, 7.0)


def hold_release_and_retry(fleet: Fleet, server: Served, view: View, run: str) -> None:
    view.go(f"/runs/{run}/tasks/5")
    view.confirm("Hold", "Hold bad?", "Hold", reason="not now")
    view.sees("held", "not now")
    view.confirm("Release", "Release bad?", "Release")
    view.lacks("not now")
    (fleet.folder / "gate").touch()
    wait_for(lambda: server.get(f"runs/{run}")["state"] == "completed", "the run to end")
    view.go(f"/runs/{run}")
    view.sees("completed", "1 failed")
    before = len(server.get(f"runs/{run}/tasks/5")["attempt_list"])
    view.confirm("Retry failed", "Retry what has no verdict?", "Retry")
    wait_for(lambda: len(server.get(f"runs/{run}/tasks/5")["attempt_list"]) > before, "another attempt")


def send_a_test_message(view: View, messages: list[dict[str, Any]]) -> None:
    view.go("/alerts")
    before = len(messages)
    view.confirm("Send a test message", "Send a test message?", "Send")
    view.sees("1 channel took the message")
    assert any("test" in json.dumps(message) for message in messages[before:])


def make_and_delete_a_pool(server: Served, view: View) -> None:
    view.go("/pools/new")
    view.until("document.querySelector('[name=hosts]')", "the fields of the first kind of pool")
    view.fill(name="lab", hosts="[[host]]\nname = ")
    view.click("Create the pool")
    view.until("document.querySelector('.refused')", "what the server said against it")
    view.fill(hosts=HOSTS)
    view.click("Create the pool")
    view.sees("lab", "box1", "0 of 2")
    view.confirm("Delete", "Delete the pool lab?", "Delete the pool")
    view.sees("No pools")
    assert server.get("pools")["pools"] == []


def test_an_operator_makes_a_run_and_steers_it_to_its_end(fleet: Fleet, tmp_path: Path):
    with receiver() as (url, messages):
        (fleet.folder / "evalfleet.toml").write_text('[alerts]\nwebhook = "HOOK"\n')
        server = serve(fleet, HOOK=url)
        with viewed(server, tmp_path) as view:
            run = make_a_run(fleet, view)
            steer_its_workers(fleet, server, view, run)
            hold_release_and_retry(fleet, server, view, run)
            send_a_test_message(view, messages)
            make_and_delete_a_pool(server, view)
        asked = verbs(fleet, run)
        assert asked == ["submit", "quarantine", "unquarantine", "amend", "amend", "hold", "release", "retry"]


@pytest.mark.long
def test_live_pictures_and_host_charts_beside_the_lanes(fleet: Fleet, tmp_path: Path):
    (fleet.folder / "painter.py").write_text(PAINTER)
    server = serve(fleet)
    tasks = fleet.tasks([{"key": key, "command": ["{python}", "painter.py"]} for key in ("a", "b")], workers=2)
    run = fleet.json("run", tasks, "--detach")["run"]
    with viewed(server, tmp_path) as view:
        view.open(f"/runs/{run}")
        view.until("document.querySelectorAll('[aria-label=\"Live screens\"] img').length === 2", "two thumbnails")
        view.until("document.querySelector('[aria-label=\"Live screens\"] img').naturalWidth > 0", "a picture")
        first = view.js("document.querySelector('[aria-label=\"Live screens\"] img').src")
        view.until(
            f"document.querySelector('[aria-label=\"Live screens\"] img').src !== {json.dumps(first)}", "a newer one"
        )
        view.shoot("run-live-1280-light")
        view.go(f"/runs/{run}?tab=workers")
        view.until("document.querySelector('article img')?.naturalWidth > 0", "the picture of a worker")
        view.until("document.querySelector('[data-series=local] svg path')?.getAttribute('d')", "how busy the host is")
        view.look_at({"workers-live": f"/runs/{run}?tab=workers"})
    (fleet.folder / "gate").touch()
