"""A real PostgreSQL server of the tests' own: in a temporary folder, on a Unix socket, without waiting for the disk."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import psycopg
import pytest

from evalfleet.store.home import place

_USER = "evalfleet"
_OPTIONS = {
    "listen_addresses": "",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "128MB",
}
# Faster than to drop the schema and to make its tables again.
_CLEAR = """
do $$
declare one record;
begin
    set local session_replication_role = replica;
    set local search_path = {schema};
    for one in select tablename from pg_tables where schemaname = '{schema}' and tablename not in ('schema_version', 'gpu_turn') loop
        execute format('delete from %I', one.tablename);
    end loop;
    for one in select sequencename from pg_sequences where schemaname = '{schema}' loop
        execute format('alter sequence %I restart', one.sequencename);
    end loop;
end $$
"""


def _bin() -> Path | None:
    """The newest server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if found:
        return found[-1]
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def _as_user(*command: str | Path) -> list[str]:
    """PostgreSQL refuses to run as root. What we start ends with us, however we end."""
    drop = ["--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    return ["setpriv", *drop, "--pdeathsig=QUIT", *map(str, command)]


class Server:
    def __init__(self, folder: Path, programs: Path, connections: int, *, durable: bool) -> None:
        self.folder = folder
        self._options = _OPTIONS | {"max_connections": str(connections), "fsync": "on" if durable else "off"}
        self._programs = programs
        self._numbers = count(1)
        self._free: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        how = ["-A", "trust", "-U", _USER, "--no-sync", "--no-instructions", "-E", "UTF8", "--locale=C"]
        made = subprocess.run(
            _as_user(self._programs / "initdb", "-D", self.folder / "data", *how),
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr

    def start(self) -> None:
        options = [f"-c{name}={value}" for name, value in self._options.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                _as_user(self._programs / "postgres", "-D", self.folder / "data", "-k", self.folder, *options),
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 60
        while True:
            with suppress(psycopg.OperationalError):
                self.admin("select 1")
                return
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.02)

    def stop(self, how: int = signal.SIGQUIT) -> None:
        """Stop it like a crash (`pg_ctl stop -m immediate`)."""
        if self._process is not None:
            # The child is the server itself: setpriv becomes it.
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, schema: str, database: str = "postgres") -> str:
        return f"postgresql://{_USER}@/{database}?host={self.folder}&options=-csearch_path%3D{schema}"

    def admin(self, *statements: str, database: str = "postgres") -> None:
        with psycopg.connect(
            host=str(self.folder), user=_USER, dbname=database, autocommit=True, connect_timeout=20
        ) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    @contextmanager
    def schema(self) -> Generator[str]:
        """An empty schema: a new one, or one that another test has left."""
        name = self._free.pop() if self._free else f"store_{next(self._numbers)}"
        self.admin(f"create schema if not exists {name}")
        yield name
        self.admin(_CLEAR.format(schema=name))
        self._free.append(name)

    def cut(self) -> int:
        """End all connections of stores, as a broken network does. Returns how many there were."""
        with psycopg.connect(host=str(self.folder), user=_USER, dbname="postgres", autocommit=True) as connection:
            found = connection.execute(
                "select pg_terminate_backend(pid, 20000) from pg_stat_activity where application_name = 'evalfleet'"
            )
            return len(found.fetchall())

    @contextmanager
    def home(self, path: Path) -> Generator[Path]:
        """A home whose store lies in a schema of its own."""
        with self.schema() as schema:
            path.mkdir(parents=True, exist_ok=True)
            place.point(path, self.url(schema))
            yield path


@contextmanager
def running(connections: int = 60, *, durable: bool = False) -> Generator[Server]:
    """A server of its own. Most tests share that of the fixture `postgres`.

    Args:
        durable: it waits for the disk, as a real one does.
    """
    programs = _bin()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: scripts/postgres")
    with tempfile.TemporaryDirectory(prefix="ef-pg-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(folder, user.pw_uid, user.pw_gid)
        Path(folder).chmod(0o755)
        server = Server(Path(folder), programs, connections, durable=durable)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
