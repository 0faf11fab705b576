"""How to reach Azure, or the emulator that stands in for it: the only place that knows of loopback.

Everything else takes an `AzureSettings` and never asks which of the two it talks to.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from msgspec import Struct

from evalfleet import config
from evalfleet.errors import ConfigError

ARM_URL = "https://management.azure.com"
# Clouds that Microsoft runs apart from the public one: where each is managed, and who signs in to it.
CLOUDS = {
    "public": (ARM_URL, None),
    "usgov": ("https://management.usgovcloudapi.net", "https://login.microsoftonline.us"),
    "china": ("https://management.chinacloudapi.cn", "https://login.chinacloudapi.cn"),
}
AUTHORITIES = tuple(authority for _, authority in CLOUDS.values() if authority)
MONITOR_SUFFIXES = {
    CLOUDS["public"][0]: "metrics.monitor.azure.com",
    CLOUDS["usgov"][0]: "metrics.monitor.azure.us",
    CLOUDS["china"][0]: "metrics.monitor.azure.cn",
}
BLOB_SUFFIXES = {
    "public": "blob.core.windows.net",
    "usgov": "blob.core.usgovcloudapi.net",
    "china": "blob.core.chinacloudapi.cn",
}
BATCH_AUDIENCE = "https://batch.core.windows.net"
BATCH_AUDIENCES = {
    "https://management.usgovcloudapi.net": "https://batch.core.usgovcloudapi.net",
    "https://management.chinacloudapi.cn": "https://batch.chinacloudapi.cn",
}
ECHO_URL = "https://api.ipify.org"
PRICES_URL = "https://prices.azure.com"
EMULATOR_SUBSCRIPTION = "00000000-0000-0000-0000-0000000e0001"
DEFAULT_REGIONS = ("eastus", "westus2", "centralus", "eastus2")
ADMIN_USER = "evalfleet"
PRIVATE = "VirtualNetwork"  # Azure's word for all that is inside a virtual network, and what it is peered with


class AzureSettings(Struct, frozen=True, kw_only=True):
    """Addresses and manners of one cloud. Holds no secret: credentials come from `azure-identity`."""

    subscription: str
    resource_group: str = "evalfleet"
    workspace: str | None = None  # of Azure ML
    arm_url: str = ARM_URL
    prices_url: str = PRICES_URL
    ssh_port: int = 22
    ssh_from: str | None = None  # the only networks that may reach our machines, with commas between them
    signed: bool = True  # False: any bearer token will do, and plain HTTP is no danger
    authority: str | None = None  # who signs us in; None: Microsoft
    certificate: str | None = None  # file of the only certificates that are trusted; None: those of this machine
    poll_s: float = 5.0  # between two looks at a long operation, where the cloud names no time
    public_ip: bool = True  # False: the machines have private addresses only
    subnets: dict[str, str] = {}  # region -> id of a subnet that is there already, in the place of one of ours
    jump: str | None = None  # user@address[:port] through which the machines are reached
    proxy_command: str | None = None  # a program that carries SSH to a machine
    identity: str | None = None  # id of a managed identity that the machines have
    storage: str | None = None  # address of the storage account that carries messages of machines we cannot call
    tags: dict[str, str] = {}  # that everything we make carries besides our own
    budget_emails: tuple[str, ...] = ()  # that Azure itself notifies of what a pool costs
    zone: str | None = None  # availability zone, by number
    accelerated: bool | None = None  # accelerated networking; None: Azure's own choice
    batch_account: str | None = None  # the name of the Batch account
    echo_url: str = ECHO_URL  # tells under which address this machine is seen
    speed: float = 1.0  # cloud seconds per second of this machine's clock

    @property
    def scope(self) -> str:
        """What a token must be for."""
        return f"{self.arm_url}/.default" if self.authority in (None, *AUTHORITIES) else f"{ARM_URL}/.default"

    @property
    def batch_scope(self) -> str:
        """What a token for Batch must be for."""
        return f"{BATCH_AUDIENCES.get(self.arm_url, BATCH_AUDIENCE)}/.default"

    def batch_url(self, endpoint: str) -> str:
        """The address of a Batch account, of which Azure tells the name of the host."""
        return f"{self.arm_url.partition('://')[0]}://{endpoint}"

    def monitor(self, region: str) -> tuple[str, str]:
        """Where the metrics of a region's machines are asked for, and what a token for it must be for."""
        suffix = MONITOR_SUFFIXES.get(self.arm_url)
        if suffix is None:
            return f"{self.arm_url}/monitor/{region}", self.scope
        return f"https://{region}.{suffix}", f"https://{suffix}/.default"

    def group_path(self) -> str:
        return f"/subscriptions/{self.subscription}/resourceGroups/{self.resource_group}"

    def workspace_path(self) -> str:
        """Of the Azure ML workspace. Raises ConfigError where none is named."""
        if self.workspace is None:
            raise ConfigError(
                "azure.workspace: not set; name the Azure ML workspace: export EVALFLEET_AZURE_WORKSPACE=NAME "
                "(`az ml workspace create` makes one)."
            )
        return f"{self.group_path()}/providers/Microsoft.MachineLearningServices/workspaces/{self.workspace}"

    def admitted(self) -> list[str]:
        """Return the networks that may reach our machines by SSH.

        Raises ConfigError where `ssh_from` is missing, or is no network.
        """
        if self.ssh_from is None and not self.public_ip:
            return [PRIVATE]
        if self.ssh_from is None:
            raise ConfigError(
                "azure.ssh_from: not set; name the public address of this machine as others see it "
                "(export EVALFLEET_AZURE_SSH_FROM=203.0.113.7/32), because nothing else may reach the VMs."
            )
        return [_network(part.strip()) for part in self.ssh_from.split(",") if part.strip()]


def _network(text: str) -> str:
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigError(f'azure.ssh_from: "{text}" is no address or network such as 203.0.113.7/32.') from None
    if network.version != 4:
        raise ConfigError(
            f'azure.ssh_from: "{text}" is an IPv6 address, and the VMs have IPv4 only; `curl -4 https://ifconfig.me` shows '
            "the IPv4 address of this machine."
        )
    if network.prefixlen == 0:
        raise ConfigError("azure.ssh_from: admits the whole Internet; name the address of this machine.")
    return str(network)


def of(settings: config.Settings) -> AzureSettings:
    """Return how to reach the cloud that the settings name.

    Raises ConfigError where the subscription, or the emulator's address, is missing.
    """
    if settings.azure.profile == "emulator":
        return _emulator(settings)
    if not settings.azure.subscription:
        raise ConfigError(
            "azure.subscription: not set; export EVALFLEET_AZURE_SUBSCRIPTION=$(az account show --query id -o tsv), "
            "or try it without an account: evalfleet emulator"
        )
    return AzureSettings(
        subscription=settings.azure.subscription,
        resource_group=settings.azure.resource_group,
        ssh_port=settings.azure.ssh_port,
        ssh_from=settings.azure.ssh_from,
        arm_url=CLOUDS[settings.azure.cloud][0],
        authority=CLOUDS[settings.azure.cloud][1],
        **_company(settings.azure),
    )


def reachable(settings: config.Settings) -> bool:
    """Whether the settings name a cloud at all, so that what is only nice to know can be left out where not."""
    return settings.azure.profile == "emulator" or bool(settings.azure.subscription)


def prices_url(settings: config.Settings) -> str:
    """Return the address of the price list, which needs no account."""
    return of(settings).prices_url if settings.azure.profile == "emulator" else PRICES_URL


def _emulator(settings: config.Settings) -> AzureSettings:
    url = settings.azure.emulator
    if not url:
        raise ConfigError(
            "azure.emulator: not set; start `evalfleet emulator`, and export the lines that it prints in this shell."
        )
    url = url.rstrip("/")
    secure = url.startswith("https:")
    return AzureSettings(
        subscription=settings.azure.subscription or EMULATOR_SUBSCRIPTION,
        resource_group=settings.azure.resource_group,
        arm_url=url,
        prices_url=url,
        ssh_port=settings.azure.ssh_port,
        ssh_from=settings.azure.ssh_from or "127.0.0.0/8",
        signed=secure,
        authority=url if secure else None,
        certificate=config.environment().get("SSL_CERT_FILE") if secure else None,
        poll_s=0.05,
        speed=settings.azure.speed or 1.0,
        echo_url=f"{url}/emulator/address",
        **_company(settings.azure),
    )


def _company(table: config.AzureTable) -> dict[str, Any]:
    """What the network and the rules of a company ask for."""
    for region, subnet in table.subnets.items():
        if "/subnets/" not in subnet:
            raise ConfigError(
                f'azure.subnets.{region}: "{subnet}" is no id of a subnet (/subscriptions/…/subnets/NAME).'
            )
    if not table.public_ip and not table.subnets:
        raise ConfigError(
            "azure.public_ip: without public addresses the machines must be in a network of yours; name a subnet for each "
            "region in [azure.subnets]."
        )
    for email in table.budget_emails:
        if "@" not in email:
            raise ConfigError(f'azure.budget_emails: "{email}" is no e-mail address.')
    return {
        "workspace": table.workspace,
        "budget_emails": tuple(table.budget_emails),
        "public_ip": table.public_ip,
        "subnets": table.subnets,
        "jump": table.jump,
        "proxy_command": _proxy_command(table),
        "identity": table.identity,
        "storage": _storage(table),
        "tags": table.tags,
        "batch_account": table.batch_account,
        "zone": table.zone,
        "accelerated": table.accelerated_networking,
    }


def _storage(table: config.AzureTable) -> str | None:
    if table.storage is None or table.storage.startswith(("https://", "http://127.0.0.1:")):
        return table.storage
    if table.profile == "emulator" and table.storage.startswith("/"):
        return table.storage  # a folder: the emulator's machines are processes of this one
    if not re.fullmatch(r"[a-z0-9]{3,24}", table.storage):
        raise ConfigError(
            f'azure.storage: "{table.storage}" is no name of a storage account (3 to 24 small letters and digits) and no '
            "https:// address of one."
        )
    return f"https://{table.storage}.{BLOB_SUFFIXES[table.cloud]}"


def _proxy_command(table: config.AzureTable) -> str | None:
    if table.proxy_command is None:
        return None
    if table.jump is not None:
        raise ConfigError("azure.proxy_command: there is azure.jump too; name one of them.")
    try:
        table.proxy_command.format(host="", port=0, resource_id="")
    except (KeyError, IndexError, ValueError):
        raise ConfigError(
            f'azure.proxy_command: "{table.proxy_command}" knows {{host}}, {{port}} and {{resource_id}} only; write {{{{ for {{.'
        ) from None
    return table.proxy_command
