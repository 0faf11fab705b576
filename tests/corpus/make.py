"""Make the corpus of messages anew: `python3 tests/corpus/make.py`. Needs a package index, and takes about ten minutes.

It makes a virtual environment with the real client libraries, runs every program of `clients`, `lookalikes` and `system`
in a process of its own against an endpoint on loopback that fails, and keeps what each wrote to standard error.

One half of the messages, by a hash of their ids, is held out: patterns are written without looking at them, and only the
share of them that is recognised is known. So nothing of that half is printed here or in a failing test.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import clients
import lookalikes
import server
import system

HERE = Path(__file__).parent
PACKAGES = ["openai", "anthropic", "google-genai", "litellm", "httpx", "requests", "urllib3", "aiohttp", "boto3", "azure-core",
            "azure-ai-inference", "tenacity", "python-xlib", "pytest", "playwright"]  # fmt: skip
MOST_CHARACTERS = 9000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--venv", type=Path, help="use this virtual environment, which has the libraries")
    parser.add_argument("parts", nargs="*", default=["messages", "lookalikes", "system"])
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = ready(wanted.venv or folder / "venv", install=wanted.venv is None)
        bench = Bench(folder, python)
        for part in wanted.parts:
            keep(part, getattr(bench, part)(), bench)


def ready(place: Path, *, install: bool) -> Path:
    if install:
        venv.create(place, with_pip=True)
        subprocess.run([place / "bin" / "pip", "install", "-q", *PACKAGES], check=True)
    return place / "bin" / "python"


Program = tuple[str, dict[str, Any], list[str], dict[str, str]]  # id, what is kept with it, command, variables


class Bench:
    """Runs programs, a few at a time."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder
        self.python = python
        self.plain = server.serve()
        self.tls = server.serve(server.self_signed(folder))
        self.refused = server.closed_port()
        listed = subprocess.run(
            [python, "-m", "pip", "list", "--format=json"], check=True, capture_output=True, text=True
        )
        self.versions = {one["name"].lower(): one["version"] for one in json.loads(listed.stdout)}

    def url(self, failure: str) -> str:
        match failure:
            case "refuse":
                return f"http://127.0.0.1:{self.refused}"
            case "dns":
                return "http://api.no-such-provider.invalid"
            case "tls":
                return f"https://localhost:{self.tls}"
            case _:
                return f"http://127.0.0.1:{self.plain}/{failure}"

    def version(self, library: str) -> str:
        name = library
        while name and name not in self.versions:
            name = name.rpartition("-")[0]
        return self.versions.get(name, f"Python {sys.version_info[0]}.{sys.version_info[1]}")

    def script(self, name: str, source: str) -> Path:
        path = self.folder / re.sub(r"\W+", "_", name) / "agent.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
        return path

    def messages(self) -> list[Program]:
        return [
            (name, {"library": library, "version": self.version(library), "case": failure, "kind": kind},
             [str(self.python), str(self.script(name, source))], {"URL": self.url(failure)})
            for name, library, failure, kind, source in clients.programs()
        ]  # fmt: skip

    def lookalikes(self) -> list[Program]:
        return [
            (name, {"kind": None}, [str(self.python), str(self.script(name, source))], {"URL": self.url(failure)})
            for name, failure, source in lookalikes.programs()
        ]

    def system(self) -> list[Program]:
        return [
            (name, {"kind": kind}, command, {"URL": self.url(name.split("/")[1]), "PYTHON": str(self.python)})
            for name, kind, command in system.programs()
        ]

    def run(self, program: Program) -> dict[str, Any] | None:
        name, facts, command, variables = program
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            **variables,
        }
        env |= {"NO_PROXY": "*", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        place = Path(command[1]).parent if command[0] == str(self.python) else self.folder
        done = subprocess.run(
            command, cwd=place, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False
        )
        if done.returncode == 127:
            return None  # this machine has no such program
        text = done.stderr.decode("utf-8", "replace")
        text = text if text.strip() else done.stdout.decode("utf-8", "replace")
        return {"id": name, **facts, "status": done.returncode, "stderr": self.tidy(text)}

    def tidy(self, text: str) -> str:
        """The text without what is of this machine only."""
        text = text.replace(str(self.python.parent.parent), "/opt/venv").replace(sys.base_prefix, "/usr")
        text = re.sub(re.escape(str(self.folder)) + r"/\w+/agent\.py", "/home/me/agent.py", text)
        text = text.replace(str(self.folder), "/home/me")
        return text[-MOST_CHARACTERS:]


def keep(file: str, programs: list[Program], bench: Bench) -> None:
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        made = [row for row in pool.map(bench.run, programs) if row is not None]
    rows = [row for row in made if row["status"] and row["stderr"].strip()]
    silent = [row["id"] for row in made if row not in rows]
    halves: dict[str, list[dict[str, Any]]] = {file: rows}
    if file == "messages":
        halves = {
            "seen": [row for row in rows if not held_out(row["id"])],
            "held_out": [row for row in rows if held_out(row["id"])],
        }
    for name, half in halves.items():
        ordered = sorted(half, key=lambda row: row["id"])
        (HERE / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ordered))
        print(f"{name}: {len(ordered)} messages", flush=True)
    print(
        f"{file}: {len(silent)} did not fail, or said nothing: {[one for one in silent if not held_out(one)]}",
        flush=True,
    )


def held_out(name: str) -> bool:
    """Whether the message belongs to the half that nobody looks at while writing patterns."""
    return clients.drawn(name + "/half", 2) == 1


if __name__ == "__main__":
    main()
