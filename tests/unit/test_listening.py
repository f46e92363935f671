"""Whom processes of offcut listen to: nobody, or this machine, or those who show the certificate of their pool."""

from __future__ import annotations

import math
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

import offcut as oc
from offcut.search.pool import Pool
from offcut.search.pool.connection import _own_host
from tests.facade import Limits
from tests.workers import certificates_in, listens_at, worker_process

QUICK = Limits(budget=0.02, noise=math.inf)
DOUBLED = """\
program doubled
size n in 1:65
input A: float32[n]
output B: float32[n]
for i in 0:n
  B[i] = A[i] * 2.0
"""
# Notes each socket that is bound, in this process and in all that it starts, whatever binds it in Python.
NOTING = """
import os, sys
def note(event, given):
    if event == "socket.bind":
        with open(os.environ["BOUND"], "a") as file:
            print(given[1], file=file)
sys.addaudithook(note)
"""
COMMANDS = {
    "tune": "tune p.offcut --sizes n=3 --trials 2 --records r",
    "tune in the rounds of a pool": "tune p.offcut --sizes n=3 --trials 2 --records r --pool local",
    "cut": "cut p.offcut --tile i=8",
    "records": "records list --records r",
    "target": "target show cpu",
    "sweep": "sweep dense --sizes n=3",
    "learn": "learn r",
    "run": "run model.onnx",
    "machine": "machine",
}
FAST = ("tune in the rounds of a pool",)

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/net/tcp").exists(), reason="this system does not list sockets in /proc"
)


def bound_by(program: str, folder: Path, *arguments: str) -> list[str]:
    """The addresses that a program of Python binds sockets to, and whatever it starts."""
    (folder / "p.offcut").write_text(DOUBLED, encoding="utf-8")
    (folder / "sitecustomize.py").write_text(NOTING, encoding="utf-8")
    log = folder / "bound"
    log.write_text("")
    paths = [str(folder), str(Path(oc.__file__).parents[1])]
    subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "BOUND": str(log)},
        capture_output=True,
        check=False,
    )
    return log.read_text().splitlines()


def test_what_a_child_binds_is_noted(tmp_path: Path) -> None:
    bind = "import socket; socket.socket().bind(('127.0.0.1', 0))"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {bind!r}])"

    assert bound_by(start, tmp_path) == ["('127.0.0.1', 0)"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS],
)
def test_a_command_waits_for_no_connection(name: str, tmp_path: Path) -> None:
    command = "from offcut.cli import main; main()"

    assert bound_by(command, tmp_path, *COMMANDS[name].split()) == []


@contextmanager
def cluster(protocol: str, **settings: Any) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    with distributed.LocalCluster(
        n_workers=0,
        processes=False,
        protocol=protocol,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        **settings,
    ) as started:
        yield started


@needs_proc
def test_a_pool_of_certificates_measures_and_takes_nobody_without_one(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    folder = certificates_in(tmp_path)
    certificate, key = str(folder / "cert.pem"), str(folder / "key.pem")
    security = distributed.Security(
        require_encryption=True,
        tls_ca_file=certificate,
        tls_scheduler_cert=certificate,
        tls_scheduler_key=key,
        tls_client_cert=certificate,
        tls_client_key=key,
    )
    with cluster("tls://", security=security) as pool:
        address = pool.scheduler_address
        with worker_process(address, "a", folder) as process:
            tuned = oc.tune(
                oc.parse(DOUBLED),
                sizes={"n": [3]},
                trials=2,
                explorer="random",
                records=tmp_path / "records",
                limits=QUICK,
                pool=Pool(address, wait=60.0, certificates=folder),
            )
            pool.wait_for_workers(1)
            (worker,) = pool.scheduler.workers
            refused = [connection_error(one) for one in (address, worker)]
            addresses = listens_at(process.pid)

    assert isinstance(tuned, oc.Schedule)
    assert refused == [True, True]
    assert all(one.is_loopback for one in addresses)


def connection_error(address: str) -> bool:
    """Whether who shows no certificate is sent away."""
    host, _, port = address.removeprefix("tls://").partition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, int(port))) as plain,
            context.wrap_socket(plain) as wrapped,
        ):
            wrapped.sendall(b"\0" * 64)
            return wrapped.recv(1) == b""
    except (ssl.SSLError, ConnectionError):
        return True


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_worker_of_this_machine_is_reached_from_it_alone(host: str) -> None:
    assert ip_address(_own_host(Pool(f"tcp://{host}:8786"))).is_loopback
