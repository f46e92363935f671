"""Workers of pools in processes of their own, and the sockets at which processes listen."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from offcut.search.pool import Device

SOON = 3.0  # seconds that a worker takes to end
_LISTENS = "0A"


@dataclass
class FakeDevices:
    """The devices of a fake pool."""

    names: list[str]
    others: int = 0

    def now(self) -> tuple[Device, ...]:
        return tuple(Device(name, name) for name in self.names)


@contextmanager
def worker_process(
    address: str, device: str = "", certificates: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker on this machine, as ``offcut worker`` starts one; it is ended at the end.

    device  its name; "": that of this machine
    """
    command = [sys.executable, "-m", "offcut", "worker", address]
    command += ["--device", device or platform.node()]
    command += [] if certificates is None else ["--certificates", str(certificates)]
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(SOON)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def certificates_in(folder: Path) -> Path:
    """Copy a certificate and its key, as a pool wants them, into a folder; return it."""
    for name in ("cert.pem", "key.pem"):
        shutil.copy(Path(__file__).parent / "certificates" / name, folder / name)
    (folder / "key.pem").chmod(0o600)
    return folder


def listens_at(process: int) -> list[IPv4Address | IPv6Address]:
    """Return the addresses at which a process waits for TCP connections, as Linux lists them."""
    own = set()
    for entry in Path(f"/proc/{process}/fd").iterdir():
        link = os.readlink(entry)
        if link.startswith("socket:["):
            own.add(link[len("socket:[") : -1])
    addresses = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS and fields[9] in own:
                addresses.append(_address(fields[1].partition(":")[0]))
    return addresses


def _address(digits: str) -> IPv4Address | IPv6Address:
    """An address as the kernel prints it: words of 32 bits in the machine's order."""
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    return ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))
