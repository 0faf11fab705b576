"""The files for those who operate a server: their options exist, and a restart ends no task."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path

import click

from evalfleet.cli import main as entry

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "operate"


def options_of_serve() -> set[str]:
    command = entry.cli.commands["serve"]
    assert isinstance(command, click.Command)
    return {option for parameter in command.params for option in parameter.opts}


def test_the_unit_starts_a_server_and_ends_it_alone():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue] - as its documentation says
    unit.read(FOLDER / "evalfleet.service")
    program, command, *words = shlex.split(unit["Service"]["ExecStart"])
    assert (Path(program).name, command) == ("evalfleet", "serve")
    assert {word for word in words if word.startswith("--")} <= options_of_serve()
    assert unit["Service"]["KillMode"] == "process"


def test_the_recipe_starts_a_server_with_extras_that_exist():
    text = (FOLDER / "Containerfile").read_text("utf-8")
    found = re.search(r"^CMD (\[.*\])$", text, re.MULTILINE)
    assert found
    command, *words = json.loads(found[1])
    assert command == "serve"
    assert {word for word in words if word.startswith("--")} <= options_of_serve()
    extras = re.search(r'\$wheel\[([\w,]+)\]"', text)
    assert extras
    project = (ROOT / "pyproject.toml").read_text("utf-8").partition("[project.optional-dependencies]")[2]
    assert set(extras[1].split(",")) <= set(re.findall(r"^(\w+) = \[", project.partition("\n[")[0], re.MULTILINE))
