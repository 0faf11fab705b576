"""Docker's commands about images, registries and space."""

from __future__ import annotations

import base64
import json

from evalfleet.emulator.context import World
from evalfleet.emulator.docker import command_line
from evalfleet.emulator.docker.call import Call, Command, auths, config_file, mishap, tagged
from evalfleet.emulator.docker.state import Image
from evalfleet.emulator.machines.machines import Machines
from evalfleet.emulator.presets import NO_SPACE

VERSION = "28.0.0-emulated"
IMAGE_GB = 12.0
PRIVATE = ".azurecr.io"  # registries that want a login
HUB = "https://index.docker.io/v1/"


class Images:
    """What a machine has of images."""

    def __init__(self, world: World, machines: Machines) -> None:
        self._world = world
        self._machines = machines

    def commands(self) -> dict[str, Command]:
        return {
            "version": self._version,
            "info": self._version,
            "login": self._login,
            "logout": self._logout,
            "pull": self.pull,
            "images": self._images,
            "image inspect": self.inspect,
            "rmi": self._remove,
            "system prune": self._prune,
            "container prune": self._prune,
            "image prune": self._prune,
        }

    async def _version(self, call: Call) -> int:
        known = {"Client": {"Version": VERSION}, "Server": {"Version": VERSION}, "ServerVersion": VERSION}
        template = call.asked.option("--format")
        return call.say(command_line.shown(template or "Version: {{.ServerVersion}}", known))

    async def _login(self, call: Call) -> int:
        """Keep the login as Docker does: readable by who can read the user's files."""
        registry = (call.asked.words or [HUB])[0]
        user, password = call.asked.option("--username"), call.password or call.asked.option("--password")
        if not user or not password:
            return call.complain("Error: Cannot perform an interactive login from a non TTY device")
        auth = base64.b64encode(f"{user}:{password}".encode()).decode()
        file = config_file(call)
        known = auths(file) | {registry: {"auth": auth}}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"auths": known}))
        file.chmod(0o600)
        return call.say("Login Succeeded")

    async def _logout(self, call: Call) -> int:
        registry = (call.asked.words or [HUB])[0]
        file = config_file(call)
        known = auths(file)
        if known.pop(registry, None) is not None:
            file.write_text(json.dumps({"auths": known}))
        return call.say(f"Removing login credentials for {registry}")

    async def pull(self, call: Call) -> int:
        name = tagged(call.asked.words[0])
        registry = name.partition("/")[0]
        if registry.endswith(PRIVATE) and registry not in auths(config_file(call)):
            return call.complain(
                f'Error response from daemon: Head "https://{registry}/v2/": unauthorized: authentication required, '
                "visit https://aka.ms/acr/authorization for more information."
            )
        call.say(f"{name.rpartition(':')[2]}: Pulling from {name.rpartition(':')[0]}")
        if name in call.shelf.images:
            return call.say(f"Status: Image is up to date for {name}")
        for layer, part in (("a1b2c3d4e5f6", "Downloading"), ("0f1e2d3c4b5a", "Pull complete")):
            call.say(f"{layer}: {part}")
            await self._world.clock.sleep(self._world.times.pull / 2)
        if call.machine.condition.free_gb(call.shelf.images_gb()) < IMAGE_GB:
            return mishap(call, NO_SPACE)
        call.shelf.images[name] = Image(name=name, gb=IMAGE_GB)
        call.save()
        await self._machines.show(call.machine)
        return call.say(f"Status: Downloaded newer image for {name}\n{name}")

    async def _images(self, call: Call) -> int:
        for image in call.shelf.images.values():
            repository, _, tag = image.name.rpartition(":")
            row = {"Repository": repository, "Tag": tag, "ID": image.id, "Size": f"{image.gb:g}GB"}
            call.say(command_line.shown(call.asked.option("--format") or "{{.Repository}} {{.Tag}} {{.ID}}", row))
        return 0

    async def inspect(self, call: Call) -> int:
        image = call.shelf.images.get(tagged(call.asked.words[0]))
        if image is None:
            return call.complain(f"Error response from daemon: No such image: {call.asked.words[0]}")
        return call.say(command_line.shown(call.asked.option("--format"), {"Id": image.id, "RepoTags": [image.name]}))

    async def _remove(self, call: Call) -> int:
        for word in call.asked.words:
            call.shelf.images.pop(tagged(word), None)
        call.save()
        await self._machines.show(call.machine)
        return 0

    async def _prune(self, call: Call) -> int:
        """Remove what is not used: containers that do not run, and with `--all` images without one."""
        machine, shelf = call.machine, call.shelf
        if call.asked.command != "image prune":
            shelf.containers = {n: each for n, each in shelf.containers.items() if each.runs(machine.boots)}
        if call.asked.command != "container prune":
            machine.condition.waste_gb = 0.0
            if "--all" in call.asked.options or "-af" in call.asked.options or "-fa" in call.asked.options:
                used = {tagged(container.image) for container in shelf.containers.values()}
                shelf.images = {name: image for name, image in shelf.images.items() if name in used}
        call.save()
        await self._machines.show(machine)
        return call.say("Total reclaimed space: some")
