"""Where the values of secrets come from. Values are never in a message."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from evalfleet import config
from evalfleet.config.core_tables import SecretsSettings
from evalfleet.config.secrets import Secrets
from evalfleet.errors import ConfigError, MissingSecret


def secrets(environ: Mapping[str, str] | None = None, **settings: object) -> Secrets:
    return Secrets(settings=replace(SecretsSettings(), **settings), environ=environ or {}, clock=lambda: 0.0)


def test_the_first_source_that_has_a_value_counts(tmp_path: Path):
    (tmp_path / "A").write_text("of the file\n")
    (tmp_path / "B").write_text("of the file\n")
    sources = secrets({"A": "of the environment"}, file=f"{tmp_path}/{{name}}", command=("echo", "of", "{name}"))
    assert sources.values(["A", "B", "C"]) == {"A": "of the environment", "B": "of the file", "C": "of C"}
    private = replace(sources, settings=replace(sources.settings, environment=False))
    assert private.values(["A"]) == {"A": "of the file"}


def test_each_user_and_project_has_its_own(tmp_path: Path):
    for user in ("anna", "bert"):
        (tmp_path / user / "waa").mkdir(parents=True)
        (tmp_path / user / "waa" / "KEY").write_text(f"hush {user}")
    sources = secrets(environment=False, file=f"{tmp_path}/{{user}}/{{project}}/{{name}}")
    for user in ("anna", "bert"):
        assert sources.values(["KEY"], user=user, project="waa") == {"KEY": f"hush {user}"}
    assert sources.missing(["KEY"], user="anna", project="other") == ["KEY"]


@pytest.mark.parametrize("user", ["../anna", "anna/waa", ".", "..", "a\nb", "-rf", "~"])
def test_a_name_that_leads_elsewhere_has_no_secrets(user: str, tmp_path: Path):
    (tmp_path / "KEY").write_text("hush")
    asked = secrets(environment=False, file=f"{tmp_path}/{{user}}/{{name}}", command=("echo", "{user}", "{name}"))
    assert asked.missing(["KEY"], user=user, project="waa") == ["KEY"]


def test_an_answer_is_kept_for_a_while(tmp_path: Path):
    now = [0.0]
    sources = Secrets(
        settings=SecretsSettings(file=f"{tmp_path}/{{name}}", keep_s=60.0), environ={}, clock=lambda: now[0]
    )
    assert sources.missing(["KEY"]) == ["KEY"]
    (tmp_path / "KEY").write_text("hush")
    now[0] = 59.0
    assert sources.missing(["KEY"]) == ["KEY"]
    now[0] = 60.0
    assert sources.values(["KEY"]) == {"KEY": "hush"}


def test_what_is_missing_is_said_without_values(tmp_path: Path):
    sources = secrets({"A": "hush"}, command=("sh", "-c", "echo hush; exit 1", "{name}"))
    with pytest.raises(
        MissingSecret, match=r"the environment and \[secrets\] command lack the secret B; set it"
    ) as caught:
        sources.values(["A", "B"])
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("line", ['file = "/run/secrets"', 'command = ["pass", "show"]', 'command = ["{name}"]'])
def test_a_source_must_name_the_secret(line: str, tmp_path: Path):
    (tmp_path / "evalfleet.toml").write_text(f"[secrets]\n{line}\n")
    with pytest.raises(ConfigError, match=r"\{name\}"):
        config.load(tmp_path / "home", environ={}, folder=tmp_path)
