"""What a real runner makes of what its tasks leave: the verdict counts, whatever the files are."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.support.runner import RunnerClient, RunnerSpool, a_spec, is_alive, sh, wait_until

SECRET = {"KEY": "correct-horse-battery"}


def children_of(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_verdict_survives_the_death_of_who_scans_the_artifacts(spool: RunnerSpool, client: RunnerClient) -> None:
    info = spool.info()
    assert info is not None
    script = 'echo "{\\"score\\": 0.75}" > $EVALFLEET_RESULT; truncate -s 1T $EVALFLEET_ARTIFACTS/disk; echo $KEY >> $EVALFLEET_EVENTS'
    client.launch("a.1.1", a_spec(*sh(script)), secrets=SECRET)
    task = client.event("a.1.1", "started")["pid"]
    wait_until(lambda: not is_alive(task), "the task's end")
    (scanning,) = wait_until(lambda: [pid for pid in children_of(info.pid) if pid != task], "the child that scans")
    os.kill(scanning, signal.SIGKILL)
    end = client.end("a.1.1")
    assert (end["cause"], end["has_result"], end["result"]) == ("exited", True, {"score": 0.75})
    # what was not looked into is not taken home, and that is said
    assert (end["artifacts"], end["artifacts_left_out"]) == ([], 1)
    assert "could not be collected" in end["artifacts_error"]
    assert not (spool.attempt("a.1.1") / "events.jsonl").exists()
    assert "events.jsonl" in end["unclean"]


def test_without_secrets_the_files_stay_whatever_happens_to_the_child(spool: RunnerSpool, client: RunnerClient) -> None:
    script = (
        'for i in $(seq 300); do echo $i > $EVALFLEET_ARTIFACTS/$i; done; echo "{\\"score\\": 1}" > $EVALFLEET_RESULT'
    )
    end = client.run("a.1.1", *sh(script))
    assert (len(end["artifacts"]), end["result"]) == (300, {"score": 1})


def test_a_huge_result_stops_nobody(spool: RunnerSpool, client: RunnerClient) -> None:
    begun = time.monotonic()
    end = client.run("a.1.1", *sh("truncate -s 64G $EVALFLEET_RESULT"), secrets=SECRET)
    assert time.monotonic() - begun < 15  # 64 GB are scanned in minutes
    assert (end["has_result"], end["unclean"]) == (False, ["result.json"])
    assert "larger than" in end["result_error"]
    assert not (spool.attempt("a.1.1") / "result.json").exists()


def test_what_is_no_number_is_null_and_costs_nothing_else(client: RunnerClient) -> None:
    script = """
        echo '{"cost_usd": 1.5, "loss": NaN, "step": 3}' >> $EVALFLEET_EVENTS
        echo '{"score": 0.5, "metrics": {"loss": NaN, "best": [-Infinity, 2]}}' > $EVALFLEET_RESULT
    """
    end = client.run("a.1.1", *sh(script))
    assert end["result"] == {"score": 0.5, "metrics": {"loss": None, "best": [None, 2]}}
    assert (end["reported_usd"], end["steps"]) == (1.5, 3)
    assert client.event("a.1.1", "progress")["lines"] == [{"cost_usd": 1.5, "loss": None, "step": 3}]


def test_an_artifacts_folder_that_is_a_link_has_no_artifacts(client: RunnerClient, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ".env").write_text("PASSWORD=correct-horse-battery\n")
    script = f'rmdir $EVALFLEET_ARTIFACTS; ln -s {outside} $EVALFLEET_ARTIFACTS; echo "{{\\"score\\": 1}}" > $EVALFLEET_RESULT'
    end = client.run("a.1.1", *sh(script), secrets=SECRET)
    assert (outside / ".env").read_text() == "PASSWORD=correct-horse-battery\n"
    assert os.listdir(outside) == [".env"]
    assert (end["result"], end["artifacts"]) == ({"score": 1}, [])
    assert "symbolic link" in end["artifacts_error"]


def test_a_file_with_another_name_outside_is_not_written_into(client: RunnerClient, tmp_path: Path) -> None:
    outside = tmp_path / ".env"
    outside.write_text("PASSWORD=correct-horse-battery\n")
    end = client.run("a.1.1", *sh(f"ln {outside} $EVALFLEET_ARTIFACTS/env.txt"), secrets=SECRET)
    assert outside.read_text() == "PASSWORD=correct-horse-battery\n"
    assert end["artifacts"] == [{"path": "env.txt", "size": len("PASSWORD=[secret KEY]\n")}]


def test_a_whole_folder_that_is_a_link(spool: RunnerSpool, client: RunnerClient, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "artifacts").mkdir(parents=True)
    for name in ("result.json", "events.jsonl", "artifacts/a.txt"):
        (outside / name).write_text("correct-horse-battery")
    folder = spool.attempt("a.1.1")
    end = client.run("a.1.1", *sh(f"mv {folder} {folder}.away; ln -s {outside} {folder}"), secrets=SECRET)
    for name in ("result.json", "events.jsonl", "artifacts/a.txt"):
        assert (outside / name).read_text() == "correct-horse-battery"
    assert (end["has_result"], end["artifacts"]) == (False, [])
    folder.unlink()
    Path(f"{folder}.away").rename(folder)


def test_a_new_runner_reads_nothing_that_was_swapped(spool: RunnerSpool, client: RunnerClient, tmp_path: Path) -> None:
    """What it looks into at its start must neither lead elsewhere nor make it wait."""
    (tmp_path / "private").write_text("private words")
    script = f"""
        cd $(dirname $EVALFLEET_TASK); echo out; echo err >&2; while [ ! -s stderr.log ]; do sleep 0.02; done
        rm -f stdout.log stderr.log cgroup; ln -s {tmp_path}/private stderr.log; mkfifo stdout.log cgroup
        echo '{{"ready": true}}' >> events.jsonl; sleep 300
    """
    client.launch("a.1.1", a_spec(*sh(script)))
    client.event("a.1.1", "ready")
    spool.kill()
    spool.start()
    with spool.client() as again:
        again.must("attach", attempt="a.1.1", **{"from": 0})
        end = again.end("a.1.1")
    assert (end["cause"], end["tail"]) == ("runner_lost", "")
