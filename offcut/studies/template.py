"""A folder for a study of one's own: a file that runs, a strategy, a peer and a price beside it."""

from __future__ import annotations

from pathlib import Path

from offcut.errors import OffcutError

_FILES = {
    "study.toml": """[study]
name = "mine"
about = "A strategy of my own against the built-in ones, chosen by the cost model, and against numpy."
seconds_per_cell = 0.1

[[operators]]
name = "dense"
einsum = "mk,kn->mn"
sizes = {m = "lengths.csv", k = 256, n = 320}

[[contenders]]
strategy = "auto"

[[contenders]]
name = "mine or ladder"
strategy = ["mine:halves", "ladder"]

[[contenders]]
name = "my price"
strategy = "auto"
price = "mine:fewest_tiles"

[[contenders]]
peer = "numpy"

[[contenders]]
name = "my peer"
peer = "mine:dot"
""",
    "mine.py": '''"""What is mine in this study: a strategy, a price, a peer."""

import numpy as np


def halves(axis):
    """Full tiles, then tails of half the height, and half of that, down to single rows."""
    yield axis.full()
    height = axis.tile // 2
    while height >= 1:
        yield axis.fixed(height)
        height //= 2


def fewest_tiles(loops, sizes, built_in):
    """Return the seconds of a way: the built-in price, and a nanosecond for each tile of its text."""
    return 1e-9 * str(loops).count("tile ") + built_in


def dot(inputs, sizes):
    """Return what to call: an array by name in `inputs`, constants too."""
    a, b = inputs["A"], inputs["B"]
    return lambda: np.dot(a, b)
''',
    "lengths.csv": "m\n1\n7\n7\n33\n100\n",
    "README.md": """A study: `offcut study study.toml` measures it into `out/mine`; run again, it measures what is new.
""",
}


def write_template(folder: Path) -> Path:
    """Write the files of a study that runs as it is; the folder.

    Raises OffcutError where one of them is there already, or cannot be written.
    """
    for path in (folder / name for name in _FILES):
        if path.exists():
            what, help = f"cannot write {path}", ("offcut study new another",)
            raise OffcutError("study", what, because="it is there already", help=help)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in _FILES.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        because = error.strerror or str(error)
        raise OffcutError("study", f"cannot write into {folder}", because=because) from error
    return folder
