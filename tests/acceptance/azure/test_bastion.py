"""Machines without public addresses behind a program that carries SSH, such as a tunnel of Azure Bastion."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import pytest
from tests.acceptance.azure.test_company import asks
from tests.support.web_site import site

from evalfleet import config
from evalfleet.azure import settings
from evalfleet.errors import ConfigError
from evalfleet.hosts.ssh.login.config import route
from evalfleet.pools.kinds.registry import clouds
from evalfleet.pools.machine.reach import ssh_spec

pytestmark = pytest.mark.anyio
EXAMPLE = Path(__file__).parents[3] / "examples" / "azure" / "bastion.py"
# Stands for `az`: listens on the port that it is told, and carries one connection to the machine.
AZ = """#!{python}
import socket, sys, threading
args = dict(zip(sys.argv[4::2], sys.argv[5::2]))
print(sys.argv, file=open({said!r}, "a"))
assert sys.argv[1:4] == ["network", "bastion", "tunnel"], sys.argv
with socket.create_server(("127.0.0.1", int(args["--port"]))) as server:
    near = server.accept()[0]
    far = socket.create_connection((open({address!r}).read(), int(args["--resource-port"])))
    def pump(a, b):
        while chunk := a.recv(65536):
            b.sendall(chunk)
        b.shutdown(socket.SHUT_WR)
    threading.Thread(target=pump, args=(near, far), daemon=True).start()
    pump(far, near)
    near.close(); far.close()
"""


async def test_a_pool_is_reached_through_a_tunnel_of_bastion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    said, address, folder = tmp_path / "said", tmp_path / "address", tmp_path / "bin"
    folder.mkdir()
    az = folder / "az"
    az.write_text(AZ.format(python=sys.executable, said=str(said), address=str(address)))
    az.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    async with site(tmp_path) as here:
        asks(here, proxy_command=f"{sys.executable} {EXAMPLE} hub network {{resource_id}} {{port}}")
        here.wants(workers=1, deadline={"host_key": 60.0})
        kind = next(one for one in clouds() if one.name == "azure-vm")
        async with here.served():
            await here.until(lambda: bool(here.hosts()) and here.hosts()[0].readiness_check == "host_key")
            spec = ssh_spec(kind.provider, here.hosts()[0], 1)
            address.write_text(spec.login.address)
            await here.until(lambda: list(here.states().values()) == ["ready"])
        (hop,) = await route(spec)
        assert hop.command is not None
        assert f"virtualMachines/{spec.name} {here.settings.azure.ssh_port}" in hop.command
    lines = said.read_text()
    assert "'--name', 'hub', '--resource-group', 'network', '--target-resource-id', '/subscriptions/" in lines


@pytest.mark.parametrize(
    ("azure", "reason"),
    [
        ("EVALFLEET_AZURE_PROXY_COMMAND=walk {hots}", "knows {host}, {port} and {resource_id}"),
        ("EVALFLEET_AZURE_PROXY_COMMAND=walk {host", "knows {host}, {port} and {resource_id}"),
        ("EVALFLEET_AZURE_PROXY_COMMAND=walk {host} EVALFLEET_AZURE_JUMP=me@there", "name one of them"),
    ],
)
def test_a_command_that_cannot_be_is_refused_at_once(tmp_path: Path, azure: str, reason: str):
    environ = {"EVALFLEET_AZURE_SUBSCRIPTION": "s"}
    first, _, jump = azure.partition(" EVALFLEET_AZURE_JUMP=")
    environ |= dict([first.split("=", 1)]) | ({"EVALFLEET_AZURE_JUMP": jump} if jump else {})
    with pytest.raises(ConfigError, match=reason.replace("{", r"\{").replace("}", r"\}")):
        settings.of(config.load(tmp_path, environ=environ, folder=tmp_path))


async def test_the_example_says_what_is_wrong(tmp_path: Path):
    env = {**os.environ, "PATH": str(tmp_path)}
    az = tmp_path / "az"
    az.write_text("#!/bin/sh\necho Please run az login >&2\nexit 1\n")
    az.chmod(0o755)
    command = [sys.executable, str(EXAMPLE), "hub", "network", "/id", "22"]
    done = await anyio.run_process(command, env=env, check=False)
    assert done.returncode == 1
    assert b"Please run az login" in done.stderr
    assert b"run `az network bastion tunnel` by hand" in done.stderr
