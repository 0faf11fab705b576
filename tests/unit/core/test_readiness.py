"""Records of readiness checks: image pulls and the events made of them."""

from __future__ import annotations

import json

import pytest

from evalfleet.core.readiness import HostEvent, Pull, PullEvents, ReadinessCheck


def pull(took_s: float, image: str = "registry.test/waa:1") -> Pull:
    return Pull(image=image, progress="1 of 3 layers", took_s=took_s)


def test_records_survive_the_way_from_a_host():
    record = Pull(image="a: b, 3 s", progress="pulls x: y, 1 s", took_s=1.25)  # nothing is read out of words
    assert Pull.of_row(json.loads(json.dumps(record.row()))) == record
    check = ReadinessCheck(name="guest", of="c", holds=True, seen="answers", restarted=True, took_s=2.0)
    assert ReadinessCheck.of_row(json.loads(json.dumps(check.row()))) == check
    with pytest.raises(KeyError):
        Pull.of_row({"image": "x"})


def test_a_rung_of_an_older_tools_program_has_no_restart():
    row = {
        key: value
        for key, value in ReadinessCheck(name="disk", holds=True, seen="9 GB").row().items()
        if key != "restarted"
    }
    assert not ReadinessCheck.of_row(row).restarted


def test_a_pull_is_one_event_at_its_begin_and_one_at_its_end():
    events = PullEvents("box")
    began = events.update(pull(0.0))
    assert began == HostEvent(
        host="box", type="worker.pulling", data={"host": "box", "image": "registry.test/waa:1", "took_s": 0.0}
    )
    assert events.update(pull(5.0)) is None
    ended = events.end("no space left")
    assert ended is not None
    assert (ended.type, ended.data["took_s"], ended.data["error"]) == ("worker.pulled", 5.0, "no space left")
    assert events.end(None) is None, "it has ended"
    assert events.update(pull(0.0)) is not None, "another one begins"


def test_where_nothing_is_pulled_nothing_ends():
    assert PullEvents("box").end("gone") is None
