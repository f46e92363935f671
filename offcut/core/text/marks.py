"""The marks behind a loop or a tile, and the statements of synchronization: read from a line, and printed.

A mark says how something runs, never what it computes::

    for j in 0:3  @tail  @thread
    tile r in 8*i +: 8, k in 0 +: 64  @mask  @by(load)  @async  @cover(load_inp; i=r, p=k; A=A, C=A_in)
    wait full where i >= 2
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from offcut.core.program import UNITS, Action, Cover, For, Form, Role, Sync, Tile
from offcut.core.text.expressions import Reader
from offcut.core.text.tokens import Token as Word

T = TypeVar("T")
_ROLES = {role.value: role for role in Role}
_FORMS = {form.value: form for form in Form}
_OLDER_UNITS = {"serial": None, "parallel": "thread", "vectorize": "lane"}
"""How texts of versions before 0.3 name units; read until 0.5."""
_LOOP = (*_ROLES, *UNITS, "bind(…)")
_TILE = (*_ROLES, *_FORMS, "by(…)", "async", "multicast(…)", "cover(…)")


def loop_marks(loop: For) -> Iterator[str]:
    """The marks of a loop, in printing order, without their ``@``."""
    if loop.role is not Role.WHOLE:
        yield loop.role.value
    if loop.unit is not None:
        yield loop.unit if loop.unit in UNITS else f"bind({loop.unit})"


def tile_marks(tile: Tile) -> Iterator[str]:
    """The marks of a tile, in printing order, without their ``@``."""
    if tile.role is not Role.WHOLE:
        yield tile.role.value
    if tile.form is not Form.FULL:
        yield tile.form.value
    if tile.unit is not None:
        yield f"by({tile.unit})"
    if tile.asynchronous:
        yield "async"
    if tile.multicast is not None:
        yield f"multicast({tile.multicast})"
    if tile.cover is not None:
        yield f"cover({cover_text(tile.cover)})"


def cover_text(cover: Cover) -> str:
    """A cover as ``name; axis=iterator, …; operand=buffer, …``, a name alone where it says no more."""
    parts = [cover.microkernel]
    if cover.axes or cover.operands:
        parts += [", ".join(f"{a}={b}" for a, b in pairs) for pairs in (cover.axes, cover.operands)]
    return "; ".join(parts)


def sync_text(sync: Sync, where: str) -> str:
    """The line of a statement of synchronization; `where` is its condition as text, "" for none."""
    words = [sync.action.value]
    if sync.action is Action.WAIT_GROUP:
        words.append(str(sync.pending))
    elif sync.name:
        words.append(sync.name)
    if where:
        words.append(f"where {where}")
    return " ".join(words) + (f"  @by({sync.unit})" if sync.unit is not None else "")


def read_loop_marks(reader: Reader) -> tuple[Role, str | None]:
    """Read the marks of a loop to the end of its line: its role and its unit."""
    roles, units = list[Role](), list[str | None]()
    while reader.token.kind != "end":
        reader.expect("@")
        mark = reader.token.text
        if mark in _ROLES:
            _once(reader, "a for", _LOOP, roles, _ROLES[mark])
        elif mark in UNITS or mark in _OLDER_UNITS:
            _once(reader, "a for", _LOOP, units, _OLDER_UNITS.get(mark, mark))
        elif mark == "bind":
            _once(reader, "a for", _LOOP, units, mark)
            units[-1] = _in_brackets(reader, "the name of a unit")
        else:
            raise _unknown(reader, "a for", _LOOP)
    return next(iter(roles), Role.WHOLE), next(iter(units), None)


def read_tile_marks(reader: Reader, names: frozenset[str]) -> Mapping[str, Any]:
    """Read the marks of a tile to the end of its line: the fields of `Tile` that they set.

    names   the coordinates around the tile
    """
    roles, forms, units = list[Role](), list[Form](), list[str]()
    asynchronous, loops, covers = list[bool](), list[str](), list[Cover]()
    while reader.token.kind != "end":
        reader.expect("@")
        mark, column = reader.token.text, reader.token.start
        if mark in _ROLES:
            _once(reader, "a tile", _TILE, roles, _ROLES[mark])
        elif mark in _FORMS:
            _once(reader, "a tile", _TILE, forms, _FORMS[mark])
        elif mark == "async":
            _once(reader, "a tile", _TILE, asynchronous, True)
        elif mark == "by":
            _once(reader, "a tile", _TILE, units, mark)
            units[-1] = _in_brackets(reader, "the name of a unit")
        elif mark == "multicast":
            _once(reader, "a tile", _TILE, loops, mark)
            loops[-1] = _in_brackets(reader, "the name of a loop")
            if loops[-1] not in names:
                raise reader.refuse(
                    f"cannot copy for every iteration of {loops[-1]}",
                    "no loop around the tile has that name",
                    column=column,
                )
        elif mark in ("cover", "microkernel"):
            _once(reader, "a tile", _TILE, covers, Cover(""))
            covers[-1] = _cover(reader, _in_brackets(reader, "a name"), column)
        else:
            raise _unknown(reader, "a tile", _TILE)
    return {
        "form": next(iter(forms), Form.FULL),
        "role": next(iter(roles), Role.WHOLE),
        "cover": next(iter(covers), None),
        "unit": next(iter(units), None),
        "asynchronous": bool(asynchronous),
        "multicast": next(iter(loops), None),
    }


def read_sync(reader: Reader) -> Sync:
    """Read a line that begins with the word of an action, to its end."""
    action, name, pending = Action(reader.advance().text), "", 0
    if action is Action.WAIT and reader.at("group") and reader.following().kind == "number":
        reader.advance()
        action, column, pending = Action.WAIT_GROUP, reader.token.start, reader.integer()
        if pending < 0:
            raise reader.refuse(
                f"cannot wait for {pending} groups", "a count is not negative", column=column
            )
    else:
        what = {Action.BARRIER: "the name of a unit", Action.FENCE: "what is made visible"}
        name = reader.name(what.get(action, "the name of a token"))
    where = reader.condition() if reader.accept("where") else None
    units = list[str]()
    while reader.token.kind != "end":
        reader.expect("@")
        if not reader.at("by"):
            raise _unknown(reader, f"a {action.value}", ("by(…)",))
        _once(reader, f"a {action.value}", ("by(…)",), units, "by")
        units[-1] = _in_brackets(reader, "the name of a unit")
    return Sync(action, name, where, pending, next(iter(units), None))


def _cover(reader: Reader, text: str, column: int) -> Cover:
    """The cover that stands in the brackets of its mark."""
    name, *lists = (part.strip() for part in text.split(";"))
    pairs = [
        tuple(tuple(side.strip() for side in pair.split("=")) for pair in part.split(",") if pair)
        for part in lists
    ]
    two = all(len(pair) == 2 and all(pair) for part in pairs for pair in part)
    if not name or len(pairs) not in (0, 2) or not two:
        raise reader.refuse(
            f"cannot cover a tile by `{text}`",
            "a cover is a microkernel, or it and its axes and its operands, each with what it is here",
            "@cover(fma)",
            "@cover(fma; i=ii, j=jj, p=k; A=X, B=W, C=Y)",
            column=column,
        )
    axes, operands = pairs or ((), ())
    return Cover(name, tuple((a, b) for a, b in axes), tuple((a, b) for a, b in operands))


def _in_brackets(reader: Reader, what: str) -> str:
    bracket = reader.expect("(")
    text = reader.raw(what, ")")
    reader.close(bracket, ")")
    return text


def _once(reader: Reader, what: str, words: tuple[str, ...], marks: list[T], value: T) -> Word:
    """Take the word of a mark, of which there is none yet."""
    if marks:
        raise reader.refuse(
            f"cannot mark {what} with @{reader.token.text}",
            "it has such a mark already",
            _all(what, words),
        )
    marks.append(value)
    return reader.advance()


def _unknown(reader: Reader, what: str, words: tuple[str, ...]) -> Exception:
    return reader.refuse(
        f"cannot mark {what} with @{reader.token.text}", "there is no such mark", _all(what, words)
    )


def _all(what: str, words: tuple[str, ...]) -> str:
    return f"marks of {what}: {', '.join('@' + word for word in words)}"
