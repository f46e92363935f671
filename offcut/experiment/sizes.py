"""A sample of a range of sizes: geometric, with both ends, and many odd ones."""

from __future__ import annotations


def sample(values: range, points: int) -> tuple[int, ...]:
    """Return about geometrically spaced members of `values`, both ends among them, many of them odd.

    A geometric progression hits powers of two, where everything is fast; every second inner point
    is moved to an odd neighbour where there is one.

    values   ascending, at least `points` members
    points   how many are returned; 2 or more, else 2
    """
    sampled = [values[0]]
    inner = max(points, 2) - 2
    for position in range(inner):
        remaining = inner - position + 1
        last = max(sampled[-1], 1)
        target = last * (values[-1] / last) ** (1 / remaining)
        least = values.index(sampled[-1]) + 1
        most = len(values) - remaining
        index = min(max(round((target - values.start) / values.step), least), most)
        if position % 2 == 0 and values[index] % 2 == 0 and index < most:
            index += values[index + 1] % 2
        sampled.append(values[index])
    return (*sampled, values[-1])
