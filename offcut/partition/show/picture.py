"""What every picture needs: matplotlib, and a place to be written to."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from offcut.errors import CallError, TargetError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_drawable(what: str) -> None:
    """Raises TargetError where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise TargetError(
            "plot",
            f"cannot draw {what}",
            because="matplotlib is not installed",
            help=('pip install "offcut[plot]"',),
        )


def write(figure: Figure, path: str | Path | None, example: str) -> None:
    """Write a picture, whose format the suffix of `path` says; None: nothing is written.

    example  a call that writes one

    Raises CallError where it cannot be written.
    """
    if path is None:
        return
    try:
        figure.savefig(Path(path), dpi=150)
    except (OSError, TypeError, ValueError) as error:
        raise CallError(
            "plot",
            f"cannot write the picture to {path!r}",
            because=str(error).splitlines()[0],
            help=(example,),
        ) from None
