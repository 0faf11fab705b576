"""GPUs over HTTP: shown as the store has them, and taken back from quarantine by an operator."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.support.store import cases
from tests.support.web_client import serving

from evalfleet.core.gpus.cards import Card
from evalfleet.store.open import open_store

EVIL = "GPU-<script>'; drop table gpu; --"


async def test_gpus_are_shown_and_unquarantined(home: Path):
    with closing(open_store(home)) as store:
        card = Card(host="box", index=0, uuid=EVIL, memory_mb=80_000, used_mb=600, utilization=0, processes=())
        store.gpus.see("box", [card], store.now())
        store.gpus.quarantine(cases.drive(store, 1), "box", EVIL, "process 7 is still on it")
    async with serving(home) as client:
        found = await client.get("gpus")
        (row,) = found["gpus"]
        assert (row["host"], row["uuid"], row["holders"], found["waiting"]) == ("box", EVIL, [], [])
        assert row["quarantine"]["reason"] == "process 7 is still on it"
        body = {"host": "box", "uuid": EVIL}
        assert (await client.ask("/api/v1/gpus/unquarantine", "POST", token=client.reader, data=body)).status == 403
        assert await client.post("gpus/unquarantine", body) == body
        assert (await client.get("gpus"))["gpus"][0]["quarantine"] is None
        again = await client.ask("/api/v1/gpus/unquarantine", "POST", data=body)
        assert (again.status, again.json["error"]["kind"]) == (409, "WrongState")
        other = await client.ask("/api/v1/gpus/unquarantine", "POST", data={"host": "box", "uuid": "GPU-9"})
        assert other.status == 404
        assert (await client.ask("/api/v1/gpus/unquarantine", "POST", data={"host": "box"})).status == 400
