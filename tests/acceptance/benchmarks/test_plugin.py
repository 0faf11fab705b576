"""The example of a plugin as a stranger installs and uses it, and what a broken one does to the rest: nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from tests.support import plugin
from tests.support.fleet import Fleet

import evalfleet
from evalfleet import errors


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plugin.install(tmp_path_factory.mktemp("plugin"))


@pytest.fixture
def plugged(fleet: Fleet, installed: Path) -> Fleet:
    fleet.env["PYTHONPATH"] = str(installed)
    return fleet


def test_its_benchmark_is_run_by_its_agent(plugged: Fleet):
    summary = plugged.json("run", "sums", "--agent", "adder", "--repeat", "2", "--workers", "2")
    assert {row["score"] for row in summary["results"]} == {1.0}
    assert (summary["tasks"]["total"], summary["name"]) == (8, "sums-adder")
    assert set(summary["by_domain"]) == {"two", "five"}
    folder = Path(plugged.json("logs", "latest", "two-small_0")["folder"]) / "artifacts"
    assert {path.name for path in folder.iterdir()} == {"step_1.png", "final.png", "trajectory.jsonl"}


def test_its_table_is_read_and_checked(plugged: Fleet):
    file = plugged.folder / "evalfleet.toml"
    file.write_text('[sums]\nlargest = 1\ntimeout = "2m"\n')
    run = ("run", "sums", "--agent", "adder", "--task", "two-large", "--json")
    summary = plugged.json(*run[:-1])
    shown = Path(plugged.json("logs", "latest", "two-large_0")["folder"]) / "artifacts" / "trajectory.jsonl"
    assert summary["results"][0]["score"] == 1.0
    assert '"text": "2"' in shown.read_text().replace('"text":"', '"text": "'), "1 + 1"
    for text, said in {
        "[sums]\nlargest = 0": "evalfleet.toml: sums.largest: must be from 1 to 1000000.",
        "[sums]\nlargst = 7": 'evalfleet.toml: sums: unknown key "largst"; did you mean "largest"?',
        '[sums]\ntimeout = "soon"': 'evalfleet.toml: sums.timeout: "soon" is not a duration',
        "[sums]\ntimeout = true": 'evalfleet.toml: sums.timeout: expected a duration such as "90s"',
        "sums = 3": "evalfleet.toml: sums: expected a table, got a whole number.",
        "[sum]\nlargest = 7": 'evalfleet.toml: unknown key "sum"; did you mean "sums"?',
    }.items():
        file.write_text(text + "\n")
        done = plugged.command(*run)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_it_is_listed(plugged: Fleet):
    assert plugged.json("benchmarks", "sums")["ready"] is True
    assert "sums" in plugged.command("benchmarks").stdout
    agents = {row["name"]: row for row in plugged.json("agents")["agents"]}
    assert list(agents) == ["oracle", "random", "llm", "adder"]
    assert agents["adder"]["title"] == "adds up what it sees"
    assert plugged.command("agents", "adder").stdout == "adder: adds up what it sees\n"


def test_its_own_tests_pass(installed: Path, tmp_path: Path):
    environ = {**os.environ, "PYTHONPATH": str(installed)}
    tests = [str(plugin.SOURCE / "tests"), "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *tests, "-c", os.devnull],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


@pytest.fixture
def scripted(plugged: Fleet, installed: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """What a script sees: the plugin is installed, and the fleet's home is its own."""
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.setenv("EVALFLEET_HOME", str(plugged.home))
    monkeypatch.chdir(plugged.folder)
    return plugged


GUESSER = """
from evalfleet.agents.base import Decision, Press, Write

class Guesser:
    def __init__(self, prompt): pass
    def act(self, observation): return Decision(actions=(Write(text="7"), Press(key="Enter")))
"""


def test_benchmarks_from_python(scripted: Fleet):
    run = evalfleet.submit_benchmark("sums", agent="adder", repeat=3, workers=2, name="adds", timeout="50s", attempts=1)
    assert run.wait().scores.strict == 1.0
    assert run.name == "adds"
    (scripted.folder / "guesses.py").write_text(GUESSER)
    other = evalfleet.submit_benchmark("sums", agent="guesses:Guesser", repeat=3, workers=2)
    assert other.wait().scores.strict != 1.0
    found = other.compare(run)
    # Four tasks, three episodes each: the task is the unit, and four are too few to tell, however often each is played.
    assert (found.conclusion, found.tasks.paired) == ("not_distinguishable", 12)
    assert (found.a.scores.valid or 0.0) > (found.b.scores.valid or 0.0)
    assert json.loads(json.dumps(to_builtins(found))) == scripted.json("compare", "adds", other.id)
    assert run.compare("latest").conclusion == "not_distinguishable"

    written = run.export(scripted.folder / "out", "csv")
    assert (scripted.folder / "out" / "tasks.csv").exists()
    assert (written.format, written.run) == ("csv", run.id)
    with pytest.raises(errors.InputError, match="no format 'cvs'; did you mean \"csv\""):
        run.export(scripted.folder / "more", "cvs")
    assert "two-small_0" in run.html()


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"benchmark": "sms"}, "sms"),
        ({"agent": "nobody"}, "there is no agent 'nobody'"),
        ({"task": "two-smal"}, 'did you mean "two-small"'),
        ({"timeout": "soon"}, "timeout: "),
        ({"attempts": 0}, "attempts"),
        ({"model": "m"}, "--model has no effect on the agent 'adder'"),
    ],
)
@pytest.mark.usefixtures("scripted")
def test_bad_words_from_python(wanted: dict[str, Any], said: str, fleet: Fleet):
    given: dict[str, Any] = {"benchmark": "sums", "agent": "adder", **wanted}
    with pytest.raises(errors.InputError) as caught:
        evalfleet.submit_benchmark(**given)
    assert said in str(caught.value)
    assert not fleet.home.exists()


def test_a_model_without_a_price_is_a_warning(scripted: Fleet, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-key")
    with pytest.warns(UserWarning, match="no price is configured for m") as caught:
        evalfleet.submit_benchmark("sums", agent="llm", model="m", tasks=1)
    assert caught[0].filename == __file__


BROKEN = """
[evalfleet.benchmarks]
absent = no_such_module_at_all:Benchmark
raising = raising_plugin:Benchmark
hollow = raising_plugin_not:Hollow

[evalfleet.agents]
missing = no_such_module_at_all:Agent
number = raising_plugin_not:NUMBER
"""


@pytest.fixture
def broken(plugged: Fleet, tmp_path: Path) -> Fleet:
    """A second package besides, in which nothing works."""
    site = tmp_path / "broken"
    info = site / "broken-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(BROKEN)
    (site / "raising_plugin.py").write_text("raise RuntimeError('on\\npurpose')\n")
    (site / "raising_plugin_not.py").write_text("NUMBER = 3\nclass Hollow:\n    def __init__(self, settings): pass\n")
    plugged.env["PYTHONPATH"] += f"{os.pathsep}{site}"
    return plugged


def test_a_broken_plugin_is_named_and_breaks_nothing_else(broken: Fleet):
    rows = {row["name"]: row for row in broken.json("benchmarks")["benchmarks"]}
    assert "no_such_module_at_all" in rows["absent"]["broken"]
    assert "raising_plugin:Benchmark cannot be loaded: RuntimeError: on purpose" in rows["raising"]["broken"]
    assert "requirements" in rows["hollow"]["broken"]
    assert rows["sums"]["ready"] is True
    text = broken.command("benchmarks")
    assert text.returncode == 0
    assert "absent       broken     benchmark 'absent': no_such_module_at_all:Benchmark cannot be loaded" in text.stdout
    agents = {row["name"]: row for row in broken.json("agents")["agents"]}
    assert "no_such_module_at_all" in agents["missing"]["broken"]
    assert "number" in agents["number"]["broken"]
    assert agents["adder"]["ready"] is True
    assert broken.json("run", "sums", "--agent", "adder", "--tasks", "1")["tasks"]["done"] == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("absent", "--agent", "adder"), "benchmark 'absent': no_such_module_at_all:Benchmark cannot be loaded"),
        (("sums", "--agent", "missing"), "agent 'missing': no_such_module_at_all:Agent cannot be loaded"),
        (("sums", "--agent", "number"), "agent 'number': raising_plugin_not:NUMBER"),
    ],
)
def test_asking_for_what_is_broken(broken: Fleet, args: tuple[str, ...], said: str):
    done = broken.command("run", *args)
    assert done.returncode == 2
    assert said in done.stderr
    assert not broken.home.exists()
