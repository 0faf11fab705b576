"""Kill -9 of controller, runner and servers of a study on GPUs, at any moment: no GPU has two owners, and none is left leased.

Servers are the judges: each locks a file of its own for its GPU, and says so if somebody has it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.fleet import Fleet, fleet_at, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
GPUS, TRIALS = 3, 14

SERVER = """
import fcntl, http.server, os, sys, time
gpu = os.environ["CUDA_VISIBLE_DEVICES"]
lock = open(f"gpu-{gpu}.lock", "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open("overlaps", "a").write(f"{gpu} {os.environ['EVALFLEET_ATTEMPT']}\\n")
class Ok(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
time.sleep(0.1)  # a server that loads
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ok).serve_forever()
"""
BENCH = """
import json, os, time, urllib.request
urllib.request.urlopen(os.environ["EVALFLEET_SERVER_URL"] + "/").read()
time.sleep(0.3)
value = json.load(open(os.environ["EVALFLEET_TASK"]))["payload"]["parameters"]["a"]
json.dump({"success": True, "metrics": {"speed": value}}, open(os.environ["EVALFLEET_RESULT"], "w"))
"""
STUDY = f"""
[study]
name = "s"
trials = {TRIALS}
max_parallel_experiments = 4
objective = {{ maximize = "speed" }}
attempts = 100
confirm = false
[parameters]
a = {{ type = "integer", low = 1, high = 10000 }}
[trial]
command = ["{{python}}", "bench.py"]
gpus = 1
server = {{ command = ["python3", "server.py", "{{port}}"], ready = "http://127.0.0.1:{{port}}/" }}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    yield from fleet_at(tmp_path)


def servers(fleet: Fleet) -> list[int]:
    return [int(line.split(" ", 1)[0]) for line in fleet.left_processes() if "\0server.py\0" in line]


@pytest.mark.parametrize("seed", range(6))
def test_no_gpu_is_shared_or_leaked_whoever_dies(fleet: Fleet, seed: int):
    rng = random.Random(seed)
    fleet.env |= {"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"}
    (fleet.home / "spool").mkdir(parents=True)
    rows = [{"index": n, "uuid": f"GPU-{n}", "memory_mb": 80000, "used_mb": 0, "utilization": 0} for n in range(GPUS)]
    (fleet.home / "spool" / "gpus.json").write_text(json.dumps(rows))
    for name, text in {"server.py": SERVER, "bench.py": BENCH, "study.toml": STUDY}.items():
        (fleet.folder / name).write_text(text)
    killed = {"controller": 0, "runner": 0, "server": 0}
    args = ["tune", "study.toml"]
    process = fleet.start(*args)
    for moment in range(40):  # on a busy machine many moments find nothing that lives
        if moment >= 9 and sum(killed.values()) >= 5:
            break
        time.sleep(rng.uniform(0.2, 1.2))  # any moment will do
        who = rng.choice(sorted(killed))
        pids = {"controller": [process.pid], "runner": [fleet.runner_pid()], "server": servers(fleet)}[who]
        for pid in pids[:1]:
            with suppress(ProcessLookupError):
                if pid is not None and (who != "controller" or process.poll() is None):
                    os.kill(pid, signal.SIGKILL)
                    killed[who] += 1
        if who == "controller":
            process.wait()
            begun = bool(fleet.json("study", "list")["studies"])
            process = fleet.start(*(["study", "resume"] if begun else args))
    process.wait(120)
    for _ in range(20):  # equal failures in a row pause it, and killed servers are equal failures
        if fleet.json("study", "show")["state"] == "completed":
            break
        fleet.command("study", "resume")
    facts = fleet.json("study", "show")
    print(seed, killed, facts["counts"])
    assert (facts["state"], facts["searched"]) == ("completed", TRIALS)
    assert {row["progress"] for row in facts["trials"]} == {"measured"}
    assert len({json.dumps(row["parameters"]) for row in facts["trials"]}) == TRIALS
    assert not (fleet.folder / "overlaps").exists(), (fleet.folder / "overlaps").read_text()
    shown = fleet.json("gpus")
    assert [gpu["holders"] for gpu in shown["gpus"]] == [[]] * GPUS
    assert shown["waiting"] == []
    wait_for(lambda: not servers(fleet), "no server to be left")
    assert sum(killed.values()) >= 5
