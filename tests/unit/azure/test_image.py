"""The bodies of images: by the library's models, and by the official OpenAPI files."""

from __future__ import annotations

from typing import Any

import pytest
from azure.mgmt.compute import models as compute
from tests.support import azure_bodies

from evalfleet.azure.requests import image
from evalfleet.azure.requests.image import ImageSpec
from evalfleet.errors import InputError

SPEC = ImageSpec(
    name="golden", owner="me", source_disk="/x/disks/d", source_region="eastus", regions=("westus2", "eastus")
)
BODIES: list[tuple[dict[str, Any], Any]] = [
    (image.gallery_body("eastus", "me"), compute.Gallery),
    (image.definition_body(SPEC), compute.GalleryImage),
    (image.snapshot_body(SPEC), compute.Snapshot),
    (image.version_body(SPEC, "/x/snapshots/s"), compute.GalleryImageVersion),
]


@pytest.mark.parametrize(("body", "model"), BODIES)
def test_bodies_fit_the_librarys_models(body: dict[str, Any], model: Any):
    assert list(azure_bodies.by_model(body, model)) == []


@pytest.mark.skipif(not azure_bodies.SPECS.exists(), reason="the official files are not here")
def test_the_snapshot_fits_the_official_schema():
    file, schema = azure_bodies.schema_of(azure_bodies.DISK / "snapshot.json", "Snapshot")
    assert list(azure_bodies.by_schema(image.snapshot_body(SPEC), file, schema)) == []


def test_a_version_is_where_its_source_is_and_each_region_is_named_once():
    targets = image.version_body(SPEC, "/x")["properties"]["publishingProfile"]["targetRegions"]
    assert [target["name"] for target in targets] == ["eastus", "westus2"]


def test_an_image_belongs_to_no_pool():
    for body, _ in BODIES:
        assert set(body["tags"]) <= {"evalfleet-image", "evalfleet-owner"}


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "a/b", "x" * 81])
def test_names_that_azure_refuses(name: str):
    with pytest.raises(InputError, match="begins and ends with a letter or digit"):
        image.check_name(name)
    assert image.check_name("waa-golden_1.2") == "waa-golden_1.2"


@pytest.mark.parametrize(
    ("known", "after"), [([], "1.0.0"), (["1.0.9", "1.0.10"], "1.0.11"), (["odd", "2.1.0", "1.9.9"], "2.1.1")]
)
def test_the_version_after(known: list[str], after: str):
    assert image.next_version(known) == after
