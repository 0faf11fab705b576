"""The audit log: who did what to what, when and from where. Rows are only added; the database refuses anything else."""

from __future__ import annotations

from evalfleet.model import AuditRow, JsonObject
from evalfleet.store import rows
from evalfleet.store.database.base import Database
from evalfleet.store.filters import FAR


class AuditQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def page(
        self,
        *,
        before: int | None = None,
        limit: int = 100,
        user: str | None = None,
        operation: str | None = None,
        object: str | None = None,
    ) -> list[AuditRow]:
        """Newest first.

        Args:
            operation: a whole one, or one up to its dot: "run" for all that was done to runs.
        """
        pattern = None
        if operation is not None:
            plain = operation.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            pattern = plain if "." in operation else f"{plain}.%"
        found = self._db.rows(
            "select_audit",
            before=FAR if before is None else before,
            limit=limit,
            user_name=user,
            operation=pattern,
            object=object,
        )
        return [rows.record(AuditRow, row, detail=rows.from_json(row["detail"])) for row in found]


class Audit(AuditQueries):
    def add(
        self,
        user: str,
        operation: str,
        object: str | None,
        *,
        token: str | None = None,
        address: str = "local",
        outcome: str = "done",
        detail: JsonObject | None = None,
    ) -> None:
        """Write down what a user did, or tried to do and may not."""
        with self._db.transaction():
            self._db.rows(
                "insert_audit",
                now=self._db.now(),
                user_name=user,
                token=token,
                address=address,
                operation=operation,
                object=object,
                outcome=outcome,
                detail=rows.to_json(detail or {}),
            )
