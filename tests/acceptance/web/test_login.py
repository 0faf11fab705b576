"""A laptop that knows a server's address and a token only: another home, another user folder, real HTTP."""

from __future__ import annotations

import json
import shlex
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import Fleet, fleet_at, wait_for
from tests.support.web_server import Served, serve

from evalfleet.model import Role
from evalfleet.remote.http import checked_url
from evalfleet.store.open import open_store

ROOT = Path(__file__).parents[3]


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Fleet]:
    place = tmp_path / "laptop"
    place.mkdir()
    yield from fleet_at(place)


@pytest.fixture
def server(fleet: Fleet) -> Served:
    fleet.command(
        "run", fleet.tasks([{"key": "a", "command": ["true"]}, {"key": "b", "command": ["false"]}], attempts=1)
    )
    return serve(fleet, "--no-drive")


def token_of(fleet: Fleet, user: str, role: str) -> str:
    fleet.command("user", "add", user, "--role", role)
    return fleet.json("token", "new", "laptop", "--user", user)["token"]


def signed_in(laptop: Fleet, server: Served, token: str) -> str:
    url = f"http://127.0.0.1:{server.port}"
    (laptop.folder / "token").write_text(f"{token}\n")
    done = laptop.command("login", url, "--token-file", str(laptop.folder / "token"))
    assert done.returncode == 0, done.stderr
    assert token not in done.stdout + done.stderr
    return url


def read(laptop: Fleet, *args: str) -> Any:
    done = laptop.command(*args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_laptop_sees_what_the_server_has(fleet: Fleet, laptop: Fleet, server: Served):
    url = signed_in(laptop, server, token_of(fleet, "mia", "member"))
    kept = laptop.folder / ".config" / "evalfleet" / "servers.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    here = f"--server={url}"
    for args in (("status",), ("tasks",), ("report",), ("tasks", "--failed", "--sort", "-key")):
        there, found = fleet.json(*args), read(laptop, *args, here)
        found.pop("schema")
        assert found == there, args
    assert "50.0%" in laptop.command("status", "latest", here).stdout
    assert "50.0%" in laptop.command("report", here).stdout
    refused = laptop.command("cancel", here)
    assert refused.returncode == 3
    assert "another user's" in refused.stderr
    assert laptop.command("report", "nothing", here).returncode == 2
    assert laptop.command("logout", url).returncode == 0
    assert "evalfleet login" in laptop.command("status", here).stderr
    assert not laptop.home.exists(), "asking a server makes no home here"


def test_a_member_pauses_and_cancels_from_a_laptop(fleet: Fleet, laptop: Fleet):
    server = serve(fleet, "--no-drive")
    token = token_of(fleet, "mia", "member")
    made = server.ask("/api/v1/runs", "POST", {"tasks": [{"key": "x", "command": ["true"]}]}, token=token).json["run"]
    url = signed_in(laptop, server, token)
    assert read(laptop, "status", "--owner", "mia", "--server", url)["runs"][0]["run"] == made
    assert read(laptop, "cancel", made, "--server", f"127.0.0.1:{server.port}")["state"] == "cancelled"
    with closing(open_store(fleet.home)) as store:
        row = store.audit.page(limit=1)[0]
        assert (row.user_name, row.operation, row.object, row.outcome) == ("mia", "run.cancel", made, "done")


def test_a_server_that_is_gone_or_a_token_that_is_revoked_is_said(fleet: Fleet, laptop: Fleet, server: Served):
    token = token_of(fleet, "rita", "reader")
    url = signed_in(laptop, server, token)
    fleet.command("user", "set", "rita", "--disable")
    wait_for(lambda: server.ask("/api/v1/me", token=token).status == 401, "the token to be worthless")
    with closing(open_store(fleet.home)) as store:
        assert store.users.get("rita").role is Role.READER
    wrong = laptop.command("login", url, "--token-file", str(laptop.folder / "token"))
    assert (wrong.returncode, "sign in again" in wrong.stderr) == (3, True)
    server.kill()
    gone = laptop.command("status", "--server", url)
    assert (gone.returncode, "cannot be reached" in gone.stderr) == (3, True)
    (laptop.folder / ".config" / "evalfleet" / "servers.json").chmod(0o644)
    assert "chmod 600" in laptop.command("status", "--server", url).stderr


@pytest.mark.parametrize("url", ["ftp://h", "http://example.org", "https://u:p@h", "https://h/?token=x", "h"])
def test_an_address_that_would_leak_a_token_is_refused(url: str):
    with pytest.raises(Exception, match=r"address of a server|unencrypted"):
        checked_url(url)


def test_the_commands_of_the_howto_work(fleet: Fleet):
    """Those that set up the users, as they are written."""
    text = (ROOT / "docs" / "howto" / "serve-a-team.md").read_text()
    commands = [
        line.removeprefix("$ evalfleet ").split("   #")[0]
        for line in text.splitlines()
        if line.startswith("$ evalfleet ")
    ]
    local = [line for line in commands if not line.startswith(("serve", "login")) and "--server" not in line]
    assert len(local) >= 5
    for line in local:
        done = fleet.command(*shlex.split(line))
        assert done.returncode == 0, (line, done.stderr)
