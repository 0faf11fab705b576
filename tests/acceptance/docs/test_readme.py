"""Every command of the README, the quickstart and the how-tos, run by a stranger in a fresh copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.fleet import Fleet

from evalfleet import config
from evalfleet.benchmarks.miniwob.benchmark import Miniwob

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "docs" / "quickstart.md", *sorted((ROOT / "docs" / "howto").glob("*.md"))]
GUIDE = ROOT / "docs" / "howto" / "from-nothing-to-154-scores.md"
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
FILES = ("toml", "python", "bash", "js")  # a block that begins with a comment of one word is the file of that name


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """Language and text of every fenced block."""
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [(match[1], match[2]) for match in found]


README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = blocks_of(ROOT / "README.md")


def commands(block: str) -> list[str]:
    lines = (line.split(" #")[0].strip() for line in block.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def is_make(block: str) -> bool:
    return all(command.startswith("make ") for command in commands(block))


def name_of(text: str) -> str:
    match = re.match(r"(?:#|//) ([\w./-]+)\n", text)
    return match[1] if match else ""


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_blocks_are_commands_files_or_text(page: Path):
    blocks = blocks_of(page)
    assert {language for language, _ in blocks} <= {"sh", "text", *FILES}
    assert [text for language, text in blocks if language in FILES and not name_of(text)] == []


def test_targets_are_in_the_makefile():
    wanted = [command for language, text in BLOCKS if language == "sh" and is_make(text) for command in commands(text)]
    assert {"make demo", "make test"} <= set(wanted)
    assert {command.removeprefix("make ") for command in wanted} <= TARGETS


def test_is_short():
    assert len(README.splitlines()) <= 120


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", README)
    assert links
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


@pytest.fixture
def checkout(fleet: Fleet) -> Iterator[Fleet]:
    """A folder with what the README's commands find in the repository."""
    shutil.copytree(ROOT / "examples", fleet.folder / "examples")
    bin_folder = Path(sys.executable).parent
    (fleet.folder / ".venv").symlink_to(bin_folder.parent)
    fleet.env["EVALFLEET_BREAKER_PROBE_BASE"] = "100ms"
    yield fleet
    # A page may leave an emulator, if it fails on the way.
    for written in fleet.folder.glob("emulator.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(written.read_text()), signal.SIGTERM)
    # A page may use a home of its own.
    for spool in fleet.folder.glob("*/spool"):
        Fleet(folder=fleet.folder, home=spool.parent).close()


def follow(fleet: Fleet, page: Path, block_s: float = 100) -> list[str]:
    """Do what a page says, from top to bottom. Returns what each block of commands printed."""
    said: list[str] = []
    for language, text in blocks_of(page):
        if language in FILES:
            file = fleet.folder / name_of(text)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        elif language == "sh" and not is_make(text):
            said.append(bash(fleet, text, block_s))
    return said


def bash(fleet: Fleet, script: str, timeout_s: float) -> str:
    """Run a block as a person pastes it, but stop at the first command that fails."""
    env = fleet._env({})
    env["PATH"] = f"{fleet.folder / '.venv' / 'bin'}:{env['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=env,
        cwd=fleet.folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
def test_every_command_of_the_readme_does_what_is_said(checkout: Fleet):
    version, agents, sweep, cloud, promises = follow(checkout, ROOT / "README.md")
    assert version.startswith("evalfleet ")
    assert "2 of 2 tasks got a verdict" in agents
    assert "report.html" in agents
    assert "12 of 12 tasks got a verdict" in sweep
    assert "batch-32_block-16_prefill-chunked True 2860.0" in sweep
    assert "cloud completed after" in cloud
    assert "24 of 24 tasks count" in cloud
    assert "pool lab is deleted: nothing of it is left" in cloud
    assert "nothing is left to delete" in cloud
    assert promises.count("demo completed after") == 2  # by `resume`, and again by `report`
    assert "24 of 24 tasks count" in promises
    assert "the breaker is open: launch_failed" in promises
    assert "the budget of $0.50 does not allow a single attempt: at $12.00 an hour" in promises
    assert "5m, costs $1.00; give a budget of $1.00 or more, or a shorter timeout" in promises
    assert (promises.count("exit code 3"), promises.count("exit code 2")) == (1, 1)
    assert "the key is [secret API_KEY]" in promises
    assert "correct-horse" not in promises
    # Killed with -9 in the middle: no task was started a second time for it.
    runs = checkout.json("status")["runs"]
    demo = next(run["run"] for run in runs if run["name"] == "demo")
    outcomes = checkout.json("report", demo)["attempts"]["by_outcome"]
    assert (outcomes["lost"], outcomes["cancelled"]) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page != GUIDE], ids=lambda page: page.stem)
def test_every_command_of_the_page_works(checkout: Fleet, page: Path):
    lacks = [need.what for need in Miniwob(config.Settings(home=Path())).requirements() if not need.present]
    if page.stem in ("run-miniwob", "write-an-agent") and lacks:
        pytest.skip(f"this machine lacks {', '.join(lacks)}")
    said = "\n".join(follow(checkout, page))
    wanted = {
        "quickstart": ["no disk in drive A", "slow completed", "2 of 2 tasks got a verdict"],
        "write-a-task": [
            "2 of 2 tasks got a verdict",
            "part 3 of",
            "the breaker is open: service_failed",
            "exit code 3",
            "asking with [secret API_KEY]",
        ],
        "resume-after-a-crash": ["not driven", "2 of 2 tasks got a verdict"],
        "control-cost": ["$0.20 spent", "3 of 3 tasks got a verdict"],
        "steer-a-run": ["held: good_2", "released: good_2", "is cancelled", "3 of 3 tasks count"],
        "compare-runs": ["B is better by 40.0 points (95% CI 23.3 to 56.7; 12 tasks gained, 0 lost, p < 0.001)."],
        "run-in-ci": ["report.html", "Wrote 1 file of run", "is cancelled"],
        "run-on-azure": ["2 of 2 tasks got a verdict", "is deleted: nothing of it is left", '"leaks": []'],
        "run-on-azure-batch": [
            "preparing: pilot",
            "2 of 2 tasks got a verdict",
            "start-task",
            "is deleted: nothing of it is left",
            "nothing is left to delete",
            '"leaks": [], "resources": {}',
        ],
        "run-on-azure-ml": [
            "preparing: pilot",
            "2 of 2 tasks got a verdict",
            "is deleted: nothing of it is left",
            "nothing is left to delete",
            '"leaks": [], "resources": {}',
        ],
        "run-waa": ["154 tasks in 12 domains"],
        "run-miniwob": ["130 tasks in 50 domains", "login-user_0  score 1"],
        "write-an-agent": ["click-link_0  score 1"],
        "run-on-tiers": ["tier safe is used as well", "tier.spilled", "both is deleted", '"leaks": []'],
        "try-azure-on-a-laptop": ["125 more Standard_D8ds_v5", "0.090", "D8ds_v5 eastus spot", '"leaks": []'],
    }
    assert [words for words in wanted.get(page.stem, []) if words not in said] == []
    assert "internal error" not in said


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_guide_leads_from_nothing_to_scores_and_leaves_nothing(checkout: Fleet):
    _, doctor, plan, image, first, look, scores, end = follow(checkout, GUIDE, 400)
    assert "no problem, 0 warnings" in doctor
    assert re.search(r"^plan \w+: 154 tasks of waa, within 3.0 h$", plan, re.MULTILINE)
    assert "golden image win11 is ready" in image
    assert "6 of 6 tasks got a verdict" in first
    assert "6 of 6 tasks count" in first
    assert "An emulated Windows has no screen" in look
    assert "report.html" in scores
    assert len(list((checkout.folder / "results").rglob("result.txt"))) == 6
    assert "nothing is left to delete" in end
    assert '"leaks": []' in end
    books = re.search(r"nothing of it is left. It cost \$([\d.]+)$", end, re.MULTILINE)
    bill = re.search(r'\{"usd": ([\d.]+)', end)
    assert books
    assert bill
    if float(books[1]) != pytest.approx(float(bill[1]), rel=0.01, abs=0.01):
        pytest.xfail(
            f"known fault: `pool delete` tells ${books[1]} of a pool of this guide, and its bill is ${bill[1]}"
        )
