"""PostgreSQL and Redis as processes of this user, in a folder of their own, on loopback."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LOOPBACK = "127.0.0.1"
STARTING_S = 60.0


class MissingServiceError(Exception):
    """A program is not installed; the message says how to get it."""


@dataclass(frozen=True)
class PostgreSQL:
    """A server with a superuser `postgres`, who has a password.

    Attributes
    ----------
    folder : absolute path of its data
    """

    folder: Path
    port: int
    password: str = field(repr=False)

    def start(self) -> None:
        """Start the server, and wait until it answers; it outlives this process until `stop`."""
        where = f"-p {self.port} -c listen_addresses={LOOPBACK} -c unix_socket_directories={self.folder} -c fsync=off"
        self._control("start", "-l", str(self.folder / "server.log"), "-o", where)

    def stop(self) -> None:
        """Stop the server; who is connected is thrown out."""
        self._control("stop", "-m", "immediate")

    def restart(self) -> None:
        """Have the server gone for a moment, as when it is upgraded."""
        self._control("restart", "-m", "fast", "-l", str(self.folder / "server.log"))

    def run(self, *statements: str, database: str = "postgres") -> None:
        """Run SQL statements, each in a transaction of its own."""
        import psycopg2  # noqa: PLC0415 - of the extra `distributed`

        connection = psycopg2.connect(
            host=LOOPBACK, port=self.port, user="postgres", password=self.password, dbname=database
        )
        connection.autocommit = True
        try:
            for statement in statements:
                connection.cursor().execute(statement)
        finally:
            connection.close()

    def _control(self, *words: str) -> None:
        _as_owner([str(binary("pg_ctl")), "-D", str(self.folder / "data"), "-w", *words])


@contextlib.contextmanager
def postgresql(folder: Path, password: str) -> Iterator[PostgreSQL]:
    """Run a PostgreSQL for the length of a block.

    Parameters
    ----------
    folder : made; where another user has to run the server, that user must be able to reach it

    Raises
    ------
    MissingServiceError : PostgreSQL is not installed
    """
    binary("initdb")
    folder.mkdir(parents=True)
    secret = folder / "password"
    secret.touch(mode=0o600)
    secret.write_text(password, encoding="utf-8")
    if os.getuid() == 0:  # the server refuses to run as root
        for path in (folder, secret):
            shutil.chown(path, *_owner())
    _as_owner(
        [str(binary("initdb")), "-D", str(folder / "data"), "-U", "postgres", "-E", "UTF8", "-N",
         "-A", "scram-sha-256", "--pwfile", str(secret)]
    )  # fmt: skip
    secret.unlink()
    server = PostgreSQL(folder, free_port(), password)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def redis(folder: Path, password: str) -> Iterator[int]:
    """Run a Redis for the length of a block; yields its port.

    Raises
    ------
    MissingServiceError : Redis is not installed
    """
    program = shutil.which("redis-server")
    if program is None:
        raise MissingServiceError("redis-server is not installed. On Debian: apt-get install redis-server")
    folder.mkdir(parents=True)
    port = free_port()
    settings = f'bind {LOOPBACK}\nport {port}\nsave ""\nrequirepass {password}\ndir {folder}\n'
    process = subprocess.Popen(
        [program, "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    )
    try:
        assert process.stdin is not None  # noqa: S101 - for the type checker
        process.stdin.write(settings)
        process.stdin.close()
        _wait_for(port)
        yield port
    finally:
        process.kill()
        process.wait()


def binary(name: str) -> Path:
    """Return the path of one of PostgreSQL's programs, which Debian keeps out of the path.

    Raises
    ------
    MissingServiceError : PostgreSQL is not installed
    """
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, places)]))
    if found is None:
        raise MissingServiceError(f"PostgreSQL's {name} is not installed. On Debian: apt-get install postgresql")
    return Path(found)


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + STARTING_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nobody listens on port {port} after {STARTING_S:.0f} s")


def _as_owner(words: Sequence[str]) -> None:
    """Run one of PostgreSQL's programs, as its own user where this one is root."""
    user, group = _owner() if os.getuid() == 0 else (None, None)
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        user=user,
        group=group,
        extra_groups=[] if user else None,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr}{done.stdout}")


def _owner() -> tuple[str, str]:
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        return "nobody", "nogroup"
    return "postgres", "postgres"
