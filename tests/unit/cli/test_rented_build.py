"""What `waa image build --pool` keeps when its last step fails."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from evalfleet import config
from evalfleet.cli.waa import rented_build
from evalfleet.errors import BackendError
from evalfleet.files.folder import FolderFiles
from evalfleet.model import Policy, TaskSpec
from evalfleet.store.open import open_store


def test_a_machine_whose_disk_could_not_be_copied_stays_with_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Nothing else holds the image that took an hour to build. The same command copies it then, and deletes the pool."""
    done: list[str] = []
    refusals = [BackendError("the machine is not reached")]

    async def bake(*_: object) -> None:
        if refusals:
            raise refusals.pop()
        done.append("baked")

    golden = SimpleNamespace(bytes=1, name="win11")
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / rented_build.manifest.NAME).write_text("{}")
    monkeypatch.setattr(rented_build.image_build, "built", lambda *_: (FolderFiles(tmp_path), "m1"))
    monkeypatch.setattr(rented_build.manifest, "parsed", lambda *_: golden)
    monkeypatch.setattr(rented_build.image_build, "payload_of", lambda *_: {"bake": "windows", "to": None})
    monkeypatch.setattr(rented_build, "bake", bake)
    monkeypatch.setattr(rented_build, "remember", lambda *_: done.append("remembered"))
    monkeypatch.setattr(rented_build, "_leave_pool", lambda *_: done.append("pool deleted"))
    monkeypatch.setattr(rented_build, "print_answer", lambda *_: None)
    monkeypatch.setattr(rented_build.GoldenImage, "of_stored", lambda *_, **__: SimpleNamespace(folder="there"))
    settings = config.load(str(tmp_path))
    with closing(open_store(tmp_path)) as store:
        store.pools.create("builder", "azure-vm", {})
        store.hosts.request("builder", "m", [{}])
        task = TaskSpec(key="win11", domain="d", command=("true",))
        run = store.runs.submit("build", Policy(pool="builder"), [task], folder="/", base_env={})
        with pytest.raises(BackendError):
            rented_build._finished(settings, store, run, as_json=True)
        assert done == []
        assert "m1 of pool builder keeps the image until its deadline" in capsys.readouterr().err
        assert rented_build._finished(settings, store, run, as_json=True) == 0
    assert done == ["baked", "remembered", "pool deleted"]
