"""Where things lie below the home folder. Pure path arithmetic; nothing here touches the disk."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from msgspec import Struct

_SLUG = 40


def task_folder_name(key: str) -> str:
    """A folder name for any key: a readable slug and a hash, so that no key leaves its folder or meets another's."""
    import hashlib  # brings OpenSSL, which `status` does without

    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", key)[:_SLUG].strip("-")
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{slug}-{digest}" if slug else digest


class Home(Struct, frozen=True):
    """The folder that holds the database, the local runner's spool and the files of all runs."""

    path: Path
    id: str | None = None  # where somebody acts for it
    former: tuple[str, ...] = ()  # ids of homes whose place it took

    @property
    def claim(self) -> dict[str, Any]:
        """What a runner is told of it, so that no copy of it acts for its runs."""
        return {} if self.id is None else {"home": self.id, "former": list(self.former)}

    @property
    def spool(self) -> Path:
        """The local runner's own folder."""
        return self.path / "spool"

    @property
    def known_hosts(self) -> Path:
        """Keys of SSH hosts that were learned on first use."""
        return self.path / "known_hosts"

    @property
    def cache(self) -> Path:
        """Copies of files that lie elsewhere."""
        return self.path / "cache"

    @property
    def prices(self) -> Path:
        """Refreshed prices of rented machines."""
        return self.path / "prices.json"

    @property
    def sizes(self) -> Path:
        """What a cloud told of sizes of machines that the package does not know."""
        return self.path / "sizes.json"

    @property
    def session_key(self) -> Path:
        """What the sessions of browsers at this home's server are signed with."""
        return self.path / "session.key"

    @property
    def login_key(self) -> Path:
        """Private half of the key with which we log in to machines that we make."""
        return self.path / "keys" / "login"

    @property
    def mailbox_key(self) -> Path:
        """The secret of the identity with which this home commands machines that cannot be called."""
        return self.path / "keys" / "mailbox"

    def registry_file(self, pool: str) -> Path:
        """What other tools may read of a pool."""
        return self.path / "pools" / pool / "vm_pool_registry.json"

    def run(self, run_id: str) -> Path:
        return self.path / "runs" / run_id

    def machine_logs(self, run_id: str, host: str) -> Path:
        """The logs of a machine that failed while the run used it: a numbered folder for each time."""
        return self.run(run_id) / "machines" / host

    def pool_machine_logs(self, pool: str, host: str) -> Path:
        """The logs of a machine that failed while no run used its pool."""
        return self.path / "pools" / pool / "machines" / host

    def live_file(self, run_id: str) -> Path:
        return self.run(run_id) / "parallel_live.json"

    def attempt(self, run_id: str, key: str, number: int) -> Path:
        """The collected files of one attempt: journal.jsonl, stdout.log, stderr.log, result.json, artifacts/ ..."""
        return self.run(run_id) / task_folder_name(key) / str(number)

    def spooled(self, attempt_id: str) -> Path:
        """The files of a local attempt that is not collected yet."""
        return self.spool / "attempts" / attempt_id
