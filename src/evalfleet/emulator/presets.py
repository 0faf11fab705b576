"""Fault presets by name: Azure's errors, defects of hosts, and failures of Docker."""

from __future__ import annotations

from msgspec import Struct


class Preset(Struct, frozen=True):
    """How Azure words an error; `late` ones are accepted first, and fail when the operation ends."""

    status: int
    code: str
    message: str
    late: bool = False
    hangs: bool = False  # it is accepted, and never ends
    detail: str = ""


def _late(code: str, message: str) -> Preset:
    return Preset(200, code, message, late=True)


PRESETS: dict[str, Preset] = {
    "sku_not_available": Preset(
        409,
        "SkuNotAvailable",
        "The requested VM size for resource 'Following SKUs have failed for Capacity Restrictions: {size}' is "
        "currently not available in location '{location}'. Please try another size or deploy to a different location "
        "or different zone. See https://aka.ms/azureskunotavailable for details.",
    ),
    "allocation_failed": _late(
        "AllocationFailed",
        "Allocation failed. We do not have sufficient capacity for the requested VM size in this region. Read "
        "more about improving likelihood of allocation success at http://aka.ms/allocation-guidance",
    ),
    "zonal_allocation_failed": _late(
        "ZonalAllocationFailed",
        "Allocation failed. We do not have sufficient capacity for the requested VM size in this zone.",
    ),
    "overconstrained": _late(
        "OverconstrainedAllocationRequest",
        "Allocation failed. VM(s) with the following constraints cannot be allocated, because the condition is "
        "too restrictive. Constraints applied are: - Low Priority VMs - Networking Constraints - VM Size",
    ),
    "os_provisioning_timed_out": _late(
        "OSProvisioningTimedOut", "OS Provisioning for VM '{name}' did not finish in the allotted time."
    ),
    "internal_operation_error": _late("InternalOperationError", "An internal operation error occurred."),
    "hangs": Preset(200, "", "", late=True, hangs=True),
    "internal_execution_error": _late(
        "InternalExecutionError", "An internal execution error occurred. Please retry later."
    ),
    "networking_internal_error": _late(
        "NetworkingInternalOperationError",
        "An unexpected error occured while processing the network profile of the VM. Please retry later.",
    ),
    "address_quota": Preset(
        400,
        "PublicIPCountLimitReached",
        "Cannot create more than 10 public IP addresses for this subscription in this region.",
    ),
    "subnet_in_use": Preset(400, "InUseSubnetCannotBeDeleted", "Subnet workers is in use and cannot be deleted."),
    "disallowed_by_policy": Preset(
        403,
        "RequestDisallowedByPolicy",
        "Resource '{name}' was disallowed by policy. Policy identifiers: 'Network interfaces should not have "
        "public IPs'.",
    ),
    "locked": Preset(
        409,
        "ScopeLocked",
        "The scope cannot perform delete operation because following scope(s) are locked. Please remove the lock "
        "and try again.",
    ),
    "throttled": Preset(
        429,
        "OperationNotAllowed",
        "The server rejected the request because too many requests have been received for this subscription.",
        detail="TooManyRequests",
    ),
    "server_error": Preset(500, "InternalServerError", "Encountered an internal server error."),
    "unavailable": Preset(503, "ServerTimeout", "The request timed out. Please retry."),
    "storage_outage": Preset(503, "ServerBusy", "The server is currently unable to receive requests."),
    "sas_expired": Preset(
        403,
        "AuthenticationFailed",
        "Server failed to authenticate the request. Make sure the value of the Authorization header is formed correctly "
        "including the signature.",
    ),
    "authorization_failed": Preset(
        403,
        "AuthorizationFailed",
        "The client does not have authorization to perform the action over the scope, or the scope is invalid.",
    ),
    "resource_not_found": Preset(404, "ResourceNotFound", "The Resource '{name}' under resource group was not found."),
    "group_not_found": Preset(404, "ResourceGroupNotFound", "Resource group could not be found."),
    "core_quota_reached": _late("AccountCoreQuotaReached", "The specified account has reached core quota."),
    "conflict": Preset(
        409, "AnotherOperationInProgress", "Another operation on this or a dependent resource is in progress."
    ),
    "spot_price": Preset(
        409,
        "SpotPriceGreaterThanProvidedMaxPrice",
        "Unable to perform operation since the provided max price is lower than the current spot price.",
    ),
}


class Defect(Struct, frozen=True, kw_only=True):
    """Of "host.boot": how a machine is, from this start on. `seconds` where the fault names none."""

    meaning: str
    ssh: bool = False  # keeps SSH from working
    seconds: float = 0.0


BOOT: dict[str, Defect] = {
    "no_ssh": Defect(meaning="SSH is refused for ever", ssh=True),
    "mute_ssh": Defect(meaning="SSH accepts, and never says anything", ssh=True),
    "wrong_host_key": Defect(meaning="the host shows a key that is not ours", ssh=True),
    "no_kvm": Defect(meaning="KVM is not usable"),
    "disk_full": Defect(meaning="the disk is full, and nothing helps"),
    "disk_full_of_images": Defect(meaning="Docker's leftovers fill the disk; `docker system prune` frees it"),
    "clock_skew": Defect(meaning="the clock is ahead by `seconds`", seconds=600.0),
    "slow_host": Defect(meaning="every byte takes `seconds` each way", seconds=5.0),
    "docker_down": Defect(meaning="Docker's daemon does not answer"),
}


class DockerFailure(Struct, frozen=True, kw_only=True):
    """Of "host.docker": what the command says, and its exit status. `{image}` is the one that it names."""

    stderr: str = ""
    exit: int = 1


_SPACE = "failed to register layer: write /var/lib/docker/tmp/layer: no space left on device"
DOCKER: dict[str, DockerFailure] = {
    "pull_fails": DockerFailure(
        stderr='Error response from daemon: Get "https://registry-1.docker.io/v2/": net/http: request canceled while '
        "waiting for connection (Client.Timeout exceeded while awaiting headers)"
    ),
    "pull_denied": DockerFailure(
        stderr="Error response from daemon: pull access denied for {image}, repository does not exist or may require "
        "'docker login': denied: requested access to the resource is denied"
    ),
    "pull_fills_disk": DockerFailure(stderr=_SPACE),
    "login_denied": DockerFailure(
        stderr="Error response from daemon: login attempt failed with status: 401 Unauthorized"
    ),
    "container_dies": DockerFailure(exit=0),  # it starts, and dies `seconds` later
}
NO_SPACE = DockerFailure(stderr=_SPACE)
