"""`offcut worker`: this machine as a device of a pool."""

from __future__ import annotations

from typing import Annotated

import typer

from offcut.cli.app import app, refusals
from offcut.cli.options import Certificates
from offcut.errors import DescribeError


@app.command()
def worker(
    address: Annotated[str, typer.Argument(help="Of a dask scheduler: tls://host:8786.")],
    device: Annotated[
        str | None, typer.Option(help="Its name in the pool; else the name of this machine.")
    ] = None,
    certificates: Certificates = None,
) -> None:
    """Measure candidates for those who tune with --pool ADDRESS, until a signal ends it or the scheduler goes.

    Example: offcut worker tls://10.0.0.1:8786 --certificates ~/pool --device rack-3
    """
    import platform

    from offcut.search.pool import LOCAL, Pool, pool_of
    from offcut.search.pool.connection import serve

    with refusals():
        pool = pool_of(Pool(address, certificates=certificates), "worker")
        if pool.address == LOCAL:
            raise DescribeError(
                "worker",
                f"cannot be a device of pool={LOCAL!r}",
                because="whoever tunes with that measures by himself",
                help=("offcut worker tls://host:8786",),
            )
        named = device or platform.node()
        serve(pool, named, lambda: typer.echo(f"device {named} waits for candidates at {address}"))
