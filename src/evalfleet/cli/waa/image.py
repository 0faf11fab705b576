"""`evalfleet waa image`: golden images of this machine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalfleet.answers.base import Answer
from evalfleet.benchmarks.waa.golden.manifest import Golden
from evalfleet.cli.shared.document import document, print_answer
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.benchmarks.waa.settings import WaaSettings

NOT_READY = 3
_name = click.argument("name")


class GoldenImage(Answer, frozen=True, kw_only=True):
    """One image, and where it lies."""

    folder: str
    image: Golden


class GoldenImages(Answer, frozen=True, kw_only=True):
    images: list[GoldenImage]


class Verified(Answer, frozen=True, kw_only=True):
    name: str
    holds: bool
    differences: list[str]


@click.group("image")
def image() -> None:
    """Build, check and store golden images: prepared disks of Windows.

    They lie in the folder that [waa] images names. Containers take one by [waa] golden = "NAME".
    """


@image.command("build")
@_name
@click.option("--iso", metavar="PATH|URL", help="ISO of Windows 11 Enterprise.  [default: the container downloads it]")
@click.option("--accept-eula", is_flag=True, help="You have read and accept the licence terms of Windows.")
@click.option("--to", metavar="URL", help="Also store it in this blob container; the address carries a signature.")
@json_option
@home_option
def build(name: str, iso: str | None, accept_eula: bool, to: str | None, as_json: bool, home: str | None) -> int:
    """Install Windows for WAA once, on this machine, and keep its disk. Takes 20 to 60 minutes and 45 GB.

    Every stage has a deadline. If one fails, a picture of the screen and the container's log are kept, and the exit code is 3.
    """
    from evalfleet.benchmarks.waa.golden.build import Build, BuildFailed, Order
    from evalfleet.benchmarks.waa.golden.transfer import store_golden
    from evalfleet.benchmarks.waa.readiness import Means, host_checks
    from evalfleet.cli.machines.prepare import show_check, show_update

    waa = _settings(home)
    for check in host_checks(waa, Means(say=show_update, secrets={})):
        show_check(check, as_json)
        if not check.holds:
            return NOT_READY
    folder = _folder(waa, name)
    order = Order(name=name, folder=folder, iso=iso, accept_eula=accept_eula, install_s=waa.install_timeout_s)
    try:
        made = Build(waa, order, lambda check: show_check(check, as_json), show_update, poll_s=waa.poll_s).run()
    except BuildFailed as error:
        if error.stage in ("licence", "folder"):
            raise click.UsageError(f"{error.seen}; {error.remedy}.") from None
        return NOT_READY
    if to is not None:
        store_golden(folder, made, to, show_update)
    print_answer(as_json, GoldenImage(folder=str(folder), image=made), f"golden image {name} is ready in {folder}")
    return 0


@image.command("list")
@json_option
@home_option
def list_images(as_json: bool, home: str | None) -> None:
    """List the golden images of this machine."""
    from evalfleet.benchmarks.waa.golden import manifest

    waa = _settings(home)
    parent = _images(waa)
    folders = sorted(parent.iterdir()) if parent.is_dir() else []
    found = [(folder, read) for folder in folders if (read := manifest.read(folder)) is not None]
    if as_json:
        click.echo(document(GoldenImages(images=[GoldenImage(folder=str(path), image=one) for path, one in found])))
        return
    for folder, one in found:
        click.echo(f"{one.name:<20} {one.bytes / 1e9:6.1f} GB  {one.created_at[:10]}  {folder}")
    if not found:
        click.echo(f"there is no golden image in {parent}; `evalfleet waa image build NAME` makes one")


@image.command("show")
@_name
@json_option
@home_option
def show(name: str, as_json: bool, home: str | None) -> None:
    """Show how an image was made, and its files."""
    folder, golden = _found(home, name)
    lines = [
        f"{golden.name}: {golden.bytes / 1e9:.1f} GB in {folder}",
        f"made       {golden.created_at} by evalfleet {golden.evalfleet}",
        f"container  {golden.digest or golden.image}",
        f"Windows    {golden.iso or 'downloaded by the container'}"
        + (f", SHA-256 {golden.iso_sha256}" if golden.iso_sha256 else ""),
        f"programs   {', '.join(golden.programs)}",
        f"stages     {', '.join(f'{stage} {took:.0f} s' for stage, took in golden.stages_s.items())}",
        *(f"file       {file.name} {file.bytes} {file.sha256}" for file in golden.files),
    ]
    print_answer(as_json, GoldenImage(folder=str(folder), image=golden), "\n".join(lines))


@image.command("verify")
@_name
@json_option
@home_option
def verify(name: str, as_json: bool, home: str | None) -> int:
    """Read all files of an image and compare their hashes. Exit code 3: something is not as it was."""
    from evalfleet.benchmarks.waa.golden import manifest

    folder, golden = _found(home, name)
    wrong = manifest.differences(folder, golden)
    text = "\n".join(wrong) or f"{name}: all {len(golden.files)} files are as they were made"
    print_answer(as_json, Verified(name=name, holds=not wrong, differences=wrong), text)
    return NOT_READY if wrong else 0


@image.command("store")
@_name
@click.argument("url")
@json_option
@home_option
def store(name: str, url: str, as_json: bool, home: str | None) -> None:
    """Put an image into a blob container. Pools in that region bring it from there by [waa] golden_from."""
    from evalfleet.benchmarks.waa.golden.transfer import shown, store_golden
    from evalfleet.cli.machines.prepare import show_update

    folder, golden = _found(home, name)
    store_golden(folder, golden, url, show_update)
    said = f"golden image {name} is stored in {shown(url)}"
    print_answer(as_json, GoldenImage(folder=shown(url), image=golden), said)


@image.command("delete")
@_name
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@home_option
def delete(name: str, yes: bool, as_json: bool, home: str | None) -> None:
    """Delete an image from this machine."""
    folder, golden = _found(home, name)
    if not yes:
        click.confirm(f"Delete {golden.bytes / 1e9:.1f} GB in {folder}?", abort=True)
    shutil.rmtree(folder)
    print_answer(as_json, GoldenImage(folder=str(folder), image=golden), f"golden image {name} is deleted")


def _settings(home: str | None) -> WaaSettings:
    from evalfleet import config
    from evalfleet.benchmarks.waa.settings import WaaSettings

    return config.load(home).table("waa", WaaSettings)


def _images(waa: WaaSettings) -> Path:
    return Path(waa.images).expanduser().absolute()


def _folder(waa: WaaSettings, name: str) -> Path:
    import re

    if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}", name, re.ASCII):
        raise click.UsageError(f"{name!r} is not a name: letters, digits, - and _ are allowed.")
    return _images(waa) / name


def _found(home: str | None, name: str) -> tuple[Path, Golden]:
    from evalfleet.benchmarks.waa.golden import manifest
    from evalfleet.errors import NotFound

    folder = _folder(_settings(home), name)
    golden = manifest.read(folder)
    if golden is None:
        raise NotFound(f"there is no golden image {name!r} in {folder.parent}; `evalfleet waa image list` shows them")
    return folder, golden
