"""Wheels of what is installed, and what a run's workers need."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

import evalfleet
from evalfleet import config
from evalfleet.benchmarks import readiness
from evalfleet.benchmarks.base import Selection
from evalfleet.benchmarks.registry import find
from evalfleet.benchmarks.waa.settings import WaaSettings
from evalfleet.benchmarks.worker_tools import AgentFiles, agent_files_of, tools_of, with_agent
from evalfleet.errors import ConfigError, InputError
from evalfleet.hosts.ssh import remote_tools
from evalfleet.hosts.ssh import tools as ssh_tools
from evalfleet.hosts.wheels import Wheel, extras_of, pins_of, plain_name, wheel_of
from evalfleet.model import Tools
from evalfleet.runner import bootstrap

SOURCE = Path(__file__).parents[3] / "src" / "evalfleet"


def test_the_wheel_of_evalfleet_has_its_files_and_says_so():
    wheel = wheel_of("evalfleet")
    with zipfile.ZipFile(io.BytesIO(wheel.data)) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    assert wheel.name == f"evalfleet-{evalfleet.__version__}-py3-none-any.whl"
    wanted = {
        f"evalfleet/{path.relative_to(SOURCE).as_posix()}"
        for path in SOURCE.rglob("*")
        if path.suffix in (".py", ".sql")
    }
    assert wanted <= set(held)
    assert held["evalfleet/errors.py"] == (SOURCE / "errors.py").read_bytes()
    assert not [name for name in held if "__pycache__" in name or name.endswith((".pyc", ".pth"))]
    info = f"evalfleet-{evalfleet.__version__}.dist-info"
    assert b"Requires-Dist: msgspec" in held[f"{info}/METADATA"]
    assert b"evalfleet.cli.main:main" in held[f"{info}/entry_points.txt"]
    assert f"{info}/direct_url.json" not in held, "it names a folder of this machine"
    rows = {row[0]: row[1:] for row in csv.reader(held[f"{info}/RECORD"].decode().splitlines())}
    assert rows.keys() == held.keys()
    for name, (digest, size) in rows.items():
        if digest:
            sum_ = urlsafe_b64encode(hashlib.sha256(held[name]).digest()).decode().rstrip("=")
            assert (digest, size) == (f"sha256={sum_}", str(len(held[name])))


def test_the_same_files_make_the_same_wheel():
    first = wheel_of("evalfleet")
    wheel_of.cache_clear()
    assert wheel_of("evalfleet") == first


def test_a_wheel_that_was_installed_is_installed_again(tmp_path: Path):
    """Also one with compiled code, whose tags decide where it fits."""
    wheel = wheel_of("msgspec")
    (tmp_path / wheel.name).write_bytes(wheel.data)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*pip, "--target", tmp_path / "site", tmp_path / wheel.name], check=True, timeout=100)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import msgspec; print(msgspec.__file__, msgspec.json.encode([1]))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, tmp_path / "site"], check=True, capture_output=True, text=True
    )
    assert done.stdout == f"{tmp_path}/site/msgspec/__init__.py b'[1]'\n"


def test_what_is_not_installed_cannot_be_brought():
    with pytest.raises(ConfigError, match="no-such-package is not installed here"):
        wheel_of("no-such-package")


def test_requirements():
    assert plain_name("Foo_Bar.baz[x, y]>=1 ; python_version < '4'") == "foo-bar-baz"
    assert extras_of("evalfleet[ssh, miniwob]==1") == ["ssh", "miniwob"]
    assert extras_of("evalfleet>=1; extra == 'x'") == []
    pins = pins_of(["evalfleet"])
    assert {"evalfleet", "anyio", "click", "msgspec", "idna"} <= pins.keys()
    assert "asyncssh" not in pins
    assert "asyncssh" in pins_of(["evalfleet[ssh]"])


def test_an_environment_is_named_by_what_is_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    plain, pages = Tools(), Tools(bare=("miniwob==1.1.0",))
    key = ssh_tools.package_of(plain).key
    assert key == ssh_tools.package_of(plain).key
    assert key != ssh_tools.package_of(pages).key
    assert key == ssh_tools.package_of(Tools(benchmark="desk", settings={"a": 1})).key
    (tmp_path / "x-1-py3-none-any.whl").write_bytes(b"")
    assert key == ssh_tools.package_of(plain, tmp_path).key, "where the packages come from makes no difference"
    changed = Wheel(name=f"evalfleet-{evalfleet.__version__}-py3-none-any.whl", data=b"", digest="another")
    monkeypatch.setattr(ssh_tools, "wheel_of", lambda _: changed)
    assert key != ssh_tools.package_of(plain).key


def test_programs_that_travel_speak_the_same_way():
    assert readiness.MARK == remote_tools.MARK == bootstrap.MARK


def test_settings_travel_without_the_home(tmp_path: Path):
    (tmp_path / "evalfleet.toml").write_text('[waa]\ncontainers = ["a"]\n[browser]\nchromium = "/opt/c"\n')
    settings = config.load(tmp_path / "home", environ={}, folder=tmp_path)
    travelling = json.loads(json.dumps(tools_of(find("waa", settings), settings).settings))
    there = config.from_controller(travelling)
    waa = there.table("waa", WaaSettings)
    assert (there.browser.chromium, waa.containers, waa.install_docker) == ("/opt/c", ("a",), True)
    assert settings.table("waa", WaaSettings).install_docker is None, "on this machine nobody asked for it"
    assert str(tmp_path) not in str(travelling)


@pytest.mark.parametrize(("name", "bare"), [("miniwob", ("miniwob==1.1.0",)), ("desk", ()), ("waa", ())])
def test_the_tools_of_benchmarks(name: str, bare: tuple[str, ...]):
    settings = config.Settings(home=Path())
    tools = tools_of(find(name, settings), settings)
    assert (tools.shipped, tools.bare, tools.benchmark) == (("evalfleet",), bare, name)
    assert tools.settings.keys() == {"chromium", *(["waa"] if name == "waa" else [])}


class Plain:
    """A benchmark of another package, which knows nothing of tools."""

    name, title = "plain", "Plain"


def test_a_plugin_brings_its_own_package(monkeypatch: pytest.MonkeyPatch):
    class Point:
        class dist:  # noqa: N801 - as importlib.metadata has it
            name = "plain-package"

    monkeypatch.setattr("evalfleet.benchmarks.worker_tools.entry_points", lambda **_: [Point()])
    tools = tools_of(Plain(), config.Settings(home=Path()))  # pyright: ignore[reportArgumentType] - no more is asked of it
    assert tools.shipped == ("evalfleet", "plain-package")
    assert with_agent(tools, AgentFiles(packages=("plain-package", "other"))).shipped == (*tools.shipped, "other")


def test_what_comes_along_with_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "act.py").touch()
    (tmp_path / "near.py").touch()
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = str(tmp_path)

    def baggage(agent: str, *files: str) -> AgentFiles:
        return agent_files_of(Selection(agent=agent, files=files, remote=True), folder)

    assert baggage("oracle") == AgentFiles()
    assert baggage("near:Agent", "act.py") == AgentFiles(files=("act.py", "near.py"))
    assert baggage("pack.deep:Agent") == AgentFiles(files=("pack",))
    assert baggage("cmd:python3 -u act.py --model x") == AgentFiles(files=("act.py",))
    assert baggage("msgspec:Struct") == AgentFiles(packages=("msgspec",))
    assert baggage("evalfleet.agents.oracle:Oracle") == AgentFiles()
    with pytest.raises(InputError, match="is outside"):
        baggage("oracle", "..")
