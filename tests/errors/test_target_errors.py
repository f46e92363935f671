"""Targets of somebody's own that give something else than they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut import Target
from offcut.backends.target import TargetPlan
from offcut.errors import TargetError
from tests.facade import load_machine


class Mine(Target):
    """Gives the first input back; ``over`` stands in the place of one of its methods."""

    name = "mine"
    machine = load_machine("avx2")

    def __init__(self, **over: Any) -> None:
        for name, value in over.items():
            setattr(self, name, value)

    def policy(self, program: Any, users: Any, options: Any) -> Iterator[TargetPlan]:
        yield TargetPlan(program)

    def lower(self, planned: Any, signature: Any, options: Any) -> bytes:
        return b"mine"

    def load(self, lowered: Any, signature: Any, options: Any) -> Any:
        return lambda constants: lambda kernel, *inputs: inputs[0]


class Texts:
    """Mixed into a target, makes code that is no bytes."""

    def lower(self, planned: Any, signature: Any, options: Any) -> Any:
        return "text"


def kernel(target: Target) -> Any:
    n = oc.dim("n", max=9)
    x = oc.placeholder((n, 4), name="x")
    return oc.compile(oc.ops.relu(x), inputs=[x], target=target)


def nothing(*args: object, **named: object) -> None:
    """What a method gives that was forgotten to return."""


PROGRAM = oc.parse("size n in 0:9\noutput c: float32[n]\nfor i in 0:n\n  c[i] = 1.0\n")

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "options": (
        lambda: kernel(Mine(options=nothing)),
        "options\n  because  it gives None, not Options",
    ),
    "policy": (
        lambda: kernel(Mine(policy=nothing)),
        "policy\n  because  it gives None, not an iterator over plans",
    ),
    "a plan": (
        lambda: kernel(Mine(policy=lambda *_: iter([PROGRAM]))),
        f"policy\n  because  it gives {PROGRAM!r}, not TargetPlan(program)",
    ),
    "facts": (
        lambda: kernel(Mine(cache_key_parts=lambda _: 3)),
        "cache_key_parts\n  because  it gives 3, not a tuple of texts",
    ),
    "code": (
        lambda: kernel(Mine(lower=lambda *_: "text")),
        "lower\n  because  it gives 'text', not bytes",
    ),
    "what is loaded": (
        lambda: kernel(Mine(load=nothing)),
        "load\n  because  it gives None, not a function of the constants",
    ),
    "what is called": (
        lambda: kernel(Mine(load=lambda *_: nothing)),
        "load\n  because  it gives None, not a function that is called",
    ),
    "notes": (
        lambda: kernel(Mine(notes=lambda *_: 3)).plan(n=2),
        "notes\n  because  it gives 3, not a tuple of lines",
    ),
    "forms": (
        lambda: kernel(Mine(source_forms=3)).source("mine"),
        "source_forms\n  because  it gives 3, not a tuple of names",
    ),
    "a form": (
        lambda: kernel(Mine(source_forms=("mine",), render_form=nothing)).source("mine"),
        "render_form\n  because  it gives None, not a text",
    ),
    "a machine": (
        lambda: kernel(Mine(machine="avx2")),
        "machine\n  because  it gives 'avx2', not the description of a machine",
    ),
}


@pytest.fixture(autouse=True)
def kept_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFCUT_CACHE", "off")


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_target_gives_is_of_the_kind_that_is_asked_for(case: str) -> None:
    ask, text = REFUSED[case]
    with rejection(f"TargetError: target: cannot use target='mine'\n  at       Mine.{text}"):
        ask()


def test_a_name_is_a_text() -> None:
    with pytest.raises(TargetError) as refused:
        kernel(Mine(name=3))
    text = "target: cannot use target=3\n  at       Mine.name\n  because  it gives 3, not a text"
    assert str(refused.value) == text


def test_a_target_that_gives_what_is_asked_for_is_used() -> None:
    x = np.ones((2, 4), "float32")
    made = kernel(
        Mine(source_forms=["mine"], render_form=lambda *_: "shown", notes=lambda *_: ["noted"])
    )
    assert made(x) is x
    assert made.source("mine") == "shown"
    assert "noted" in str(made.plan(n=2))


def test_a_method_may_be_static() -> None:
    class Static(Mine):
        @staticmethod
        def load(lowered: bytes, signature: Any, options: Any) -> Any:
            return lambda constants: lambda kernel, *inputs: inputs[0]

    x = np.ones((2, 4), "float32")
    assert kernel(Static())(x) is x


def test_what_an_inherited_method_gives_is_checked() -> None:
    class Second(Texts, Mine): ...

    with pytest.raises(TargetError) as refused:
        kernel(Second())
    text = "target: cannot use target='mine'\n  at       Second.lower\n  because  it gives 'text', not bytes"
    assert str(refused.value) == text
