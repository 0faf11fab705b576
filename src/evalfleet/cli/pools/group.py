"""`evalfleet pool`: a group; its commands lie in `evalfleet.cli.pools`."""

from __future__ import annotations

from evalfleet.cli.lazy_group import subgroup

COMMANDS: dict[str, str] = {
    "create": "Make a pool: of machines that exist, or of VMs that are made now.",
    "list": "List the pools.",
    "status": "Show a pool's hosts: workers, price, and what runs there.",
    "prepare": "Make its hosts ready, check by check.",
    "logs": "Show what happens on its hosts.",
    "ssh": "Open a shell on a host, or run one command there.",
    "exec": "Run a command on all hosts at the same time.",
    "vnc": "Look at the screens of hosts in a browser.",
    "tunnel": "Make a port of a host a port of this machine.",
    "screenshot": "Save what a host's screen shows.",
    "scale": "Give a pool another size, or other limits.",
    "stop": "Deallocate its machines; their disks stay.",
    "start": "Start them again.",
    "settle": "Go on with changes that were not finished.",
    "bake": "Make a golden image of a prepared machine.",
    "delete": "Delete a pool, with the machines that we made.",
}

command = subgroup(
    "pool",
    "evalfleet.cli.pools",
    COMMANDS,
    help="Keep named sets of machines for runs: `evalfleet run … --pool NAME` uses them.",
)
