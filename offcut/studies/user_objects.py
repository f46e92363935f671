"""What a study's file names of its user's own, ``module:function`` or an entry point; and modules that are missing for it.

Modules that operators of a user's own need and that are not installed: these operators are left out, the others are measured.
"""

from __future__ import annotations

import ast
import dis
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

from offcut.core.extras import installing, missing_package
from offcut.core.names import similar_names
from offcut.errors import DescribeError
from offcut.studies.errors import Place, error_text, refusal


@dataclass(frozen=True, slots=True)
class Named:
    """Something that a file names.

    name    as the file has it
    value   what it is
    digest  of the source file that it is in, and of those beside the study that this one imports: another text there is another contender;
            "" where there is none
    """

    name: str
    value: Any
    digest: str


def load_named(
    name: str, group: str, folder: Path, at: Place | str, known: Sequence[str] = ()
) -> Named:
    """Return what ``module:function`` is, or the entry point of that name.

    group   of entry points, such as ``offcut.peers``
    folder  where modules are looked for before those that are installed
    known   names of offcut's own that may have been meant

    Raises DescribeError where there is none, or where its module cannot be loaded.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        points = {point.name: point for point in entry_points(group=group)}
        if name not in points:
            listed = ", ".join(sorted(points)) or "none"
            close = similar_names(name, (*known, *points))
            own = f"; offcut has {', '.join(known)}" if known and not close else ""
            because = f"there is no {name!r}{own}; entry points of {group}: {listed}"
            help = '"module:function", a file beside the study'
            raise refusal(at, because, *filter(None, [close]), help)
        module, _, attribute = points[name].value.partition(":")
    with _first_on_path(folder), without_exit():
        try:
            loaded = _module(module, folder)
            value: Any = loaded
            for part in attribute.split("."):
                value = _attribute(value, part, name, at)
        except DescribeError:
            raise
        except (Exception, SystemExit) as error:  # whatever a user's module does while loaded
            package = missing_package(error)
            help = installing(package) if package else '"module:function", a file beside the study'
            raise refusal(at, error_text(error), help, what=f"cannot load {name!r}") from error
    file = getattr(loaded, "__file__", None)
    digest = _digest_of_sources(Path(file), folder) if file and Path(file).exists() else ""
    return Named(name, value, digest)


def _attribute(owner: Any, name: str, text: str, at: Place | str) -> Any:
    """Return an attribute of a module, or of an object in one.

    Raises DescribeError for a name that it lacks.
    """
    if hasattr(owner, name):
        return getattr(owner, name)
    names = [one for one in vars(owner) if not one.startswith("_")] if name else []
    help = similar_names(name, names) or '"module:function", a file beside the study'
    because = f"{text.partition(':')[0]} has no {name!r}"
    raise refusal(at, because, help, what=f"cannot load {text!r}")


def _module(name: str, folder: Path) -> ModuleType:
    """Return a module: of a file of `folder` where there is one, loaded once for each text of it; else of that name."""
    file = folder.joinpath(*name.split(".")).with_suffix(".py")
    if not file.is_file():
        return importlib.import_module(name)
    own = f"{name}@{sha256(str(file.resolve()).encode()).hexdigest()[:8]}{digest_of_file(file)}"
    if own not in sys.modules:
        spec = importlib.util.spec_from_file_location(own, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[own] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[own]
            raise
    return sys.modules[own]


def _digest_of_sources(file: Path, folder: Path) -> str:
    """Return a digest of a file, and of the modules of `folder` that it imports, directly or by others."""
    files, pending = dict[Path, str](), [file]
    while pending:
        source = pending.pop()
        if source in files:
            continue
        files[source] = digest_of_file(source)
        pending += _imported_files(source, folder)
    if len(files) == 1:
        return files[file]
    return sha256("".join(sorted(files.values())).encode()).hexdigest()[:16]


def _imported_files(file: Path, folder: Path) -> Iterator[Path]:
    """Yield the files of `folder` that a source imports by name; none of one that is not Python."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            base = folder.joinpath(*name.split("."))
            yield from (
                one for one in (base.with_suffix(".py"), base / "__init__.py") if one.is_file()
            )


def check_callable(own: Named, at: Place, what: str) -> None:
    """Refuse an object that cannot be called.

    what  the function is called with, as the help says it
    """
    if not callable(own.value):
        because = f"{own.name} is {type(own.value).__name__}, not a function"
        raise refusal(at, because, f'"module:function" of {what}')


def digest_of_file(file: Path) -> str:
    """Return a digest of a file's bytes."""
    return sha256(file.read_bytes()).hexdigest()[:16]


@contextmanager
def without_exit() -> Iterator[None]:
    """Let `os._exit` raise SystemExit in this process, whose study would end without a word; a child that is forked meanwhile ends."""
    leave, process, is_active = os._exit, os.getpid(), True

    def refuse(status: int) -> NoReturn:
        if is_active and os.getpid() == process:
            raise SystemExit(f"it ends the process by os._exit({status})")
        leave(status)

    os._exit = refuse
    try:
        yield
    finally:
        os._exit, is_active = leave, False


@contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


MAX_NAMES = 6
"""Operators that a line names."""


@dataclass(frozen=True, slots=True)
class AbsentOperator:
    """An operator that is left out of a study.

    name    in tables
    module  that it needs and that is not installed
    """

    name: str
    module: str


def missing_module(error: BaseException, own: str) -> str:
    """Return the module that is not installed by an error or one of its causes; "" for another error.

    own  the module that the study's file names: where that is missing, the file is wrong
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            package = cause.name.partition(".")[0]
            is_own = package == own.partition(":")[0].partition(".")[0]
            return "" if is_own or not _is_missing(package) else package
        cause = cause.__cause__
    return ""


def _is_missing(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is None
    except (ImportError, ValueError):
        return True


def needs_missing_module(function: Callable[..., Any]) -> bool:
    """Return whether a function, or one of its file that it may call, has an import of a module that is not installed.

    It need not reach that import: calling the function says so. Nothing is called here.
    """
    pending, known = list[Any]([function]), set[Any]()
    while pending:
        one = pending.pop()
        if not isinstance(one, FunctionType) or one in known:
            continue
        known.add(one)
        for code in _codes(one.__code__):
            if any(_is_missing(package) for package in _imports(code)):
                return True
            names = (one.__globals__.get(name) for name in code.co_names)
            pending += [x for x in names if getattr(x, "__module__", None) == one.__module__]
    return False


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code, and those of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _imports(code: CodeType) -> Iterator[str]:
    """Yield the packages that a code imports by their full names."""
    # an import takes its level and its names from the two last constants
    before: list[Any] = [None, None]
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME" and before[0] == 0:
            yield str(step.argval).partition(".")[0]
        before = [before[1], step.argval]


def absent_lines(operators: Sequence[AbsentOperator]) -> list[str]:
    """Return a line for each module: that it is not installed, how it is, and which operators are left out."""
    lines = []
    for module in dict.fromkeys(one.module for one in operators):
        names = [one.name for one in operators if one.module == module]
        what = "an operator is" if len(names) == 1 else f"{len(names)} operators are"
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        listed = f"{', '.join(names[:MAX_NAMES])}{more}"
        lines.append(f"{module} is not installed ({installing(module)}): {what} left out: {listed}")
    return lines
