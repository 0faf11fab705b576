"""Stands in for WAA's `run.py`: its command line, files, exit codes and failure modes. Standard library only.

Started in a folder with `settings.json`. A file `faults/<id>/<n>-<fault>` makes one call of that task fail: the first in
order is used up. The score of a task follows from its id.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from base64 import b64decode
from http.client import HTTPConnection
from typing import Any
from urllib.request import Request, urlopen

PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
STEPS = 3
LEDGER = "played"  # a line for each task that came to its end


def score_of(task: str) -> float:
    """What the checker will say of a task."""
    return (0.0, 1.0, 0.5)[hashlib.sha256(task.encode()).digest()[0] % 3]


class Lost(Exception):
    """What a broken guest raises in WAA's own code."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name, default in {
        "action_space": "pyautogui",
        "observation_type": "a11y_tree",
        "agent_name": "navi",
        "test_config_base_dir": "evaluation_examples_windows",
        "model": "gpt-4-vision-preview",
        "domain": "all",
        "emulator_ip": "20.20.20.21",
        "test_all_meta_path": "evaluation_examples_windows/test_all.json",
        "result_dir": "./results",
        "trial_id": "0",
    }.items():
        parser.add_argument(f"--{name}", default=default)
    for name, number in {"max_steps": 15, "worker_id": 0, "num_workers": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    return parser.parse_known_args()[0]  # as WAA does: a misspelt flag is ignored


def next_fault(task: str) -> str:
    folder = f"faults/{task}"
    try:
        first = min(os.listdir(folder))
        os.unlink(f"{folder}/{first}")
    except (OSError, ValueError):
        return ""
    return first.partition("-")[2]


def wait_for_server(address: str, port: int, *, forever: bool) -> None:
    print("Waiting for the server to start...", flush=True)
    while True:
        try:
            if forever:
                raise ConnectionError("Connection to the guest timed out")
            link = HTTPConnection(address, port, timeout=7)
            link.request("GET", "/probe")
            print("Response from server:", json.load(link.getresponse()), flush=True)
            return
        except (OSError, ValueError) as error:
            print("Failed to get hello:", error, flush=True)
            print("Retrying...", flush=True)
            time.sleep(0.5)


def ask_model(model: str) -> None:
    """As navi does: up to 30 times, with pauses, and nothing is told of what fails."""
    base_url = os.environ.get("OPENAI_BASE_URL")
    if not base_url:
        return
    body = {"model": model, "messages": [{"role": "user", "content": "What next?"}], "max_tokens": 300}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    for _ in range(30):
        request = Request(f"{base_url}/chat/completions", json.dumps(body).encode(), headers)
        try:
            with urlopen(request, timeout=600) as answer:
                json.load(answer)["choices"][0]["message"]["content"]
            return
        except OSError:
            time.sleep(1.0)
    raise RuntimeError("RetryError[<Future state=finished raised AuthenticationError>]")


class Task:
    """One task, played."""

    def __init__(self, args: argparse.Namespace, domain: str, task: str, fault: str, pause_s: float) -> None:
        way = (args.action_space, args.observation_type, args.model, args.trial_id, domain, task)
        self.folder = os.path.join(args.result_dir, *way)
        self._args, self._domain, self._task, self._fault, self._pause_s = args, domain, task, fault, pause_s

    def play(self) -> None:
        os.makedirs(f"{self.folder}/logs", exist_ok=True)
        with open(f"{self.folder}/logs/task-{self._args.worker_id}-20260101@000000.log", "w", encoding="utf-8") as file:
            file.write("a log\n")
        try:
            self._play()
        except Exception as error:  # noqa: BLE001 - as WAA does, and goes on
            self._write({"Error": f"Exception in {self._domain}/{self._task}", "Exception": str(error),
                         "Traceback": traceback.format_exc() + f"{error.args[1] if len(error.args) > 1 else ''}"})  # fmt: skip

    def _play(self) -> None:
        example = f"{self._args.test_config_base_dir}/examples/{self._domain}/{self._task}.json"
        with open(example, encoding="utf-8") as file:
            json.load(file)
        if self._args.agent_name == "navi" and not os.environ.get("OPENAI_API_KEY"):
            raise KeyError("OPENAI_API_KEY")
        if self._fault == "error":
            raise Lost("HTTPConnectionPool(host='20.20.20.21', port=5000): Max retries exceeded")
        self._step(0, "reset", None)
        for number in range(1, min(STEPS, self._args.max_steps) + 1):
            time.sleep(self._pause_s)
            ask_model(self._args.model)
            self._stumble(number)
            self._step(number, str(number - 1), f"computer.mouse.move_abs(x={number}, y=0.5)")
        if self._fault == "missing":
            return
        text = {"garbage": "not a number\n", "empty": ""}.get(self._fault, f"{score_of(self._task)}\n")
        with open(f"{self.folder}/result.txt", "w", encoding="utf-8") as file:
            file.write(text)
        with open(LEDGER, "a", encoding="utf-8") as file:
            file.write(f"{self._task}\n")
        if self._fault == "linger":
            time.sleep(3600)

    def _stumble(self, number: int) -> None:
        agent = '  File "/client/mm_agents/navi/agent.py", line 7, in predict\n'
        if number != 2:
            return
        if self._fault == "agent":
            raise ValueError("no code block in the plan", f"{agent}ValueError: no code block in the plan")
        if self._fault == "service":
            raise ConnectionError("quota", f"{agent}openai.RateLimitError: Error code: 429 - insufficient_quota")
        if self._fault == "half":
            with open(f"{self.folder}/traj.jsonl", "a", encoding="utf-8") as file:
                file.write('{"step_num": 2, "act')
            raise SystemExit(1)
        if self._fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "stop" or os.path.exists(
            f"stuck-{os.path.basename(os.environ.get('EVALFLEET_CONTAINER', ''))}"
        ):
            subprocess.Popen(["sleep", "3600"], start_new_session=True)  # what a browser that it opened would be
            time.sleep(3600)

    def _step(self, number: int, name: str, action: str | None) -> None:
        picture = f"{self.folder}/screenshot-step_{name}_20260101@00000{number}.png"
        with open(picture, "wb") as file:
            file.write(PNG)
        row: dict[str, Any] = {"step_num": number, "action_timestamp": "20260101@000000", "action": action}
        self._write({**row, "reward": 0, "done": False, "info": {}, "screenshot": picture})

    def _write(self, row: dict[str, Any]) -> None:
        with open(f"{self.folder}/traj.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _stop(_signal: int, _frame: object) -> None:
    sys.exit(0)


def main() -> None:
    # WAA ends with status 0 when it is told to stop.
    signal.signal(signal.SIGTERM, _stop)
    with open("./settings.json", encoding="utf-8") as file:
        settings = json.load(file)
    args = arguments()
    os.makedirs(f"{args.result_dir}/logs", exist_ok=True)
    with open(f"{args.result_dir}/logs/normal-{args.worker_id}-20260101@000000.log", "w", encoding="utf-8") as file:
        file.write("a log\n")
    with open(args.test_all_meta_path, encoding="utf-8") as file:
        meta: dict[str, list[str]] = json.load(file)
    tasks = [(domain, task) for domain, ids in meta.items() for task in ids if args.domain in ("all", domain)]
    faults = {task: next_fault(task) for _, task in tasks}
    wait_for_server(args.emulator_ip, settings["port"], forever="hang" in faults.values())
    if "crash" in faults.values():
        raise ModuleNotFoundError("No module named 'groundingdino'")
    for domain, task in tasks:
        Task(args, domain, task, faults[task], settings["pause_s"]).play()


if __name__ == "__main__":
    main()
