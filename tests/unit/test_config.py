from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from evalfleet import config
from evalfleet.config.core_tables import BreakerSettings, JudgePattern, JudgeSettings, LeaseSettings, LocalSettings
from evalfleet.errors import ConfigError, MissingSecret
from evalfleet.model import Kind


def load(folder: Path, text: str | None = None, **environ: str) -> config.Settings:
    if text is not None:
        (folder / "evalfleet.toml").write_text(text)
    return config.load(environ={"EVALFLEET_HOME": str(folder / "home"), **environ}, folder=folder)


def test_defaults(tmp_path: Path):
    assert load(tmp_path) == config.Settings(home=tmp_path / "home")
    assert load(tmp_path).local.python == sys.executable


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
        local=LocalSettings(price_usd_per_hour=1.5, memory_mb=8000, python="/usr/bin/python3", runner_idle_s=120.0),
        lease=LeaseSettings(duration_s=30.0),
        breaker=BreakerSettings(probe_base_s=2.0, slow_start=5),
        judge=JudgeSettings(patterns=(JudgePattern("CUDA", Kind.TASK_ERROR),)),
    )


def test_the_documented_file_is_valid(tmp_path: Path):
    assert config.__doc__ is not None
    example = config.__doc__.split("::\n", 1)[1].split("``EVALFLEET_DEBUG", 1)[0]
    lines = [line for line in example.splitlines() if not line.strip().startswith("home =")]
    assert load(tmp_path, "\n".join(lines)).lease.duration_s == 60.0


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
    assert settings.lease.duration_s == 90.0
    assert [row.regex for row in settings.judge.patterns] == ["a", "b"]


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
    assert (settings.local.price_usd_per_hour, settings.local.memory_mb, settings.local.python) == (2.5, 100, "/p")
    assert (settings.local.runner_idle_s, settings.lease.duration_s, settings.breaker.probe_base_s) == (5.0, 3.0, 0.1)
    assert settings.breaker.slow_start == 1


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
        ("[lease]\nduration = 0", ["lease.duration", "above zero"]),
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


def test_tables_of_both_files_and_the_environment_are_put_together(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        "[local]\nslots = 2\nmemory_mb = 100\n[pool.a]\nworkers = 1\n[pool.b]\nworkers = 1\n"
        '[alerts]\nwebhook = "HOOK"\nidle = "5m"\n[alerts.rules.budget]\nenabled = false\n'
        '[alerts.rules.overload]\nseverity = "info"'
    )
    text = (
        "[local]\nmemory_mb = 200\n[pool.b]\nworkers = 2\n[alerts]\nidle = 60\n[alerts.rules.budget]\naction = 'pause'"
    )
    settings = load(tmp_path, text, EVALFLEET_LOCAL_SLOTS="3")
    assert settings.local == LocalSettings(slots=3, memory_mb=200)
    assert {name: pool["workers"] for name, pool in settings.pools.items()} == {"a": 1, "b": 2}
    alerts = settings.alerts
    assert (alerts.webhook, alerts.idle_s, alerts.is_off("budget")) == ("HOOK", 60.0, False)
    assert (alerts.action("budget"), alerts.severity("overload")) == ("pause", "info")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('off = ["nonsense"]', "there is no rule 'nonsense'"),
        ('[alerts.rules.nonsense]\naction = "pause"', "there is no rule 'nonsense'"),
        (
            '[alerts.rules.idle_pool]\naction = "pause"',
            "alerts.rules.idle_pool.action: pause is not an action of this rule",
        ),
        ('[alerts.rules.budget]\naction = "dance"', "alerts.rules"),
        ('webhook = "https://hooks.example/secret"', "alerts.webhook: must be the name of a variable"),
        ('quiet = "at night"', "alerts.quiet"),
        ("budget_shares = [-1.0]", "alerts.budget_shares"),
        ('pull = "long"', "alerts.pull"),
    ],
)
def test_bad_alerts(tmp_path: Path, text: str, said: str):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"[alerts]\n{text}")
    assert said in str(caught.value)
    assert "hooks.example" not in str(caught.value)


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
        settings.lease.duration_s = 1.0
