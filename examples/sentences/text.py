"""The text: the language reference inside Python, split into sentences, and the sample of it.

What the reference says differs between Python versions, so the sentences do too; for one Python
they are always the same, in the same order.
"""

import random
import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from offcut.errors import OffcutError

# A heading and the line under it: neither is a sentence.
HEADING = re.compile(r"""^.*\n[ ]*([-*=~^"+#])\1{2,}[ ]*$""", re.MULTILINE)

# Between a full stop and a capital, unless what stops is the number of a list item ("2. The …").
BOUNDARY = re.compile(r"""(?<=[.!?])(?<!^\d\.)(?<!^\d\d\.)\s+(?=[A-Z"“*])""")


def reference() -> tuple[str, ...]:
    """Return the topics of the language reference that `help()` shows, in order of their names.

    Raises OffcutError when this Python was built without `pydoc_data`.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as missing:
        raise OffcutError(
            "demo",
            "cannot read the language reference",
            because=f"this Python lacks it: {missing}",
            help=("use a Python whose help('with') prints a text",),
        ) from missing
    return tuple(str(topics[name]) for name in sorted(topics))


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of `text`, one line each; a table, grammar or program counts as one.

    Paragraphs are separated by empty lines; headings are dropped, list bullets too.

    >>> list(sentences("Calls\\n*****\\n\\nA call\\ncalls. It is i.e. called.\\n\\n* 1. One item."))
    ['A call calls.', 'It is i.e. called.', '1. One item.']
    """
    for paragraph in re.split(r"\n\s*\n", HEADING.sub("", text)):
        line = " ".join(paragraph.split()).removeprefix("* ")
        yield from (found for found in BOUNDARY.split(line) if found)


def sample(lengths: Sequence[int], texts: Sequence[str], count: int, seed: int) -> list[int]:
    """Return the indices of some `count` sentences that hold every length, in the text's order.

    One sentence of each length, then sentences drawn from the rest, so that frequent lengths stay
    frequent. The reference repeats itself: of equal texts only the first takes part.

    lengths   tokens per sentence
    texts     the sentences
    count     sentences wanted; more come back when there are more lengths, fewer when there are
              fewer distinct texts
    seed      of the draw: the same arguments give the same sample
    """
    first = {text: index for index, text in reversed(list(enumerate(texts)))}
    pool = sorted(first.values())
    draw = random.Random(seed)
    by_length = groupby(sorted(pool, key=lambda index: lengths[index]), lambda i: lengths[i])
    chosen = {draw.choice(list(group)) for _, group in by_length}
    rest = [index for index in pool if index not in chosen]
    chosen.update(draw.sample(rest, min(len(rest), max(0, count - len(chosen)))))
    return sorted(chosen)
