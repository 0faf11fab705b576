"""One bad endpoint is never scored as the agent: plain programs, a real HTTP server, the command line."""

from __future__ import annotations

import http.server
import json
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.fleet import Fleet

# What people write: three tries, then the exception. The answer is right for three tasks of four.
AGENT = """\
import json, os, urllib.error, urllib.request
task = json.load(open(os.environ["EVALFLEET_TASK"]))
for attempt in range(3):
    try:
        answer = urllib.request.urlopen(os.environ["ENDPOINT"] + "/" + task["key"], timeout=20).read()
        break
    except urllib.error.HTTPError:
        if attempt == 2:
            raise
json.dump({"score": float(answer == b"right")}, open(os.environ["EVALFLEET_RESULT"], "w"))
"""
TASKS = 24
TRUE_SCORE = 0.75


class Endpoint(http.server.ThreadingHTTPServer):
    """Answers each task in its own order of luck, whatever the order of requests; `refuses` stands for a bad key."""

    daemon_threads = True

    def __init__(self, port: int = 0, *, trouble: bool = False, refuses: bool = False) -> None:
        self.asked: Counter[str] = Counter()
        self.trouble, self.refuses = trouble, refuses
        super().__init__(("127.0.0.1", port), Answers)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def status(self, key: str) -> int:
        """10 % of the answers are 429, 45 % are 500."""
        self.asked[key] += 1
        if self.refuses:
            return 401
        luck = random.Random(f"{key}/{self.asked[key]}").random() if self.trouble else 1.0
        return 429 if luck < 0.10 else 500 if luck < 0.55 else 200


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        key = self.path[1:]
        assert isinstance(self.server, Endpoint)
        status = self.server.status(key)
        self.send_response(status, "Incorrect API key provided: sk-abcd" if status == 401 else None)
        self.end_headers()
        if status == 200:
            self.wfile.write(b"wrong" if int(key.removeprefix("t_")) % 4 == 0 else b"right")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def endpoints() -> Iterator[list[Endpoint]]:
    started: list[Endpoint] = []
    yield started
    for one in started:
        one.shutdown()
        one.server_close()


@pytest.fixture(autouse=True)
def quick(fleet: Fleet) -> None:
    fleet.env["EVALFLEET_BREAKER_PROBE_BASE"] = "50ms"
    (fleet.folder / "agent.py").write_text(AGENT)


def tasks(fleet: Fleet, url: str, count: int = TASKS, **run: Any) -> str:
    rows = [
        {"key": f"t_{number}", "command": ["python3", "agent.py"], "env": {"ENDPOINT": url}} for number in range(count)
    ]
    return fleet.tasks(rows, result="required", retry_base="50ms", attempts=1, **run)


def test_the_score_is_true_although_half_of_the_answers_fail(fleet: Fleet, endpoints: list[Endpoint]):
    endpoint = Endpoint(trouble=True)
    endpoints.append(endpoint)
    summary = fleet.json("run", tasks(fleet, endpoint.url), "--workers", "4")
    assert (summary["scores"]["valid"], summary["scores"]["coverage"]) == (TRUE_SCORE, 1.0)
    assert summary["tasks"]["done"] == TASKS
    # Attempts did fail: what was lost is told, and blamed on nobody's agent.
    assert summary["failures_by_blame"].keys() == {"pool"}
    assert summary["failures"].keys() == {"service_failed"}
    evidence = {group["evidence"] for group in summary["failure_kinds"]}
    assert all(line.startswith("urllib.error.HTTPError: HTTP Error ") for line in evidence)


def test_while_it_is_down_the_run_pauses_and_afterwards_the_score_is_true(fleet: Fleet, endpoints: list[Endpoint]):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    summary = fleet.json("run", tasks(fleet, f"http://127.0.0.1:{port}"), "--workers", "4", code=3)
    assert summary["attempts"]["total"] <= 10
    assert summary["tasks"]["queued"] == TASKS, "an outage decides no task"
    assert "Connection refused" in summary["reason"]["message"]
    endpoints.append(Endpoint(port))
    summary = fleet.json("resume")
    assert (summary["scores"]["valid"], summary["scores"]["coverage"]) == (TRUE_SCORE, 1.0)


@pytest.mark.parametrize("count", [1, 12])
def test_where_it_refuses_us_the_run_pauses_at_once_with_its_words(fleet: Fleet, endpoints: list[Endpoint], count: int):
    endpoint = Endpoint(refuses=True)
    endpoints.append(endpoint)
    summary = fleet.json("run", tasks(fleet, endpoint.url, count), "--workers", "4", code=3)
    assert summary["failures"].keys() == {"service_refused"}
    assert 3 <= summary["failures"]["service_refused"] <= 5  # with what was in flight
    assert summary["tasks"]["queued"] == count
    message = summary["reason"]["message"]
    assert "HTTP Error 401: Incorrect API key provided: sk-abcd" in message
    assert f"evalfleet resume {summary['run']}" in message
    endpoint.refuses = False
    assert fleet.json("resume")["tasks"]["done"] == count


def test_without_the_signatures_it_is_as_the_program_ends_and_judging_anew_mends_it(
    fleet: Fleet, endpoints: list[Endpoint]
):
    endpoint = Endpoint(trouble=True)
    endpoints.append(endpoint)
    config = fleet.home / "config.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text("[judge]\nbuiltin = false\n")
    before = fleet.json("run", tasks(fleet, endpoint.url), "--workers", "4")
    assert before["tasks"]["failed"] > 0
    assert before["scores"]["valid"] < TRUE_SCORE
    # The report says that one message is most of it, and what to do.
    common = before["common_failure"]
    assert (common["attempts"], common["of"]) == (before["tasks"]["failed"], before["tasks"]["failed"])
    assert common["message"].startswith("exit status #: urllib.error.HTTPError: HTTP Error #: ")
    told = " ".join(fleet.command("report", COLUMNS="200").stdout.split())
    assert f"{common['attempts']} of {common['of']} failures share one message" in told
    assert f"`evalfleet judge {before['run']}`" in told
    fleet.command("report", "--html", "report.html")
    page = (fleet.folder / "report.html").read_text()
    assert f"{common['attempts']} of {common['of']} failures share one message" in page
    config.unlink()
    changes = fleet.json("judge")["changes"]
    assert {change["to"]["kind"] for change in changes} == {"service_failed"}
    after = fleet.json("report")
    assert (after["tasks"]["failed"], after["tasks"]["held"]) == (0, before["tasks"]["failed"])
    assert after["scores"]["valid"] > before["scores"]["valid"]
    endpoint.trouble = False
    assert json.loads(fleet.command("retry", "--only", "held", "--json").stdout)["scores"]["valid"] == TRUE_SCORE
