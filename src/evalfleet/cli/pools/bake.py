"""`evalfleet pool bake`."""

from __future__ import annotations

from contextlib import closing

import click

from evalfleet.answers.machines import BakedImage
from evalfleet.cli.pools.shared.options import worker_option
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option, pool_argument


@click.command("bake")
@pool_argument
@worker_option
@click.option("--image", default="golden", show_default=True, metavar="NAME", help="Name of the image.")
@json_option
@home_option
def command(name: str | None, worker: str | None, image: str, as_json: bool, home: str | None) -> int:
    """Create a golden image from a prepared machine; `evalfleet pool create … --image golden` uses it.

    The machine is not changed. Without --worker, the machine with the least work is used. An image
    costs storage until it is deleted. NAME may be left out when there is one pool.
    """
    import anyio

    from evalfleet import config
    from evalfleet.cli.pools.shared.apply import meant
    from evalfleet.errors import WrongState
    from evalfleet.model import HostState
    from evalfleet.operations.machines.pools import machines
    from evalfleet.pools.cloud.images import bake
    from evalfleet.store.open import open_store

    settings = config.load(home)
    with closing(open_store(settings.home)) as store:
        pool = meant(store, name)
        names, loads = machines(store, pool, worker), store.hosts.live_counts()
        ready = [
            host for host in store.hosts.of_pool(pool.name) if host.name in names and host.state is HostState.READY
        ]
    if not ready:
        raise WrongState(
            f"pool {pool.name!r} has no machine that is ready to be baked; `evalfleet pool status` shows why"
        )
    host = min(ready, key=lambda one: loads.get(one.name, 0))

    def tell(line: str) -> None:
        if not as_json:
            click.echo(line)

    baked = anyio.run(bake, settings, pool, host, image, tell)
    if as_json:
        print_document(BakedImage(image=baked.name, version=baked.version, id=baked.id, source=host.name))
    else:
        click.echo(
            f"image {baked.name} {baked.version} is ready; `evalfleet pool create NAME … --image {baked.name}` uses it"
        )
    return 0
