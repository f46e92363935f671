"""Packages that offcut does without until one is asked for: each belongs to an extra, which installs it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from offcut.errors import TargetError


def is_installed(package: str) -> bool:
    """Whether a package is there; it is not imported."""
    return importlib.util.find_spec(package) is not None


def installing(extra: str) -> str:
    """How an extra is installed, as a help: offcut is on no index, so by its folder."""
    return f'this needs the extra "{extra}": pip install ".[{extra}]" in the folder of offcut'


def check_installed(op: str, refused: str, package: str, extra: str) -> None:
    """Raises TargetError where the package of an extra is not installed."""
    if not is_installed(package):
        raise TargetError(
            op, refused, because=f"{package} is not installed", help=(installing(extra),)
        )


@contextmanager
def imports(module: str, package: str, extra: str) -> Iterator[None]:
    """Around the imports of a module that is of no use without a package.

    Raises TargetError where that is not installed.
    """
    check_installed("import", f"cannot import {module}", package, extra)
    yield
