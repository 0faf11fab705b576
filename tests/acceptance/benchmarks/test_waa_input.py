"""Windows Agent Arena before the first task: what can be asked for, and whether the machine is ready."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from examples.fake_waa.arena import Arena, arena
from tests.support.fleet import Fleet
from tests.support.waa import KEY, PAD, configure, names, run

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """One for those who only look at it."""
    with arena(tmp_path_factory.mktemp("standing") / "arena", names(1)) as made:
        yield made


def test_lists_of_the_container_and_the_checkout(waa: Arena, fleet: Fleet):
    assert run(fleet, "--option", "list=test_small.json")["tasks"]["done"] == 2
    assert waa.restarts() == 0
    again = run(
        fleet, "--option", "list=test_small.json", "--option", f"checkout={waa.folder}", "--repeat", "2", "--tasks", "1"
    )
    assert [row["key"] for row in again["results"]] == [PAD, f"{PAD}_1"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "waa needs --agent: navi"),
        (("--agent", "oracle"), "--agent oracle: waa brings its own agents"),
        (("--agent", "my:Agent"), "--agent my:Agent: waa brings its own agents"),
        (("--agent", "navi", "--domain", "word"), '--domain: no domain matches "word"; known here: chrome, clock'),
        (("--agent", "navi", "--task", "notepad/none"), 'waa has no task "notepad/none"'),
        (("--agent", "navi", "--option", "checkout=nowhere"), "option checkout: there is no folder nowhere"),
        (("--agent", "navi", "--option", "checkout=."), "option checkout: . is not a checkout of WindowsAgentArena"),
        (("--agent", "navi", "--json-name", "x.json"), "option list=x.json: docker exec failed: cat: "),
        (("--agent", "navi", "--model", "-x"), "--model '-x': is not the name of a model"),
    ],
)
def test_bad_input(standing: Arena, fleet: Fleet, args: tuple[str, ...], said: str):
    configure(fleet, standing)
    done = fleet.command("run", "waa", "--model", "m", *args, OPENAI_API_KEY=KEY)
    assert done.returncode == 2
    assert said in done.stderr
    assert not fleet.home.exists()


def test_options_of_waa_are_refused_elsewhere(fleet: Fleet):
    done = fleet.command("run", "miniwob", "--agent", "random", "--option", "checkout=.")
    assert done.returncode == 2
    assert "option checkout: is not known; miniwob takes no options of its own" in done.stderr


def test_prepare(waa: Arena, fleet: Fleet):
    told = fleet.json("prepare", "waa")
    assert told["ready"] is True
    assert [(check["check"], check["container"]) for check in told["checks"]] == [
        ("disk", None),
        ("docker", None),
        ("kvm", None),
        ("image", None),
        ("container", waa.containers[0]),
        ("guest", waa.containers[0]),
    ]
    configure(fleet, waa, docker="docker")
    done = fleet.command("prepare", "waa", PATH=f"{waa.docker}:{os.environ['PATH']}")
    assert "+ docker: version 28.0.0-emulated" in done.stdout
    assert done.stdout.endswith("waa is ready\n")


def test_prepare_names_the_rung(waa: Arena, fleet: Fleet):
    configure(fleet, waa, guest_timeout="1s")
    waa.silence()
    done = fleet.command("prepare", "waa")
    assert done.returncode == 3
    assert f"guest {waa.containers[0]}" in done.stdout
    assert "did not answer /probe within 1 s" in done.stdout
    configure(fleet, waa, containers=["no-such-container"])
    told = fleet.json("prepare", "waa", code=3)
    assert told["checks"][-1]["check"] == "container"
    assert "no golden image is configured" in told["checks"][-1]["seen"]
    refused = fleet.command("run", "waa", "--agent", "other")
    assert refused.returncode == 2
    assert "container no-such-container (there is none)" in refused.stderr
    configure(fleet, waa, docker="/no/docker")
    told = fleet.json("prepare", "waa", code=3)
    assert told["checks"][-1]["seen"] == "/no/docker cannot be started: No such file or directory"


def test_prepare_starts_what_is_not_up(waa: Arena, fleet: Fleet):
    name = f"{waa.containers[0]}-new"
    storage = fleet.folder / name
    storage.mkdir()
    (storage / "data.img").touch()
    configure(fleet, waa, containers=[name], storage=str(fleet.folder / "{container}"))
    told = fleet.json("prepare", "waa")
    assert told["checks"][4]["seen"] == "started"
    assert run(fleet, "--task", PAD)["tasks"]["done"] == 1
