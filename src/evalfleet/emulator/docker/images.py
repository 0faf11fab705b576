"""Docker's commands about images, registries and space."""

from __future__ import annotations

import base64
import json

from evalfleet.emulator.docker import command_line
from evalfleet.emulator.docker.call import HUB, Call, Command, auths, config_file, mishap, registry_of, tagged
from evalfleet.emulator.docker.state import Image
from evalfleet.emulator.presets import NO_SPACE

VERSION = "28.0.0-emulated"
IMAGE_GB = 12.0
LAYERS = ("0a1b2c3d4e5f", "1a1b2c3d4e5f", "2a1b2c3d4e5f")


class Images:
    """What a machine has of images."""

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
        version = {"Version": VERSION}
        known = {
            "Client": version,
            "Server": version,
            "ServerVersion": VERSION,
            "DockerRootDir": str(call.machine.folder),
        }
        template = call.asked.option("--format")
        return call.say(command_line.shown(template or "Version: {{.ServerVersion}}", known))

    async def _login(self, call: Call) -> int:
        """Keep the login as Docker does: readable by who can read the user's files."""
        registry = (call.asked.words or [HUB])[0]
        user, password = call.asked.option("--username"), call.password or call.asked.option("--password")
        if not user or not password:
            return call.complain("Error: Cannot perform an interactive login from a non TTY device")
        if not call.machine.takes_password(password):
            return call.complain("Error response from daemon: unauthorized: authentication required")
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
        registry = registry_of(name)
        if call.machine.wants_login(registry) and registry not in auths(config_file(call)):
            return call.complain(
                f'Error response from daemon: Head "https://{registry}/v2/": unauthorized: authentication required, '
                "visit https://aka.ms/acr/authorization for more information."
            )
        if name in call.shelf().images:
            return call.say(f"Status: Image is up to date for {name}")
        begin_pull(call)
        for layer in LAYERS[1:]:
            await call.machine.wait_for_layer()
            call.say(f"{layer}: Pull complete")
        if call.machine.condition.free_gb(call.shelf().images_gb()) < IMAGE_GB:
            return mishap(call, NO_SPACE)
        with call.change() as shelf:
            shelf.images[name] = Image(name=name, gb=IMAGE_GB)
        await call.machine.show_disk()
        return call.say(f"Status: Downloaded newer image for {name}\n{name}")

    async def _images(self, call: Call) -> int:
        dangling = "dangling=true" in call.asked.options.get("--filter", ())
        plain = "{{.ID}}" if "--quiet" in call.asked.options else "{{.Repository}} {{.Tag}} {{.ID}}"
        for image in () if dangling else call.shelf().images.values():  # each has a tag
            repository, _, tag = image.name.rpartition(":")
            row = {"Repository": repository, "Tag": tag, "ID": image.id, "Size": f"{image.gb:g}GB"}
            call.say(command_line.shown(call.asked.option("--format") or plain, row))
        return 0

    async def inspect(self, call: Call) -> int:
        image = call.shelf().images.get(tagged(call.asked.words[0]))
        if image is None:
            return call.complain(f"Error response from daemon: No such image: {call.asked.words[0]}")
        return call.say(command_line.shown(call.asked.option("--format"), {"Id": image.id, "RepoTags": [image.name]}))

    async def _remove(self, call: Call) -> int:
        with call.change() as shelf:
            for word in call.asked.words:
                shelf.images.pop(tagged(word), None)
        await call.machine.show_disk()
        return 0

    async def _prune(self, call: Call) -> int:
        """Remove what is not used: containers that do not run, and with `--all` images without one."""
        machine, options = call.machine, call.asked.options
        labels = {value.removeprefix("label=") for value in options.get("--filter", ()) if value.startswith("label=")}
        with call.change() as shelf:
            if call.asked.command != "image prune":
                shelf.containers = {
                    name: each
                    for name, each in shelf.containers.items()
                    if each.runs(machine.boots)
                    or not labels <= {f"{key}={value}" for key, value in each.labels.items()}
                }
            if call.asked.command != "container prune":
                machine.condition.waste_gb = 0.0
                if "--all" in options or "-af" in options or "-fa" in options:
                    used = {tagged(container.image) for container in shelf.containers.values()}
                    shelf.images = {name: image for name, image in shelf.images.items() if name in used}
        await machine.show_disk()
        return call.say("Total reclaimed space: some")


def begin_pull(call: Call) -> None:
    """Say what Docker says until the first layer is there."""
    repository, _, tag = tagged(call.asked.words[0]).rpartition(":")
    call.say(f"{tag}: Pulling from {repository}")
    for layer in LAYERS:
        call.say(f"{layer}: Pulling fs layer")
    call.say(f"{LAYERS[0]}: Pull complete")
