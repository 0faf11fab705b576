"""Who may do what: every route against every role, and every change in the audit log."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from tests.support.web_client import Client, serving

from evalfleet.core.rights import RIGHTS, is_allowed, lesser
from evalfleet.model import Ownership, Policy, Role, TaskSpec
from evalfleet.store.open import open_store
from evalfleet.web.routes import routes
from evalfleet.web.security import tokens

ROUTES = routes(MagicMock())
CHANGES = [route for route in ROUTES if route.method == "POST"]
USERS = {"rita": Role.READER, "mia": Role.MEMBER, "max": Role.MEMBER, "olga": Role.OPERATOR, "ada": Role.ADMIN}


class Team:
    """A server, the token of each user, and a run of each."""

    def __init__(self, client: Client, home: Path, texts: dict[str, str], runs: dict[str, str]) -> None:
        self.client = client
        self.home = home
        self.tokens = texts
        self.runs = runs

    async def post(self, user: str, path: str, **body: Any) -> Any:
        return await self.client.ask(f"/api/v1/{path}", "POST", data=body, token=self.tokens[user])


@pytest.fixture
async def team(home: Path) -> AsyncGenerator[Team]:
    texts: dict[str, str] = {}
    runs: dict[str, str] = {}
    with closing(open_store(home)) as store:
        for name, role in USERS.items():
            store.users.add(name, role)
            texts[name] = tokens.make(store, f"{name}s", Role.ADMIN, user=name).text
            specs = [TaskSpec(key="a", domain="d", command=("true",))]
            whose = Ownership(owner=name)
            runs[name] = store.runs.submit(name, Policy(), specs, folder="/", base_env={}, ownership=whose).id
    async with serving(home) as client:
        yield Team(client, home, texts, runs)


def test_every_route_is_in_the_table_of_rights():
    for route in ROUTES:
        for operation in (route.operation, route.control):
            assert operation is None or operation in RIGHTS, route.path
        assert route.operation is not None, route.path
        if route.method == "POST":
            assert route.operation != "look", route.path
    named = {one for route in ROUTES for one in (route.operation, route.control)}
    assert set(RIGHTS) <= named | {"run.upload"}


def test_a_token_allows_no_more_than_its_user():
    assert lesser(Role.ADMIN, Role.MEMBER) is Role.MEMBER
    assert lesser(Role.READER, Role.ADMIN) is Role.READER


@pytest.mark.parametrize("user", USERS)
async def test_every_change_is_refused_to_those_who_may_not(team: Team, user: str):
    """Each route that changes something, with each role, on another user's run: 403 before anything else happens."""
    others = team.runs["ada" if user != "ada" else "olga"]
    tried = {True: 0, False: 0}
    for route in CHANGES:
        assert route.operation is not None
        path = re.sub(r"\{run[^}]*\}", others, route.path.removeprefix("/api/v1/"))
        path = re.sub(r"\{[^}]*\}", "x", path)
        allowed = is_allowed(USERS[user], route.operation)
        reply = await team.post(user, path, nonsense=1)
        assert (reply.status == 403) is not allowed, (route.path, user, reply.body)
        tried[allowed] += 1
    assert sum(tried.values()) == len(CHANGES) > 20
    with closing(open_store(team.home)) as store:
        assert str(store.runs.get(others).state) == "queued"
        refused = [row for row in store.audit.page(user=user, limit=1000) if row.outcome == "403"]
    assert len(refused) == sum(
        RIGHTS[r.operation or ""].changes and not is_allowed(USERS[user], r.operation or "") for r in CHANGES
    )


async def test_a_member_acts_on_own_runs_only(team: Team):
    assert (await team.post("mia", f"runs/{team.runs['mia']}/pause")).status != 403
    for name in ("max", "ada"):
        reply = await team.post("mia", f"runs/{team.runs[name]}/pause")
        assert reply.status == 403
        assert "another user's" in reply.json["error"]["message"]
    # The newest run is ada's; a prefix and the name mean the same run as its id.
    for text in ("latest", team.runs["ada"][:7], "ada"):
        assert (await team.post("mia", f"runs/{text}/cancel")).status == 403
    assert (await team.post("olga", f"runs/{team.runs['mia']}/amend", workers=2)).status == 200
    assert (await team.post("rita", f"runs/{team.runs['rita']}/cancel")).status == 403


async def test_what_a_member_submits_is_the_members(team: Team):
    made = await team.post("mia", "runs", tasks=[{"key": "x", "command": ["true"]}], project="p", tags={"k": "v"})
    assert made.status == 201, made.body
    found = (await team.client.ask("/api/v1/runs?owner=mia&project=p&tag=k%3Dv", token=team.tokens["rita"])).json
    assert [(row["owner"], row["project"], row["tags"]) for row in found["runs"]] == [("mia", "p", {"k": "v"})]
    study = {
        "study": {"name": "s", "objective": {"minimize": "s"}},
        "parameters": {"n": [1]},
        "trial": {"command": ["true"]},
    }
    made = await team.post("mia", "studies", study=study)
    assert made.status == 201, made.body
    assert (await team.post("max", f"studies/{made.json['run']}/add-trials", trials=1)).status == 403
    assert (await team.post("mia", f"studies/{made.json['run']}/add-trials", trials=1)).status != 403


async def test_a_disabled_user_and_a_lower_role_hold_at_once(team: Team):
    with closing(open_store(team.home)) as store:
        store.users.set("olga", role=Role.READER)
        store.users.set("max", disabled=True)
    team.client.server.site.gate._read_at = float("-inf")  # as if a second had passed
    assert (await team.post("olga", f"runs/{team.runs['mia']}/cancel")).status == 403
    assert (await team.client.ask("/api/v1/runs", token=team.tokens["max"])).status == 401


async def test_the_audit_log_says_who_what_when_and_from_where(team: Team):
    await team.post("olga", f"runs/{team.runs['mia']}/pause")
    await team.post("mia", f"runs/{team.runs['ada']}/cancel")
    made = (await team.post("ada", "users", name="eve", role="reader")).json
    assert made == {**made, "name": "eve", "role": "reader", "origin": "command", "disabled": False}
    assert (await team.post("ada", "users/eve/set", role="boss")).status == 400
    assert (await team.post("ada", "users/eve/remove")).status == 200
    page = (await team.client.ask("/api/v1/audit?limit=5", token=team.tokens["ada"])).json
    assert [(one["user"], one["operation"], one["object"], one["outcome"]) for one in page["entries"]] == [
        ("ada", "user.remove", "eve", "done"),
        ("ada", "user.set", "eve", "InputError"),
        ("ada", "user.add", "eve", "done"),
        ("mia", "run.cancel", team.runs["ada"], "403"),
        ("olga", "run.pause", team.runs["mia"], page["entries"][4]["outcome"]),
    ]
    assert {one["address"] for one in page["entries"]} == {"127.0.0.1"}
    assert page["next"] == str(page["entries"][-1]["number"])
    for user in ("olga", "mia", "rita"):
        for path in ("audit", "users"):
            assert (await team.client.ask(f"/api/v1/{path}", token=team.tokens[user])).status == 403
    for text in team.tokens.values():
        assert text not in str(page)


async def test_taking_over_a_desktop_is_for_owners_and_operators(team: Team):
    path = f"/api/v1/runs/{team.runs['ada']}/tasks/1/attempts/1/vnc"
    for user, status in (("rita", 403), ("mia", 403), ("olga", 404), ("ada", 404)):
        assert (await team.client.ask(f"{path}?control=1", token=team.tokens[user])).status == status
    assert (
        await team.client.ask(path, token=team.tokens["rita"])
    ).status == 404  # to look is for all; there is no attempt
