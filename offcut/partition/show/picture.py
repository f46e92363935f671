"""What every picture needs: matplotlib, and a place to be written to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from offcut.core.extras import check_installed
from offcut.errors import CallError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_drawable(what: str) -> None:
    """Raises TargetError where matplotlib is not installed."""
    check_installed("plot", f"cannot draw {what}", "matplotlib", "plot")


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
