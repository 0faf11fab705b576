"""A receiver of webhooks: a real HTTP server that counts what it gets, and checks signatures as docs/howto/be-told.md says."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.fleet import Fleet

KEY = "a signing key"


def is_ours(body: bytes, header: str, key: bytes) -> bool:
    expected = "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, header)


class Receiver:
    """Takes what is posted to it; may be told to refuse."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.plain: list[dict[str, Any]] = []  # what came without a signature: of another channel
        self.refused = 0
        self.refuse = False
        self.forged = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                signature = self.headers["X-Evalfleet-Signature"]
                if outer.refuse:
                    outer.refused += 1
                    self.send_response(503)
                elif signature is None:
                    outer.plain.append(json.loads(body))
                    self.send_response(200)
                elif not is_ours(body, signature, KEY.encode()):
                    outer.forged += 1
                    self.send_response(401)
                else:
                    message = json.loads(body)
                    assert self.headers["X-Evalfleet-Id"] == message["id"]
                    outer.messages.append(message)
                    self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook/very-secret-path"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def of(self, rule: str, run: str | None = None) -> list[str]:
        """What was told of a rule, in order."""
        return [one["what"] for one in self.messages if one["rule"] == rule and (run is None or one["run"] == run)]

    def twice(self) -> list[str]:
        """Ids that were delivered more than once."""
        return [one for one, times in Counter(message["id"] for message in self.messages).items() if times > 1]


def configured(fleet: Fleet, receiver: Receiver, more: str = "", **alerts: Any) -> Fleet:
    """Let the home's alerts go to the receiver. Tables of rules come as `rules={name: {key: value}}`."""
    rules: dict[str, dict[str, Any]] = alerts.pop("rules", {})
    lines = [f"{name} = {json.dumps(value)}" for name, value in alerts.items()]
    lines = ["[alerts]", 'webhook = "HOOK"', 'secret = "HOOK_KEY"', *lines]
    for name, table in rules.items():
        lines += [f"[alerts.rules.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    (fleet.folder / "evalfleet.toml").write_text("\n".join([*lines, more]) + "\n")
    fleet.env |= {"HOOK": receiver.url, "HOOK_KEY": KEY}
    return fleet
