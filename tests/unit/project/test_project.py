"""The house's own rules, where a machine can hold them."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import click
import pytest

from evalfleet.cli import main as entry

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "evalfleet"
SOURCES = sorted(SOURCE.rglob("*.py"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_core_dependencies_are_few():
    names = sorted(re.split(r"[<>=!~ ;\[]", line, maxsplit=1)[0] for line in PROJECT["project"]["dependencies"])
    assert names == ["anyio", "click", "msgspec"]


def test_every_pin_has_a_hash_and_no_address():
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text
    pins = [block for block in re.split(r"\n(?=\S)", text) if block and not block.startswith("#")]
    assert len(pins) > 20
    assert [pin.split("\n", 1)[0] for pin in pins if "--hash=sha256:" not in pin or "==" not in pin] == []


def test_every_direct_dependency_is_pinned():
    wanted = PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]
    pinned = set(re.findall(r"^([a-z0-9._-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert {re.split(r"[<>=[]", line, maxsplit=1)[0] for line in wanted} <= pinned


def test_locks_with_addresses_are_ignored():
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {"uv.lock", "pylock.toml", ".venv/"} <= set(ignored)


@pytest.mark.parametrize("name", ["setup", "demo", "test", "check", "bench", "chaos", "fmt", "clean", "lock"])
def test_makefile_has_the_target(name: str):
    assert re.search(rf"^{name}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", [".ci/run", "scripts/setup", "scripts/lock", "scripts/python", "scripts/desktop"])
def test_scripts_can_be_executed(name: str):
    assert os.access(ROOT / name, os.X_OK)


def test_setup_does_nothing_the_second_time():
    stamp = ROOT / ".venv" / "setup.stamp"
    made_from = [ROOT / "pyproject.toml", ROOT / "constraints.txt"]
    if not stamp.exists() or any(path.stat().st_mtime > stamp.stat().st_mtime for path in made_from):
        pytest.skip("the environment is not up to date; a test does not change it")
    done = subprocess.run([ROOT / "scripts" / "setup"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout + done.stderr == ""


def test_setup_says_what_is_missing(tmp_path: Path):
    environ = {"PATH": "/usr/bin:/bin", "PYTHON": str(tmp_path / "none")}
    done = subprocess.run([ROOT / "scripts" / "python"], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is not a working Python >= 3.11" in done.stderr


def test_wheel_has_the_sql_and_the_type_marker(tmp_path: Path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    wanted = {f"evalfleet/{path.relative_to(SOURCE).as_posix()}" for path in SOURCE.rglob("*.sql")}
    wanted |= {"evalfleet/py.typed", "evalfleet/cli/main.py"}
    assert wanted <= packed
    assert [name for name in packed if name.startswith(("tests", "docs", "bench"))] == []


def leaves(command: click.Command) -> list[click.Command]:
    """The commands of a group and of its groups; of a command itself."""
    if not isinstance(command, click.Group):
        return [command]
    return [leaf for one in command.commands.values() for leaf in leaves(one)]


@pytest.mark.parametrize("name", entry.NAMES)
def test_every_command_of_the_table(name: str):
    command = entry.cli.commands[name]
    assert isinstance(command, click.Command)
    assert command.name == name
    assert command.get_short_help_str()
    for one in leaves(command):
        assert one.get_short_help_str()
        options = {option for parameter in one.params for option in parameter.opts}
        assert {"--json", "--home"} <= options


def test_only_config_reads_the_environment():
    # The runner and the pilot are programs of their own, on other machines; so are the stand-ins.
    allowed = {
        SOURCE / "config" / "__init__.py",
        SOURCE / "config" / "secrets.py",
        SOURCE / "hosts" / "ray" / "actor.py",
        *(SOURCE / "testing" / "waa" / name for name in ("client.py", "docker.py")),
    }
    pattern = re.compile(r"os\.environ|os\.getenv|from os import .*(environ|getenv)")
    programs = (SOURCE / "runner", SOURCE / "pilot", SOURCE / "emulator" / "programs")
    others = [path for path in SOURCES if path not in allowed and not any(map(path.is_relative_to, programs))]
    assert [name_of(path) for path in others if pattern.search(path.read_text())] == []


@pytest.mark.parametrize(("program", "brings"), [("runner", ()), ("pilot", ("cryptography",))])
def test_programs_for_hosts_import_the_standard_library_and_themselves(program: str, brings: tuple[str, ...]):
    foreign: set[str] = set()
    for path in (SOURCE / program).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 8))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            foreign |= {n for n in names if n.split(".")[0] not in sys.stdlib_module_names}
    assert {name for name in foreign if not name.startswith((f"evalfleet.{program}", *brings))} == set()


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_files_and_functions_are_short(path: Path):
    """The rule is 400 lines a file and 40 a function; the limits here leave it to judgement, within reason."""
    text = path.read_text()
    assert len(text.splitlines()) <= 450
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert [f.name for f in functions if (f.end_lineno or 0) - f.body[0].lineno + 1 > 60] == []
