"""Options that several commands have, and pairs and whole numbers as options write them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from offcut.errors import DescribeError

Certificates: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        help="A folder with cert.pem and key.pem of the pool; else as dask is configured."
    ),
]


def read_pair(command: str, option: str, text: str, help: tuple[str, ...]) -> tuple[str, str]:
    """``i=14`` as a name and its value.

    Raises DescribeError where one of the two is not there.
    """
    name, _, value = (part.strip() for part in text.partition("="))
    if not (name and value):
        raise DescribeError(
            command, f"cannot read {option} {text}", because="it is no name=value", help=help
        )
    return name, value


def read_number(command: str, option: str, text: str, help: str) -> int:
    """A whole number from 0 on.

    option  the option in which `text` stands, as it was written

    Raises DescribeError for anything else.
    """
    if not text.strip().isdecimal():
        because = f"{text!r} is no whole number from 0 on" if text else "there is no number"
        raise DescribeError(command, f"cannot read {option}", because=because, help=(help,))
    return int(text)
