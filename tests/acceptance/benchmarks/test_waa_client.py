"""Microsoft's unchanged `run.py`, navi, checkers and `show_result.py`, against a stand-in for the guest and the model."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.fake_waa.arena import Arena, arena
from msgspec import Struct
from tests.support.chat import Asked, Behaviour, ChatServer, completion
from tests.support.fleet import Fleet
from tests.support.waa_guest import ADDRESS, MONITOR, PORT, Windows, guest

from evalfleet.emulator.docker import state

ROOT = Path(__file__).parents[3]
CLIENT = ROOT.parent / "shared" / "data" / "waa-client" / "src" / "win-arena-container" / "client"
PYTHON = ROOT / ".waa-client" / "bin" / "python"
KEY = "sk-very-hidden-0123456789"

pytestmark = [
    pytest.mark.timeout(580),
    pytest.mark.slow,
    pytest.mark.skipif(not CLIENT.is_dir(), reason="no copy of WAA's client beside the checkout"),
    pytest.mark.skipif(not PYTHON.exists(), reason="no Python for WAA's client; run scripts/waa-client"),
]

CALC = "windows_calc/28b91a24-5d97-4c2a-891c-dccbd3820c62-WOS"
TIMER = "clock/02F10F89-7171-4D37-8550-A00BA8930CDF"
WORLD = "clock/91A30BE9-0E11-4374-8D43-41D4D097080A"
DESKTOP = "C:\\\\Users\\\\Docker\\\\Desktop"
SETTINGS = "C:\\\\Users\\\\Docker\\\\AppData\\\\Roaming\\\\Code\\\\User\\\\settings.json"
FAIL = "```decision\nFAIL\n```"
DONE = "```decision\nDONE\n```"


def code(text: str) -> str:
    return f"```python\n{text}\n```"


# What the model answers at its first step; then it is done. Nothing: it is done at once.
SOLUTIONS = {
    f"{CALC}-2": code(f'open("{DESKTOP}\\\\numdays.txt", "w").write("230 days")'),
    f"{CALC}-3": code(f'open("{DESKTOP}\\\\numdays.txt", "w").write("585 days")'),
    CALC: code(f'open("{DESKTOP}\\\\Differences.txt", "w").write("43 years, 9 months, 3 weeks, 4 days")'),
    f"{TIMER}-2-WOS": "",
    f"{TIMER}-WOS": code("clock([3, 0, 0])"),
    f"{WORLD}-WOS-2": code('clock(["Kyoto", "Japan"])'),
    f"{WORLD}-WOS": code('clock(["Berlin", "Germany"])'),
    "file_explorer/1876fe7f-6fdc-5dd6-c9e0-237d4c8411f0-WOS": code(
        f'move("{DESKTOP}\\\\MyFolder", "C:\\\\Users\\\\Docker\\\\Documents\\\\MyFolder")'
    ),
    "file_explorer/7AB09EF1-331B-4A21-90C9-996ADE3B6E1A-WOS": "",
    "vs_code/276cc624-87ea-4f08-ab93-f770e3790175-WOS": code(
        f'open("{SETTINGS}", "w").write(\'{{"editor.wordWrapColumn": 50}}\')'
    ),
    "vs_code/9439a27b-18ae-42d8-9778-5f68f891805e-WOS": code(f'open("{SETTINGS}", "w").write("{{}}")'),
    "vs_code/INF-dcbe20e8-647f-4f1d-8696-f1c5bbb570e3-WOS": FAIL,
    "vlc/INF-0d95d28a-9587-433b-a805-1fbe5467d598-WOS": FAIL,
    "vs_code/INF-7c4cc09e-7a92-40dd-8338-b2286535c4ed-WOS": "",
}
SOLVED = {
    key
    for key in SOLUTIONS
    if SOLUTIONS[key] and key not in (f"{WORLD}-WOS", "vs_code/9439a27b-18ae-42d8-9778-5f68f891805e-WOS")
}


def instruction(task: str) -> str:
    return json.loads((CLIENT / "evaluation_examples_windows" / "examples" / f"{task}.json").read_text())["instruction"]


class Setup(Struct, frozen=True, kw_only=True):
    windows: Windows
    model: ChatServer
    arena: Arena
    fleet: Fleet

    def solve(self, solutions: dict[str, str]) -> None:
        """Let the model know these tasks; of others it says at once that it is done."""
        known = {instruction(task): said for task, said in solutions.items()}

        def mind(asked: Asked) -> Behaviour:
            said = next((said for goal, said in known.items() if goal in asked.text), "")
            acted = "open(" in asked.text or "clock(" in asked.text or "move(" in asked.text
            return completion(DONE if acted or not said else said)

        self.model.mind = mind

    def configure(self, **more: object) -> None:
        limits = {"timeout": "120s", "stall": "40s", "guest_timeout": "20s", "poll": "100ms", "shutdown": "1s"}
        table = {
            "client": str(self.arena.client), "python": str(PYTHON), "guest": ADDRESS, "guest_port": PORT, "qmp_port": MONITOR,
            "flags": ["--som_origin", "a11y"], **limits, **more,
        }  # fmt: skip
        text = self.arena.config(**table).partition("[llm]")[0]
        price = '[[llm.price]]\nmodel = "*"\ninput_usd_per_million = 2.0\noutput_usd_per_million = 10.0\n'
        (self.fleet.folder / "evalfleet.toml").write_text(f'{text}[llm]\nbase_url = "{self.model.url}"\n{price}')

    def run(self, *tasks: str, code: int = 0) -> dict[str, Any]:
        named = [word for task in tasks for word in ("--task", task)]
        process = self.fleet.start(
            "run", "waa", "--agent", "navi", "--model", "gpt-4o", *named, "--json", OPENAI_API_KEY=KEY
        )
        output, _ = process.communicate(timeout=560)
        assert process.returncode == code, output
        return json.loads(output)

    def attempts(self) -> list[dict[str, Any]]:
        return [event["data"] for event in self.fleet.events() if event["type"] == "attempt.finished"]


@pytest.fixture
def setup(tmp_path: Path, fleet: Fleet) -> Iterator[Setup]:
    name = f"waa-{uuid.uuid4().hex[:8]}"
    with (
        arena(tmp_path / "arena", (name,)) as made,
        guest(tmp_path) as windows,
        ChatServer(lambda _: completion(DONE)) as model,
    ):
        shutil.rmtree(made.client)
        shutil.copytree(CLIENT, made.client)
        found = Setup(windows=windows, model=model, arena=made, fleet=fleet)
        found.configure()
        yield found


@pytest.mark.long
def test_fourteen_tasks_have_the_verdicts_of_their_checkers(setup: Setup, tmp_path: Path):
    setup.solve(SOLUTIONS)
    summary = setup.run(*SOLUTIONS)
    scores = {row["key"]: row["score"] for row in summary["results"]}
    assert scores == {task: float(task in SOLVED) for task in SOLUTIONS}
    assert sum(scores.values()) == 9
    assert summary["attempts"]["total"] == 14
    assert {asked.headers["authorization"] for asked in setup.model.asked} == {f"Bearer {KEY}"}
    # Its own script says the same of what we export. It divides by the results of Office and Daily, so these must be there.
    out = tmp_path / "out"
    assert setup.fleet.command("export", "latest", "--to", str(out), "--format", "waa").returncode == 0
    (results,) = (path.parents[1] for path in out.rglob("clock") if path.is_dir())
    for task, score in {"libreoffice_calc/a": "1.0", "chrome/b": "0.0"}.items():
        (results / "0" / task).mkdir(parents=True)
        (results / "0" / task / "result.txt").write_text(f"{score}\n")
    command = [str(PYTHON), "show_result.py", "--result_dir", str(out), "--use_model", results.name]
    said = subprocess.run(command, cwd=setup.arena.client, capture_output=True, text=True, check=True).stdout
    assert f"Tasks executed: 16 Current Success Rate: {10 / 16 * 100}" in said


# Each row: what Windows does wrong, what the evidence says. The agent would solve the task.
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "observation 500": (
        {"/obs_winagent": 500},
        "Failed to get the observations for the agent from the server. Status code: 500",
    ),
    "execute drops": ({"/execute_windows": "drop"}, "An error occurred while trying to execute the command"),
    "file drops": ({"/file": "drop"}, "An unexpected error occurred: ('Connection aborted.'"),
    "file 500": ({"/file": 500}, "Failed to get file. Status code: 500"),
    "observation hangs": ({"/obs_winagent": "hang"}, "run.py did not get as far as the task's first screen"),
    "broken tree": ({"/accessibility": "broken"}, "xml.etree.ElementTree.ParseError"),
    "no picture": ({"qmp": "broken"}, "PIL.UnidentifiedImageError"),
    "no monitor": ({"qmp": "drop"}, "Failed to connect to QMP"),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_windows_is_not_the_agents(setup: Setup, fault: str):
    faults, said = FAULTS[fault]
    setup.solve(SOLUTIONS)
    setup.configure(stall="12s")
    setup.windows.fault.update(faults)
    summary = setup.run(CALC, code=1)
    (row,) = summary["results"]
    assert (row["state"], row["score"], row["failure"]["kind"]) == ("held", None, "environment_failed")
    assert any(said in one["evidence"] for one in setup.attempts()), setup.attempts()
    assert setup.arena.restarts() >= 1  # the container is restarted before it is used again
    setup.windows.fault.clear()
    assert setup.run(CALC)["results"][0]["score"] == 1.0


@pytest.mark.long
def test_an_upload_that_fails_is_not_the_agents(setup: Setup):
    """The one row that needs a task with a file; the file is in the cache of a client that cannot reach the web."""
    # A task of our own, so that nothing must be downloaded: it opens a file that its setup failed to bring.
    task = json.loads((CLIENT / "evaluation_examples_windows" / "examples" / f"{CALC}.json").read_text())
    task["config"] = [{"type": "open", "parameters": {"path": "C:\\Users\\Docker\\Documents\\brought.txt"}}]
    (setup.arena.client / "evaluation_examples_windows" / "examples" / f"{CALC}.json").write_text(json.dumps(task))
    summary = setup.run(CALC, code=1)
    assert summary["results"][0]["failure"]["kind"] == "environment_failed"
    assert "Failed to open file" in summary["results"][0]["failure"]["evidence"]


@pytest.mark.long
def test_a_slow_windows_is_not_the_agents(setup: Setup):
    setup.solve({CALC: code("pass")})
    setup.model.mind = lambda _: completion(code("pass"))  # goes on until its steps are used up
    setup.configure(timeout="40s")
    setup.windows.pause_s["/accessibility"] = 4.0
    summary = setup.run(CALC, code=1)
    assert summary["results"][0]["failure"]["kind"] == "environment_failed"
    assert "Windows is too slow: GET /accessibility" in summary["results"][0]["failure"]["evidence"]


@pytest.mark.long
@pytest.mark.parametrize(("reset", "score"), [("close", 1.0), ("overlay", 0.0)])
def test_an_agent_that_does_nothing_after_one_that_solved(setup: Setup, tmp_path: Path, reset: str, score: float):
    """With WAA's own way the file of the first agent is still there, and the second one is given its score."""
    golden = tmp_path / "golden"
    golden.mkdir()
    (golden / "data.img").touch()
    name = f"{setup.arena.containers[0]}-own"
    setup.configure(containers=[name], storage=str(golden), reset=reset)
    setup.windows.follow = lambda: state.load(setup.arena.docker).containers.get(name)
    assert setup.fleet.json("prepare", "waa")["ready"] is True
    setup.solve({CALC: SOLUTIONS[CALC]})
    assert setup.run(CALC)["results"][0]["score"] == 1.0
    setup.solve({})
    assert setup.run(CALC)["results"][0]["score"] == score


@pytest.mark.long
def test_a_wrong_key_pauses_the_run(setup: Setup):
    from tests.support.chat import refusal

    setup.model.mind = lambda _: refusal(401, "Incorrect API key provided", "invalid_api_key")
    summary = setup.run(CALC, code=3)
    assert summary["state"] == "paused"
    assert re.search("Incorrect API key provided", json.dumps(summary["reason"]))
