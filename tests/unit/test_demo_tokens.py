import pytest

from examples.sentences.tokens import CLS, LONGEST, SEP, SHORTEST, shorten, stand_in, tokenize


@pytest.mark.parametrize("count", [SHORTEST, LONGEST - 1, LONGEST, LONGEST + 1, 3 * LONGEST])
def test_a_long_sentence_is_cut_to_the_models_positions_and_keeps_its_end(count: int) -> None:
    ids = list(range(count))

    short = shorten(ids)

    assert len(short) == min(count, LONGEST)
    assert (short[0], short[-1]) == (0, count - 1)


def test_too_short_sentences_are_dropped_and_truncated_ones_marked() -> None:
    texts = ["a b", "a b c", "a " * (LONGEST - 2), "a " * (LONGEST - 1)]

    found = tokenize(texts, stand_in)

    assert [(len(sentence), sentence.truncated) for sentence in found] == [
        (5, False),
        (LONGEST, False),
        (LONGEST, True),
    ]


def test_the_stand_in_gives_equal_pieces_equal_numbers() -> None:
    (ids,) = stand_in(["Extraordinary, extraordinary"])

    assert (ids[0], ids[-1]) == (CLS, SEP)
    assert ids[1:3] == ids[4:6]
    assert len(ids) == 7
