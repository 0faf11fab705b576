"""`evalfleet pool images`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from evalfleet.answers.machines import ImageFacts, ImageList
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evalfleet.config import Settings
    from evalfleet.pools.cloud.records import KeptImage


@click.command("images")
@click.option("--delete", "gone", metavar="NAME[:VERSION]", help="Delete an image, or one version of it.")
@json_option
@home_option
def command(gone: str | None, as_json: bool, home: str | None) -> int:
    """List golden images, what they cost a month, and copies of disks that were left; or delete an image.

    Machines that were created from an image do not need it any more. `evalfleet reap` deletes what was left of images that failed.
    """
    import anyio

    from evalfleet import config

    settings = config.load(home)
    found = anyio.run(_asked, settings, gone)
    if as_json:
        print_document(ImageList(images=[_facts(each) for each in found], deleted=gone))
        return 0
    if gone is not None:
        click.echo(f"image {gone} is deleted")
    for each in found:
        left = "  left over: `evalfleet reap` deletes it" if each.is_leftover else ""
        click.echo(
            f"{each.name} {each.version}  {each.kind}, {each.state}  {each.disk_gb or '?'} GB in {', '.join(each.regions)}  "
            f"at most ${each.usd_per_month:.2f} a month{left}"
        )
    total = sum(each.usd_per_month for each in found)
    click.echo(f"in all at most ${total:.2f} a month" if found else "there is no image")
    return 0


def _facts(each: KeptImage) -> ImageFacts:
    return ImageFacts(
        name=each.name,
        version=each.version,
        kind=each.kind,
        state=each.state,
        owner=each.owner,
        regions=list(each.regions),
        disk_gb=each.disk_gb,
        usd_per_month=round(each.usd_per_month, 2),
        leftover=each.is_leftover,
    )


async def _asked(settings: Settings, gone: str | None) -> Sequence[KeptImage]:
    from evalfleet.errors import NotFound
    from evalfleet.layout import Home
    from evalfleet.pools.cloud.protocol import KeepsImages
    from evalfleet.pools.kinds.registry import clouds

    found: list[KeptImage] = []
    deleted = False
    for kind in clouds(skip_broken=True):
        if not kind.provider.is_configured(settings):
            continue
        async with kind.provider.open(settings, Home(settings.home)) as cloud:
            if not isinstance(cloud, KeepsImages):
                continue
            if gone is not None:
                name, _, version = gone.partition(":")
                known = [each for each in await cloud.images() if each.name == name and version in ("", each.version)]
                if known:
                    await cloud.delete_image(name, version or None)
                    deleted = True
            found += await cloud.images()
    if gone is not None and not deleted:
        raise NotFound(f"there is no image {gone!r}; `evalfleet pool images` lists them")
    return found
