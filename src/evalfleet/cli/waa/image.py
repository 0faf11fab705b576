"""`evalfleet waa image`: golden images of this machine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from evalfleet.cli.shared.document import document, print_answer
from evalfleet.cli.shared.options import home_option, json_option
from evalfleet.cli.waa.answers import GoldenImage, GoldenImages, Verified

if TYPE_CHECKING:
    from evalfleet.benchmarks.waa.settings import WaaSettings

NOT_READY = 3
_name = click.argument("name")


@click.group("image")
def image() -> None:
    """Build, check and store golden images: prepared disks of Windows.

    They lie in the folder that [waa] images names. Containers take one by [waa] golden = "NAME".
    """


@image.command("build")
@_name
@click.option("--iso", metavar="PATH|URL", help="ISO of Windows 11 Enterprise.  [default: the container downloads it]")
@click.option("--accept-eula", is_flag=True, help="You have read and accept the licence terms of Windows.")
@click.option("--to", metavar="URL", help="Store it in this blob container; WAA_GOLDEN_SAS holds the signature.")
@click.option(
    "--pool", metavar="NAME", help="Build on a machine of this pool; made and deleted again if there is none."
)
@click.option(
    "--bake", metavar="IMAGE", help="--pool: make a VM image of the machine, with Docker and the disk inside."
)
@click.option("--backend", metavar="KIND", help="--pool: where the machine comes from, such as azure-vm.")
@click.option("--size", metavar="SIZES", help="--backend: machine sizes, comma-separated, most preferred first.")
@click.option("--regions", metavar="REGIONS", help="--backend: regions, comma-separated, most preferred first.")
@click.option(
    "--max-hours", type=click.FloatRange(0.5, 720), help="--backend: stop after this time without a controller."
)
@json_option
@home_option
def build(
    name: str,
    iso: str | None,
    accept_eula: bool,
    to: str | None,
    pool: str | None,
    as_json: bool,
    home: str | None,
    **machine: Any,
) -> int:
    """Install Windows for WAA once, and keep its disk. Takes 20 to 60 minutes and 45 GB.

    Without --pool it is built on this machine. With it, the build survives this command: the same command follows it again.
    Every stage has a deadline. If one fails, a picture of the screen and the container's log are kept, and the exit code is 3.
    """
    waa = _settings(home)
    folder = _folder(waa, name)
    if pool is not None:
        return _on_pool(home, waa, as_json, name=name, pool=pool, iso=iso, to=to, accept_eula=accept_eula, **machine)
    wrong = next((option for option, value in machine.items() if value is not None), None)
    if wrong is not None:
        raise click.UsageError(f"--{wrong.replace('_', '-')} is for a machine of a --pool.")
    return _here(waa, name, folder, iso, to, accept_eula=accept_eula, as_json=as_json)


def _on_pool(
    home: str | None,
    waa: WaaSettings,
    as_json: bool,
    *,
    pool: str,
    backend: str | None,
    size: str | None,
    regions: str | None,
    max_hours: float | None,
    **request: Any,
) -> int:
    from evalfleet import config
    from evalfleet.cli.pools.shared.hosts import require_library
    from evalfleet.config.pools import PoolOptions

    require_library()
    from evalfleet.cli.waa.rented_build import BuildPool, GoldenRequest, build_on_pool

    options = PoolOptions(size=size, regions=regions, max_hours=max_hours)
    wanted = BuildPool(name=pool, backend=backend, options=options)
    return build_on_pool(config.load(home), waa, GoldenRequest(**request), wanted, as_json=as_json)


def _here(
    waa: WaaSettings, name: str, folder: Path, iso: str | None, to: str | None, *, accept_eula: bool, as_json: bool
) -> int:
    from evalfleet import config
    from evalfleet.benchmarks.waa.golden.attempt import ISO_SECRET
    from evalfleet.benchmarks.waa.golden.build import Build, BuildFailed, Order
    from evalfleet.benchmarks.waa.golden.transfer import signed, store_golden
    from evalfleet.benchmarks.waa.readiness import Means, host_checks
    from evalfleet.cli.machines.prepare import show_check, show_update

    for check in host_checks(replace(waa, golden=None), Means(say=show_update, secrets={})):
        show_check(check, as_json)
        if not check.holds:
            return NOT_READY
    environ = config.environment()
    source = iso and signed(iso, environ.get(ISO_SECRET))
    order = Order(name=name, folder=folder, iso=source, accept_eula=accept_eula, install_s=waa.install_timeout_s)
    try:
        made = Build(waa, order, lambda check: show_check(check, as_json), show_update, poll_s=waa.poll_s).run()
    except BuildFailed as error:
        if error.stage in ("licence", "folder"):
            raise click.UsageError(f"{error.seen}; {error.remedy}.") from None
        return NOT_READY
    if to is not None:
        store_golden(folder, made, signed(to, environ.get(waa.golden_secret)), show_update)
    print_answer(as_json, GoldenImage(folder=str(folder), image=made), f"golden image {name} is ready in {folder}")
    return 0


@image.command("list")
@json_option
@home_option
def list_images(as_json: bool, home: str | None) -> None:
    """List the golden images of this machine, and those that were built on rented ones."""
    from evalfleet.benchmarks.waa.golden import manifest
    from evalfleet.benchmarks.waa.golden.stored import stored_images

    parent = _images(_settings(home))
    folders = sorted(parent.iterdir()) if parent.is_dir() else []
    found = [
        GoldenImage(folder=str(folder), image=read) for folder in folders if (read := manifest.read(folder)) is not None
    ]
    found += map(GoldenImage.of_stored, stored_images(_home(home)))
    if as_json:
        click.echo(document(GoldenImages(images=found)))
        return
    for one in found:
        click.echo(f"{one.image.name:<20} {one.image.bytes / 1e9:6.1f} GB  {one.image.created_at[:10]}  {one.folder}")
    if not found:
        click.echo(f"there is no golden image in {parent}; `evalfleet waa image build NAME` makes one")


@image.command("show")
@_name
@json_option
@home_option
def show(name: str, as_json: bool, home: str | None) -> None:
    """Show how an image was made, and its files."""
    found = _found(home, name)
    golden = found.image
    lines = [
        f"{golden.name}: {golden.bytes / 1e9:.1f} GB in {found.folder}",
        f"made       {golden.created_at} by evalfleet {golden.evalfleet}" + (f", run {found.run}" if found.run else ""),
        f"container  {golden.digest or golden.image}",
        f"Windows    {golden.iso or 'downloaded by the container'}"
        + (f", SHA-256 {golden.iso_sha256}" if golden.iso_sha256 else ""),
        f"programs   {', '.join(golden.programs)}",
        f"stages     {', '.join(f'{stage} {took:.0f} s' for stage, took in golden.stages_s.items())}",
        *(f"file       {file.name} {file.bytes} {file.sha256}" for file in golden.files),
    ]
    print_answer(as_json, found, "\n".join(lines))


@image.command("verify")
@_name
@json_option
@home_option
def verify(name: str, as_json: bool, home: str | None) -> int:
    """Read all files of an image and compare their hashes. Exit code 3: something is not as it was.

    Of an image in a blob container the manifest and the sizes are compared; the hashes are when a machine brings it.
    """
    from evalfleet.benchmarks.waa.golden import manifest
    from evalfleet.benchmarks.waa.golden.transfer import differences_at, is_address

    found = _found(home, name)
    if is_address(found.folder):
        wrong = differences_at(_signed(home, found.folder), found.image)
    elif found.run is not None:
        raise click.UsageError(f"{name} is in {found.folder}; a machine of a pool with it shows whether it works.")
    else:
        wrong = manifest.differences(Path(found.folder), found.image)
    text = "\n".join(wrong) or f"{name}: all {len(found.image.files)} files are as they were made"
    print_answer(as_json, Verified(name=name, holds=not wrong, differences=wrong), text)
    return NOT_READY if wrong else 0


@image.command("store")
@_name
@click.argument("url")
@json_option
@home_option
def store(name: str, url: str, as_json: bool, home: str | None) -> None:
    """Put an image of this machine into a blob container. Pools in that region bring it from there by [waa] golden_from."""
    from evalfleet.benchmarks.waa.golden.transfer import shown, store_golden
    from evalfleet.cli.machines.prepare import show_update

    found = _found(home, name)
    if found.run is not None:
        raise click.UsageError(f"{name} is not on this machine, but in {found.folder}.")
    store_golden(Path(found.folder), found.image, _signed(home, url), show_update)
    said = f"golden image {name} is stored in {shown(url)}"
    print_answer(as_json, GoldenImage(folder=shown(url), image=found.image), said)


@image.command("delete")
@_name
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@home_option
def delete(name: str, yes: bool, as_json: bool, home: str | None) -> None:
    """Delete an image from this machine, or from the blob container in which its build stored it."""
    from evalfleet.benchmarks.waa.golden.stored import forget, remembered
    from evalfleet.benchmarks.waa.golden.transfer import delete_golden, is_address

    found = _found(home, name)
    if not yes:
        click.confirm(f"Delete {found.image.bytes / 1e9:.1f} GB in {found.folder}?", abort=True)
    if found.run is None:
        shutil.rmtree(found.folder)
    elif is_address(found.folder):
        delete_golden(_signed(home, found.folder), found.image)
    said = f"golden image {name} is deleted"
    record = remembered(_home(home), name) if found.run else None
    if record is not None:
        forget(_home(home), record)
        if record.baked:
            said += f"; `evalfleet pool images --delete {record.baked}` deletes the VM image that has it"
    print_answer(as_json, found, said)


def _settings(home: str | None) -> WaaSettings:
    from evalfleet import config
    from evalfleet.benchmarks.waa.settings import WaaSettings

    return config.load(home).table("waa", WaaSettings)


def _home(home: str | None) -> Path:
    from evalfleet import config

    return config.load(home).home


def _signed(home: str | None, address: str) -> str:
    from evalfleet import config
    from evalfleet.benchmarks.waa.golden.transfer import signed

    return signed(address, config.environment().get(_settings(home).golden_secret))


def _images(waa: WaaSettings) -> Path:
    return Path(waa.images).expanduser().absolute()


def _folder(waa: WaaSettings, name: str) -> Path:
    import re

    if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}", name, re.ASCII):
        raise click.UsageError(f"{name!r} is not a name: letters, digits, - and _ are allowed.")
    return _images(waa) / name


def _found(home: str | None, name: str) -> GoldenImage:
    """The image: of this machine, else one that was built on a rented one. Raises NotFound."""
    from evalfleet.benchmarks.waa.golden import manifest
    from evalfleet.benchmarks.waa.golden.stored import remembered
    from evalfleet.errors import NotFound

    folder = _folder(_settings(home), name)
    golden = manifest.read(folder)
    if golden is not None:
        return GoldenImage(folder=str(folder), image=golden)
    stored = remembered(_home(home), name)
    if stored is None or stored.deleted_at is not None:
        raise NotFound(f"there is no golden image {name!r} in {folder.parent}; `evalfleet waa image list` shows them")
    return GoldenImage.of_stored(stored)
