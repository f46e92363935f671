"""What members agree on: where they differ, the closed form stays.

Of an operator that was not seen, members that have seen others say different things, and their mean is as good as any of them:
worse than no correction. Of what all of them have seen the like of, they say the same, and all of it is taken. With m the mean over
the members and v their variance,

    agreed = m * m^2 / (m^2 + v)

which is the part of m that is not noise where each member is the truth and an error of its own. It is taken twice: of what is said of
the middle of the rows that are compared, which moves all of them, and of how far a row is said to be from that, which orders them.

Source: James and Stein, "Estimation with quadratic loss", Berkeley Symposium 1961, of each number by itself and by the variance
that is seen.
"""

from __future__ import annotations

import numpy as np

from offcut.costmodel.learned.values import Values

_TINY = 1e-12


def agreed(found: Values, middle: Values) -> Values:
    """Corrections, logarithms of a ratio of seconds, an entry for each row.

    found   what each member says of each row: ``(members, rows)``
    middle  what it says of the middle of the rows that are compared with each: ``(members, rows)``, or one column for all
    """
    said: Values = _part(middle) + _part(found - middle)
    return said


def _part(found: Values) -> Values:
    mean = found.mean(axis=0)
    variance = found.var(axis=0, ddof=1) if len(found) > 1 else np.zeros_like(mean)
    kept: Values = mean**3 / (mean**2 + variance + _TINY)
    return kept
