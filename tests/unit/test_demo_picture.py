from pathlib import Path

import numpy as np
import pytest

from examples.sentences.picture import Layer, contenders, measured, picture, spread
from examples.sentences.plain import dense
from examples.sentences.weights import Linear
from tests.agree import agree, computed

LAYER = Linear(np.ones((4, 6), np.float32), np.zeros(6, np.float32))


def layers(*names: str) -> dict[str, Layer]:
    return dict.fromkeys(names, lambda x, out: dense(x, LAYER, out))


def test_every_contender_computes_the_layer() -> None:
    rng = np.random.default_rng(0)
    layer = Linear(*(rng.standard_normal(shape, dtype=np.float32) for shape in ((24, 40), (40,))))
    for n in (1, 13, 15, 512):
        x = rng.standard_normal((n, 24), dtype=np.float32)
        for name, compute in contenders(layer).items():
            out = np.full((n, 40), np.nan, np.float32)
            compute(x, out)
            exact = computed(lambda x, w, b: x @ w + b, x, layer.weight, layer.bias)
            agree(out, exact, what=name)


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_spread_keeps_the_ends_and_never_repeats(count: int) -> None:
    found = spread([3, 1, 3, 40, 7, 512, 9], count)

    assert found == sorted(set(found))
    assert len(found) == min(count, 6)
    assert found[0] == 1
    assert count == 1 or found[-1] == 512


def test_every_contender_is_measured_at_every_length() -> None:
    lengths = list(range(1, 37))

    lines = measured(layers("auto", "guard"), LAYER, lengths, 0.0)

    assert [length for length, _ in lines["auto"]] == lengths
    assert [length for length, _ in lines["guard"]] == lengths


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the picture")
    file = tmp_path / "new" / "demo.png"

    picture(LAYER, [5, 9, 12], "a machine", file, budget=0.0, layers=layers("auto", "numpy"))

    assert file.read_bytes().startswith(b"\x89PNG")
