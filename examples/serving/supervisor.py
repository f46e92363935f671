"""Several processes at one port: each ends by itself when told to, and is begun again when it was killed."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import time
from collections.abc import Sequence

LOG = logging.getLogger("examples.serving")
_YOUNG = 1.0  # seconds: a process that ends before is begun again when they are over
_SERVES = 30.0  # seconds after which one that lives is taken to serve
_MOST_YOUNG = 5  # processes that end so, one after the other, before nobody serves any more


def supervise(command: Sequence[str], host: str, port: int, processes: int) -> int:
    """Run a command `processes` times until SIGTERM or SIGINT, then tell all to stop, and wait for them; return the exit status: not 0 where
    they end by themselves time and again.

    command  of one process; ``--port`` and the number of the port follow
    """
    with socket.socket() as reserved:  # the port is ours while no process has it: it never listens
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((host, port))
        whole = [*command, "--port", str(reserved.getsockname()[1])]
        stop = False

        def request_stop(number: int, frame: object) -> None:
            nonlocal stop
            stop = True

        signal.signal(signal.SIGTERM, request_stop)
        signal.signal(signal.SIGINT, request_stop)
        children = [subprocess.Popen(whole) for _ in range(processes)]
        started_at = [time.monotonic()] * processes
        young = 0
        while not stop and young < _MOST_YOUNG:
            time.sleep(0.1)
            for n, child in enumerate(children):
                age, status = time.monotonic() - started_at[n], child.poll()
                if status is None:
                    young = 0 if age > _SERVES else young
                    continue
                if age < _YOUNG:
                    continue
                young += 1
                LOG.warning("process %d ended with %s: begun again", child.pid, status)
                children[n], started_at[n] = subprocess.Popen(whole), time.monotonic()
        for child in children:
            if child.poll() is None:
                child.terminate()
        statuses = [abs(child.wait()) for child in children]
        return max(statuses) if stop else 1
