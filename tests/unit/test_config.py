from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from evalfleet import config
from evalfleet.errors import ConfigError, MissingSecret
from evalfleet.model import Kind


def load(folder: Path, text: str | None = None, **environ: str) -> config.Settings:
    if text is not None:
        (folder / "evalfleet.toml").write_text(text)
    return config.load(environ={"EVALFLEET_HOME": str(folder / "home"), **environ}, folder=folder)


def test_defaults(tmp_path: Path):
    assert load(tmp_path) == config.Settings(home=tmp_path / "home")
    assert load(tmp_path).runner_python == sys.executable


def test_every_key_of_the_file(tmp_path: Path):
    settings = load(
        tmp_path,
        """
        colour = "never"
        log_level = "debug"
        [local]
        price_usd_per_hour = 1.5
        memory_mb = 8000
        python = "/usr/bin/python3"
        runner_idle = "2m"
        [lease]
        duration = "30s"
        [breaker]
        probe_base = 2
        slow_start = 5
        [[judge.pattern]]
        regex = "CUDA"
        kind = "task_error"
        """,
    )
    assert settings == config.Settings(
        home=tmp_path / "home",
        colour="never",
        log_level="debug",
        local_price_usd_per_hour=1.5,
        local_memory_mb=8000,
        runner_python="/usr/bin/python3",
        runner_idle_s=120.0,
        lease_s=30.0,
        breaker_probe_base_s=2.0,
        breaker_slow_start=5,
        judge_patterns=(("CUDA", Kind.TASK_ERROR),),
    )


def test_the_documented_file_is_valid(tmp_path: Path):
    assert config.__doc__ is not None
    example = config.__doc__.split("::\n", 1)[1].split("``EVALFLEET_DEBUG", 1)[0]
    lines = [line for line in example.splitlines() if not line.strip().startswith("home =")]
    assert load(tmp_path, "\n".join(lines)).lease_s == 60.0


def test_precedence(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        'log_level = "error"\ncolour = "always"\nlease.duration = "90s"\n[[judge.pattern]]\nregex = "b"\nkind = "stall"'
    )
    settings = load(
        tmp_path,
        'log_level = "info"\ncolour = "never"\n[[judge.pattern]]\nregex = "a"\nkind = "timeout"',
        EVALFLEET_LOG_LEVEL="debug",
    )
    assert settings.log_level == "debug"
    assert settings.colour == "never"
    assert settings.lease_s == 90.0
    assert [regex for regex, _ in settings.judge_patterns] == ["a", "b"]


def test_home_by_option_environment_file_and_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert config.load(environ={}, folder=tmp_path).home == tmp_path / "me" / ".evalfleet"
    (tmp_path / "evalfleet.toml").write_text('home = "here"')
    assert config.load(environ={}, folder=tmp_path).home == tmp_path / "here"
    assert config.load(environ={"EVALFLEET_HOME": "/there"}, folder=tmp_path).home == Path("/there")
    assert config.load("~/x", environ={"EVALFLEET_HOME": "/there"}, folder=tmp_path).home == tmp_path / "me" / "x"


def test_variables(tmp_path: Path):
    settings = load(
        tmp_path,
        NO_COLOR="1",
        EVALFLEET_LOCAL_PRICE_USD_PER_HOUR="2.5",
        EVALFLEET_LOCAL_MEMORY_MB="100",
        EVALFLEET_RUNNER_PYTHON="/p",
        EVALFLEET_RUNNER_IDLE="5s",
        EVALFLEET_LEASE_DURATION="3",
        EVALFLEET_BREAKER_PROBE_BASE="100ms",
        EVALFLEET_BREAKER_SLOW_START="1",
    )
    assert settings.colour == "never"
    assert (settings.local_price_usd_per_hour, settings.local_memory_mb, settings.runner_python) == (2.5, 100, "/p")
    assert (settings.runner_idle_s, settings.lease_s, settings.breaker_probe_base_s) == (5.0, 3.0, 0.1)
    assert settings.breaker_slow_start == 1


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('colr = "auto"', ['unknown key "colr"', 'did you mean "colour"?']),
        ("[locl]", ['unknown key "locl"', "local"]),
        ("[local]\nmemory = 1", ['local: unknown key "memory"', "memory_mb"]),
        ("[local]\nmemory_mb = 1.5", ["local.memory_mb", "a whole number"]),
        ("[local]\nmemory_mb = -1", ["local.memory_mb", "1 or more"]),
        ("[local]\nprice_usd_per_hour = -0.1", ["local.price_usd_per_hour", "0 or more"]),
        ("[local]\nprice_usd_per_hour = nan", ["local.price_usd_per_hour", "0 or more"]),
        ('[local]\npython = ""', ["local.python", "path"]),
        ("[lease]\nduration = true", ["lease.duration", "a duration such as"]),
        ('[lease]\nduration = "soon"', ["lease.duration", '"soon" is not a duration']),
        ('[lease]\nduration = "1ms"', ["lease.duration", "at least 1s"]),
        ("[breaker]\nslow_start = 0", ["breaker.slow_start", "1 or more"]),
        ('colour = "red"', ["colour", "auto, always, never"]),
        ('log_level = "loud"', ["log_level", "debug"]),
        ('[[judge.pattern]]\nregex = "("\nkind = "stall"', ["number 1", "not a regular expression"]),
        ('[[judge.pattern]]\nregex = ""\nkind = "stall"', ["number 1", "empty"]),
        ('[[judge.pattern]]\nregex = "a"\nkind = "stal"', ["number 1", 'did you mean "stall"?']),
        ('[[judge.pattern]]\nregx = "a"\nkind = "stall"', ["judge.pattern", "regx", '"regex"']),
        ("[judge]\npattern = 1", ["judge.pattern", "a list"]),
        ("colour = \nx = 1", ["not valid TOML", "line 1"]),
    ],
)
def test_bad_file(tmp_path: Path, text: str, parts: list[str]):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert all(part in message for part in [str(tmp_path / "evalfleet.toml"), *parts]), message
    assert "\n" not in message


def test_file_that_is_not_text(tmp_path: Path):
    (tmp_path / "evalfleet.toml").write_bytes(b'colour = "\xff"')
    with pytest.raises(ConfigError, match="not UTF-8 at offset 10"):
        load(tmp_path)
    (tmp_path / "evalfleet.toml").unlink()
    (tmp_path / "evalfleet.toml").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)


def test_home_in_the_homes_own_file(tmp_path: Path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text('home = "/elsewhere"')
    with pytest.raises(ConfigError, match="remove the line"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("variable", "value", "part"),
    [
        ("EVALFLEET_LOCAL_MEMORY_MB", "much", "is not a number"),
        ("EVALFLEET_LOCAL_PRICE_USD_PER_HOUR", "-1", "0 or more"),
        ("EVALFLEET_RUNNER_IDLE", "15 parsecs", "is not a duration"),
        ("EVALFLEET_COLOUR", "red", "must be one of"),
    ],
)
def test_bad_variable(tmp_path: Path, variable: str, value: str, part: str):
    with pytest.raises(ConfigError, match=f"{variable}.*{part}"):
        load(tmp_path, **{variable: value})


def test_empty_home_option(tmp_path: Path):
    with pytest.raises(ConfigError, match="--home"):
        config.load("", environ={}, folder=tmp_path)


def test_secret_values():
    environ = {"TOKEN": "hush", "OTHER": "x"}
    assert config.secret_values(["TOKEN"], environ) == {"TOKEN": "hush"}
    assert config.secret_values([], environ) == {}
    with pytest.raises(MissingSecret) as caught:
        config.secret_values(["TOKEN", "KEY_B", "KEY_A"], environ)
    assert "KEY_A, KEY_B" in str(caught.value)
    assert "hush" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_base_env_is_a_short_list():
    environ = {"PATH": "/bin", "LC_ALL": "C", "OPENAI_API_KEY": "hush", "EVALFLEET_HOME": "/h", "TZ": "UTC"}
    assert config.base_env(environ) == {"PATH": "/bin", "LC_ALL": "C", "TZ": "UTC"}


@pytest.mark.parametrize(("value", "wanted"), [("1", True), ("0", False), ("", False)])
def test_debug(monkeypatch: pytest.MonkeyPatch, value: str, wanted: bool):
    monkeypatch.setenv("EVALFLEET_DEBUG", value)
    assert config.debug() is wanted


def test_settings_are_frozen(tmp_path: Path):
    settings: Any = load(tmp_path)
    with pytest.raises(AttributeError):
        settings.lease_s = 1.0
