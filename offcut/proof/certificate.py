"""What was proved: theorems, and the certificate that lists them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Theorem:
    """One thing that was proved: its name, the statement, and for which part."""

    name: str
    statement: str
    of: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was proved, for every size that the facts allow; a call is checked against the facts."""

    theorems: tuple[Theorem, ...]

    def __str__(self) -> str:
        width = max(len(theorem.name) for theorem in self.theorems)
        return "\n".join(f"{t.name:<{width}}  {t.statement}  ({t.of})" for t in self.theorems)

    def __repr__(self) -> str:
        names = dict.fromkeys(theorem.name for theorem in self.theorems)
        return f"<certificate: {', '.join(names)}>"
