"""The command line of a bench: what all benches read their arguments with."""

from __future__ import annotations

import argparse


def bench_parser(text: str) -> argparse.ArgumentParser:
    """A parser without options yet, which refuses every option that is not spelled out.

    text  the bench's docstring, whose first line ``--help`` shows
    """
    return argparse.ArgumentParser(description=text.partition("\n")[0], allow_abbrev=False)
