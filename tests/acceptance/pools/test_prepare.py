"""Benchmarks on hosts that have nothing of ours: a virtual environment is made there, the machine is proved, tasks run."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.fake_waa.arena import arena
from examples.fake_waa.client import score_of
from tests.support import sshd
from tests.support.fleet import Fleet, wait_for
from tests.support.sshd import Sshd
from tests.support.wheelhouse import base_python, wheelhouse

import evalfleet
from evalfleet import config
from evalfleet.benchmarks.desk.benchmark import Desk
from evalfleet.benchmarks.miniwob.benchmark import Miniwob

HERE = config.Settings(home=Path())
MISSING = [need for need in Miniwob(HERE).requirements() if not need.present]
DESK_MISSING = [need.found for need in Desk(HERE).requirements() if not need.present]

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(MISSING), reason="; ".join(f"{need.what} is missing: {need.install}" for need in MISSING)),
]

# No index answers there: what is not brought is not found.
LONELY = "PIP_INDEX_URL=http://127.0.0.1:9/ PIP_CONFIG_FILE=/dev/null PIP_RETRIES=0"
# A mirror of its own, as a careful administrator has one.
MIRRORED = "PIP_NO_INDEX=1 PIP_FIND_LINKS={wheels} PIP_CONFIG_FILE=/dev/null"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheelhouse(tmp_path_factory.mktemp("wheels"), "miniwob")


def host_at(folder: Path, name: str, key: Path, env: str) -> Sshd:
    place = folder / name
    return Sshd(place, name, f"SetEnv HOME={place / 'home'} XDG_RUNTIME_DIR=/nowhere {env}", user_key=key)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Iterator[list[Sshd]]:
    """Two hosts with homes and a mirror of their own."""
    sshd.require()
    folder = tmp_path_factory.mktemp("hosts")
    key = sshd.make_key(folder / "user_key")
    made = [host_at(folder, name, key, MIRRORED.format(wheels=wheels)) for name in ("one", "two")]
    yield made
    for host in made:
        host.close()


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Callable[[], Sshd]]:
    """A fresh host that reaches no index."""
    made: list[Sshd] = []

    def make() -> Sshd:
        sshd.require()
        made.append(host_at(tmp_path / "hosts", "box", sshd.make_key(tmp_path / "user_key"), LONELY))
        return made[0]

    yield make
    for host in made:
        host.close()


def pool_of(fleet: Fleet, hosts: list[Sshd], python: str | Path | None = None) -> None:
    rows = [f'[defaults]\nuser = "{os.environ.get("USER", "root")}"\npython = "{python or base_python()}"\n']
    rows += [
        f'[[host]]\nname = "{host.name}"\naddress = "127.0.0.1"\nport = {host.port}\n'
        f'key = "{host.user_key}"\nhost_key = "{host.host_key}"\n'
        for host in hosts
    ]
    (fleet.folder / "hosts.toml").write_text("\n".join(rows))
    done = fleet.command("pool", "create", "lab", "--backend", "ssh", "--hosts", "hosts.toml")
    assert done.returncode == 0, done.stderr


def told(fleet: Fleet, *args: str, code: int = 0, **env: str) -> tuple[Any, str]:
    """The answer, and what was said before."""
    process = fleet.start(*args, "--json", **env)
    output, _ = process.communicate(timeout=280)
    assert process.returncode == code, output
    said, _, last = output.rstrip().rpartition("\n")
    return json.loads(last), said


def environments(host: Sshd) -> list[Path]:
    """The folders of the tools on a host."""
    return [path for path in (host.home / ".evalfleet" / "tools").iterdir() if path.is_dir()]


OWN = """
from evalfleet.agents.oracle import Oracle
from words import WORD

class Mine(Oracle):
    def act(self, observation):
        open(__import__("os").environ["EVALFLEET_ARTIFACTS"] + "/word", "w").write(WORD)
        return super().act(observation)
"""


@pytest.mark.long
@pytest.mark.slow
def test_a_run_brings_the_tools_to_its_hosts(fleet: Fleet, hosts: list[Sshd]):
    pool_of(fleet, hosts)
    tasks = ("--task", "click-button", "--task", "enter-text", "--task", "click-link", "--task", "click-test")
    summary, said = told(fleet, "run", "miniwob", "--agent", "oracle", "--pool", "lab", *tasks)
    assert sorted(row["key"] for row in summary["results"] if row["score"] == 1.0) == [
        "click-button_0",
        "click-link_0",
        "click-test_0",
        "enter-text_0",
    ]
    for host in hosts:
        assert f"host {host.name}: creating a virtual environment" in said
        assert f"host {host.name}: has installed the tools of the run" in said
        (folder,) = environments(host)
        assert not (folder / "wheels").exists()
    claimed = [event["data"]["worker"] for event in fleet.events() if event["type"] == "attempt.claimed"]
    assert set(claimed) <= {"one-1", "two-1"}
    left = Path(fleet.json("logs", "latest", "click-button_0")["folder"]) / "artifacts"
    assert {"step_1.png", "final.png", "trajectory.jsonl"} <= {path.name for path in left.iterdir()}

    answer, _ = told(fleet, "prepare", "miniwob", "--pool", "lab")
    assert (answer["benchmark"], answer["pool"], answer["ready"]) == ("miniwob", "lab", True)
    for host, row in zip(hosts, answer["hosts"], strict=True):
        assert [check["check"] for check in row["checks"]] == ["ssh", "tools", "Chromium", "the package miniwob==1.1.0"]
        assert row["checks"][1]["seen"].endswith("(found)")
        assert row["checks"][3]["seen"].startswith(str(host.home)), "the host's own"

    # A person's own agent, and what it imports.
    (fleet.folder / "mine.py").write_text(OWN)
    (fleet.folder / "words.py").write_text("WORD = 'brought'\n")
    run = ("run", "miniwob", "--pool", "lab", "--task", "click-button")
    summary, _ = told(fleet, *run, "--agent", "mine:Mine", "--file", "words.py")
    assert summary["scores"]["strict"] == 1.0
    left = Path(fleet.json("logs", "latest", "click-button_0")["folder"]) / "artifacts"
    assert (left / "word").read_text() == "brought"
    (fleet.folder / "act.py").write_text("print('a command of one file')\n")
    summary, _ = told(fleet, *run, "--agent", "cmd:python3 act.py")
    assert summary["scores"]["coverage"] == 1.0
    assert "a command of one file" in fleet.command("logs", "latest", "click-button_0").stdout


def test_what_cannot_be_brought_is_refused_before_anything_is_written(fleet: Fleet, tmp_path: Path):
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "far.py").write_text("from evalfleet.agents.oracle import Oracle as Far\n")
    run = ("run", "miniwob", "--pool", "lab", "--task", "click-button")
    done = fleet.command(*run, "--agent", "far:Far", PYTHONPATH=str(outside))
    assert done.returncode == 2
    assert "which cannot be copied to other machines; start evalfleet in a folder that has it" in done.stderr
    done = fleet.command(*run, "--agent", "oracle", "--file", "none.txt")
    assert "--file none.txt: there is no such file or folder" in done.stderr
    done = fleet.command(*run, "--agent", "oracle", "--file", "../elsewhere/far.py")
    assert "only files below it can be copied to hosts" in done.stderr
    assert not fleet.home.exists()


@pytest.mark.slow
def test_a_host_that_cannot_be_prepared_gets_no_work_and_says_why(fleet: Fleet, lone: Callable[[], Sshd]):
    pool_of(fleet, [lone()])
    fleet.env |= {"EVALFLEET_LEASE_GIVE_UP": "1s", "EVALFLEET_BREAKER_PROBE_BASE": "10ms"}
    run = ("run", "miniwob", "--agent", "oracle", "--pool", "lab", "--task", "click-button")
    summary, said = told(fleet, *run, code=3)
    assert summary["attempts"]["total"] == 0
    assert "host box: gets no work: " in said
    assert "pip failed" in said
    assert "evalfleet prepare BENCHMARK --pool NAME --wheels DIR" in json.dumps(summary["reason"])


def stub(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


NO_VENV = """\
case "$*" in *raw.readline*)
    exec PYTHON -I -S -c "import sys; sys.modules['ensurepip'] = None; exec(sys.stdin.buffer.raw.readline())";;
esac
exec PYTHON "$@"
"""


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (
            '[ "$1" = -V ] && echo "Python 3.9.2" || exit 1',
            "no Python 3.11 or newer, which the tasks of a benchmark need (found: ",
        ),
        ("exit 127", "no Python 3.11 or newer, which the tasks of a benchmark need; install one there"),
        (
            NO_VENV,
            "cannot create virtual environments; install the package there: apt-get install -y python3.",
        ),
    ],
    ids=["old", "none", "no venv"],
)
def test_a_python_that_will_not_do_is_said_in_one_line(
    fleet: Fleet, lone: Callable[[], Sshd], tmp_path: Path, program: str, words: str
):
    python = stub(tmp_path / "a-python", program.replace("PYTHON", base_python()))
    pool_of(fleet, [lone()], python)
    answer, _ = told(fleet, "prepare", "miniwob", "--pool", "lab", code=3)
    (row,) = answer["hosts"]
    assert [(check["check"], check["holds"]) for check in row["checks"]] == [("ssh", True), ("tools", False)]
    assert words in row["checks"][1]["seen"]
    assert "\n" not in row["checks"][1]["seen"]
    shown = fleet.command("prepare", "miniwob", "--pool", "lab")
    assert shown.stdout.endswith("0 of 1 hosts are ready for miniwob; not ready: box\n")


def test_a_wheel_that_is_missing_is_named(fleet: Fleet, lone: Callable[[], Sshd], wheels: Path, tmp_path: Path):
    few = tmp_path / "few"
    few.mkdir()
    for wheel in wheels.iterdir():
        if not wheel.name.startswith("msgspec"):
            (few / wheel.name).symlink_to(wheel)
    host = lone()
    pool_of(fleet, [host])
    answer, _ = told(fleet, "prepare", "miniwob", "--pool", "lab", "--wheels", str(few), code=3)
    seen = answer["hosts"][0]["checks"][-1]["seen"]
    assert "pip failed with status 1" in seen
    assert f"evalfleet {evalfleet.__version__} depends on msgspec" in seen
    assert "the folder of --wheels must contain every package" in seen
    assert environments(host) == [], "what was half made is removed"
    empty = tmp_path / "empty"
    empty.mkdir()
    done = fleet.command("prepare", "miniwob", "--pool", "lab", "--wheels", str(empty))
    assert (done.returncode, "it has no wheels" in done.stderr) == (2, True)


@pytest.mark.long
@pytest.mark.slow
def test_two_at_once_a_killed_one_and_old_ones(fleet: Fleet, lone: Callable[[], Sshd], wheels: Path):
    host = lone()
    pool_of(fleet, [host])
    top = host.home / ".evalfleet" / "tools"
    day = 86400.0
    for name, finished, age in (("old", True, 15), ("young", True, 13), ("torn", False, 15)):
        (top / name).mkdir(parents=True)
        marker = top / name / "finished.json"
        if finished:
            marker.touch()
        then = time.time() - age * day
        os.utime(marker if finished else top / name, (then, then))

    prepare = ("prepare", "miniwob", "--pool", "lab", "--wheels", str(wheels))
    first = fleet.start(*prepare)
    half = wait_for(lambda: [path for path in environments(host) if (path / "bin").exists()], "a half-made environment")
    os.killpg(first.pid, signal.SIGKILL)
    wait_for(lambda: not half[0].exists(), "what a killed controller left to be removed")

    both = [fleet.start(*prepare, "--json") for _ in range(2)]
    outputs = [process.communicate(timeout=200)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sum("creating a virtual environment" in output for output in outputs) == 1
    assert sum("another evalfleet is installing the tools there" in output for output in outputs) == 1
    assert {path.name for path in environments(host)} == {"young", half[0].name}


NAME = f"waa-{uuid.uuid4().hex[:8]}"


@pytest.mark.long
@pytest.mark.slow
def test_waa_on_a_host(fleet: Fleet, lone: Callable[[], Sshd], wheels: Path, tmp_path: Path):
    host = lone()
    pool_of(fleet, [host])
    with arena(tmp_path / "arena", (NAME,)) as made:
        limits = {"timeout": "60s", "stall": "8s", "guest_timeout": "30s", "poll": "100ms", "disk_gb": 0}
        table = made.config(**limits, registry_user="puller", registry_secret="PULL_KEY", image="registry.test/waa:1")
        (fleet.folder / "evalfleet.toml").write_text(table)
        made.end(NAME)
        made.lose_image("fail")
        made.want_login("pass-word-of-the-registry")
        prepare = ("prepare", "waa", "--pool", "lab", "--wheels", str(wheels))
        answer, _ = told(fleet, *prepare, code=3)
        assert "PULL_KEY with the password is not" in answer["hosts"][0]["checks"][-1]["seen"]
        answer, said = told(fleet, *prepare, PULL_KEY="pass-word-of-the-registry")
        rows = answer["hosts"][0]["checks"]
        assert [row["check"] for row in rows] == [
            "ssh",
            "tools",
            "disk",
            "docker",
            "kvm",
            "image",
            "container",
            "guest",
        ]
        assert rows[5]["seen"] == "registry.test/waa:1, pulled"
        assert rows[6]["seen"] == "started"
        assert "box: pulls registry.test/waa:1: " in said
        assert "connection reset by peer; retrying in 5 s" in said
        planted = "pass-word-of-the-registry"
        assert planted not in said + json.dumps(answer) + json.dumps(made.calls())
        kept = [path for path in (*host.home.rglob("*"), *fleet.home.rglob("*")) if path.is_file()]
        assert [path for path in kept if planted.encode() in path.read_bytes()] == []

        run = ("run", "waa", "--agent", "navi", "--model", "gpt-4o", "--pool", "lab", "--domain", "notepad")
        summary, _ = told(fleet, *run, OPENAI_API_KEY="sk-hidden")
        assert {row["key"]: row["score"] for row in summary["results"]} == {
            row["key"]: score_of(row["key"].partition("/")[2]) for row in summary["results"]
        }
        assert summary["tasks"]["done"] == 2

    # The same environment serves desk, where its programs are there.
    shown = fleet.command("prepare", "desk", "--pool", "lab")
    assert f"box + tools: evalfleet {evalfleet.__version__} (found)" in shown.stdout
    if DESK_MISSING:
        assert shown.returncode == 3
        assert "apt-get install" in shown.stdout
    else:
        summary, _ = told(fleet, "run", "desk", "--agent", "oracle", "--pool", "lab", "--tasks", "1")
        assert summary["scores"]["strict"] == 1.0
