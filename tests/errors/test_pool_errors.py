"""What is said of pools that cannot be used."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import offcut as oc
from offcut.errors import OffcutError
from offcut.search.pool import Pool, connect, pool_of
from offcut.search.pool.connection import serve
from tests.facade import app
from tests.workers import certificates_in

NO_ADDRESS = {
    "nowhere": "it is not tls://, a host, and a port",
    "": "it is not tls://, a host, and a port",
    "tcp://host": "it is not tls://, a host, and a port",
    "http://host:80": "it is not tls://, a host, and a port",
    "tcp://host:80/path": "it is not tls://, a host, and a port",
    "tcp://host:80000": "Port out of range 0-65535",
    "tcp://[host:80": "Invalid IPv6 URL",
}
DOUBLED = """\
program doubled
size n in 1:65
input A: float32[n]
output B: float32[n]
for i in 0:n
  B[i] = A[i] * 2.0
"""


@pytest.mark.parametrize("address", NO_ADDRESS)
def test_what_is_no_address_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(OffcutError) as refused:
        oc.tune(oc.parse(DOUBLED), sizes={"n": [2]}, pool=address, records=tmp_path / "r")

    assert (
        str(refused.value)
        == f"""\
tune: cannot take pool={address!r}
  because  {NO_ADDRESS[address]}
  help     pool="tls://host:8786"
  help     pool="local\""""
    )
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("given", [3, None])
def test_what_is_no_text_is_refused(given: Any) -> None:
    with pytest.raises(OffcutError, match="because  the address of a pool is a text"):
        pool_of(given, "tune")


def test_without_distributed_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(OffcutError) as refused:
        pool_of("tcp://localhost:8786", "tune")

    assert (
        str(refused.value)
        == """\
tune: cannot use a pool of devices
  because  distributed is not installed
  help     this needs the extra "pool": pip install ".[pool]" in the folder of offcut"""
    )


@pytest.mark.parametrize("address", ["tcp://rack:8786", "tcp://10.0.0.1:8786", "tcp://[::2]:8786"])
@pytest.mark.parametrize("op", ["tune", "worker"])
def test_another_machine_without_certificates_is_refused(address: str, op: str) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    with pytest.raises(OffcutError) as refused:
        pool_of(address, op)

    assert (
        str(refused.value)
        == f"""\
{op}: cannot take pool={address!r}
  because  it leads to another machine, and nobody there has to show a certificate: whoever reaches a port of the pool could run code here
  help     pool="{address.replace("tcp", "tls")}", with certificates as docs/search/pool.md says
  help     pool="tcp://localhost:8786", of a scheduler on this machine"""
    )


@pytest.mark.parametrize(
    "address",
    ["tcp://127.0.0.1:8786", "tcp://127.1.2.3:8786", "tcp://localhost:8786", "tcp://[::1]:8786"],
)
def test_this_machine_needs_no_certificates(address: str) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    assert pool_of(address, "tune").security() is None


CERTIFICATES = {
    "none": "nothing says which certificates its members show each other",
    "no folder": "{folder}/cert.pem cannot be read: No such file or directory",
    "no key": "{folder}/key.pem cannot be read: No such file or directory",
    "an open key": "others can use {folder}/key.pem, whose mode is 644: it is the secret of the pool, of mode 600",
}


@pytest.mark.parametrize("case", CERTIFICATES)
def test_certificates_that_are_not_there_or_open_are_refused(case: str, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    folder = tmp_path / "certificates"
    if case != "no folder":
        folder.mkdir()
        certificates_in(folder)
        (folder / "key.pem").chmod(0o644)
    if case == "no key":
        (folder / "key.pem").unlink()
    with pytest.raises(OffcutError) as refused:
        pool_of(Pool("tls://rack:8786", certificates=None if case == "none" else folder), "tune")

    assert (
        str(refused.value)
        == f"""\
tune: cannot take pool='tls://rack:8786'
  because  {CERTIFICATES[case].format(folder=folder)}
  help     Pool(address, certificates=a folder with cert.pem and key.pem)
  help     --certificates folder, of the command"""
    )


def test_the_configuration_of_dask_names_certificates_too(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    import dask

    folder = certificates_in(tmp_path)
    pair = {"cert": str(folder / "cert.pem"), "key": str(folder / "key.pem")}
    tls = "distributed.comm.tls"
    names = {f"{tls}.ca-file": pair["cert"]}
    for role in ("client", "worker"):
        names |= {f"{tls}.{role}.{kind}": path for kind, path in pair.items()}
    with dask.config.set(names):
        security = pool_of("tls://rack:8786", "tune").security()

    assert security is not None
    assert (security.tls_client_cert, security.tls_worker_key) == tuple(pair.values())


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize("op", ["tune", "worker"])
def test_a_scheduler_that_is_not_there_is_said_after_a_while(op: str, nobody: str) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    pool = Pool(nobody, answer=0.3)
    with pytest.raises(OffcutError) as refused:
        connect(pool, op).__enter__() if op == "tune" else serve(pool, "a", lambda: None)

    text = str(refused.value)
    assert text.startswith(
        f"{op}: cannot reach {nobody}\n  because  no dask scheduler answers in 0.3 s"
    )
    assert text.endswith("help     dask scheduler --host 127.0.0.1 --port 8786, on this machine")


def test_a_worker_of_the_local_pool_is_refused() -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    done = CliRunner().invoke(app, ["worker", "local"])

    assert done.exit_code == 2
    assert (
        done.output.strip()
        == """\
worker: cannot be a device of pool='local'
  because  whoever tunes with that measures by himself
  help     offcut worker tls://host:8786"""
    )


def test_the_command_hands_the_pool_on(tmp_path: Path) -> None:
    program = tmp_path / "p.offcut"
    program.write_text(DOUBLED, encoding="utf-8")
    done = CliRunner().invoke(app, ["tune", str(program), "--sizes", "n=7", "--pool", "nowhere"])

    assert done.exit_code == 2
    assert done.output.startswith("tune: cannot take pool='nowhere'")
