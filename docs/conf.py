"""The site: pages of Markdown as they stand, a reference made from docstrings; `make docs` builds it into out/docs.

The order of pages is that of the links in README.md; a page that it does not link is a warning, and warnings end the build.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath
from types import ModuleType
from typing import Any

import offcut as oc

DOCS = Path(__file__).parent
REPOSITORY = "https://github.com/offcut/offcut"

project = "offcut"
author = "the authors of offcut"
version = release = oc.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"offcut {release}"
html_theme_options = {
    "source_repository": REPOSITORY,
    "source_branch": "main",
    "source_directory": "docs/",
}
exclude_patterns = ["README.md"]  # index.md includes it
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
myst_links_external_new_tab = True
suppress_warnings = ["misc.highlighting_failure"]  # Python whose results stand below it
default_role = "code"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True

WAYS_IN = "Four ways in"
"""The section of the index whose links are those of the sections after it."""
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_IMAGE_OR_LINK = re.compile(r"(\]\()([^)\s:]+?)((?:#[^)\s]*)?\))")
_MODULES = {
    "offcut.ops": "Operators",
    "offcut.ir": "Programs as data",
    "offcut.external": "External functions",
}
"""Public modules, each a page of the reference."""


def table_of_contents(text: str) -> Iterator[str]:
    """Yield a hidden toctree for each section of the index: the pages that it links, in their order."""
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        if title == WAYS_IN:
            continue
        pages = [
            link
            for _, link in _LINK.findall(body)
            if link.endswith(".md") and not link.startswith(".")
        ]
        if pages:
            caption = title.partition(":")[0]
            pages += ["reference/api/index"] * (caption == "Reference")
            yield "\n".join(
                ("", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", "")
            )


def with_links(text: str, folder: str) -> str:
    """Return a page of `folder` whose links to files outside of docs/ lead to the repository."""

    def link(found: re.Match[str]) -> str:
        path = normpath(f"docs/{folder}/{found[2]}")
        inside = path.startswith("docs/") or not found[2].startswith("..")
        return found[0] if inside else f"{found[1]}{REPOSITORY}/blob/main/{path}{found[3]}"

    return _IMAGE_OR_LINK.sub(link, text)


def read_source(app: Any, page: str, source: list[str]) -> None:
    """Complete a page before it is parsed: the index with its contents, any with its links."""
    if page == "index":
        app.env.note_dependency(str(DOCS / "README.md"))
        index = (DOCS / "README.md").read_text(encoding="utf-8")
        source[0] = index + "".join(table_of_contents(index))
    source[0] = with_links(source[0], page.rpartition("/")[0])


def to_fields(
    app: Any, what: str, name: str, value: object, options: Any, lines: list[str]
) -> None:
    """Rewrite a docstring of this house for Sphinx: columns of names and meanings are fields, what is indented is literal."""
    rows, text = list(lines), list[str]()
    column = re.compile(r"(\w+(?:, \w+)*)  +(\S.*)")
    at = 0
    while at < len(rows):
        row = rows[at]
        found = column.fullmatch(row)
        if found:
            field = "ivar" if what == "class" else "param"
            meaning = [found[2]]
            while at + 1 < len(rows) and rows[at + 1].startswith("  "):
                at += 1
                meaning.append(rows[at].strip())
            text += ["", f":{field} {found[1].replace(', ', ' ')}: {' '.join(meaning)}"]
        elif row.startswith("    ") and not "".join(rows[at - 1 : at]).strip():
            previous = next((one for one in reversed(text) if one.strip()), "")
            if not previous.endswith("::"):
                text += ["::", ""]
            while at < len(rows) and (rows[at].startswith("  ") or not rows[at].strip()):
                text.append(rows[at])
                at += 1
            at -= 1
        else:
            if text and text[-1].startswith((":param", ":ivar")) and row.strip():
                text.append("")
            text.append(row)
        at += 1
    lines[:] = text


def public_names(module: ModuleType) -> list[str]:
    """Return the names that a module states, or defines, in its order."""
    stated = getattr(module, "__all__", None)
    if stated is not None:
        return [name for name in stated if not inspect.ismodule(getattr(module, name))]
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith(module.__name__)
    ]


def is_elsewhere(name: str, module: str) -> bool:
    """Whether another page of the reference has this object."""
    value = getattr(getattr(oc, module.rpartition(".")[2]), name)
    return any(getattr(oc, other, None) is value for other in oc.__all__ if other == name)


def write_reference(app: Any) -> None:
    """Write the pages of the reference, one for the face and one for each public module; they are not committed."""
    folder = DOCS / "reference" / "api"
    folder.mkdir(exist_ok=True)
    groups: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors": []}
    for name in oc.__all__:
        value = getattr(oc, name)
        if inspect.ismodule(value) and name != "partition":
            continue
        is_error = isinstance(value, type) and issubclass(value, Exception)
        kind = "Errors" if is_error else "Classes" if isinstance(value, type) else "Functions"
        groups[kind].append(name)
    lines = ["# API", "", "Every public name of `import offcut as oc`, with its docstring.", ""]
    lines += [
        "```{toctree}",
        ":hidden:",
        "",
        *(name.rpartition(".")[2] for name in _MODULES),
        "```",
        "",
    ]
    for kind, names in groups.items():
        lines += [f"## {kind}", "", "```{eval-rst}"]
        for name in names:
            directive = {
                "Functions": "autofunction",
                "Classes": "autoclass",
                "Errors": "autoexception",
            }[kind]
            lines += [
                f".. {directive}:: offcut.{name}",
                *(["   :members:"] if kind != "Functions" else []),
                "",
            ]
        lines += ["```", ""]
    pages = {"index": lines}
    for module, title in _MODULES.items():
        public = getattr(oc, module.rpartition(".")[2])
        body = [
            f"# {title}: `{module}`",
            "",
            "```{eval-rst}",
            f".. automodule:: {module}",
            "   :no-index:",
            "",
        ]
        for name in public_names(public):
            value = getattr(public, name)
            directive = (
                "autoclass"
                if isinstance(value, type)
                else "autofunction"
                if callable(value)
                else "py:data"
            )
            # What the face has, too, is found there.
            body += [
                f".. {directive}:: {module}.{name}",
                *(["   :no-index:"] if is_elsewhere(name, module) else []),
                "",
            ]
        pages[module.rpartition(".")[2]] = [*body, "```", ""]
    for page, text in pages.items():
        (folder / f"{page}.md").write_text("\n".join(text), encoding="utf-8")


def setup(app: Any) -> None:
    """Register what this file does to pages and docstrings."""
    app.connect("builder-inited", write_reference)
    app.connect("source-read", read_source)
    app.connect("autodoc-process-docstring", to_fields)
