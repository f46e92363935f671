"""What is said of pools that cannot be used."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import offcut as oc
from offcut.cli import app
from offcut.errors import OffcutError
from offcut.search.pool import Pool, connected, pool_of
from offcut.search.pool.worker import serve

NO_ADDRESS = {
    "nowhere": "it is not tcp://, a host, and a port",
    "": "it is not tcp://, a host, and a port",
    "tcp://host": "it is not tcp://, a host, and a port",
    "http://host:80": "it is not tcp://, a host, and a port",
    "tcp://host:80/path": "it is not tcp://, a host, and a port",
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
  help     pool="tcp://host:8786"
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
        pool_of("local", "tune")

    assert (
        str(refused.value)
        == """\
tune: cannot use a pool of devices
  because  distributed is not installed
  help     this needs the extra "pool": pip install ".[pool]" in the folder of offcut"""
    )


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
        connected(pool, op).__enter__() if op == "tune" else serve(pool, "a", lambda: None)

    text = str(refused.value)
    assert text.startswith(
        f"{op}: cannot reach {nobody}\n  because  no dask scheduler answers in 0.3 s"
    )
    assert text.endswith("help     dask scheduler --port 8786")


def test_a_worker_of_the_local_pool_is_refused() -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    done = CliRunner().invoke(app, ["worker", "local"])

    assert done.exit_code == 2
    assert (
        done.output.strip()
        == """\
worker: cannot be a device of pool='local'
  because  a campaign starts the only worker of that itself
  help     offcut worker tcp://host:8786"""
    )


def test_the_command_hands_the_pool_on(tmp_path: Path) -> None:
    program = tmp_path / "p.offcut"
    program.write_text(DOUBLED, encoding="utf-8")
    done = CliRunner().invoke(app, ["tune", str(program), "--sizes", "n=7", "--pool", "nowhere"])

    assert done.exit_code == 2
    assert done.output.startswith("tune: cannot take pool='nowhere'")
