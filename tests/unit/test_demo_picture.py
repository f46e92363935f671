from pathlib import Path

import numpy as np
import pytest

from offcut.experiment.demo.dense import Dense, NumpyEngine
from offcut.experiment.demo.picture import measure, picture, spread
from offcut.experiment.demo.weights import Linear

LAYER = Linear(np.ones((4, 6), np.float32), np.zeros(6, np.float32))


def layers(*names: str) -> dict[str, Dense]:
    return {name: NumpyEngine().dense(LAYER, gelu=False) for name in names}


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_spread_keeps_the_ends_and_never_repeats(count: int) -> None:
    found = spread([3, 1, 3, 40, 7, 512, 9], count)

    assert found == sorted(set(found))
    assert len(found) == min(count, 6)
    assert found[0] == 1
    assert count == 1 or found[-1] == 512


def test_every_contender_is_measured_at_every_length_and_the_naive_one_at_a_few() -> None:
    lengths = list(range(1, 37))

    curves = {curve.name: curve for curve in measure(layers("auto", "guard"), LAYER, lengths, 0.0)}

    assert [length for length, _ in curves["auto"].points()] == lengths
    assert [length for length, _ in curves["guard"].points()] == spread(lengths, 6)


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the picture")
    file = tmp_path / "new" / "demo.png"

    picture(LAYER, [5, 9, 12], "a machine", file, budget=0.0, layers=layers("auto", "numpy"))

    assert file.read_bytes().startswith(b"\x89PNG")
