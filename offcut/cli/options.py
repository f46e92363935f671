"""Pairs and whole numbers as options of commands write them."""

from __future__ import annotations

from offcut.errors import DescribeError


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


def read_number(command: str, given: str, text: str, help: str) -> int:
    """A whole number from 0 on.

    given  the option in which `text` stands, as it was written

    Raises DescribeError for anything else.
    """
    if not text.strip().isdecimal():
        because = f"{text!r} is no whole number from 0 on" if text else "there is no number"
        raise DescribeError(command, f"cannot read {given}", because=because, help=(help,))
    return int(text)
