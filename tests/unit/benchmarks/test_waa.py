"""What is read of WAA: lists, task files, trajectories, results; who is blamed; which container is taken; the ladder."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from evalfleet import config
from evalfleet.benchmarks.base import OwnAgents, Selection
from evalfleet.benchmarks.waa import readiness
from evalfleet.benchmarks.waa.benchmark import Waa
from evalfleet.benchmarks.waa.catalogue import Checkout, index, parse_list
from evalfleet.benchmarks.waa.containers import leased
from evalfleet.benchmarks.waa.settings import WaaSettings
from evalfleet.benchmarks.waa.trajectory import Raised, Step, read_line, read_score, read_trajectory
from evalfleet.errors import ConfigError, EnvironmentFailed, InputError
from evalfleet.model import Kind

ROOT = Path(__file__).parents[3]
DATA = ROOT.parent / "shared" / "data" / "waa"
KEYS = {"OPENAI_API_KEY": "x"}


def waa(**fields: Any) -> Waa:
    return Waa(config.Settings(home=Path(), tables={"waa": fields}))


def test_the_index_has_154_tasks_in_12_domains():
    found = index()
    assert {domain: len(ids) for domain, ids in found.items()} == {
        "file_explorer": 19, "libreoffice_calc": 24, "notepad": 2, "chrome": 17, "microsoft_paint": 3,
        "libreoffice_writer": 19, "settings": 5, "vs_code": 24, "msedge": 13, "vlc": 21, "windows_calc": 3, "clock": 4,
    }  # fmt: skip
    assert len({task for ids in found.values() for task in ids}) == 154


@pytest.mark.skipif(not DATA.is_dir(), reason="no copy of WAA's task files beside the checkout")
def test_the_real_task_files(monkeypatch: pytest.MonkeyPatch):
    checkout = Checkout(str(DATA))
    assert checkout.domains("test_all.json") == index()
    assert all(checkout.instruction(f"{domain}/{task}") for domain, ids in index().items() for task in ids)
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    small = waa().tasks(Selection(agent="navi", model="m", options={"list": "test_small.json", "checkout": str(DATA)}))
    assert sorted(task["domain"] for task in small) == ["chrome"] * 3 + ["libreoffice_calc"] * 3
    assert small[0]["payload"]["instruction"]


def checkout(folder: Path, **lists: str) -> str:
    (folder / "examples" / "notepad").mkdir(parents=True)
    for name, text in lists.items():
        (folder / f"{name}.json").write_text(text)
    return str(folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "test.json: not valid JSON"),
        ("[]", "test.json: expected an object such as"),
        ('{"notepad": "a"}', "'notepad' must hold a list of ids"),
        ('{"notepad": ["../../x"]}', "'../../x' cannot be the name of a domain or task"),
        ('{"notepad": ["a", "a"]}', "notepad/a is listed twice"),
        ("{}", "names no task"),
    ],
)
def test_a_broken_list(text: str, said: str):
    with pytest.raises(InputError) as caught:
        parse_list(text, "test.json")
    assert said in str(caught.value)


def test_broken_checkouts(tmp_path: Path):
    root = checkout(tmp_path / "root", test_all='{"notepad": ["a"]}')
    found = Checkout(root)
    with pytest.raises(InputError, match=r"there is no test_x\.json in .*; there: test_all\.json"):
        found.domains("test_x.json")
    with pytest.raises(InputError, match="is not the name of a file"):
        found.domains("../x.json")
    with pytest.raises(InputError, match="the list and the task files of the checkout do not match"):
        found.instruction("notepad/a")
    file = tmp_path / "root" / "examples" / "notepad" / "a.json"
    for text, said in {"{": "not valid JSON", "[]": 'an object with "instruction"', "{}": "instruction"}.items():
        file.write_text(text)
        with pytest.raises(InputError, match=said):
            found.instruction("notepad/a")
    file.write_bytes(b"\xff")
    with pytest.raises(InputError, match="not UTF-8"):
        found.instruction("notepad/a")


def test_tasks_and_settings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    benchmark = waa(containers=("a", "b", "c"))
    assert isinstance(benchmark, OwnAgents)
    name = index()["clock"][0]
    selection = Selection(agent="navi", task=(name, f"clock/{name}_4"), model="gpt-4o", max_steps=7)
    (task,) = benchmark.tasks(Selection(agent="navi", task=(name,), model="gpt-4o", max_steps=7))
    assert (task["key"], task["domain"], task["secrets"]) == (f"clock/{name}", "clock", ["OPENAI_API_KEY"])
    assert (task["payload"]["model"], task["payload"]["max_steps"], task["payload"]["seed"]) == ("gpt-4o", 7, 0)
    settings = benchmark.settings(selection)
    assert (settings["timeout"], settings["stall"], settings["workers"]) == (600.0 + 7 * 80.0, 600.0, 3)
    assert settings["timeout_is_verdict"] is True
    assert [task["key"] for task in benchmark.tasks(Selection(agent="navi", model="m", domain="notepad", repeat=2))][
        :2
    ] == [
        f"notepad/{index()['notepad'][0]}",
        f"notepad/{index()['notepad'][0]}_1",
    ]
    with pytest.raises(InputError, match="runs its tasks itself"):
        benchmark.episode({}, Path())


def test_keys_of_the_agent(monkeypatch: pytest.MonkeyPatch):
    """The key reaches the attempt; the container gets a token under the name that navi reads."""
    for name in (*KEYS, "AZURE_API_KEY", "AZURE_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    navi = Selection(agent="navi", model="gpt-4o", tasks=1)
    with pytest.raises(InputError, match="navi needs a key: export OPENAI_API_KEY=…"):
        waa().tasks(navi)
    monkeypatch.setenv("AZURE_ENDPOINT", "y")
    with pytest.raises(InputError, match=r"cannot be used: WAA's run\.py asks OpenAI's API only.*openai/v1"):
        waa().tasks(navi)
    (other,) = waa(secrets=("ANTHROPIC_API_KEY",)).tasks(Selection(agent="claude", tasks=1))
    assert (other["secrets"], other["payload"]["secrets"]) == (["ANTHROPIC_API_KEY"], ["ANTHROPIC_API_KEY"])
    assert other["payload"]["model_options"] == {}
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    (task,) = waa(secrets=("OPENAI_BASE_URL", "MORE")).tasks(navi)
    assert (task["secrets"], task["payload"]["secrets"]) == (["OPENAI_API_KEY", "MORE"], ["OPENAI_API_KEY", "MORE"])
    with pytest.raises(InputError, match=r"waa needs --model, such as gpt-4o: run\.py's own default"):
        waa().tasks(Selection(agent="navi", tasks=1))


def test_the_endpoint_is_the_one_that_was_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    (task,) = waa().tasks(Selection(agent="navi", model="m", base_url="http://127.0.0.1:8080/v1", tasks=1))
    assert task["payload"]["model_options"]["base_url"] == "http://127.0.0.1:8080/v1"


def test_tasks_ask_the_same_docker_as_the_person(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/user/1000/docker.sock")
    (here,) = waa().tasks(Selection(agent="navi", model="gpt-4o", tasks=1))
    assert here["env"]["DOCKER_HOST"] == "unix:///run/user/1000/docker.sock"
    (there,) = waa().tasks(Selection(agent="navi", model="gpt-4o", tasks=1, remote=True))
    assert "DOCKER_HOST" not in there["env"]


def error_line(traceback: str, words: str = "it broke") -> str:
    return json.dumps({"Error": "Exception in notepad/a", "Exception": words, "Traceback": traceback})


def test_lines_of_a_trajectory():
    line = json.dumps(
        {"step_num": 2, "action": "click()", "screenshot": "/r/x/shot.png", "action_timestamp": "20260102@030405"}
    )
    assert read_line(line) == Step(number=2, screenshot="shot.png", action="click()", at=1767323045.0)
    assert read_line('{"step_num": 0, "action": null}') == Step(number=0, screenshot=None, action=None, at=None)
    told = read_line('{"step_num": 0, "instruction": "Open Notepad"}')
    assert isinstance(told, Step)
    assert told.goal == "Open Notepad", "known without a checkout, too"
    for nonsense in (
        "",
        "{",
        "[]",
        "3",
        '{"step_num": "2"}',
        '{"step_num": true}',
        '{"step_num": -1}',
        '{"step_num": 2, "ac',
    ):
        assert read_line(nonsense) is None
    steps, raised = read_trajectory(f'{line}\n{error_line("a")}\n{error_line("b")}\n{{"half')
    assert [step.number for step in steps] == [2]
    assert raised == Raised(words="b", traceback="b")


AGENT = '  File "/client/mm_agents/navi/agent.py", line 1, in predict\n'
WORLD = '  File "/client/desktop_env/envs/desktop_env.py", line 1, in reset\n'


@pytest.mark.parametrize(
    ("traceback", "kind"),
    [
        (f"{WORLD}requests.exceptions.ConnectionError: Max retries exceeded", Kind.ENVIRONMENT_FAILED),
        ("", Kind.ENVIRONMENT_FAILED),
        (f"{AGENT}ValueError: no code block", Kind.TASK_ERROR),
        (f"{AGENT}openai.RateLimitError: Error code: 429", Kind.SERVICE_FAILED),
        (f"{AGENT}openai.AuthenticationError: Error code: 401", Kind.SERVICE_REFUSED),
        (f"{AGENT}RuntimeError: request failed with status code 503", Kind.SERVICE_FAILED),
        (f"{WORLD}RuntimeError: request failed with status code 503", Kind.ENVIRONMENT_FAILED),
    ],
)
def test_whose_an_exception_is(traceback: str, kind: Kind):
    raised = read_line(error_line(traceback))
    assert isinstance(raised, Raised)
    assert raised.kind is kind


@pytest.mark.parametrize(
    ("text", "score"), [("1.0\n", 1.0), ("0\n", 0.0), ("0.25", 0.25), ("True\n", 1.0), ("False", 0.0)]
)
def test_scores(text: str, score: float):
    assert read_score(text) == score


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "-0.1", "1.01", "1.0 2.0"])
def test_what_is_no_score(text: str):
    with pytest.raises(ValueError, match="not a number from 0 to 1"):
        read_score(text)


def test_a_container_is_taken_by_one_attempt_at_a_time(tmp_path: Path):
    with leased(("a", "b"), 1.0, tmp_path) as first, leased(("a", "b"), 1.0, tmp_path) as second:
        assert (first.container, second.container) == ("a", "b")
        busy = pytest.raises(EnvironmentFailed, match=r"none of 2 was free within 0\.01 s \(a, b\)")
        with busy, leased(("a", "b"), 0.01, tmp_path):
            pass
        first.mark(failed=True)
    with leased(("a", "b"), 1.0, tmp_path) as third:
        assert (third.container, third.failed) == ("b", False)  # one that failed comes last
        with leased(("a", "b"), 1.0, tmp_path) as last:
            assert (last.container, last.failed) == ("a", True)
            last.mark(failed=False)
    with leased(("a",), 1.0, tmp_path) as again:
        assert not again.failed


def test_a_lease_ends_with_its_process(tmp_path: Path):
    child = os.fork()
    if child == 0:
        descriptor = os.open(tmp_path / "a.lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    with leased(("a",), 0.01, tmp_path) as lease:
        assert lease.container == "a"


def test_a_lock_folder_of_somebody_else_is_refused(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(EnvironmentFailed, match="belongs to another user"), leased(("a",), 1.0, tmp_path / "link"):
        pass


def test_kvm_is_more_than_its_file(tmp_path: Path):
    cpuinfo, device = tmp_path / "cpuinfo", tmp_path / "kvm"
    cpuinfo.write_text("flags\t\t: fpu sse2\n")
    assert readiness.kvm_error(cpuinfo, device) == "the processor has neither svm nor vmx"
    device.touch()
    assert readiness.kvm_error(cpuinfo, device) == f"the processor has neither svm nor vmx, although {device} is there"
    cpuinfo.write_text("flags\t\t: fpu vmx sse2\n")
    assert readiness.kvm_error(cpuinfo, device) is None
    device.unlink()
    assert readiness.kvm_error(cpuinfo, device) == f"there is no {device}"


def test_the_ladder_ends_at_the_first_rung_that_does_not_hold():
    told: list[readiness.ReadinessCheck] = []
    means = readiness.Means(say=lambda _: None, secrets={})
    tried = readiness.prepare(WaaSettings(docker="/no/docker", disk_gb=0), told.append, means)
    assert [(check.name, check.holds) for check in tried] == [("disk", True), ("docker", False)]
    assert told == tried
    assert "install Docker" in tried[1].said()
    (need,) = waa(docker="/no/docker").requirements()
    assert (need.what, need.present) == ("docker", False)


def test_the_program_inside_runs_on_old_pythons():
    source = (ROOT / "src" / "evalfleet" / "benchmarks" / "waa" / "in_container.py").read_text()
    imported = {
        name
        for node in ast.walk(ast.parse(source, feature_version=(3, 8)))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module])
    }
    assert not [name for name in imported if name and name.startswith("evalfleet")]


def test_the_waa_table(tmp_path: Path):
    (tmp_path / "evalfleet.toml").write_text('[waa]\ncontainers = ["a", "b"]\nstall = "5m"\nguest = "172.30.0.2"\n')
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text('[waa]\nimage = "mine"\nguest = "1.2.3.4"\n')
    found = config.load(tmp_path / "home", environ={}, folder=tmp_path).table("waa", WaaSettings)
    assert (found.containers, found.stall_s, found.guest, found.image) == (("a", "b"), 300.0, "172.30.0.2", "mine")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("containers = []", "waa.containers: must be different names"),
        ('containers = ["a", "a"]', "waa.containers: must be different names"),
        ('containers = ["-rf"]', "waa.containers: must be different names"),
        ("guest_port = 0", "waa.guest_port: must be from 1 to 65535"),
        ('reset = "often"', "waa.reset: must be one of close, restart, overlay, snapshot"),
        ("memory_gb = 1", "waa.memory_gb: must be 2 or more, or 0: not checked"),
        ('stall = "soon"', 'waa.stall: "soon" is not a duration'),
        ('secrets = ["sk-123"]', "waa.secrets: must be names of environment variables, never their values"),
        ("containres = []", 'unknown key "containres"; did you mean "containers"?'),
        ("docker = 1", "waa.docker: expected text in quotes"),
    ],
)
def test_a_wrong_waa_table(tmp_path: Path, line: str, said: str):
    (tmp_path / "evalfleet.toml").write_text(f"[waa]\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        config.load(tmp_path / "home", environ={}, folder=tmp_path)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("has_gb", "memory_gb", "holds", "seen"),
    [
        (33.0, 8.0, True, "33 GB for 4 containers of 8 GB"),
        (32.9, 8.0, False, "32.9 GB, and 4 containers of 8 GB need 33 GB"),
        (17.0, 4.0, True, "17 GB for 4 containers of 4 GB"),
        (1.0, 0.0, True, "not checked"),
    ],
)
def test_a_machine_has_memory_for_all_its_guests(has_gb: float, memory_gb: float, holds: bool, seen: str):
    settings = WaaSettings(containers=("a", "b", "c", "d"), memory_gb=memory_gb)
    check = readiness.memory_check(settings, has_gb)
    assert (check.holds, check.seen) == (holds, seen)
    assert ("[waa] memory_gb" in check.remedy) is not holds


def test_the_memory_of_a_machine_is_read():
    shown = re.search(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text())
    assert shown is not None
    assert readiness.total_gb() == pytest.approx(int(shown[1]) / 2**20, rel=0.1)
