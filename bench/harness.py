"""What the scripts of this folder share: their options, and models of torch."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcut.experiment.timing import restart_single_threaded
from offcut.studies.user_objects import load_named

STUDIES = Path(__file__).parents[1] / "studies" / "bench"
"""The folder of the studies that are benches."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says.

    cells   regular expression that is looked for in names; empty takes all
    budget  seconds for each that is timed
    """

    quick: bool = False
    cells: str = ""
    budget: float = 0.12


def read_options(text: str, has: Collection[str] = ()) -> Options:
    """Return the options of a script, from the command line; the program starts again with one thread for each library.

    text   the script's docstring, whose first line ``--help`` shows
    has    the options that it has beside ``--quick``
    """
    parser = argparse.ArgumentParser(description=text.partition("\n")[0], allow_abbrev=False)
    arguments: dict[str, dict[str, Any]] = {
        "quick": {"action": "store_true", "help": "some minutes at most"},
        "cells": {"default": "", "help": "only those with this regular expression"},
        "budget": {"type": float, "help": "seconds for each that is timed"},
    }
    for name, how in arguments.items():
        if name == "quick" or name in has:
            parser.add_argument(f"--{name}", **how)
    values = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    budget = values.get("budget", 0.04 if values.get("quick") else 0.12)
    restart_single_threaded()
    return Options(**{**values, "budget": budget})


def network(name: str, *arguments: int) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
    """Return a module, and its inputs by sizes, that a function of `networks.py` gives."""
    function = load_named(f"networks:{name}", "offcut.operators", STUDIES, "bench").value
    module, inputs = function(*arguments)
    return module, inputs
