"""What must not be possible: each test tries to break one promise of the server."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator
from contextlib import closing
from io import BytesIO
from pathlib import Path

import pytest
from tests.support.store import cases
from tests.support.web_client import Client, serving

from evalfleet.layout import Home
from evalfleet.model import Policy, Role, TaskSpec
from evalfleet.store.open import open_store
from evalfleet.web.server import Options

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 30
EVIL = '<script>alert(1)</script>"\n# evil'


@pytest.fixture
async def client(home: Path) -> AsyncGenerator[Client]:
    async with serving(home) as client:
        yield client


@pytest.fixture
def attempt(home: Path) -> str:
    """The address of an attempt, and its files in the home."""
    with closing(open_store(home)) as store:
        tasks = [TaskSpec(key=EVIL, domain="d", command=("true",))]
        submitted = store.runs.submit(EVIL, Policy(workers=1), tasks, folder="/", base_env={})
        run = store.runs.begin(store.runs.take(submitted.id, "me"))
        assert run is not None
        claimed = cases.claimed(store, run, 1)
        cases.finished(store, run, cases.with_verdict(claimed.attempt))
    folder = Home(home).attempt(run.id, EVIL, 1) / "artifacts"
    folder.mkdir(parents=True)
    (folder / "page.html").write_text("<script>alert(document.cookie)</script>")
    (folder / "drawing.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
    (folder / "looks-like.png").write_text("<html><script>alert(1)</script>")
    (folder / "real.png").write_bytes(PNG)
    (folder / "notes.txt").write_text("<b>hello</b>")
    (folder / "link").symlink_to(home / "evalfleet.db")
    (folder / "folder-link").symlink_to(home)
    os.mkfifo(folder / "pipe")
    return f"/api/v1/runs/{run.id}/tasks/1/attempts/1"


async def test_nothing_is_told_without_a_token(client: Client):
    table = client.server.site.gate  # the routes are those of the running application
    assert table.entrance.open is False
    document = (await client.ask("/api/v1/openapi.json", token=None)).json
    tried = 0
    for path, operations in document["paths"].items():
        address = re.sub(r"\{stream\}", "stdout", re.sub(r"\{(?!stream)\w+\}", "1", path))
        for method, operation in operations.items():
            if operation.get("security") == []:
                continue
            for token in (None, "ef_wrong"):
                reply = await client.ask(address, method.upper(), token=token)
                tried += 1
                assert reply.status in (401, 429), f"{method} {address}"
    assert tried > 50
    assert (await client.ask("/metrics", token=None)).status in (401, 429)


async def test_a_reader_changes_nothing(client: Client):
    document = (await client.ask("/api/v1/openapi.json", token=None)).json
    posts = [path for path, operations in document["paths"].items() if "post" in operations]
    assert len(posts) > 10
    for path in posts:
        reply = await client.ask(re.sub(r"\{\w+\}", "1", path), "POST", token=client.reader)
        assert (reply.status, reply.json["error"]["kind"]) == (403, "Denied"), path


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1:1", "", "127.0.0.1.evil.example", "[::1", "user@127.0.0.1"]
)
async def test_a_foreign_host_header_is_refused(client: Client, host: str):
    for path in ("/api/v1/me", "/", "/healthz", "/api/v1/events"):
        assert (await client.ask(path, Host=host)).status in (400, 421), path


async def test_names_of_loopback_are_ours(client: Client):
    port = client.server.site.gate.entrance.port
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert (await client.ask("/api/v1/me", Host=host)).status == 200


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}]
)
async def test_a_page_of_another_site_is_refused(client: Client, headers: dict[str, str]):
    cookie = await client.cookie()
    for method, path in (("GET", "/api/v1/runs"), ("POST", "/api/v1/runs"), ("GET", "/api/v1/events")):
        reply = await client.ask(path, method, token=None, Cookie=cookie, X_Evalfleet="1", **headers)
        assert reply.status == 403, path


async def test_a_change_by_cookie_needs_a_header_that_no_form_can_send(client: Client):
    cookie = await client.cookie()
    document = {"tasks": [{"key": "a", "command": ["true"]}]}
    refused = await client.ask("/api/v1/runs", "POST", token=None, data=document, Cookie=cookie)
    assert refused.status == 403
    form = await client.ask(
        "/api/v1/runs", "POST", token=None, data=b"{}", Cookie=cookie, X_Evalfleet="1", Content_Type="text/plain"
    )
    assert form.status == 415
    assert (await client.get("runs"))["runs"] == []
    own = client.server.url.rstrip("/")
    done = await client.ask(
        "/api/v1/runs", "POST", token=None, data=document, Cookie=cookie, X_Evalfleet="1", Origin=own
    )
    assert done.status == 201


async def test_no_change_at_all_is_made_by_cookie_alone(client: Client):
    cookie = await client.cookie()
    document = (await client.ask("/api/v1/openapi.json", token=None)).json
    posts = [path for path, operations in document["paths"].items() if "post" in operations]
    assert {f"/api/v1/pools/{{pool}}/{verb}" for verb in ("start", "stop", "scale", "delete")} <= set(posts)
    assert {"/api/v1/pools", "/api/v1/studies", "/api/v1/studies/{run}/add-trials"} <= set(posts)
    for path in posts:
        address = re.sub(r"\{\w+\}", "1", path)
        reply = await client.ask(address, "POST", token=None, Cookie=cookie)
        assert (reply.status, "X-Evalfleet" in reply.json["error"]["message"]) == (403, True), path


async def test_a_token_in_the_address_becomes_a_cookie_and_leaves_the_address(client: Client):
    reply = await client.ask(f"/runs/x?token={client.operator}&tab=2", token=None)
    assert (reply.status, reply.headers["Location"]) == (303, "/runs/x?tab=2")
    cookie = reply.headers["Set-Cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/"))
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    wrong = await client.ask("/?token=ef_wrong", token=None)
    assert (wrong.status, "Set-Cookie" in wrong.headers) == (401, False)


async def test_the_way_in_does_not_lead_to_another_server(client: Client):
    for path in ("//evil.example/", "/%5C/evil.example/", "/%2F%2Fevil.example"):
        reply = await client.ask(f"{path}?token={client.operator}", token=None)
        place = reply.headers.get("Location", "/")
        assert re.match(r"/(?![/\\])", place), place


async def test_guessing_is_slowed_down(client: Client):
    replies = [(await client.ask("/api/v1/me", token=f"ef_{i}")) for i in range(40)]
    assert replies[0].status == 401
    assert replies[-1].status == 429
    assert int(replies[-1].headers["Retry-After"]) > 0


async def test_a_revoked_or_expired_token_is_worthless(home: Path, client: Client):
    with closing(open_store(home)) as store:
        from evalfleet.web.security import tokens

        short = tokens.make(store, "short", Role.OPERATOR, 0.0).text
        store.tokens.revoke("guest")
    assert (await client.ask("/api/v1/me", token=short)).status == 401
    client.server.site.gate._read_at = float("-inf")  # pyright: ignore[reportPrivateUsage] - a second later
    assert (await client.ask("/api/v1/me", token=client.reader)).status == 401


async def test_artifacts_cannot_do_anything_in_our_origin(attempt: str, home: Path):
    async with serving(home) as client:
        for name, kind in (
            ("page.html", "application/octet-stream"),
            ("drawing.svg", "application/octet-stream"),
            ("looks-like.png", "application/octet-stream"),
            ("real.png", "image/png"),
            ("notes.txt", "text/plain; charset=utf-8"),
        ):
            reply = await client.ask(f"{attempt}/files/{name}")
            assert (reply.status, reply.headers["Content-Type"]) == (200, kind), name
            assert reply.headers["X-Content-Type-Options"] == "nosniff"
            assert reply.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
            shown = "attachment" not in reply.headers.get("Content-Disposition", "")
            assert shown == (kind != "application/octet-stream")
        assert (await client.ask(f"{attempt}/files/real.png", token=None)).status == 401
        assert (await client.ask(f"{attempt}/screenshot")).headers["Content-Type"] == "image/png"


@pytest.mark.parametrize(
    "name",
    [
        "..%2F..%2F..%2F..%2Fevalfleet.db",
        "../../../../evalfleet.db",
        "%2e%2e/%2e%2e/%2e%2e/%2e%2e/evalfleet.db",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "link",
        "folder-link/evalfleet.db",
        "pipe",
        ".",
        "a%00b",
        "real.png%00.html",
    ],
)
async def test_no_path_leads_out_of_an_attempt(attempt: str, home: Path, name: str):
    async with serving(home) as client:
        reply = await client.ask(f"{attempt}/files/{name}")
        assert reply.status in (400, 404), reply.body
        assert b"SQLite" not in reply.body


async def test_names_that_tasks_choose_stay_text(attempt: str, home: Path):
    async with serving(home) as client:
        for path in ("/api/v1/runs", "/api/v1/runs/latest", "/api/v1/runs/latest/grid", attempt):
            reply = await client.ask(path)
            assert reply.headers["Content-Type"] == "application/json"
            assert reply.headers["X-Content-Type-Options"] == "nosniff"
            assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
        text = (await client.ask("/metrics")).body.decode()
        assert all(line.startswith(("#", "evalfleet_")) for line in text.splitlines())
        assert "# evil" not in text.splitlines()


async def test_the_page_runs_no_script_but_its_own(client: Client):
    for path in ("/", "/runs/abc", "/compare"):
        reply = await client.ask(path, token=None)
        policy = reply.headers["Content-Security-Policy"]
        assert (reply.status, "script-src 'self';" in policy, "frame-ancestors 'none'" in policy) == (200, True, True)
    for path in ("/api/v1/nothing", "/assets/..%2Fapp.py", "/assets/nothing.js", "/.git/config", "/app.py"):
        assert (await client.ask(path)).status == 404, path


async def test_a_large_body_is_refused(client: Client):
    for path in ("runs", "studies", "pools", "pools/p/scale", "studies/s/add-trials"):
        large = BytesIO(b"[" * (33 << 20))
        reply = await client.ask(f"/api/v1/{path}", "POST", data=large, Content_Type="application/json")
        assert (reply.status, reply.json["error"]["status"]) == (413, 413), path


async def test_without_tokens_everybody_looks_and_nobody_acts(home: Path):
    async with serving(home, Options(port=0, token=False, drive=False)) as client:
        assert (await client.ask("/api/v1/runs", token=None)).status == 200
        assert (await client.ask("/api/v1/runs", "POST", token=None, X_Evalfleet="1")).status == 403
        assert (await client.ask("/api/v1/me", token=None)).json["role"] == "reader"
        assert "token" not in client.server.address


async def test_errors_are_objects_and_hide_what_is_inside(client: Client, monkeypatch: pytest.MonkeyPatch):
    from evalfleet.web import queries

    def broken(*_args: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(queries, "run", broken)
    reply = await client.ask("/api/v1/runs/latest")
    assert (reply.status, reply.json["error"]["kind"]) == (500, "Internal")
    assert b"secret detail" not in reply.body
    assert (await client.ask("/api/v1/runs", "DELETE")).status == 405


async def test_artifacts_that_are_a_link_to_a_folder_are_none(client: Client, home: Path, attempt: str, tmp_path: Path):
    (folder,) = (home / "runs").rglob("artifacts")
    folder.rename(folder.with_name("was"))
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "passwd.txt").write_text("root:x:0:0")
    folder.symlink_to(tmp_path / "private")
    reply = await client.ask(f"{attempt}/files/passwd.txt", token=client.reader)
    assert (reply.status, b"root" in reply.body) == (404, False)
    assert (await client.ask(attempt, token=client.reader)).json["artifacts"] == []


async def test_a_key_that_somebody_put_into_env_is_not_shown(client: Client, tmp_path: Path):
    task = {"key": "a", "command": ["true"], "env": {"OPENAI_API_KEY": "sk-0123456789abcdef", "SEED": "7"}}
    made = await client.post("runs", {"tasks": [task], "folder": str(tmp_path)}, status=201)
    assert "OPENAI_API_KEY looks like a secret" in made["warning"]
    for token in (client.reader, client.operator):
        reply = await client.ask(f"/api/v1/runs/{made['run']}/tasks/1", token=token)
        assert reply.json["spec"]["env"] == {"OPENAI_API_KEY": "[hidden]", "SEED": "7"}
        assert b"sk-0123" not in reply.body


SECRET = "correct-horse-battery"


@pytest.fixture
def live(home: Path) -> str:
    """The address of an attempt that runs, and writes its secret everywhere."""
    with closing(open_store(home)) as store:
        tasks = [TaskSpec(key="a", domain="d", command=("true",), secrets=("TOKEN",))]
        submitted = store.runs.submit("r", Policy(workers=1), tasks, folder="/", base_env={})
        run = store.runs.begin(store.runs.take(submitted.id, "me"))
        assert run is not None
        claimed = cases.claimed(store, run, 1)
    folder = Home(home).spooled(claimed.attempt.id)
    (folder / "artifacts").mkdir(parents=True)
    (folder / "events.jsonl").write_text(f'{{"step": 1, "note": "using {SECRET}", "screenshot": "shot.png"}}\n')
    (folder / "artifacts" / "debug.txt").write_text(f"token={SECRET}")
    (folder / "artifacts" / "dump.bin").write_bytes(b"\0" + SECRET.encode())
    (folder / "artifacts" / "shot.png").write_bytes(PNG)
    return f"/api/v1/runs/{run.id}/tasks/1/attempts/1"


async def test_what_runs_shows_no_secret(client: Client, live: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKEN", SECRET)
    shown = await client.ask(live, token=client.reader)
    assert shown.json["film"]["frames"][0]["note"] == "using [secret TOKEN]"
    text = await client.ask(f"{live}/files/debug.txt", token=client.reader)
    assert (text.status, text.body) == (200, b"token=[secret TOKEN]")
    binary = await client.ask(f"{live}/files/dump.bin", token=client.reader)
    assert (binary.status, binary.body) == (200, b"\0[secret TOKEN]")
    assert "attachment" in binary.headers["Content-Disposition"]
    assert (await client.ask(f"{live}/files/shot.png", token=client.reader)).body == PNG


async def test_a_server_that_does_not_know_the_secret_shows_pictures_only(
    client: Client, live: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("TOKEN", raising=False)
    bodies: list[bytes] = []
    for path in ("", "/files/debug.txt", "/files/dump.bin", "/logs/stdout"):
        bodies.append((await client.ask(live + path, token=client.reader)).body)
    bodies.append((await client.ask(live.rpartition("/attempts")[0], token=client.reader)).body)
    assert SECRET.encode() not in b"".join(bodies)
    refused = await client.ask(f"{live}/files/debug.txt", token=client.reader)
    assert (refused.status, refused.json["error"]["kind"]) == (409, "Refused")
    assert "TOKEN" in refused.json["error"]["message"]
    assert (await client.ask(f"{live}/screenshot", token=client.reader)).body == PNG
