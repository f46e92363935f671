"""Make figures with matplotlib, and write them to files."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from offcut.core.extras import check_installed, is_installed
from offcut.errors import CallError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_drawable(subject: str) -> None:
    """Raises TargetError where matplotlib is not installed."""
    check_installed("plot", f"cannot draw {subject}", "matplotlib")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of so many inches, drawn without a display, which a notebook shows as a PNG, with or without pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = _picture()(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


@cache
def _picture() -> type[Figure]:
    """Return the class of figures that a notebook displays."""
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure that is shown as a PNG."""

        def _repr_png_(self) -> bytes:
            buffer = BytesIO()
            self.savefig(buffer, format="png", dpi=100)
            return buffer.getvalue()

    return Picture


def check_format(op: str, path: str | Path) -> None:
    """Raises CallError where the suffix of a name is no format of pictures; what is so is not asked without matplotlib, or a suffix."""
    suffix = Path(path).suffix[1:].lower()
    if not suffix or not is_installed("matplotlib"):
        return
    from matplotlib.backend_bases import FigureCanvasBase

    formats = sorted(FigureCanvasBase.get_supported_filetypes())
    if suffix not in formats:
        raise CallError(
            op,
            f"cannot draw {path}",
            because=f"{suffix} is not one of {', '.join(formats)}",
            help=(f"{Path(path).with_suffix('.png')}",),
        )


def write(
    figure: Figure, path: str | Path | None, example: str, description: str | None = None
) -> None:
    """Write a picture, whose format the suffix of `path` says, PNG where it has none, in a folder that is made; None: nothing is written.

    example      a call that writes one
    description  what is said in the file, where its format is PNG or SVG

    Raises CallError where it cannot be written.
    """
    if path is None:
        return
    check_format("plot", path)
    metadata = description if Path(path).suffix.lower() in ("", ".png", ".svg") else None
    try:
        with suppress(FileExistsError):  # a file, of which writing says that it is no folder
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        kind = Path(path).suffix[1:].lower() or "png"
        figure.savefig(
            Path(path), format=kind, dpi=150, metadata=metadata and {"Description": metadata}
        )
    except (OSError, TypeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise CallError(
            "plot",
            f"cannot write the picture to {path}",
            because=reason or str(error).splitlines()[0],
            help=(example,),
        ) from None
