"""Where the scratch of a call lies: apart from its result, as bytes of a page go."""

PAGE = 4096
"""Bytes below which cores compare addresses at first: a load waits for a store before it that agrees with it below, whatever lies
there.
"""

SCRATCH_OFFSET = 1536
"""Bytes in a page that scratch begins behind the first result, far from it and from arrays a quarter or a half of a page away. Source:
softmax in bfloat16 takes 1.2 to 1.6 times as long where the allocator lays scratch right behind its result (Zen 4).
"""

ALIGNMENT = 64
"""Bytes that it begins at a multiple of."""

ALIGNMENT_SLACK = PAGE - 1 + ALIGNMENT - 1
"""Bytes that are asked for beside what a call needs, so that it can be laid so."""


def scratch_address(block: int, result: int) -> int:
    """The address of scratch in a block of memory that has `ALIGNMENT_SLACK` bytes more than it needs.

    result  address of the first result
    """
    ahead = (result + SCRATCH_OFFSET - block) % PAGE
    return block + ahead + -(block + ahead) % ALIGNMENT
