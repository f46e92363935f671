"""The door through which tests reach what offcut keeps to itself: what a process remembers, and a machine to plan for."""

from __future__ import annotations

from functools import cache

from offcut.backends.cpu import tiles
from offcut.backends.cpu.machine.isa import AVX512_FEATURES, Host, isa_of
from offcut.backends.cpu.microkernels import external, vnni
from offcut.backends.cpu.planning import planner
from offcut.core.program import Program
from offcut.costmodel import load
from offcut.partition import Users
from offcut.proof import equivalence


def forget_plans() -> None:
    """What is compiled next is planned anew."""
    planner._plan.cache_clear()


def forget_code() -> None:
    """What is compiled next has its microkernels compiled, or read from the cache on disk."""
    tiles.forget()


def forget_rates() -> None:
    """External microkernels are timed anew."""
    external._costs.cache_clear()


def forget_proofs() -> None:
    """Programs are compared anew."""
    equivalence._proved.cache_clear()


@cache
def described_host() -> Host:
    """A processor with AVX-512 and dot products of bytes, wherever tests run."""
    return Host("x86_64-tests", vnni.FEATURES, isa_of(AVX512_FEATURES, load("cascade-lake")))


def planned(program: Program) -> Program:
    """The loops that `described_host` runs a program in."""
    return planner.plan(program, Users.of(program), described_host()).program
