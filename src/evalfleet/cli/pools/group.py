"""`evalfleet pool`: a group; its commands lie in `evalfleet.cli.pools`."""

from __future__ import annotations

from evalfleet.cli.lazy_group import subgroup

COMMANDS: dict[str, str] = {
    "create": "Create a pool of existing machines or of new VMs.",
    "list": "List the pools.",
    "status": "Show a pool's hosts: workers, price, and what runs there.",
    "prepare": "Prepare the hosts of a pool, check by check.",
    "logs": "Show the logs of a pool's hosts.",
    "ssh": "Open a shell on a host, or run one command there.",
    "exec": "Run a command on all hosts at the same time.",
    "vnc": "Show the screens of hosts in a browser.",
    "tunnel": "Forward a port of a host to this machine.",
    "screenshot": "Save a screenshot of a host.",
    "scale": "Change the size or the limits of a pool.",
    "images": "List golden images and what they cost, or delete one.",
    "stop": "Deallocate the machines of a pool; disks stay.",
    "start": "Start the stopped machines of a pool.",
    "settle": "Finish changes that were interrupted.",
    "bake": "Create a golden image from a prepared machine.",
    "delete": "Delete a pool and the machines created for it.",
}

command = subgroup(
    "pool",
    "evalfleet.cli.pools",
    COMMANDS,
    held={"list": "status", **dict.fromkeys(("scale", "stop", "start", "settle"), "change")},
    help="Manage named sets of machines; `evalfleet run … --pool NAME` uses one.",
)
