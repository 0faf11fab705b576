"""Variables that look like secrets, and those that do not."""

from __future__ import annotations

import pytest

from evalfleet.core.secret_names import MASK, looks_secret, masked, warning
from evalfleet.model import TaskSpec


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_API_KEY", "sk-0123456789abcdef"),
        ("ANTHROPIC_APIKEY", "x"),
        ("HF_TOKEN", "x"),
        ("token", "x"),
        ("DB_PASSWORD", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("GOOGLE_CREDENTIALS_JSON", "{}"),
        ("MODEL_OPTIONS", "sk-0123456789abcdef"),
        ("PEM", "-----BEGIN RSA PRIVATE KEY-----\nabc"),
    ],
)
def test_what_looks_like_a_secret(name: str, value: str):
    assert looks_secret(name, value)
    assert masked({name: value, "SEED": "7"}) == {name: MASK, "SEED": "7"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "4096"),
        ("KEYBOARD", "us"),
        ("MONKEY", "x"),
        ("SSH_KEY_PATH", "/keys/id"),
        ("SECRET_NAME", "vault/x"),
        ("PATH", "/bin"),
        ("API_KEY", ""),
        ("MODEL", "sk-small"),
    ],
)
def test_what_does_not(name: str, value: str):
    assert not looks_secret(name, value)


def test_who_submits_one_is_told_once_for_all_tasks():
    tasks = [TaskSpec(key=f"t{one}", domain="d", command=("true",), env={"HF_TOKEN": "x"}) for one in range(3)]
    said = warning(tasks)
    assert said is not None
    assert "HF_TOKEN looks like a secret" in said
    assert "'t0'" in said
    assert "`secrets`" in said
    assert warning([TaskSpec(key="a", domain="d", command=("true",), env={"SEED": "7"})]) is None
