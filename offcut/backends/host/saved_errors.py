"""Errors of `offcut.load`: a file that cannot be read, and a process that cannot run what is in it."""

from __future__ import annotations

from pathlib import Path

from offcut.errors import DescribeError, TargetError


def unreadable(where: Path, because: str) -> DescribeError:
    """Return the error for a file that is no kernel or model, or is damaged."""
    return DescribeError("load", f"cannot read {where}", because=because)


def other_processor(where: Path, name: str, because: str) -> TargetError:
    """Return the error for code of another processor than this process runs on.

    name  of the kernel or the model in the file
    """
    return _not_runnable(where, name, because, "saved again on a machine like this one")


def lacks_package(where: Path, name: str, because: str, package: str, *others: str) -> TargetError:
    """Return the error for a kernel or a model that needs a Python package which is not installed.

    name    of the kernel or the model in the file
    others  what would let it run without the package
    """
    because = f"{because}, and {package} is not installed"
    return _not_runnable(where, name, because, f"pip install {package}", *others)


def _not_runnable(where: Path, name: str, because: str, *help: str) -> TargetError:
    refused = f"cannot run {name} of {where.name} here"
    return TargetError("load", refused, because=because, help=help)


__all__ = ["lacks_package", "other_processor", "unreadable"]
