"""What a host does before there is a runner: little, and with little."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path

from evalfleet.runner.__main__ import KEPT
from evalfleet.runner.build import PACKAGE, bootstrap, build

PROGRAM = b"import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))\n"


def test_it_becomes_the_program_with_the_small_environment_at_once(tmp_path: Path):
    """Else the runner would begin once more, to leave what the login brought behind."""
    orders = {
        "folder": str(tmp_path),
        "sha256": hashlib.sha256(PROGRAM).hexdigest(),
        "size": len(PROGRAM),
        "words": ["look", "--spool", "{folder}"],
        "keep": sorted(KEPT),
    }
    first = f'import base64; exec(base64.b64decode("{base64.b64encode(bootstrap()).decode()}").decode())\n'
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", "import sys; exec(sys.stdin.buffer.raw.readline())"],
        input=first.encode() + json.dumps(orders).encode() + b"\n" + PROGRAM,
        env={
            "PATH": "/usr/bin",
            "HOME": str(tmp_path),
            "API_KEY": "planted",
            "LC_ALL": "C.UTF-8",
            "SSH_CONNECTION": "192.0.2.1 50000 192.0.2.2 2222",  # the slots of a host are the same behind each of its ports
        },
        capture_output=True,
        check=True,
        timeout=60,
    )
    environ, words = json.loads(done.stdout.splitlines()[-1])
    assert environ == {"PATH": "/usr/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    assert words == ["look", "--spool", str(tmp_path)]


def test_whoever_only_looks_for_a_runner_does_not_load_it(tmp_path: Path):
    """Every start compiles what it imports: on many hosts that is most of what a short command costs."""
    program = tmp_path / "runner.pyz"
    program.write_bytes(build()[0])
    look = f"import sys; sys.path.insert(0, sys.argv[1]); import {PACKAGE}.visit.status, {PACKAGE}.stdio; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", look, program], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = {name for name in done.stdout.split() if name.startswith(PACKAGE)}
    assert f"{PACKAGE}.daemon" in loaded
    assert not loaded & {f"{PACKAGE}.{name}" for name in ("attempt.attempt", "commands", "spool.recovery", "runner")}
