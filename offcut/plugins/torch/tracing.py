"""How torch traces for us, so that one graph serves every size.

With ``backed_size_oblivious`` sizes start at 0, and what truly depends on a size of 1 becomes a guard; sizes that are equal by
chance stay apart; and libraries that torch takes for some batches only (NNPACK below 16, oneDNN above 1) are not considered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx.experimental import _config as symbolic


class Oblivious:
    """Settings of torch while it traces a frame for us; put back when the compilation ends."""

    before: tuple[bool, ...] = ()

    @classmethod
    def enter(cls) -> None:
        """Trace sizes of 0 and 1 as sizes, and equal ones apart; choose no library for a convolution by its batch."""
        if not cls.before:
            cls.before = cls._now()
            cls._set(True, False, False, False)

    @classmethod
    def leave(cls, *_: Any) -> None:
        """As it was."""
        if cls.before:
            cls._set(*cls.before)
            cls.before = ()

    @staticmethod
    def now() -> bool:
        """Whether sizes of 0 and 1 are traced as sizes."""
        return bool(symbolic.backed_size_oblivious)

    @staticmethod
    def _now() -> tuple[bool, ...]:
        return (
            symbolic.backed_size_oblivious,
            symbolic.use_duck_shape,
            torch._C._get_nnpack_enabled(),
            torch._C._get_mkldnn_enabled(),
        )

    @staticmethod
    def _set(oblivious: bool, duck: bool, nnpack: bool, mkldnn: bool) -> None:
        symbolic.backed_size_oblivious, symbolic.use_duck_shape = oblivious, duck
        torch._C._set_nnpack_enabled(nnpack)
        torch._C._set_mkldnn_enabled(mkldnn)


@contextmanager
def oblivious() -> Iterator[None]:
    """These settings, inside."""
    Oblivious.enter()
    try:
        yield
    finally:
        Oblivious.leave()
