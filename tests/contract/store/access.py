"""The contract of a store: what the dashboard reads, who may read it, and what operators request."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.store import cases

from evalfleet.errors import InputError, NotFound
from evalfleet.model import Ownership, Policy, Role, TaskState, Verb
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock


class AccessContract:
    """Tokens, pages, events of all runs."""

    def test_a_token_is_kept_until_it_is_revoked(self, store: Store) -> None:
        made = store.tokens.add("boss", Role.OPERATOR, "aa")
        assert (made.name, made.role, made.digest, made.created_at) == ("boss", Role.OPERATOR, "aa", store.now())
        other = store.tokens.add("guest", Role.READER, "bb")
        assert {token.id for token in store.tokens.all()} == {made.id, other.id}
        assert store.tokens.revoke("boss") == made
        assert store.tokens.revoke(other.id) == other
        assert store.tokens.all() == []
        with pytest.raises(NotFound, match="token list"):
            store.tokens.revoke("boss")

    def test_two_tokens_of_one_name_are_revoked_by_their_ids(self, store: Store) -> None:
        first, second = store.tokens.add("a", Role.READER, "1"), store.tokens.add("a", Role.READER, "2")
        with pytest.raises(NotFound, match="2 tokens"):
            store.tokens.revoke("a")
        store.tokens.revoke(first.id)
        assert store.tokens.all() == [second]

    def test_what_has_expired_is_forgotten_when_the_next_is_made(self, store: Store, clock: FakeClock) -> None:
        store.tokens.add("short", Role.READER, "1", store.now() + 10)
        lasting = store.tokens.add("long", Role.READER, "2", store.now() + 100)
        clock.advance(11)
        made = store.tokens.add("new", Role.READER, "3")
        assert {token.id for token in store.tokens.all()} == {lasting.id, made.id}

    def test_events_of_all_runs_in_one_order(self, store: Store) -> None:
        assert store.events.last_number() == 0
        first, second = cases.drive(store), cases.drive(store)
        store.events.note(first.id, "alert.fired", {"rule": "x"})
        store.events.note("home", "alert.watched", {})
        everything = store.events.all(0)
        assert [event.number for event in everything] == list(range(1, store.events.last_number() + 1))
        assert {event.run_id for event in everything} == {first.id, second.id, "home"}
        assert store.events.all(everything[2].number, 2) == everything[3:5]
        assert [event.type for event in store.events.alerts()] == ["alert.fired", "alert.watched"]
        newest = store.events.before(first.id, limit=2)
        assert newest == list(reversed(store.events.of_run(first.id)))[:2]
        assert store.events.before(first.id, newest[-1].number, 1)[0].number < newest[-1].number

    def test_runs_and_tasks_come_in_pages(self, store: Store) -> None:
        runs = [cases.submit(store, 3).id for _ in range(5)]
        page = store.runs.page(limit=2)
        assert [row["run"].id for row in page] == runs[:2:-1]
        assert [row["run"].id for row in store.runs.page(before=page[-1]["place"], limit=9)] == runs[2::-1]
        assert store.runs.page(states=["running"]) == []
        assert len(store.runs.page(states=["queued"], search=runs[0][:6])) == 1
        assert [row["number"] for row in store.tasks.page(runs[0], after=1, limit=1)] == [2]
        assert [row["key"] for row in store.tasks.page(runs[0], search="K_3")] == ["task_3"]
        assert store.tasks.page(runs[0], key="task") == []

    def test_runs_are_found_by_owner_project_and_tags(self, store: Store) -> None:
        def made(owner: str, project: str, **tags: str) -> str:
            whose = Ownership(owner=owner, project=project, tags=tags)
            return store.runs.submit("r", Policy(), [], folder="/", base_env={}, open=True, ownership=whose).id

        first = made("ada", "vision", model="small", day="1")
        second = made("ada", "text", model="large")
        third = made("bob", "vision", model="small")
        nobodys = cases.submit(store, 1)
        assert (nobodys.owner, nobodys.project, nobodys.tags) == ("", "", {})
        found = store.runs.get(first)
        assert (found.owner, found.project, found.tags) == ("ada", "vision", {"model": "small", "day": "1"})

        def ids(**wanted: Any) -> list[str]:
            return [row["run"].id for row in store.runs.page(**wanted)]

        assert ids(owner="ada") == [second, first]
        assert ids(project="vision") == [third, first]
        assert ids(owner="ada", project="vision") == [first]
        assert ids(tags={"model": "small"}) == [third, first]
        assert ids(tags={"model": "small", "day": "1"}) == [first]
        assert ids(tags={"model": "small", "day": "2"}) == []
        assert ids(tags={"other": "x"}) == []

    def test_a_user_has_a_role_and_tokens(self, store: Store) -> None:
        ada = store.users.add("ada", Role.MEMBER)
        assert (ada.role, ada.origin, ada.disabled, ada.created_at) == (Role.MEMBER, "command", False, store.now())
        with pytest.raises(InputError, match="already"):
            store.users.add("ada", Role.ADMIN)
        assert store.users.get("ada").role is Role.MEMBER
        store.users.add("bob", Role.READER, "oidc", "https://id.example|7")
        assert store.users.of_subject("https://id.example|7") == store.users.get("bob")
        assert store.users.of_subject("https://id.example|8") is None
        token = store.tokens.add("laptop", Role.MEMBER, "aa", user="ada")
        assert token.user_name == "ada"
        assert store.users.set("ada", role=Role.OPERATOR).role is Role.OPERATOR
        changed = store.users.set("ada", disabled=True)
        assert (changed.role, changed.disabled) == (Role.OPERATOR, True)
        assert [user.name for user in store.users.all()] == ["ada", "bob"]
        store.users.remove("ada")
        assert store.tokens.all() == []
        for change in (store.users.get, store.users.remove, store.users.set):
            with pytest.raises(NotFound, match="user list"):
                change("ada")

    def test_the_audit_log_is_only_added_to(self, store: Store) -> None:
        store.audit.add("ada", "run.cancel", "r1", token="t", address="10.0.0.1", detail={"status": 200})
        store.audit.add("bob", "run.cancel", "r1", outcome="403")
        store.audit.add("bob", "user.add", "eve")
        rows = store.audit.page()
        assert [row.user_name for row in rows] == ["bob", "bob", "ada"]
        assert (rows[2].at, rows[2].token, rows[2].address, rows[2].detail) == (
            store.now(),
            "t",
            "10.0.0.1",
            {"status": 200},
        )
        assert rows[1].outcome == "403"
        assert [row.number for row in store.audit.page(user="bob", operation="run")] == [rows[1].number]
        assert store.audit.page(operation="run.cancel", object="r2") == []
        assert store.audit.page(before=rows[1].number, limit=1) == [rows[2]]
        for statement in ("update audit set user_name = 'x'", "delete from audit"):
            with pytest.raises(Exception, match="only added to"):  # of either database
                self.executed(store, statement)
        assert store.audit.page() == rows

    def executed(self, store: Store, statement: str) -> None:
        """Run SQL that evalfleet itself has not."""
        connection: Any = getattr(store.database, "connection")  # noqa: B009 - of either database
        with store.batch():
            connection.execute(statement)

    def test_failed_attempts_come_in_pages_newest_first(self, store: Store) -> None:
        run = cases.drive(store, 3)
        for number in (1, 2, 3):
            attempt = cases.claimed(store, run, number).attempt
            cases.finished(store, run, cases.with_failure(attempt, TaskState.FAILED, ended_at=100.0))
        page = store.attempts.failed_page(run.id, limit=2)
        assert [row["task_number"] for row in page] == [3, 2]
        last = page[-1]
        rest = store.attempts.failed_page(run.id, before=(last["ended_at"], last["task_number"], last["number"]))
        assert [row["task_number"] for row in rest] == [1]
        assert store.attempts.failed_page(run.id, kind="timeout") == []
        assert len(list(store.attempts.lanes(run.id, since=101.0))) == 0
        assert len(list(store.attempts.lanes(run.id))) == 3

    @pytest.mark.parametrize("verb", list(Verb))
    def test_every_verb_can_be_asked_for(self, store: Store, verb: Verb) -> None:
        run = cases.drive(store)
        store.requests.add(run.id, verb, {}, "me")
        assert [request.verb for request in store.requests.pending(run.id)] == [verb]

    def test_quarantines_are_told_in_their_order(self, store: Store) -> None:
        run, other = cases.drive(store), cases.drive(store)
        store.events.note(run.id, "worker.quarantined", {"worker": "a"})
        store.events.note(other.id, "worker.quarantined", {"worker": "b"})
        store.events.note(run.id, "worker.unquarantined", {"worker": "a"})
        assert [event.type for event in store.events.quarantines(run.id)] == [
            "worker.quarantined",
            "worker.unquarantined",
        ]
