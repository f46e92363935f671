"""Figures of partitions: the nests that are drawn, the axes of each; made with matplotlib, and written to files.

Select the nests of a partition to draw, and the plane of axes for each.

Make figures with matplotlib, and write them to files.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcut.core.expr import reads_memory, variables
from offcut.core.extras import check_installed, is_installed
from offcut.core.program import For
from offcut.errors import CallError, PartitionError
from offcut.partition.pieces import Partition, Piece

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


def nest_panels(partition: Partition) -> list[list[Piece]]:
    """Return the tiled pieces, grouped by what they compute."""
    pieces_by_nest: dict[Any, list[Piece]] = {}
    for piece in partition.pieces:
        if piece.segments:
            pieces_by_nest.setdefault((piece.store.buffer, _data_axes(piece)), []).append(piece)
    if not pieces_by_nest:
        raise PartitionError(
            "plot",
            "cannot draw the partition",
            because="no axis of it is cut",
            help=('tile={"i": 14}',),
        )
    return list(pieces_by_nest.values())


def _data_axes(piece: Piece) -> tuple[str, ...]:
    """Return the axes that are not reduced: instances along reduced axes update the same element."""
    if piece.store.reduce is None:
        return piece.names
    index_names = {name for index in piece.store.index for name in variables(index)}
    return tuple(name for name in piece.names if name in index_names)


def _over_data(piece: Piece) -> set[str]:
    """Return the loops of a piece whose bounds depend on data: their extents are unknown before the program runs."""
    names: set[str] = set()
    for stmt, _ in piece.inside:
        if isinstance(stmt, For):
            ends = variables(stmt.lo) | variables(stmt.hi)
            if reads_memory(stmt.lo) or reads_memory(stmt.hi) or ends & names:
                names.add(stmt.iter)
    return names


class Nest:
    """The pieces of one nest, and its axes that are drawn.

    plane   their names in the program, none where the nest has not those asked for
    labels  the user's names of the axes that can be drawn, which no data bounds; those of a reduction are marked in `shown`
    """

    def __init__(
        self,
        partition: Partition,
        pieces: Sequence[Piece],
        axes: Sequence[str] | None,
    ) -> None:
        self.partition, self.pieces, self.wanted = partition, pieces, axes
        lead = max(pieces, key=lambda piece: len(piece.names))
        buffer, reduce = lead.store.buffer, lead.store.reduce
        common_axes = set(lead.names).intersection(*(piece.names for piece in pieces))
        common_axes -= {name for piece in pieces for name in _over_data(piece)}
        names = [name for name in lead.names if name in common_axes]
        self.labels = [lead.label_of(name) for name in names]
        users = {inner: user for user, inner in partition.users.buffers}
        self.label = users.get(buffer, buffer)
        self.operator = " =" if reduce is None else f" {'+' if reduce == 'sum' else reduce}="
        reduced = set(names) - set(_data_axes(lead))
        cut = {name for piece in pieces for name, _ in piece.segments}
        places = [k for k, name in enumerate(names) if name in cut]
        if len(places) == 1 and len(names) > 1:
            second_axis = places[0] + 1 if places[0] + 1 < len(names) else places[0] - 1
            places = sorted((places[0], second_axis))
        if axes is not None:
            unique = len(set(axes)) == len(axes) in (1, 2) and set(axes) <= set(self.labels)
            places = [self.labels.index(label) for label in axes] if unique else []
        self.plane = [names[k] for k in places[:2]]
        self.shown = [
            f"{self.labels[k]} (reduced)" if names[k] in reduced else self.labels[k]
            for k in places[:2]
        ]

    def by_update(self) -> list[Nest]:
        """Return the pieces that assign and those that add, separately."""
        pieces_by_reduction: dict[str | None, list[Piece]] = {}
        for piece in self.pieces:
            pieces_by_reduction.setdefault(piece.store.reduce, []).append(piece)
        nests = [
            Nest(self.partition, pieces, self.wanted) for pieces in pieces_by_reduction.values()
        ]
        return [nest for nest in nests if nest.plane]
