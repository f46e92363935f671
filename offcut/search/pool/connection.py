"""Where the workers of a pool meet, whom they trust, how long is waited for what, and a client of their scheduler; a worker: one process, one device, one task at a time."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from offcut.core.extras import check_installed
from offcut.errors import DescribeError, TargetError

if TYPE_CHECKING:
    from distributed import Client, Security


LOCAL = "local"
"""The address of a pool of this machine alone: the process that tunes measures, and nobody listens."""

RESOURCE = "device"
"""What a worker has one of, and each task takes."""

CERTIFICATE, KEY = "cert.pem", "key.pem"
"""Files of a folder of certificates: what all members of a pool show each other, and the secret that proves it is theirs."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of devices.

    address  ``tls://host:port`` of a dask scheduler; ``tcp://`` of one on this machine; or ``local``
    answer   seconds until the scheduler answers, and until what it holds is here
    wait     seconds that a campaign goes on without a device that could take a task
    silence  seconds without a sign of a worker, after which it hangs
    certificates  a folder with ``cert.pem`` and ``key.pem``, for ``tls://``; None: those that dask's configuration names
    """

    address: str
    answer: float = 10.0
    wait: float = 10.0
    silence: float = 30.0
    certificates: str | os.PathLike[str] | None = None

    @property
    def host(self) -> str:
        """The host of the scheduler."""
        return urlsplit(self.address).hostname or ""

    def security(self) -> Security | None:
        """Return what dask shows and demands at each connection; None for ``tcp://``, which is not left."""
        if not self.address.startswith("tls://"):
            return None
        from distributed import Security

        if self.certificates is None:
            return Security(require_encryption=True)
        folder = Path(self.certificates).expanduser()
        certificate, key = str(folder / CERTIFICATE), str(folder / KEY)
        return Security(
            require_encryption=True,
            tls_ca_file=certificate,
            tls_client_cert=certificate,
            tls_client_key=key,
            tls_worker_cert=certificate,
            tls_worker_key=key,
        )


def pool_of(value: Any, op: str) -> Pool:
    """What was given as a pool, an address or a `Pool`, checked for `op`.

    Raises DescribeError for what is no address, or leads away from this machine without certificates; TargetError where
    dask.distributed is not installed.
    """
    pool = value if isinstance(value, Pool) else Pool(value)
    because = _misfit(pool.address)
    if because:
        raise DescribeError(
            op,
            f"cannot take pool={pool.address!r}",
            because=because,
            help=('pool="tls://host:8786"', f'pool="{LOCAL}"'),
        )
    if pool.address == LOCAL:
        return pool
    check_installed(op, "cannot use a pool of devices", "distributed")
    parts = urlsplit(pool.address)
    if parts.scheme == "tcp" and not is_loopback(pool.host):
        raise DescribeError(
            op,
            f"cannot take pool={pool.address!r}",
            because="it leads to another machine, and nobody there has to show a certificate: whoever reaches a port of the pool could run code here",
            help=(
                f'pool="tls://{parts.netloc}", with certificates as docs/search/pool.md says',
                'pool="tcp://localhost:8786", of a scheduler on this machine',
            ),
        )
    if parts.scheme == "tls":
        _check_certificates(pool, op)
    return pool


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, which nobody else reaches by that name."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _misfit(address: Any) -> str:
    """Why this is no address; "" where it is one."""
    if address == LOCAL:
        return ""
    if not isinstance(address, str):
        return "the address of a pool is a text"
    try:
        parts = urlsplit(address)
        whole = parts.scheme in ("tcp", "tls") and parts.hostname and parts.port
    except ValueError as error:
        return str(error)
    rest = not whole or parts.path or parts.query or parts.fragment or parts.username is not None
    return "it is not tls://, a host, and a port" if rest else ""


def _check_certificates(pool: Pool, op: str) -> None:
    """Raises DescribeError where there are no certificates, or others can read the key."""
    because = _lacking_in_configuration(pool) if pool.certificates is None else _lacking(pool)
    if because:
        raise DescribeError(
            op,
            f"cannot take pool={pool.address!r}",
            because=because,
            help=(
                f"Pool(address, certificates=a folder with {CERTIFICATE} and {KEY})",
                "--certificates folder, of the command",
            ),
        )


def _lacking_in_configuration(pool: Pool) -> str:
    """What dask's configuration does not name; "" where it names all."""
    security = pool.security()
    assert security is not None
    files = (security.tls_ca_file, security.tls_client_cert, security.tls_worker_cert)
    return "" if all(files) else "nothing says which certificates its members show each other"


def _lacking(pool: Pool) -> str:
    """What is wrong with a folder of certificates; "" where it is good."""
    assert pool.certificates is not None
    folder = Path(pool.certificates).expanduser()
    for name in (CERTIFICATE, KEY):
        try:
            with (folder / name).open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        except OSError as error:
            return f"{folder / name} cannot be read: {error.strerror}"
        if name == KEY and mode & 0o077:
            return f"others can use {folder / name}, whose mode is {mode:o}: it is the secret of the pool, of mode 600"
    return ""


@contextmanager
def connect(pool: Pool, op: str) -> Iterator[Client]:
    """A client, as long as the context lasts.

    Raises TargetError where no scheduler answers in time.
    """
    from distributed import Client

    with _quiet():
        settings: dict[str, Any] = {"timeout": pool.answer, "security": pool.security()}
        try:
            client = Client(pool.address, **settings, set_as_default=False)
        except Exception as error:
            raise no_scheduler_error(pool, op, error) from error
        with client:
            yield client


@contextmanager
def _quiet() -> Iterator[None]:
    """The client's own words of a scheduler that goes are left out: it is refused in ours."""
    log = logging.getLogger("distributed.client")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def no_scheduler_error(pool: Pool, op: str, error: Exception) -> TargetError:
    """What is to be said where no scheduler answers."""
    line = str(error).splitlines()[0] if str(error) else type(error).__name__
    because = f"no dask scheduler answers in {pool.answer:g} s"
    return TargetError(
        op,
        f"cannot reach {pool.address}",
        because=because if isinstance(error, TimeoutError) else f"{because}: {line}",
        help=("dask scheduler --host 127.0.0.1 --port 8786, on this machine",),
    )


def serve(pool: Pool, device: str, ready: Callable[[], None]) -> None:
    """Take tasks until the scheduler goes, or a signal ends it.

    It listens at the address that leads to the scheduler, on loopback where that is on this machine.

    device  what records and errors call it; no two of one pool are alike
    ready   called when it is known to the scheduler

    Raises TargetError where no scheduler answers, or it knows a worker of that name.
    """
    asyncio.run(_served(pool, device, ready))


async def _served(pool: Pool, device: str, ready: Callable[[], None]) -> None:
    from distributed import Worker

    worker = Worker(
        pool.address,
        host=_own_host(pool),
        security=pool.security(),
        dashboard_address="127.0.0.1:0",
        name=device,
        nthreads=1,
        resources={RESOURCE: 1},
        memory_limit=0,  # candidates have limits of their own, in processes of their own
        death_timeout=pool.answer,
        dashboard=False,
    )
    try:
        await worker
    except Exception as error:
        if "name taken" in str(error.__cause__):  # dask has no exception of its own for it
            raise _taking(pool, device) from error
        raise no_scheduler_error(pool, "worker", error) from error
    loop = asyncio.get_running_loop()
    closing: set[asyncio.Task[object]] = set()  # the loop itself does not hold them
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: closing.add(loop.create_task(worker.close())))
    ready()
    await worker.finished()


def _own_host(pool: Pool) -> str:
    """Return this machine's address towards the scheduler: no other network is listened to."""
    port = urlsplit(pool.address).port
    try:
        family, kind, _, _, address = socket.getaddrinfo(pool.host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # of datagrams: nothing is sent
            return str(probe.getsockname()[0])
    except OSError as error:
        raise no_scheduler_error(pool, "worker", error) from error


def _taking(pool: Pool, device: str) -> TargetError:
    return TargetError(
        "worker",
        f"cannot be device {device!r} of {pool.address}",
        because="a worker of that name is there",
        help=("--device another name",),
    )
