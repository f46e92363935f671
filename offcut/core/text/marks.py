"""Reads and prints the marks behind a loop or a tile, and the statements of synchronization.

A mark says how something runs, never what it computes::

    for j in 0:3  @tail  @thread
    tile r in 8*i +: 8, k in 0 +: 64  @mask  @by(load)  @async  @cover(load_inp; i=r, p=k; A=A, C=A_in)
    wait full where i >= 2
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from offcut.core.program import UNITS, UNROLL, Action, Cover, For, Form, Role, Sync, Tile
from offcut.core.text.expressions import Reader
from offcut.errors import ParseError

_ROLES = {role.value: role for role in Role}
_FORMS = {form.value: form for form in Form}
VIRTUAL = "virtual"
_OLDER_UNITS = {"serial": None, "parallel": "thread", "vectorize": "lane", VIRTUAL: VIRTUAL}
"""How texts of versions before 0.3 name units; read until 0.5. What each of two virtual threads had is two windows in turn."""
_LOOP = (*_ROLES, *UNITS, "bind(…)")
_TILE = (*_ROLES, *_FORMS, "by(…)", "async", "multicast(…)", "cover(…)")


def loop_marks(loop: For) -> Iterator[str]:
    """Return the marks of a loop, in printing order, without their ``@``."""
    if loop.role is not Role.WHOLE:
        yield loop.role.value
    if loop.factor is not None:
        yield f"{UNROLL}({loop.factor})"
    elif loop.unit is not None:
        yield loop.unit if loop.unit in UNITS else f"bind({loop.unit})"


def tile_marks(tile: Tile) -> Iterator[str]:
    """Return the marks of a tile, in printing order, without their ``@``."""
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
    """Return a cover as ``name; axis=iterator, …; operand=buffer, …``, or the name alone if it has neither."""
    parts = [cover.microkernel]
    if cover.axes or cover.operands:
        lists = (cover.axes, cover.operands) if cover.operands else (cover.axes,)
        parts += [", ".join(f"{a}={b}" for a, b in pairs) for pairs in lists]
    return "; ".join(parts)


def sync_text(sync: Sync, where: str) -> str:
    """Return the line of a statement of synchronization; `where` is its condition as text, "" for none."""
    words = [sync.action.value]
    if sync.action is Action.WAIT_GROUP:
        words.append(str(sync.pending))
    elif sync.name:
        words.append(sync.name)
    if where:
        words.append(f"where {where}")
    return " ".join(words) + (f"  @by({sync.unit})" if sync.unit is not None else "")


def read_loop_marks(reader: Reader) -> tuple[Role, str | None, int | None]:
    """Read the marks of a loop to the end of its line; return its role, its unit and the factor of ``@unroll(4)``.

    Raises ParseError for a mark that no loop has, and for a second one of a kind.
    """
    marks = _Marks(reader, "a for", _LOOP)
    for mark in marks:
        if mark in _ROLES:
            marks.take("role", _ROLES[mark])
        elif mark in UNITS or mark in _OLDER_UNITS:
            marks.take("unit", _OLDER_UNITS.get(mark, mark))
            if mark == UNROLL and reader.token.text == "(":
                marks.fields["factor"] = marks.size()
        elif mark == "bind":
            marks.take_name("unit", "the name of a unit")
        else:
            raise marks.unknown()
    fields = marks.fields
    return fields.get("role", Role.WHOLE), fields.get("unit"), fields.get("factor")


def read_tile_marks(reader: Reader, names: frozenset[str]) -> Mapping[str, Any]:
    """Read the marks of a tile to the end of its line; return the fields of `Tile` that they set.

    names   the coordinates around the tile

    Raises ParseError for a mark that no tile has, and for a second one of a kind.
    """
    marks = _Marks(reader, "a tile", _TILE)
    for mark in marks:
        column = reader.token.start
        if mark in _ROLES:
            marks.take("role", _ROLES[mark])
        elif mark in _FORMS:
            marks.take("form", _FORMS[mark])
        elif mark == "async":
            marks.take("asynchronous", True)
        elif mark == "by":
            marks.take_name("unit", "the name of a unit")
        elif mark == "multicast":
            loop = marks.take_name("multicast", "the name of a loop")
            if loop not in names:
                raise reader.refuse(
                    f"cannot copy for every iteration of {loop}",
                    "no loop around the tile has that name",
                    column=column,
                )
        elif mark in ("cover", "microkernel"):
            marks.fields["cover"] = _cover(reader, marks.take_name("cover", "a name"), column)
        else:
            raise marks.unknown()
    return marks.fields


def read_sync(reader: Reader) -> Sync:
    """Read a line that begins with the word of an action, to its end.

    Raises ParseError for a negative count, and for a mark but one ``@by``.
    """
    action, name, pending = Action(reader.advance().text), "", 0
    behind = reader.following()
    name_alone = behind.kind == "end" or behind.text in ("where", "@")  # a token called `group`
    if action is Action.WAIT and reader.at("group") and not name_alone:
        reader.advance()
        action, column, pending = Action.WAIT_GROUP, reader.token.start, reader.integer()
        if pending < 0:
            raise reader.refuse(
                f"cannot wait for {pending} groups",
                "so many may still be under way: a count, from 0 on",
                "wait group 0",
                column=column,
            )
    else:
        what = {Action.BARRIER: "the name of a unit", Action.FENCE: "what is made visible"}
        name = reader.name(what.get(action, "the name of a token"))
    where = reader.condition() if reader.accept("where") else None
    marks = _Marks(reader, f"a {action.value}", ("by(…)",))
    for mark in marks:
        if mark != "by":
            raise marks.unknown()
        marks.take_name("unit", "the name of a unit")
    return Sync(action, name, where, pending, marks.fields.get("unit"))


def _cover(reader: Reader, text: str, column: int) -> Cover:
    """Return the cover of a text, as `cover_text` has it; `column` is that of its mark."""
    name, *lists = (part.strip() for part in text.split(";"))
    pairs = [
        tuple(tuple(side.strip() for side in pair.split("=")) for pair in part.split(",") if pair)
        for part in lists
    ]
    two = all(len(pair) == 2 and all(pair) for part in pairs for pair in part)
    if not name or len(pairs) > 2 or not two:
        raise reader.refuse(
            f"cannot cover a tile by `{text}`",
            "a cover is a microkernel, or it and its axes and its operands, each with what it is here",
            "@cover(fma)",
            "@cover(fma; i=ii, j=jj, p=k; A=X, B=W, C=Y)",
            column=column,
        )
    axes, operands = (*pairs, (), ())[:2]
    return Cover(name, tuple((a, b) for a, b in axes), tuple((a, b) for a, b in operands))


@dataclass
class _Marks:
    """The marks behind a statement: its text, words and fields.

    what    the statement, in the texts of errors
    words   the marks that it may have
    fields  the values of those that are read, by the field that they set
    """

    reader: Reader
    what: str
    words: tuple[str, ...]
    fields: dict[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[str]:
        while self.reader.token.kind != "end":
            self.reader.expect("@")
            yield self.reader.token.text

    def take(self, name: str, value: Any) -> None:
        """Take the word of a mark, which sets a field that has no value yet."""
        if name in self.fields:
            raise self._error("it has such a mark already")
        self.fields[name] = value
        self.reader.advance()

    def take_name(self, name: str, what: str) -> str:
        """Take the word of a mark and a name in brackets behind it, which the field is set to; return the name."""
        self.take(name, None)
        bracket = self.reader.expect("(")
        text = self.fields[name] = self.reader.raw(what, ")")
        self.reader.close(bracket, ")")
        return text

    def size(self) -> int:
        """Take an integer of at least 1 in brackets.

        Raises ParseError for any other.
        """
        bracket = self.reader.expect("(")
        column, size = self.reader.token.start, self.reader.integer()
        if size < 1:
            raise self.reader.refuse(
                f"cannot run {size} iterations together",
                "there is one at least",
                "@unroll(4)",
                column=column,
            )
        self.reader.close(bracket, ")")
        return size

    def unknown(self) -> ParseError:
        """Return the error for a word that is no mark here."""
        return self._error("there is no such mark")

    def _error(self, because: str) -> ParseError:
        what = f"cannot mark {self.what} with @{self.reader.token.text}"
        marks = ", ".join("@" + word for word in self.words)
        return self.reader.refuse(what, because, f"marks of {self.what}: {marks}")
