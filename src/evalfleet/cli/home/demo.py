"""`evalfleet demo`: real runs and their reports, by the commands that a person would type."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import click

from evalfleet import config
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option

_FOLDER = "demo-home"


@click.command("demo")
@json_option
@home_option
def command(as_json: bool, home: str | None) -> int:
    """Run a benchmark here with two agents, and show the results.

    Plays 20 tasks of MiniWoB++ twice in headless Chromium, half a minute. Where Chromium or the tasks are missing, runs
    24 shell tasks of a pretended agent instead. Writes into ./demo-home, or into --home.
    """
    from evalfleet.answers.home import DemoAnswer
    from evalfleet.benchmarks import registry

    place = Path(home or _FOLDER)
    demo = _Demo(place, aside=as_json)
    missing = [one for one in registry.find("miniwob", config.load(str(place))).requirements() if not one.present]
    if missing:
        lacks = " and ".join(need.what for need in missing)
        demo.say(
            f"This machine lacks {lacks}, so the demo cannot run MiniWoB++. It runs the built-in shell tasks instead."
        )
        demo.say("".join(f"  To have it: {need.install}\n" for need in missing if need.install))
    code = demo.play(_SHELL if missing else _BROWSER)
    if as_json and code == 0:
        reports = sorted(map(str, place.resolve().glob("*.html")))
        print_document(DemoAnswer(benchmark=None if missing else "miniwob", runs=demo.runs, reports=reports))
    return code


class _Story(NamedTuple):
    """What is said before, the commands, and what is said after. `{…}` are names of files, runs and the program."""

    begin: str
    commands: tuple[str, ...]
    end: str


_BROWSER = _Story(
    """\
20 MiniWoB++ tasks ({examples}/miniwob_20.txt) in headless Chromium, 4 local workers, twice:
the oracle knows the solutions, the random agent clicks by chance.""",
    (
        "run miniwob --tasks-file {examples}/miniwob_20.txt --agent oracle --workers 4",
        "run miniwob --tasks-file {examples}/miniwob_20.txt --agent random --workers 4",
        "compare {run2} {run1}",
        "report {run1} --html {home}/oracle.html",
        "report {run2} --html {home}/random.html",
    ),
    """
Try next:

  # What can be run, and with which tasks?
  {program} benchmarks miniwob

  # Three episodes of each task: how much of a score is luck?
  {program} --home {home} run miniwob --tasks 10 --agent random --repeat 3

  # Kill the controller with -9 after 5 seconds; browsers and agents go on. Then resume.
  timeout -s KILL 5 {program} --home {home} run miniwob --tasks 20 --agent oracle
  {program} --home {home} resume

The reports, in which every task has a film strip of what its agent saw and did:

  {absolute}/oracle.html
  {absolute}/random.html""",
)

_SHELL = _Story(
    """\
24 tasks of a pretended desktop agent ({examples}/demo.jsonl), 4 local workers.
Most succeed; editor_3 crashes once and is retried, files_4 always crashes,
browser_2 hangs and is ended.""",
    ("run {examples}/demo.jsonl", "report latest --html {home}/report.html"),
    """
Try next:

  # What did the task that always crashes write?
  {program} --home {home} logs latest files_4

  # How was the task that hangs ended, event by event?
  {program} --home {home} events latest --task browser_2

  # Kill the controller with -9 after 3 seconds; the tasks go on. Then resume.
  timeout -s KILL 3 {program} --home {home} run {examples}/demo.jsonl
  {program} --home {home} resume

The report: {absolute}/report.html""",
)


class _Demo:
    def __init__(self, home: Path, *, aside: bool) -> None:
        self.runs: list[str] = []
        self._home = str(home)
        self._aside = aside  # what people read goes to standard error
        self._environment = config.environment_with(Path(sys.executable).parent)  # the tasks are `python3 agent.py`
        self._names = {
            "program": _program(),
            "home": self._home,
            "absolute": str(home.resolve()),
            "examples": _examples(),
        }

    def say(self, text: str) -> None:
        click.echo(text, err=self._aside)

    def play(self, story: _Story) -> int:
        """Run the story's commands one after the other, and stop at the first that fails. Returns its exit code."""
        self.say(story.begin.format_map(self._names))
        for line in story.commands:
            words = [word.format_map(self._names) for word in line.split()]
            self.say(f"\n$ {shlex.join([self._names['program'], '--home', self._home, *words])}")
            output = sys.stderr if self._aside else None
            code = subprocess.run(self._command(words), env=self._environment, stdout=output, check=False).returncode
            if code != 0:
                return code
            if words[0] == "run":
                self.runs.append(self._latest())
                self._names[f"run{len(self.runs)}"] = self.runs[-1]
        self.say(story.end.format_map(self._names))
        return 0

    def _latest(self) -> str:
        words = self._command(["status", "--json", "-n", "1"])
        told = subprocess.run(words, env=self._environment, stdout=subprocess.PIPE, check=True).stdout
        run: str = json.loads(told)["runs"][0]["run"]
        return run

    def _command(self, words: list[str]) -> list[str]:
        return [sys.executable, "-m", "evalfleet", "--home", self._home, *words]


def _program() -> str:
    """How this program was called, so that the lines that are shown can be typed."""
    return "evalfleet" if shutil.which("evalfleet") == sys.argv[0] else sys.argv[0]


def _examples() -> str:
    """The folder of examples: in the package where it is installed, else that of the checkout."""
    import evalfleet

    package = Path(evalfleet.__file__).parent
    packed = package / "examples"
    found = packed if packed.is_dir() else package.parents[1] / "examples"
    here = Path.cwd()
    return str(found.relative_to(here) if found.is_relative_to(here) else found)
