"""What WAA's logs and exceptions say of Windows: never the agent's 0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalfleet.benchmarks.waa.attempt import judge
from evalfleet.benchmarks.waa.recorder import Recorder
from evalfleet.benchmarks.waa.task_log import guest_failure, last_error
from evalfleet.benchmarks.waa.trajectory import Raised, read_line
from evalfleet.model import Kind


def entry(level: str, message: str, module: str = "python") -> str:
    head = f"\x1b[1;33m[2026-11-16 02:16:00,123 \x1b[31m{level} \x1b[32m{module}/130-MainProcess\x1b[1;33m] \x1b[0m"
    return f"{head}{message}\n"


SETUP = entry("ERROR", "Not implemented! Reverting to snapshot is not supported for remote VMs!", "desktop_env")
READY = entry("INFO", "Environment setup complete.", "desktop_env")
ABORTED = "('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))"
SWALLOWED = {
    "observation": READY + entry("ERROR", "Observation is None. Waiting a little to do next step."),
    "observation 500": READY
    + entry("ERROR", "Failed to get the observations for the agent from the server. Status code: 500"),
    "execute": READY + entry("ERROR", f"An error occurred while trying to execute the command: {ABORTED}"),
    "upload": entry("ERROR", "Failed to upload file. Status code: <html>500</html>", "setup") + READY,
    "open": entry("ERROR", "Failed to open file. Status code: File not found: C:\\x.txt", "setup") + READY,
    "file": READY + entry("ERROR", f"An unexpected error occurred: {ABORTED}", "desktop_env"),
    "file 500": READY + entry("ERROR", "Failed to get file. Status code: 500"),
    "setup link": entry("ERROR", f"An error occurred while trying to send the request: {ABORTED}", "setup") + READY,
    "tree": READY + entry("ERROR", "Request timed out while trying to get accessibility tree."),
    "picture": READY + entry("ERROR", "Failed to get screenshot!"),
}
THE_AGENTS = {
    "nothing": SETUP + READY,
    "its file is not there": READY + entry("ERROR", "Failed to get file. Status code: 404"),
    "its code raised": READY + entry("ERROR", "Failed to execute command. Status code: 500"),
    "its code took too long": READY
    + entry(
        "ERROR",
        "An error occurred while trying to execute the command: HTTPConnectionPool: Read timed out. (read timeout=90)",
    ),
    "it moved the file": READY + entry("ERROR", "Failed to open file. Status code: File not found", "setup"),
    "another window": entry("ERROR", "Failed to activate window Calc. Status code: Window Calc not found", "setup")
    + READY,
    "a checker": READY + entry("ERROR", "An unexpected error occurred: 'NoneType' object is not subscriptable"),
}


def recorder(folder: Path, log: str, result: str | None) -> Recorder:
    (folder / "logs").mkdir()
    (folder / "logs" / "task-0-20261116@021600.log").write_text(log)
    if result is not None:
        (folder / "result.txt").write_text(result)
    return Recorder(folder / "events.jsonl", folder)


@pytest.mark.parametrize("what", SWALLOWED)
def test_a_failure_of_windows_is_not_the_agents_0(tmp_path: Path, what: str):
    result = judge(recorder(tmp_path, SETUP + SWALLOWED[what], "0.0\n"), 0)
    assert result["error_kind"] is Kind.ENVIRONMENT_FAILED
    assert "Windows failed, and WAA scored it 0: " in result["error"]
    assert "\x1b" not in result["error"]


def test_a_task_that_was_solved_all_the_same_stays_solved(tmp_path: Path):
    assert judge(recorder(tmp_path, SWALLOWED["observation"], "1.0\n"), 0)["score"] == 1.0


@pytest.mark.parametrize("what", THE_AGENTS)
def test_what_is_the_agents_0(tmp_path: Path, what: str):
    assert guest_failure(THE_AGENTS[what]) is None
    assert judge(recorder(tmp_path, THE_AGENTS[what], "0\n"), 0)["score"] == 0.0


AGENT = 'Traceback (most recent call last):\n  File "/client/mm_agents/navi/agent.py", line 1, in predict\n'


def raised(traceback: str) -> Raised:
    found = read_line(json.dumps({"Error": "x", "Exception": "y", "Traceback": traceback}))
    assert isinstance(found, Raised)
    return found


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        (
            "xml.etree.ElementTree.ParseError: not well-formed (invalid token): line 1, column 3",
            Kind.ENVIRONMENT_FAILED,
        ),
        ("lxml.etree.XMLSyntaxError: Document is empty, line 1, column 1", Kind.ENVIRONMENT_FAILED),
        ("PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object>", Kind.ENVIRONMENT_FAILED),
        (f"requests.exceptions.ConnectionError: {ABORTED}", Kind.ENVIRONMENT_FAILED),
        ("ValueError: no code block", Kind.TASK_ERROR),
    ],
)
def test_what_the_agents_code_raises_without_a_whole_observation(last: str, kind: Kind):
    assert raised(AGENT + last).kind is kind


def test_the_cause_stands_in_the_evidence(tmp_path: Path):
    """Not the last line of a traceback, which may be a browser's log, nor an exception that hides another."""
    browser = raised(
        'Traceback:\n  File "/client/x.py", line 1\n\x1b[91mplaywright._impl._errors.Error: connect ECONNREFUSED 20.20.20.21:9222'
        "\x1b[0m\nCall log:\n  - <ws preparing> retrieving websocket url\n"
    )
    assert browser.words == "playwright._impl._errors.Error: connect ECONNREFUSED 20.20.20.21:9222"
    log = SETUP + entry(
        "ERROR", "Failed to download https://x/y.xlsx caused by 503. Retrying... (0 attempts left)", "setup"
    )
    log += entry("ERROR", "Exception in notepad/a: local variable 'e' referenced") + entry("ERROR", "Traceback (most")
    assert last_error(log) == "Failed to download https://x/y.xlsx caused by 503. Retrying... (0 attempts left)"
    made = recorder(tmp_path, log, None)
    made.trajectory(json.dumps({"Error": "x", "Traceback": "UnboundLocalError: local variable 'e' referenced"}))
    result = judge(made, 0)
    assert result["error"].startswith("UnboundLocalError: local variable 'e' referenced (before it: Failed to download")
