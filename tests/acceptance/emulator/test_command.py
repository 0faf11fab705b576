"""`evalfleet emulator` as people run it: a process that prints its settings, and ends with all its hosts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evalfleet.cli import main as entry


@contextmanager
def started(*args: str, lines: int = 4) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    command = [sys.executable, "-m", "evalfleet", "emulator", "--speed", "0", *args]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        yield process, dict(line.removeprefix("export ").strip().split("=", 1) for line in said)
    finally:
        process.kill()
        process.communicate()


class Shell:
    """A shell in which the emulator's settings are exported; commands run in this process, which is faster."""

    def __init__(self, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        self._capsys = capsys
        for name, value in settings.items():
            monkeypatch.setenv(name, value)

    def run(self, *args: str, code: int = 0) -> str:
        assert entry.run(args) == code
        output = self._capsys.readouterr()
        return output.err if code else output.out


def test_its_settings_make_it_the_cloud_and_a_signal_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with started() as (process, settings):
        shell = Shell(settings, monkeypatch, capsys)
        assert settings["EVALFLEET_AZURE_PROFILE"] == "emulator"
        quota = shell.run("quota", "--region", "eastus", "--json")
        assert json.loads(quota)["quotas"][0]["fits"] == 125
        plan = ["plan", "--tasks", "400", "--workers", "200", "--size", "Standard_D8ds_v5", "--home", str(tmp_path)]
        told = shell.run(*plan, "--regions", "eastus", code=2)
        assert "the quota allows 125 machines of one size in one region, too few for 200 workers" in told
        groups = json.loads(shell.run(*plan, "--no-spot", "--json"))["options"][0]["groups"]
        assert [(group["region"], group["machines"]) for group in groups] == [("eastus", 125), ("westus2", 75)]
        size = ["--size", "Standard_D8ds_v5"]
        fresh = shell.run("prices", "--refresh", "--region", "eastus", *size, "--home", str(tmp_path))
        assert "Standard_D8ds_v5     eastus                0.452    0.090" in fresh
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        gone = shell.run("quota", "--region", "eastus", code=3)
        assert "Azure does not answer in eastus" in gone


def test_signing_in_over_https_as_people_do(tmp_path: Path):
    file = tmp_path / "traffic.jsonl"
    with started("--tls", "--traffic", str(file), lines=8) as (_, settings):
        assert settings["EVALFLEET_AZURE_EMULATOR"].startswith("https://localhost:")
        command = [sys.executable, "-m", "evalfleet", "quota", "--region", "eastus"]
        known = {**os.environ, **settings, "HOME": str(tmp_path)}
        done = subprocess.run(command, env=known, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "standardDDSv5Family" in done.stdout
        exchanges = [json.loads(each) for each in file.read_text().splitlines()]
        (token,) = [each["answer"]["access_token"] for each in exchanges if each["path"].endswith("/oauth2/v2.0/token")]
        assert exchanges[-1]["headers"]["Authorization"] == f"Bearer {token}"


def test_its_traffic_can_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "traffic.jsonl"
    with started("--traffic", str(file)) as (_, settings):
        Shell(settings, monkeypatch, capsys).run("quota", "--region", "eastus")
        (line,) = [json.loads(each) for each in file.read_text().splitlines()]
        assert (line["method"], line["path"].rpartition("/")[2], line["status"]) == ("GET", "usages", 200)
        assert line["headers"]["Authorization"] == "Bearer none"
    assert entry.run(["emulator", "--traffic", str(tmp_path)]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        ("[[fault]]\nop = 'vm.create'\n", "needs one of preset, delay, hang, drop or exit"),
        ("[[fault]]\nop = 'vm.create'\npreset = 'nope'\n", 'there is no "nope"; known: sku_not_available'),
        ("[[falt]]\n", "falt"),
        ("= 3\n", "not valid TOML"),
    ],
)
def test_a_bad_scenario(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str):
    path = tmp_path / "friday.toml"
    if text is not None:
        path.write_text(text)
    assert entry.run(["emulator", "--scenario", str(path)]) == 2
    assert said in capsys.readouterr().err


def test_the_scenario_of_the_how_to_is_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    text = (Path(__file__).parents[3] / "docs" / "howto" / "try-azure-on-a-laptop.md").read_text()
    path = tmp_path / "friday-evening.toml"
    path.write_text(text.split("```toml\n", 1)[1].split("```", 1)[0])
    with started("--scenario", str(path)) as (_, settings):
        quota = Shell(settings, monkeypatch, capsys).run("quota", "--region", "eastus", "-w", "3", "--json")
        (row,) = json.loads(quota)["quotas"]
        assert row["fits"] == 2
        assert "lacks 8 cores" in row["missing"][0]


def test_what_a_killed_emulator_left_the_next_one_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with started() as (process, _):
        (folder,) = tmp_path.glob("evalfleet-emulator-*")
        home = folder / "vms" / "x" / "home"
        home.mkdir(parents=True)
        with subprocess.Popen(["sleep", "300"], cwd=home, env={"PATH": os.defpath}) as stray:
            process.kill()
            process.wait()
            with started() as (_, again):
                assert again
                assert not folder.exists()
                assert stray.wait(30) == -signal.SIGKILL
