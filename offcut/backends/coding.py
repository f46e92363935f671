"""From a request to code that runs: the passes that a kernel asks for when it needs what they give.

Code that is kept on disk is read, and neither planned nor proved again; a plan is made when somebody asks for it.
"""

from __future__ import annotations

from typing import Protocol

from offcut import debug
from offcut.backends.abi import Signature
from offcut.backends.compile_request import CompileRequest
from offcut.backends.decide import Candidates, candidates
from offcut.backends.host import cache
from offcut.backends.options import Loaded, Options, TargetPlan
from offcut.backends.passes import Pass
from offcut.backends.result_checks import check_result
from offcut.backends.target import Target


class Code(Protocol):
    """What the passes share: what is asked for, and what those before have given."""

    @property
    def request(self) -> CompileRequest:
        """Return what is compiled."""

    @property
    def options(self) -> Options:
        """Return how it is asked for."""

    @property
    def target(self) -> Target:
        """Return what runs it."""

    @property
    def signature(self) -> Signature:
        """Return how the kernel is called."""

    @property
    def candidates(self) -> Candidates:
        """Return what `DECIDE` gives."""

    @property
    def planned(self) -> TargetPlan:
        """Return what `PROVE` gives."""

    @property
    def lowered(self) -> bytes:
        """Return what `LOWER` gives."""


def decided(code: Code) -> Candidates:
    """Return the plans of the target's policy, the one that it likes best made."""
    return candidates(code.target, code.request, code.options)


def first_proved_plan(code: Code) -> TargetPlan:
    """Return the first plan that is proved: mostly the one that was made; else those that are easier to prove are made in turn."""
    return code.candidates.first_proved_plan


def lowered(code: Code) -> bytes:
    """Return the target's code of the plan: from the cache where it was made before.

    Raises PartitionError or TargetError where none can be made.
    """
    target, options = code.target, code.options
    content = (code.request.text, repr(code.signature), repr(code.request.users))
    facts = check_result(target, "cache_key_parts", target.cache_key_parts(options))
    name = cache.key(target.name, *content, *facts)
    cached = cache.read(name)
    if cached is not None and not debug.verifies():
        return cached
    planned = code.planned  # which proves it, again where it was kept
    if cached is not None:
        return cached
    lowered_bytes = check_result(target, "lower", target.lower(planned, code.signature, options))
    cache.write(name, lowered_bytes)
    return lowered_bytes


def loaded(code: Code) -> Loaded:
    """Return the code in this process.

    Raises TargetError where this machine cannot run it.
    """
    lowered, target = code.lowered, code.target
    with debug.timed("load"):
        return check_result(target, "load", target.load(lowered, code.signature, code.options))


DECIDE: Pass[Code, Candidates] = Pass(
    "decide",
    ("request", "options"),
    "candidates",
    "each decision by its theorem",
    decided,
    lambda plans: plans.first.program,
)
PROVE: Pass[Code, TargetPlan] = Pass(
    "prove",
    ("candidates",),
    "planned",
    "source = emitted, step by step to the last one, at every size; loops may run as marked",
    first_proved_plan,
    lambda planned: planned.program,
)
LOWER: Pass[Code, bytes] = Pass(
    "lower", ("planned",), "lowered", "tiles call the microkernels that they name", lowered
)
LOAD: Pass[Code, Loaded] = Pass(
    "load", ("lowered",), "loaded", "the machine has what the code needs", loaded
)
