import random

import pytest

from examples.sentences.batches import batches, runs


@pytest.mark.parametrize("rows", [1, 2, 10, 10_000])
def test_batches_hold_every_sentence_once_in_order_and_keep_to_their_rows(rows: int) -> None:
    lengths = sorted(random.Random(rows).choices(range(1, 30), k=50))

    found = list(batches(lengths, rows))

    assert [n for batch in found for n in lengths[batch]] == lengths
    for batch, after in zip(found, [*found[1:], None], strict=True):
        taken = sum(lengths[batch])
        assert taken <= rows or batch.stop - batch.start == 1
        assert after is None or taken + lengths[after.start] > rows


def test_nothing_makes_no_batch_and_no_run() -> None:
    assert list(batches([], 5)) == []
    assert runs([]) == []


def test_runs_cover_the_rows_in_order() -> None:
    lengths = [2, 2, 2, 5, 7, 7]

    found = runs(lengths)

    assert [(run.count, run.length) for run in found] == [(3, 2), (1, 5), (2, 7)]
    assert [lengths[run.sentences] for run in found] == [[2, 2, 2], [5], [7, 7]]
    assert [run.rows for run in found] == [slice(0, 6), slice(6, 11), slice(11, 25)]
