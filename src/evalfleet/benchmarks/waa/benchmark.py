"""The benchmark `waa`, as it is chosen and submitted."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn

from msgspec.structs import asdict, replace

from evalfleet import config
from evalfleet.agents.base import AgentOptions, AgentSetup
from evalfleet.agents.llm.options import agent_setup
from evalfleet.agents.llm.settings import LlmSettings
from evalfleet.benchmarks.base import (
    Episode,
    Guests,
    PastResults,
    ReadinessCheck,
    Requirement,
    Screen,
    Selection,
    TaskInfo,
    Tools,
)
from evalfleet.benchmarks.selection import Chosen, choose
from evalfleet.benchmarks.waa import readiness
from evalfleet.benchmarks.waa.catalogue import ALL, FOLDER, Checkout, Domains, index, infos, parse_list
from evalfleet.benchmarks.waa.docker import Docker, DockerError
from evalfleet.benchmarks.waa.settings import OLD_RESET, RESETS, WaaSettings
from evalfleet.benchmarks.waa.tree import read_tree
from evalfleet.core.readiness import Update
from evalfleet.errors import InputError
from evalfleet.model import PYTHON

_log = logging.getLogger(__name__)
_AGENT = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
_OURS = ("oracle", "random", "llm")  # agents that act in evalfleet's own environments
# What Docker's client reads: without them a task would ask another daemon than `prepare` did.
_DOCKER = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
_MODEL = re.compile(r"[A-Za-z0-9][^\s\0]{0,199}", re.ASCII)


_SET_BY_US = ("OPENAI_API_KEY", "OPENAI_BASE_URL")  # in the container: a token, and our proxy's address
_NO_MODEL = "waa needs --model, such as gpt-4o: run.py's own default, gpt-4-vision-preview, is not served any more."
_NO_AZURE = (
    "AZURE_API_KEY and AZURE_ENDPOINT cannot be used: WAA's run.py asks OpenAI's API only. Azure OpenAI serves that API as well: "
    "export OPENAI_API_KEY=<the key of your resource> and add --base-url https://<your resource>.openai.azure.com/openai/v1, "
    "with the name of your deployment as --model."
)


class Waa:
    """Implements `Benchmark`, `Prepares`, `SharesMachine`, `OwnAgents`, `TakesOptions`, `ChoosesTasks`, `ShowsScreen` and
    `HasGuests`."""

    name = "waa"
    title = "Windows Agent Arena: tasks in Windows, in WAA's own container with WAA's own agents"
    agents: Sequence[str] = ("navi",)
    own_options: Mapping[str, str] = {
        "list": "a task list of WAA, such as test_small.json",
        "checkout": "your WAA checkout, for task lists and instructions",
    }
    needs_kvm = True
    container = "winarena"
    tools: Tools
    screen: Screen
    guests: Guests

    def __init__(self, settings: config.Settings) -> None:
        self._settings = settings
        waa = settings.table("waa", WaaSettings)
        if waa.reset == OLD_RESET:
            _log.warning('[waa] reset = "%s" is now called "%s"', OLD_RESET, RESETS[0])
            waa = replace(waa, reset=RESETS[0])
        self._waa = waa
        self.machine_slots, self.machine_gb = len(waa.containers), waa.machine_gb
        self.container_images = (waa.image,)
        there = replace(waa, install_docker=True) if waa.install_docker is None else waa
        self.tools = Tools(
            secrets=(
                *((waa.registry_secret,) if waa.registry_user else ()),
                *((waa.golden_secret,) if waa.golden_from and config.environment().get(waa.golden_secret) else ()),
            ),
            settings={self.name: asdict(there)},
        )

        self.screen = Screen(
            port=waa.screen_port,
            single=len(waa.containers) == 1,
            docker=waa.docker,
            containers=waa.containers,
            python=waa.python,
            url=f"http://{waa.guest}:{waa.guest_port}/screenshot",
        )
        self.guests = Guests(
            docker=waa.docker,
            containers=waa.containers,
            python=waa.python,
            url=f"http://{waa.guest}:{waa.guest_port}/probe",
            screen_port=readiness.CONTAINER_SCREEN,
        )

    def check_agent(self, name: str) -> None:
        if name in _OURS or not _AGENT.fullmatch(name):
            raise InputError(
                f"--agent {name}: waa brings its own agents, which run inside its container; use --agent navi, or another "
                "agent that your WAA's run.py knows."
            )

    def requirements(self) -> Sequence[Requirement]:
        checks = list(readiness.host_checks(self._waa))
        if all(check.holds for check in checks):
            for container in self._waa.containers:
                checks.append(next(readiness.container_checks(self._waa, container, start=False)))
        return [
            Requirement(
                what=f"{check.name} {check.of}" if check.of else check.name,
                present=check.holds,
                found=check.seen,
                install=check.remedy,
            )
            for check in checks
        ]

    def prepare(
        self, tell: Callable[[ReadinessCheck], None], say: Callable[[Update], None], secrets: Mapping[str, str]
    ) -> list[ReadinessCheck]:
        return readiness.prepare(self._waa, tell, readiness.Means(say=say, secrets=secrets))

    def recheck(self, restarted: Collection[str]) -> list[ReadinessCheck]:
        return readiness.recheck(self._waa, restarted)

    def read_results(self, folder: str) -> PastResults:
        return read_tree(folder)

    def catalogue(self) -> Sequence[TaskInfo]:
        return infos(index())

    def settings(self, selection: Selection) -> Mapping[str, Any]:
        waa = self._waa
        return {
            "name": f"{self.name}-{selection.agent}" + (f"-{selection.model}" if selection.model else ""),
            "result": "required",
            "progress": "events",
            "timeout": waa.limit_s(selection.max_steps),
            "timeout_is_verdict": True,
            "stall": waa.stall_s,
            # For a free container, for Windows to go down and come up, and what Docker takes between them.
            "start_timeout": waa.container_wait_s + waa.shutdown_s + 2 * waa.guest_timeout_s + 300.0,
            **({} if selection.remote else {"workers": len(waa.containers)}),  # a pool's hosts have their slots
        }

    def tasks(self, selection: Selection) -> Sequence[Mapping[str, Any]]:
        if selection.model is not None and not _MODEL.fullmatch(selection.model):
            raise InputError(f"--model {selection.model!r}: is not the name of a model.")
        checkout = _checkout(selection)
        environ = config.environment()
        setup = self._setup(selection, environ)
        here = () if selection.remote else _DOCKER  # a pool's hosts have their own
        env = {**setup.env, **{name: environ[name] for name in here if environ.get(name)}}
        given = [name for name in self._waa.secrets if name not in _SET_BY_US]
        shared = {
            "benchmark": self.name,
            "agent": selection.agent,
            "model": selection.model or setup.options.get("model"),
            "model_options": dict(setup.options),
            "max_steps": selection.max_steps,
            "timeout_s": selection.timeout_s or self._waa.limit_s(selection.max_steps),
            "secrets": [*(_SET_BY_US[:1] if setup.options else ()), *given],
            "waa": asdict(self._waa),
        }
        return [
            {
                "key": key_of(one),
                "domain": one.task.domain,
                "command": [PYTHON, "-m", "evalfleet.benchmarks.waa.attempt"],
                "secrets": list(dict.fromkeys((*setup.secrets, *given))),
                "env": env,
                "payload": {
                    **shared,
                    "task": one.task.name,
                    "seed": one.seed,
                    "instruction": checkout.instruction(one.task.name) if checkout else None,
                },
            }
            for one in self.chosen(selection)
        ]

    def chosen(self, selection: Selection) -> Sequence[Chosen]:
        domains = self._domains(_checkout(selection), selection.options.get("list"))
        return choose(self.name, infos(domains), replace(selection, task=_full_keys(selection.task, domains)))

    def notes(self, selection: Selection) -> Sequence[str]:
        return self._setup(selection, config.environment()).notes

    def _setup(self, selection: Selection, environ: Mapping[str, str]) -> AgentSetup:
        """What the attempts need to ask the model, and the key to it; nothing for an agent that does it by itself.

        Raises:
            InputError: no model, or no key that run.py could use.
        """
        llm = self._settings.table("llm", LlmSettings)
        if selection.agent != "navi" and not (selection.base_url or environ.get(llm.secret)):
            return AgentSetup()
        if not (selection.model or llm.model):
            raise InputError(_NO_MODEL)
        if llm.secret and not environ.get(llm.secret):
            azure = any(environ.get(name) for name in ("AZURE_API_KEY", "AZURE_ENDPOINT"))
            raise InputError(
                _NO_AZURE
                if azure
                else f"{selection.agent} needs a key: export {llm.secret}=…; it reaches the attempt only."
            )
        return agent_setup(AgentOptions(model=selection.model, base_url=selection.base_url), self._settings)

    def episode(self, payload: Mapping[str, Any], folder: Path) -> AbstractContextManager[Episode]:
        _refuse_episode()

    def _domains(self, checkout: Checkout | None, name: str | None) -> Domains:
        """The list that was asked for: of the checkout, else our own, else of the container."""
        if checkout is not None:
            return checkout.domains(name or ALL)
        if name is None or name == ALL:
            return index()
        container = self._waa.containers[0]
        path = f"{self._waa.client}/{FOLDER}/{name}"
        try:
            return parse_list(Docker(self._waa.docker).read(container, path), f"{container}:{path}")
        except DockerError as error:
            raise InputError(
                f"option list={name}: {error}; or name a checkout of WAA with --option checkout=DIR."
            ) from None


def _refuse_episode() -> NoReturn:
    raise InputError("waa runs its tasks itself, in its container; they cannot be opened as episodes.")


def key_of(chosen: Chosen) -> str:
    """The task's key: `domain/id`; further trials have their number behind it."""
    return chosen.key if chosen.seed else chosen.task.name


def _checkout(selection: Selection) -> Checkout | None:
    root = selection.options.get("checkout")
    return Checkout(root) if root else None


def _full_keys(keys: Sequence[str], domains: Domains) -> tuple[str, ...]:
    """Let a person name a task by its id alone."""
    names = {task: f"{domain}/{task}" for domain, ids in domains.items() for task in ids}
    return tuple(names.get(key, key) for key in keys)
