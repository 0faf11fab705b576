"""GPUs on the page: cards that a file describes, real tasks on them, others that wait, a stranger's process, a quarantine."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import Fleet, wait_for
from tests.support.page_view import BUILT, CHROMIUM, MISSING, PHONE, WIDE, viewed
from tests.support.web_server import Served, serve

from evalfleet.store.open import open_store

pytestmark = [pytest.mark.skipif(CHROMIUM is None or not BUILT, reason=MISSING), pytest.mark.slow]

GATED = "echo $CUDA_VISIBLE_DEVICES >> ledger; until [ -e gate ]; do sleep 0.05; done"


def cards(fleet: Fleet) -> None:
    """Three GPUs; on the last one runs somebody else."""
    spool = fleet.home / "spool"
    spool.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = [
        {"index": i, "uuid": f"GPU-{i}", "name": "NVIDIA H200", "memory_mb": 141_000, "used_mb": 600, "utilization": 0}
        for i in range(3)
    ]
    rows[2] |= {"used_mb": 9000, "utilization": 35, "processes": [1]}
    (spool / "gpus.json").write_text(json.dumps(rows))


def listed(server: Served) -> tuple[int, int]:
    facts = server.get("gpus")
    return sum(bool(gpu["holders"]) for gpu in facts["gpus"]), len(facts["waiting"])


def test_who_holds_a_gpu_who_waits_and_the_end_of_a_quarantine(fleet: Fleet, tmp_path: Path):
    cards(fleet)
    server = serve(fleet)
    rows = [{"key": key, "command": ["sh", "-c", GATED], "requests": {"gpus": 1}} for key in ("a", "b", "c")]
    with viewed(server, tmp_path) as view:
        view.sees("No runs yet")
        assert "GPUs" not in view.text, "no link where there is no GPU"
        run = fleet.json("run", fleet.tasks(rows, workers=3, name="leased"), "--detach")["run"]
        wait_for(lambda: listed(server) == (2, 1), "two that hold a GPU, and one that waits")
        view.open("/")
        view.click("GPUs", within="nav")
        view.sees("2 of 3 GPUs held, 1 waiting", "GPU 0", "NVIDIA H200", "of leased", "used by others")
        view.look_at({"gpus": "/gpus"})
        cut = "(() => { const nav = document.querySelector('nav'); return nav.scrollWidth - nav.clientWidth; })()"
        view.wear(PHONE)
        assert view.js(cut) <= 0, "the last link is not cut off on a phone"
        view.wear(WIDE)
        holder = view.js("document.querySelector('[data-gpu] a').pathname")
        assert holder.startswith(f"/runs/{run}/tasks/")
        with closing(open_store(fleet.home)) as store:
            store.gpus.quarantine(store.runs.get(run), "local", "GPU-1", "11 GB did not come back")
        view.sees("In quarantine", "11 GB did not come back")
        view.shoot("gpus-quarantine-1280-light")
        view.confirm("Use again", "Use GPU 1 of local again?", "Use again")
        view.lacks("In quarantine")
        assert all(gpu["quarantine"] is None for gpu in server.get("gpus")["gpus"])
        (fleet.folder / "gate").touch()
        view.sees("0 of 3 GPUs held", "No task is waiting")
        view.go(holder)
        view.sees("passed")
    assert set(fleet.lines()) == {"0", "1"}, "never the stranger's"
