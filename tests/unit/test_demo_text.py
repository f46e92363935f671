from collections import Counter

import pytest

from examples.sentences.text import reference, sample, sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One\nline. Two lines.", ["One line.", "Two lines."]),
        ("Calls\n*****\n\nA call.", ["A call."]),
        ("* 2. The numbered one. Next.", ["2. The numbered one.", "Next."]),
        ("Either, i.e. both. So?", ["Either, i.e. both.", "So?"]),
        ("a = 1\nb = 2\n\nprose follows", ["a = 1 b = 2", "prose follows"]),
        ("", []),
    ],
)
def test_sentences_are_what_a_reader_would_say(text: str, expected: list[str]) -> None:
    assert list(sentences(text)) == expected


def test_the_reference_is_long_and_always_the_same() -> None:
    topics = reference()

    assert topics == reference()
    assert 3000 < sum(1 for topic in topics for _ in sentences(topic)) < 6000


TEXTS = [f"sentence {index // 2}" for index in range(400)]  # each text twice
LENGTHS = [5 + len(text) * 7 % 13 + int(text[-1]) for text in TEXTS]


@pytest.mark.parametrize("count", [0, 1, 30, 150, 1000])
def test_a_sample_holds_every_length_and_no_text_twice(count: int) -> None:
    picks = sample(LENGTHS, TEXTS, count, seed=3)

    assert {LENGTHS[index] for index in picks} == set(LENGTHS)
    assert max(Counter(TEXTS[index] for index in picks).values()) == 1
    assert len(picks) == min(max(count, len(set(LENGTHS))), len(set(TEXTS)))
    assert picks == sorted(picks)


def test_a_sample_is_fixed_by_its_seed() -> None:
    assert sample(LENGTHS, TEXTS, 50, seed=1) == sample(LENGTHS, TEXTS, 50, seed=1)
    assert sample(LENGTHS, TEXTS, 50, seed=1) != sample(LENGTHS, TEXTS, 50, seed=2)
