"""`python -m examples.serving MODEL`: serve a model over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import sys
from pathlib import Path

from examples.serving.supervisor import supervise

ENGINES = {"offcut": "offcut.onnxruntime", "onnxruntime": "onnxruntime"}


def main(arguments: list[str] | None = None) -> int:
    """Serve as the command line asks; return the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m examples.serving", description=__doc__)
    parser.add_argument("model", type=Path, help="of ONNX, or a file of `offcut build`")
    parser.add_argument("--engine", choices=ENGINES, default="offcut")
    parser.add_argument("--name", help="of the model (that of the file)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free (8000)")
    parser.add_argument("--processes", type=int, default=1, help="at the same port (1)")
    parser.add_argument("--threads", type=int, default=1, help="of a call (1)")
    parser.add_argument("--workers", type=int, default=1, help="calls at once (1)")
    parser.add_argument("--most-rows", type=int, default=64, help="of a batch (64)")
    parser.add_argument("--most-requests", type=int, default=256, help="at once (256)")
    parser.add_argument("--most-bytes", type=int, default=1 << 20, help="of a request (1 MiB)")
    parser.add_argument("--grace", type=float, default=1.0, help="seconds before the door closes")
    flags = parser.parse_args(words)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    if flags.processes > 1:
        common = [one for one in words if not one.startswith(("--processes=", "--port="))]
        for option in ("--processes", "--port"):
            while option in common:
                at = common.index(option)
                del common[at : at + 2]
        command = [sys.executable, "-m", "examples.serving", *common]
        return supervise(command, flags.host, flags.port, flags.processes)

    from examples.serving.server import Limits, Server

    ort = importlib.import_module(ENGINES[flags.engine])
    options = ort.SessionOptions()
    options.intra_op_num_threads = flags.threads
    session = ort.InferenceSession(str(flags.model), options, providers=["CPUExecutionProvider"])
    limits = Limits(
        flags.most_requests,
        flags.most_bytes,
        flags.most_rows,
        flags.workers,
        flags.grace,
    )
    server = Server(session, flags.name or flags.model.stem, limits)
    asyncio.run(server.serve(flags.host, flags.port, _announce))
    return 0


def _announce(port: int) -> None:
    sys.stdout.write(f"serving on port {port}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
