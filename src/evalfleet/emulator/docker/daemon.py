"""A fake Docker for many machines: one daemon, a state file on each machine's disk, real processes.

A container is a name: what `docker exec` starts in it are processes of its machine, which die with it. What a call
does before it is carried out, a fault of "host.docker" says; its `command` is the whole line after `docker`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from evalfleet.emulator.arm.errors import ArmError
from evalfleet.emulator.docker import command_line, state
from evalfleet.emulator.docker.call import END, ERROR, OUT, Call, Command, folder_of, mishap, tagged
from evalfleet.emulator.docker.images import Images, begin_pull
from evalfleet.emulator.docker.machine import DockerMachine
from evalfleet.emulator.docker.state import Container
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.machines import processes
from evalfleet.emulator.presets import DOCKER

KILLED = 137
CHUNK = 65536


class Dockerd:
    """The daemon of all machines.

    Args:
        find: gives the machine of a name, or raises ArmError.
    """

    def __init__(self, find: Callable[[str], DockerMachine]) -> None:
        self._find = find
        self._images = Images()
        self._commands: dict[str, Command] = {
            **self._images.commands(),
            "run": self._run,
            "start": self._start,
            "stop": self._stop,
            "kill": self._stop,
            "restart": self._restart,
            "rm": self._remove,
            "ps": self._ps,
            "inspect": self._inspect,
            "logs": self._logs,
            "exec": self._exec,
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first: Any = json.loads(await reader.readline())
            machine, asked = self._find(first["vm"]), command_line.read(first["args"])
            call = Call(machine, asked, first["environ"], first.get("password"), reader, writer)
            status = await self._obeyed(call, first["args"])
            call.send(END, str(status if status >= 0 else 128 - status).encode())
            await writer.drain()
        except (OSError, ValueError, ArmError):
            pass  # the client, or its machine, is gone
        finally:
            writer.close()

    async def _obeyed(self, call: Call, args: Sequence[str]) -> int:
        machine = call.machine
        if not machine.condition.docker:
            return call.complain("Cannot connect to the Docker daemon. Is the docker daemon running?")
        machine.called(args)
        fault = machine.fault(" ".join(args))
        if fault is not None and (status := await self._faulty(call, fault)) is not None:
            return status
        command = self._commands.get(call.asked.command)
        if command is None:
            return call.complain(f"docker: '{call.asked.command}' is not emulated.")
        try:
            return await command(call)
        except (KeyError, IndexError):
            name = call.asked.words[0] if call.asked.words else ""
            return call.complain(f"Error response from daemon: No such container: {name}")

    async def _faulty(self, call: Call, fault: Fault) -> int | None:
        """Do what the fault says; the exit status where the command is not carried out."""
        await asyncio.sleep(fault.delay)
        if fault.hang:
            if call.asked.command == "pull":
                begin_pull(call)
            while await call.reader.read(CHUNK):
                pass
            raise ConnectionResetError
        if fault.drop:
            raise ConnectionResetError
        if fault.exit is not None:
            return call.complain(fault.stderr, fault.exit)
        if fault.preset == "container_dies":
            call.dies_after_s = fault.seconds or 0.0
            return None
        if fault.preset == "pull_fills_disk":
            condition = call.machine.condition
            condition.waste_gb += condition.free_gb(call.shelf().images_gb())
            await call.machine.show_disk()
        return mishap(call, DOCKER[fault.preset]) if fault.preset else None

    def _started(self, call: Call, name: str) -> None:
        if call.dies_after_s is not None:
            call.machine.start_soon(self._die, call.machine, name, call.dies_after_s)

    async def _die(self, machine: DockerMachine, name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._kill(machine, name)

    async def kill(self, vm: str, name: str) -> None:
        """Let a container die, as if its main process had been killed.

        Raises:
            ArmError: there is none.
        """
        await self._kill(self._find(vm), name)

    async def _kill(self, machine: DockerMachine, name: str) -> None:
        try:
            await _end(machine, name, KILLED)
        except KeyError:
            raise ArmError(404, "ResourceNotFound", f"There is no container {name}.") from None
        machine.changed("container.died", name)

    async def _run(self, call: Call) -> int:
        asked = call.asked
        image, *command = asked.words
        if tagged(image) not in call.shelf().images and (status := await self._images.pull(call)):
            return status
        known = call.shelf().containers
        name = asked.option("--name") or f"container{len(known) + 1}"
        if name in known:
            return call.complain(
                f'docker: Error response from daemon: Conflict. The container name "/{name}" is already in use.', 125
            )
        entry = asked.option("--entrypoint")
        made = Container(
            name=name,
            image=image,
            boot=call.machine.boots,
            command=[*([entry] if entry else []), *command],
            restart=asked.option("--restart") or "no",
            started_at=call.machine.now(),
            env=[f"{name}={value}" for name, value in asked.environment(call.environ).items()],
            ports=asked.published(),
            labels=dict(word.split("=", 1) for word in asked.options.get("--label", ()) if "=" in word),
        )
        if "--device" in asked.options and not call.machine.condition.kvm and "/dev/kvm" in str(asked.options):
            return call.complain(
                "docker: Error response from daemon: error gathering device information while adding custom device "
                '"/dev/kvm": no such file or directory.',
                125,
            )
        with call.change() as shelf:
            shelf.containers[name] = made
        call.machine.changed("container.started", name)
        if "--detach" in asked.options or not command:
            await call.machine.sync_guests()
            self._started(call, name)
            return call.say(made.id)
        self._started(call, name)
        made.exit_code = await self._execute(call, made, made.command)
        made.running = False
        with call.change() as shelf:
            shelf.containers[name] = made
            if "--rm" in asked.options:
                del shelf.containers[name]
        return made.exit_code

    async def _start(self, call: Call) -> int:
        machine, name = call.machine, call.asked.words[0]
        if not call.container().runs(machine.boots):
            with call.change() as shelf:
                container = shelf.containers[name]
                container.running, container.boot, container.started_at = True, machine.boots, machine.now()
            machine.changed("container.started", name)
        await machine.sync_guests()
        self._started(call, name)
        return call.say(name)

    async def _stop(self, call: Call) -> int:
        await _end(call.machine, call.asked.words[0], KILLED if call.asked.command == "kill" else 0)
        return call.say(call.asked.words[0])

    async def _restart(self, call: Call) -> int:
        name = call.asked.words[0]
        await _end(call.machine, name, 0)
        with call.change() as shelf:
            shelf.containers[name].restarts += 1
        return await self._start(call)

    async def _remove(self, call: Call) -> int:
        container = call.container()
        if container.runs(call.machine.boots) and "--force" not in call.asked.options:
            return call.complain(
                f'Error response from daemon: cannot remove container "/{container.name}": container is running'
            )
        await _end(call.machine, container.name, KILLED)
        with call.change() as shelf:
            del shelf.containers[container.name]
        return call.say(container.name)

    async def _ps(self, call: Call) -> int:
        boots = call.machine.boots
        wanted = [value.partition("name=")[2] for value in call.asked.options.get("--filter", ()) if "name=" in value]
        for each in call.shelf().containers.values():
            runs = each.runs(boots)
            if not (runs or "--all" in call.asked.options) or any(part not in each.name for part in wanted):
                continue
            status = "Up" if runs else f"Exited ({each.exit_code})"
            row = {"ID": each.id[:12], "Names": each.name, "Image": each.image, "Status": status}
            row["State"] = "running" if runs else "exited"
            plain = "{{.ID}}" if "--quiet" in call.asked.options else "{{.ID}} {{.Image}} {{.Status}} {{.Names}}"
            call.say(command_line.shown(call.asked.option("--format") or plain, row))
        return 0

    async def _inspect(self, call: Call) -> int:
        if call.asked.words and tagged(call.asked.words[0]) in call.shelf().images:
            return await self._images.inspect(call)
        return call.say(command_line.shown(call.asked.option("--format"), call.container().inspect(call.machine.boots)))

    async def _logs(self, call: Call) -> int:
        container = call.container()
        return call.say(f"emulated container {container.name} of {container.image}")

    async def _exec(self, call: Call) -> int:
        container = call.container()
        if not container.runs(call.machine.boots):
            return call.complain(f"Error response from daemon: container {container.id} is not running")
        return await self._execute(call, container, call.asked.words[1:])

    async def _execute(self, call: Call, container: Container, words: Sequence[str]) -> int:
        """Run a program in a container, with the caller's input and output."""
        home = folder_of(call.machine, container.name)
        home.mkdir(parents=True, exist_ok=True)
        environ = {"LANG": "C.UTF-8", "HOME": str(home), **call.asked.environment(call.environ)}
        try:
            process = await call.machine.spawn(words, environ, call.asked.option("--workdir") or str(home))
        except OSError as error:
            return call.complain(f"OCI runtime exec failed: exec failed: {error}", 126 if error.errno != 2 else 127)
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.TaskGroup() as tasks:
            feeding = tasks.create_task(_feed(call, process))
            shown = [
                tasks.create_task(_relay(call, process.stdout, OUT)),
                tasks.create_task(_relay(call, process.stderr, ERROR)),
            ]
            await asyncio.wait(shown)
            status = await process.wait()
            feeding.cancel()
        return status


async def _end(machine: DockerMachine, name: str, code: int) -> None:
    """End a container and all processes in it. Raises KeyError where there is none."""
    shelf = state.load(machine.folder)
    container = shelf.containers[name]
    container.running, container.exit_code = False, code
    state.save(machine.folder, shelf)
    await asyncio.to_thread(processes.end_all, folder_of(machine, name))
    await machine.sync_guests()


async def _feed(call: Call, process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    with suppress(OSError):
        if "--interactive" in call.asked.options:
            while data := await call.reader.read(CHUNK):
                process.stdin.write(data)
                await process.stdin.drain()
        process.stdin.close()


async def _relay(call: Call, source: asyncio.StreamReader, stream: int) -> None:
    """Pass on what comes; while nobody listens any more, take it all the same, as Docker does."""
    while data := await source.read(CHUNK):
        call.send(stream, data)
        with suppress(OSError):
            await call.writer.drain()
