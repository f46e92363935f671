"""Tokens of launches and of options that are joined have names of their own."""

from __future__ import annotations

import offcut as oc
from offcut.polyhedral.sync.launches import join_options

OPTION = """\
program options
size n in 0:99
input A: float32[n]
output B: float32[n]
token {0}: load -> warp count 1 room 1
token {1}: load -> warp count 1 room 1
for i in 0:n
  arrive {0}  @by(load)
  arrive {1}  @by(load)
  wait {0}  @by(warp)
  wait {1}  @by(warp)
  B[i] = A[i]
"""
CHOICE = """\
program options
size n in 0:99
input A: float32[n]
output B: float32[n]
choose
  option one costs 1.0
    for i in 0:n
      B[i] = A[i]
  option other costs 2.0
    for i in 0:n
      B[i] = A[i]
"""


def test_tokens_that_are_named_anew_have_no_name_of_another() -> None:
    options = [oc.parse(OPTION.format(*names)) for names in (("t", "t_2"), ("t", "t_3"))]
    joined = join_options(oc.parse(CHOICE), options)
    names = [token.name for token in joined.tokens]
    assert names == ["t", "t_2", "t_3", "t_3_2"]
    assert oc.parse(str(joined)) == joined
