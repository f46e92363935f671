from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from examples.sentences import text, tokens, weights
from examples.sentences.report import report
from examples.sentences.run import Options, evenly, nearest, run
from examples.sentences.tokens import stand_in, tokenize
from tests.agree import nearly


def test_neighbours_come_nearest_first_and_never_twice() -> None:
    sentences = tokenize(
        ["far far far", "near near near", "near near near", "b b b", "c c c"], stand_in
    )
    embeddings = np.array([[-1, 0], [1, 0], [1, 0], [0.6, 0.8], [0, 1]], np.float32)

    found = nearest(np.array([1, 0], np.float32), embeddings, sentences)

    assert [near.text for near in found] == ["near near near", "b b b", "c c c"]
    assert [near.cosine for near in found] == nearly([1, 0.6, 0])


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_evenly_takes_as_many_as_asked_and_never_one_twice(count: int) -> None:
    sentences = tokenize(["a b c"] * 7, stand_in)

    found = evenly(sentences, count)

    assert found == sorted(set(found))
    assert len(found) == min(count, 7)


def test_the_demo_runs_on_random_weights_and_reports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the picture")
    monkeypatch.setattr(weights, "PACKAGE", "no-such-package-of-weights")
    monkeypatch.setattr(weights, "LAYERS", 1)
    monkeypatch.setattr(weights, "VOCABULARY", 50)
    monkeypatch.setattr(tokens, "VOCABULARY", 50)
    monkeypatch.setattr(tokens, "CLS", 1)
    monkeypatch.setattr(tokens, "SEP", 2)
    monkeypatch.setattr(text, "reference", lambda: ("word " * 600 + ". A b c d. E f g. B a c d.",))
    file = StringIO()
    console = Console(file=file, width=120)
    asked = Options(
        *(False, 600, True, 0, tmp_path),
        kinds=("float32",),
        compared=2,
        rounds=1,
        libraries=False,
        picture_seconds=0.0,
        picture_lengths=2,
    )

    result = run(asked, console)
    report(result, console, "one thread")

    assert [len(sentence) for sentence in result.sentences] == [512, 7, 6, 7]
    assert (result.truncated, result.distinct, result.compared) == (1, 4, (0, 3))
    assert (len(result.compiles["float32"]), result.compiles_later) == (7, 0)
    assert [str(one.contender) for one in result.standings] == [
        *("float32 offcut, alone", "float32 offcut, 256 rows", "float32 numpy, alone")
    ]
    assert all(one.cosine > 0.99999 and one.timing is not None for one in result.standings)
    assert [share.kernel for share in result.shares["float32"]] == [
        *("embed", "project", "attend", "settle 384", "widen", "settle 1536", "pool")
    ]
    assert sum(share.share for share in result.shares["float32"]) == nearly(1)
    assert result.picture.exists()
    printed = file.getvalue()
    assert "random, seed 0, in the shapes of all-MiniLM-L6-v2" in printed
    assert "7 kernels for all layers and lengths" in printed
    assert "float32: no library to compare with; asked: a cosine of 0.9999 or more." in printed
    assert "shared words at best" in printed
