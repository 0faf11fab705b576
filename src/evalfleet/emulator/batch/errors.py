"""The shape of errors of Azure Batch's data plane, which is not that of Resource Manager."""

from __future__ import annotations

from evalfleet.emulator.arm.protocol import ArmError, Body

# How Batch calls what the fault presets word as Resource Manager does, by status.
_CODES = {
    401: "Unauthenticated",
    403: "PermissionDenied",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServerBusy",
}


class BatchError(ArmError):
    """An answer of the data plane that is an error."""

    def body(self) -> Body:
        return {"code": self.code, "message": {"lang": "en-US", "value": self.message}}


def as_batch(error: ArmError) -> BatchError:
    """The same refusal in the words of Batch."""
    return BatchError(error.status, _CODES.get(error.status, error.code), error.message, headers=error.headers)


def not_found(kind: str, name: str) -> BatchError:
    return BatchError(404, f"{kind}NotFound", f"The specified {kind.lower()} does not exist: {name}.")


def exists(kind: str, name: str) -> BatchError:
    return BatchError(409, f"{kind}Exists", f"The specified {kind.lower()} already exists: {name}.")
