"""Names that are spelt nearly right are told what they may have meant."""

import pytest
from conftest import rejection

import offcut as oc
from offcut.errors import DescribeError
from tests.facade import Builder


def test_a_misspelt_name_of_the_package_is_told_the_nearest() -> None:
    with rejection(
        "AttributeError: module 'offcut' has no attribute 'complie': did you mean compile or compute?"
    ):
        oc.complie  # noqa: B018
    with rejection(
        "AttributeError: module 'offcut.ops' has no attribute 'sofmax': did you mean softmax or log_softmax or max?"
    ):
        oc.ops.sofmax  # noqa: B018


def test_a_name_that_is_like_none_is_told_nothing() -> None:
    with pytest.raises(AttributeError, match=r"^module 'offcut' has no attribute 'qqq'$"):
        oc.qqq  # noqa: B018


def test_a_misspelt_operator_of_a_graph_is_told_the_nearest() -> None:
    builder = Builder("g")
    x = builder.input("x", "float32", (4,))
    with pytest.raises(DescribeError) as refused:
        builder.node("rulu", x)
    assert str(refused.value).endswith("\n  help     did you mean relu or relu6?")
