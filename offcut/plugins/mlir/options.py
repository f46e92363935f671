"""The options of ``offcut-partition``, read strictly: what says nothing, or says it twice, is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.utils.exceptions import PassFailedException

from offcut.errors import DescribeError

OP = "offcut-partition"

_TILES = ('tile="i=8,j=32"', "tile=8,32 by depth")
_TAILS = ("tail=mask", 'tail="i=balance,j=mask"')


def tiles_by_name(given: str) -> dict[str, int]:
    """``"i=8,j=32"`` as a tile by loop; of an empty text none.

    Raises PassFailedException for a part that is no loop and its tile, and for a loop that is named twice.
    """
    found: dict[str, int] = {}
    for part, name, number in _pairs(given):
        if not name or not (number.isascii() and number.isdecimal()):
            raise _refused("tile", given, f"{part!r} is no loop and its tile", _TILES)
        if name in found:
            raise _refused("tile", given, f"it says two tiles of {name}", _TILES)
        found[name] = int(number)
    return found


def tiles_by_depth(given: int | tuple[int, ...]) -> tuple[int, ...]:
    """The tiles from the outermost loops inward.

    Raises PassFailedException for one below 0.
    """
    tiles = (given,) if isinstance(given, int) else given
    for tile in tiles:
        if tile < 0:
            because = f"{tile} is no tile: one is from 1 on, and 0 leaves a loop as it is"
            raise _refused("tile", given, because, _TILES)
    return tiles


def tails_of(given: str) -> str | dict[str, str]:
    """A strategy for all loops that are cut, or by loop.

    Raises PassFailedException for a part that is no loop and its strategy, and for a loop that is named twice.
    """
    if "=" not in given:
        return given
    found: dict[str, str] = {}
    for part, name, strategy in _pairs(given):
        if not name or not strategy:
            raise _refused("tail", given, f"{part!r} is no loop and its strategy", _TAILS)
        if name in found:
            raise _refused("tail", given, f"it says two strategies of {name}", _TAILS)
        found[name] = strategy
    return found


def check_read(given: str, tails: str | Mapping[str, str], cut: Mapping[str, object]) -> None:
    """Refuse strategies of loops that are not among those that are cut."""
    if isinstance(tails, str):
        return
    for name in tails:
        if name not in cut:
            because = f"no loop that is cut is called {name}: {', '.join(cut) or 'none is cut'}"
            raise _refused("tail", given, because, _TAILS)


def check_copies(given: int | None) -> None:
    """Refuse a number of copies that is none."""
    if given is not None and given < 1:
        because = "it is what one store may become: 1 or more"
        raise _refused("copies", given, because, ("copies=1 leaves every condition where it is",))


def _pairs(given: str) -> Iterator[tuple[str, str, str]]:
    for part in given.replace(",", " ").split():
        name, _, said = part.partition("=")
        yield part, name, said


def _refused(
    option: str, given: object, because: str, help: tuple[str, ...]
) -> PassFailedException:
    refused = DescribeError(OP, f"cannot take {option}={given!r}", because=because, help=help)
    return PassFailedException(str(refused))
