"""Where an encoder's time goes: the kernels' shares, and each one's distance from its limit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from examples.sentences.encoder import Call, Encoder
from examples.sentences.tokens import Tokens
from offcut.experiment.limits import Limits


@dataclass(frozen=True, slots=True)
class Share:
    """All calls of one kernel.

    seconds   of processor time
    share     of all kernels' seconds
    flop      of the products
    limit     the least seconds that these calls can take, each as the average one
    by        what bounds them: an instruction, or a level of memory
    """

    kernel: str
    calls: int
    seconds: float
    share: float
    flop: int
    limit: float
    by: str


def shares(encoder: Encoder, sentences: Sequence[Tokens], limits: Limits) -> Iterator[Share]:
    """Encode `sentences` twice, once to warm the caches, and yield each kernel's part, in order."""
    encoder.encode_all(sentences)
    with encoder.noting() as calls:
        encoder.encode_all(sentences)
    total = sum(call.ns for call in calls)
    for kernel in dict.fromkeys(call.kernel for call in calls):
        yield _share(
            kernel, [call for call in calls if call.kernel == kernel], total, encoder, limits
        )


def _share(
    kernel: str, calls: Sequence[Call], total: int, encoder: Encoder, limits: Limits
) -> Share:
    ns, flop = sum(call.ns for call in calls), sum(call.flop for call in calls)
    moved = sum(call.moved for call in calls)
    bound = limits.now(flop // len(calls), moved // len(calls), encoder.kind)
    return Share(
        kernel,
        len(calls),
        ns * 1e-9,
        ns / total,
        flop,
        bound.seconds * len(calls),
        bound.by,
    )
