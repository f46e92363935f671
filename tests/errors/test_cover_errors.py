"""A text that names a microkernel of this machine is covered by it, or rejected with the question that fails."""

from __future__ import annotations

import pytest

import offcut as oc

TEXT = """program t
size n in 0:64
input X: float32[8, n]
input Y: float32[n, 32]
output Z: float32[8, 32]
tile a in 0 +: 8, b in 0 +: 32  @cover({name}{said})
  Z[a, b] = 0.0
  for c in 0:n
    Z[a, b] += {term}
"""


def fma() -> str:
    return next(k.name for k in oc.target("cpu").microkernels() if "float32" in k.name)


@pytest.mark.parametrize(
    ("said", "term", "because"),
    [
        (
            "; i=b, j=a, p=c; A=X, B=Y, C=Z",
            "X[a, c] * Y[c, b]",
            "moves: X[a, c] does not move as A[i, p] with i=b, j=a, p=c",
        ),
        ("", "X[a, c] + Y[c, b]", "term: X[a, c] + Y[c, b] is not what it sums"),
    ],
    ids=["an axis swapped", "another term"],
)
def test_a_cover_that_is_wrong_is_an_error(said: str, term: str, because: str) -> None:
    name = fma()
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(oc.parse(TEXT.format(name=name, said=said, term=term)))
    assert str(refused.value) == (
        f"compile: cannot cover a tile by {name}\n  at       tile a, b\n  because  {because}\n"
        "  help     without @cover(…) it runs as vectors"
    )


def test_a_cover_that_is_right_is_called() -> None:
    said = "; i=a, j=b, p=c; A=X, B=Y, C=Z"
    kernel = oc.compile(oc.parse(TEXT.format(name=fma(), said=said, term="X[a, c] * Y[c, b]")))
    assert not [note for note in kernel.plan(n=5).notes if fma() in note]
