"""What a user sees of a rejected call: their own lines, one of offcut's, and the error."""

import traceback

import numpy as np
import pytest

import offcut as oc
from offcut.errors import OffcutError, trim_traceback


def _dense():
    n = oc.dim("n", min=1, max=64)
    a, w = oc.placeholder((n, 8), name="A"), oc.placeholder((8, 9), name="W")
    k = oc.reduce_axis(8, name="k")
    return oc.compute((n, 9), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="C"), [a, w]


def _compile():
    output, inputs = _dense()
    oc.compile(output, inputs=inputs, strategy={"i": "exact"})


def _call():
    output, inputs = _dense()
    oc.compile(output, inputs=inputs, target="interpret")(np.zeros((3, 8)), np.zeros((8, 9)))


CALLS = {
    "compile": _compile,
    "a call of a kernel": _call,
    "a method of a kernel": lambda: oc.compile(*_dense(), target="interpret").plan(n=1000),
    "partition": lambda: oc.partition(_dense()[0], tile={"i": 8}, tail="exact"),
    "parse": lambda: oc.parse("program x("),
    "target": lambda: oc.target("nowhere"),
    "a schedule by hand": lambda: oc.create_schedule(_dense()[0])["C"].split("q", 4),
    "Schedule.parse": lambda: oc.Schedule.parse("nothing of the kind"),
}


def _files(call):
    with pytest.raises(oc.OffcutError) as rejected:
        call()
    return [frame.filename for frame in traceback.extract_tb(rejected.value.__traceback__)]


@pytest.mark.parametrize("name", CALLS)
def test_a_traceback_shows_one_frame_of_offcut(name, monkeypatch):
    monkeypatch.delenv("OFFCUT_DEBUG", raising=False)
    own = [file for file in _files(CALLS[name]) if file != __file__]
    assert len(own) == 1
    assert own[0] == oc.errors.__file__


def test_the_users_function_that_offcut_called_stays_in_the_traceback(monkeypatch):
    monkeypatch.delenv("OFFCUT_DEBUG", raising=False)
    a = oc.placeholder((oc.dim("n"), 8), name="A")

    def element(i, j):
        return a[i, j, j]

    with pytest.raises(oc.DescribeError) as rejected:
        oc.compute((4, 8), element)
    frames = traceback.extract_tb(rejected.value.__traceback__)
    assert [frame.name for frame in frames] == [
        "test_the_users_function_that_offcut_called_stays_in_the_traceback",
        "call",
        "element",
    ]


def test_debugging_shows_every_frame(monkeypatch):
    monkeypatch.setenv("OFFCUT_DEBUG", "1")
    assert len(_files(CALLS["compile"])) > 10


def test_the_traceback_of_a_cause_may_be_as_long_as_the_stack() -> None:
    def endless() -> None:
        endless()

    @trim_traceback
    def refuse() -> None:
        try:
            endless()
        except RecursionError as error:
            raise OffcutError("refuse", "cannot go on", because="it recurses") from error

    with pytest.raises(OffcutError) as refused:
        refuse()
    assert isinstance(refused.value.__cause__, RecursionError)
