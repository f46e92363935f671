"""C++ text taken apart: what each source that includes it needs, and what is compiled once for all of them.

Functions that are no templates, members that are defined outside of their class, and variables are compiled once; so are the classes of
the library that the text uses (`CLASSES`), which take most of a compiler's time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

CLASSES = (
    "std::function<void()>",
    "std::vector<std::function<void()>>",
    "std::vector<std::vector<std::function<void()>>>",
    "std::vector<unsigned short>",
    "std::vector<float>",
    "std::vector<Copy>",
    "std::map<void *, Sums>",
    "std::map<int, Region>",
    "std::map<barrier *, Phase>",
)
_STATIC = re.compile(r"(?:DEVICE|static inline|static) ")
_FUNCTION = re.compile(r"(?:DEVICE|static inline|static) ([^{;=]*\)[^{;]*?) \{")
_VARIABLE = re.compile(r"((?:alignas\(\d+\) )?)static (.*?)( = [^;]*)?;(.*)", re.DOTALL)
_MEMBER = re.compile(r'(?:\w+ )?\w+::~?\w+\(|extern "C" ')
_CODE = re.compile(r'"(?:\\.|[^"\\])*"|//.*')


def taken_apart(text: str) -> tuple[str, str]:
    """Return the header of a text, and the source that is compiled once behind it."""
    header, source = ["#pragma once"], []
    for item in _items(text):
        function, variable = _FUNCTION.match(item), _VARIABLE.fullmatch(item)
        if function:
            header.append(f"{function[1]};")
            source.append(_STATIC.sub("", item, count=1))
        elif variable:
            aligned, declared, value, comment = variable.groups("")
            header.append(f"{aligned}extern {declared};{comment}")
            source.append(f"{aligned}{declared}{value};")
        else:
            (source if _MEMBER.match(item) else header).append(item)
    header += (f"extern template class {one};" for one in CLASSES)
    source += (f"template class {one};" for one in CLASSES)
    return "\n".join(header), "\n".join(source)


def _items(text: str) -> Iterator[str]:
    """Yield what stands at the top level, each with its lines."""
    lines, depth = list[str](), 0
    for line in text.splitlines():
        code = _CODE.sub("", line).rstrip()
        depth += code.count("{") - code.count("}")
        lines.append(line)
        if depth == 0 and (not code or code.startswith("#") or code[-1] in ";}"):
            yield "\n".join(lines)
            lines = []
