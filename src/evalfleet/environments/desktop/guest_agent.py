"""The agent inside a Linux guest: serves a desktop over the guest protocol, to the machine that the guest runs on.

`python3 -m evalfleet.environments.desktop.guest_agent --token-file FILE` needs Python 3.11, msgspec, Xvfb, openbox and D-Bus
in the guest, and an ordinary user. Besides the usual requests it answers `GET /windows`, `POST /rest` and
`POST /setup/close_windows`, which the benchmark `desk` needs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from evalfleet.environments.base import Size
from evalfleet.environments.desktop import environment
from evalfleet.environments.desktop.environment import Desktop
from evalfleet.environments.desktop.sandbox import Mode
from evalfleet.environments.guest.server import Answer, Guest, Route, as_json
from evalfleet.errors import InputError

PORT = 5000
_START_S = 300.0  # an emulated processor is slow


class _Rest(msgspec.Struct, frozen=True):
    limit_s: float


def routes(desktop: Desktop) -> dict[str, Route]:
    """Return the requests that a desktop answers besides those of every guest."""

    def windows(_query: Mapping[str, str], _body: bytes) -> Answer:
        return Answer(msgspec.json.encode(desktop.windows()))

    def rest(_query: Mapping[str, str], body: bytes) -> Answer:
        try:
            desktop.rest(limit_s=msgspec.json.decode(body, type=_Rest).limit_s)
        except msgspec.DecodeError as error:
            raise InputError(f"the body is not a limit: {error}.") from None
        return as_json({})

    def close_windows(_query: Mapping[str, str], _body: bytes) -> Answer:
        desktop.close_windows()
        return as_json({})

    return {"GET /windows": windows, "POST /rest": rest, "POST /setup/close_windows": close_windows}


def main() -> None:
    options = argparse.ArgumentParser(description="Serve a desktop over the guest protocol.")
    options.add_argument("--token-file", type=Path, required=True)
    options.add_argument("--host", default="0.0.0.0")
    options.add_argument("--port", type=int, default=PORT)
    options.add_argument("--screen", default="1280x800")
    given = options.parse_args()
    width, _, height = given.screen.partition("x")
    size = Size(width=int(width), height=int(height))
    token = given.token_file.read_text("ascii").strip()
    with (
        TemporaryDirectory() as folder,
        environment.launched(Path(folder), size=size, mode=Mode.PLAIN, timeout_s=_START_S, home=Path.home()) as desktop,
        Guest(desktop, token=token, host=given.host, port=given.port, more=routes(desktop)) as guest,
    ):
        guest.serve()


if __name__ == "__main__":
    main()
