"""Packages that offcut does without until one is asked for: each belongs to an extra, which installs it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from offcut.errors import TargetError

BASE = frozenset(
    ("islpy", "llvmlite", "ml_dtypes", "numpy", "platformdirs", "rich", "sympy", "typer")
)
"""The packages that whoever compiles needs; what was saved runs with fewer."""
EXTRAS = {
    "distributed": "pool",
    "matplotlib": "plot",
    "onnx": "onnx",
    "torch": "torch",
    "tvm": "tvm",
    "xdsl": "mlir",
    "xgboost": "learned",
}
"""The extra of each package, by the name that is imported."""
PEERS = {"onnxruntime": "peers", "openvino": "peers"}
"""The same of packages that studies compare with, and files of theirs import."""


def is_installed(package: str) -> bool:
    """Whether a package is there; it is not imported."""
    return importlib.util.find_spec(package) is not None


def installing(package: str) -> str:
    """How a package is installed, as a help: by an extra of offcut, where it is of one."""
    extra = (EXTRAS | PEERS).get(package)
    return f"pip install {package}" if extra is None else extra_help(extra)


def extra_help(extra: str) -> str:
    """Return how an extra is installed, as a help: offcut is on no index, so by its folder."""
    return f'this needs the extra "{extra}": pip install ".[{extra}]" in the folder of offcut'


def missing_package(error: BaseException) -> str:
    """Return the package of an extra that is not installed, as an error of its import says; "" for any other error."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    package = (name or "").partition(".")[0]
    return package if package in EXTRAS | PEERS and not is_installed(package) else ""


def absent(package: str) -> str:
    """That a package is not installed, and how it is, in one line."""
    return f"{package} is not installed ({installing(package)})"


def check_installed(op: str, refused: str, package: str) -> None:
    """Raises TargetError where a package of `EXTRAS` is not installed."""
    if not is_installed(package):
        raise TargetError(
            op, refused, because=f"{package} is not installed", help=(installing(package),)
        )


@contextmanager
def base_imports(what: str) -> Iterator[None]:
    """Around the imports of what compiles.

    Raises TargetError where a package of `BASE` is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in BASE:
            raise
        raise TargetError(
            "import",
            f"cannot import {what}",
            because=f"{package} is not installed: without it, only what was saved is run",
            help=(
                "pip install . in the folder of offcut",
                "offcut.load(path) of a saved kernel or model",
            ),
        ) from None


@contextmanager
def imports(module: str, package: str) -> Iterator[None]:
    """Around the imports of a module that is of no use without a package.

    Raises TargetError where that is not installed.
    """
    check_installed("import", f"cannot import {module}", package)
    yield
