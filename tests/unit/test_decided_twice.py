"""A schedule that says a thing twice is refused by the second line, or by the line that holds both."""

from __future__ import annotations

import pytest

import offcut as oc

ONE_SPLIT = """schedule S
split S.r balance 14 as a b
split S.c mask 32 as e d
order S a e b d
cover S at b fma_float32_avx512(i=b, j=d, p=k)"""


@pytest.mark.isa("avx512f")
@pytest.mark.parametrize("height", [14, 8])
def test_an_axis_is_split_once_whatever_its_loops_are_called(height: int) -> None:
    k = oc.reduce_axis(21, name="k")
    a = oc.placeholder((oc.dim("n", max=99), 21), name="A")
    w = oc.placeholder((21, 50), name="W")
    s = oc.compute((a.shape[0], 50), lambda r, c: oc.sum(a[r, k] * w[k, c], axis=k), name="S")
    oc.compile(s, inputs=[a, w], schedule=oc.Schedule.parse(ONE_SPLIT))
    first, split, *rest = ONE_SPLIT.splitlines()
    again = f"split S.r balance {height} as a b"
    twice = oc.Schedule.parse("\n".join((first, split, again, *rest)))
    with pytest.raises(oc.OffcutError) as refused:
        oc.compile(s, inputs=[a, w], schedule=twice)
    assert (
        str(refused.value)
        == f"""\
split: cannot take r as an axis
  at       line 3: {again}
  because  it is split into r_tile and r_in
  help     loops of S: r_tile, r_in, c_tile, c_in"""
    )


@pytest.mark.parametrize(
    ("pairs", "name"),
    [("j=b, j=d, p=k", "j"), ("i=b, p=k, p=k", "p"), ("i=b; A=A, A=W", "A")],
)
def test_a_cover_says_once_what_an_axis_or_an_operand_is(pairs: str, name: str) -> None:
    with pytest.raises(oc.OffcutError) as refused:
        oc.Schedule.parse(f"schedule S\ncover S at b m({pairs})")
    assert (
        str(refused.value)
        == f"""\
parse: cannot read a schedule
  at       line 2: cover S at b m({pairs})
  because  it says twice what {name} of m is"""
    )
