"""Kernels and models as files, which a process runs that has no compiler: the machine code, the constants as it reads them, and how it is
called.

A file is a container (`container`) of ``code.o``, an object file of ELF that `Target.portable_code` made, or beside it a shared library of
that (`shared_library`), which no package but numpy is needed for; of ``constants``, packed, each from a multiple of 64 bytes on; and of a
manifest::

    format      1; a higher number is a newer layout
    offcut      the version that wrote it
    kind        "kernel", or "model": several kernels with memory between them, called as one
    triple      of the processor, as LLVM has it; features: that it must have
    signature   inputs, outputs, sizes and their relations (`offcut.backends.abi.Signature`); extents as text
    constants   [first byte, bytes] of each, in the order of the entry's pointers
    threads     that a call may use: more than 1 are a pool in the code
    library     name, bytes and CRC-32 of the shared library, in the folder of the file; null: ``code.o`` is in the file
    kernels     of a model that the cache keeps: the bytes of the object files of each kernel, which lie one after the other in a member
                ``kernels``; ``code.o`` calls them by `KERNEL_SYMBOL`
    faults      of a model: why a call cannot run, by the status that says so
    inputs, outputs  of a model: the names by which a mapping gives the inputs, and a call the outputs, each with its place in the signature,
                in the order of a call
    returns     "arrays": an array, or a tuple of several; "mapping": by name, always
    source      of a model: what the file that it was compiled from says of itself; empty where there is none
"""

from __future__ import annotations

import ctypes
import os
import platform
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import offcut
from offcut.backends.abi import AffineFact, Argument, PortableCode, Signature
from offcut.backends.host.by_name import SYMBOL as BY_NAME
from offcut.backends.host.by_name import call_by_name
from offcut.backends.host.call import make_callable
from offcut.backends.host.container import (
    lacks_package,
    other_processor,
    read_container,
    replacing,
    unreadable,
    write_container,
)
from offcut.backends.host.shared_library import (
    LibraryFile,
    is_own_architecture,
    open_library,
    open_pool,
)
from offcut.backends.typed_call import TypedCall
from offcut.core.extras import is_installed
from offcut.core.program import Size
from offcut.core.text.expressions import parse_expr
from offcut.errors import (
    CallError,
    DescribeError,
    InternalError,
    ParseError,
    TargetError,
    trim_traceback,
    trim_tracebacks,
)

FORMAT = 2
"""The layout of the files that this version writes, and the last that it reads."""
CODE, CONSTANTS, KERNELS = "code.o", "constants", "kernels"
KERNEL_SYMBOL = "kernel{}"
"""How the functions of a kernel begin, by its number."""
_SUFFIX, _LIBRARY_SUFFIX = ".offcut", ".so"
_LINE = 64  # bytes: a constant begins at a multiple
FIRST_FAULT = 16
"""The least status of the entry of a model that says why it cannot run: the first of its faults."""


@dataclass(frozen=True)
class SavedCode:
    """What a file says beside its machine code and constants.

    inputs, outputs  places in the signature by name
    returns  "arrays" or "mapping"
    threads  that a call may use
    source   what the file of a model says of itself, as JSON has it
    key      of a model that the cache keeps: its name there
    """

    kind: str
    signature: Signature
    triple: str
    features: tuple[str, ...]
    faults: tuple[str, ...] = ()
    inputs: Mapping[str, int] = field(default_factory=dict)
    outputs: Mapping[str, int] = field(default_factory=dict)
    returns: str = "arrays"
    threads: int = 1
    source: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""


def write_saved(
    path: str | os.PathLike[str],
    saved: SavedCode,
    code: PortableCode,
    constants: Sequence[Any],
    kernels: Sequence[Sequence[bytes]] = (),
    shared: bool = False,
) -> None:
    """Write the file of a kernel or of a model.

    constants  as the code reads them, arrays of uint8, in the order of the entry's pointers
    kernels    object files of each kernel that the code calls and does not hold, in the order of their numbers
    shared     whether the code is a shared library beside the file, of its name with the suffix ``.so``

    Raises DescribeError where it cannot be written, TargetError for code that calls functions of other libraries, or where there is no
    linker.
    """
    where = Path(os.fsdecode(path))
    library, beside = None, where.with_suffix(_LIBRARY_SUFFIX)
    if shared:
        from offcut.backends.host.shared_library import link

        library = link(saved.signature.name, code)
    if library is not None and beside == where:
        raise DescribeError(
            "save",
            f"cannot write {where}",
            because="its shared library would have the same name",
            help=(str(where.with_suffix(_SUFFIX)),),
        )
    if code.provided:
        raise TargetError(
            "save",
            f"cannot save {saved.signature.name}",
            because=f"it calls {', '.join(code.provided)}, which the process of the caller provides",
            help=("microkernels=()",),
        )
    parts, places, at = list[Any](), list[tuple[int, int]](), 0
    for constant in constants:
        padding = -at % _LINE
        places.append((at + padding, constant.nbytes))
        parts += [bytes(padding), constant]
        at += padding + constant.nbytes
    manifest = {
        "format": FORMAT,
        "offcut": offcut.__version__,
        "kind": saved.kind,
        "triple": saved.triple,
        "features": saved.features,
        "signature": _signature_json(saved.signature),
        "constants": places,
        "library": library and asdict(LibraryFile(beside.name, len(library), zlib.crc32(library))),
        "threads": code.threads,
        "faults": saved.faults,
        "inputs": saved.inputs,
        "outputs": saved.outputs,
        "returns": saved.returns,
        "source": saved.source,
        "key": saved.key,
        "kernels": [[len(one) for one in objects] for objects in kernels],
    }
    members = {CONSTANTS: parts}
    if library is None:
        members = {CODE: [code.object], **members}
    else:
        with replacing(beside) as file:
            file.write(library)
    if kernels:
        members[KERNELS] = [one for objects in kernels for one in objects]
    write_container(where, manifest, members)


def _signature_json(signature: Signature) -> Mapping[str, Any]:
    """Return a signature as JSON has it."""
    return {
        "name": signature.name,
        **{
            what: [{"name": a.name, "dtype": a.dtype, "shape": a.extents} for a in arguments]
            for what, arguments in (("inputs", signature.inputs), ("outputs", signature.outputs))
        },
        "sizes": [asdict(size) for size in signature.sizes],
        "relations": [asdict(fact) for fact in signature.relations],
        "updated": signature.updated,
    }


def _signature(given: Mapping[str, Any]) -> Signature:
    """Return a signature of what JSON has.

    Raises LookupError, TypeError or ParseError for anything else.
    """
    sizes = tuple(Size(**size) for size in given["sizes"])
    names = [size.name for size in sizes]

    def arguments(of: str) -> tuple[Argument, ...]:
        return tuple(
            Argument(
                str(one["name"]),
                str(one["dtype"]),
                tuple(parse_expr(text, "index", names=names) for text in one["shape"]),
            )
            for one in given[of]
        )

    relations = (
        AffineFact(**{**fact, "terms": tuple((str(n), int(k)) for n, k in fact["terms"])})
        for fact in given["relations"]
    )
    updated = tuple((int(i), int(o)) for i, o in given["updated"])
    inputs, outputs = arguments("inputs"), arguments("outputs")
    return Signature(str(given["name"]), inputs, outputs, sizes, tuple(relations), updated)


@trim_tracebacks
class SavedKernel(TypedCall):
    """A kernel of a file: ``kernel(a, b, out=None, n=12)`` runs as the one that was saved does.

    signature  how it is called
    """

    def __init__(self, path: Path, saved: SavedCode) -> None:
        self.path, self.saved = path, saved

    @property
    def signature(self) -> Signature:
        """Return how it is called."""
        return self.saved.signature

    def __reduce__(self) -> tuple[Any, ...]:
        """It is loaded again where it is read."""
        return load, (self.path,)

    def __repr__(self) -> str:
        given = ", ".join(argument.name for argument in self.signature.inputs)
        sizes = ", ".join(size.name for size in self.signature.sizes)
        return f"<{self.saved.kind} {self.signature.name}({given}) for any {sizes or 'call'}, of {self.path}>"


@trim_tracebacks
class SavedModel(SavedKernel):
    """A model of a file: ``model({"x": x})`` gives the outputs by name, ``model(x)`` the output, or a tuple of several."""

    def __init__(
        self, path: Path, saved: SavedCode, run: Callable[..., Any], by_name: int = 0
    ) -> None:
        """Take the call with arrays in order.

        by_name  address of a function of `by_name_ir` in the code; 0: there is none
        """
        super().__init__(path, saved)
        places, names = [*saved.inputs.values()], [*saved.inputs]
        self._run, self._is_mapping = run, saved.returns == "mapping"
        places_of = saved.inputs, saved.outputs
        self.by_name = call_by_name(
            saved.signature.name, by_name, run, *places_of, is_mapping=self._is_mapping
        )
        self._order = sorted(range(len(places)), key=places.__getitem__)
        self._names = [names[at] for at in self._order]

    @property
    def inputs(self) -> dict[str, Argument]:
        """Return what a call takes, by name."""
        return {name: self.signature.inputs[at] for name, at in self.saved.inputs.items()}

    @property
    def outputs(self) -> dict[str, Argument]:
        """Return what a call gives, by name."""
        return {name: self.signature.outputs[at] for name, at in self.saved.outputs.items()}

    @trim_traceback
    def __call__(self, *given: Any, **sizes: Any) -> Any:
        """Return the outputs.

        given  a mapping with an array for each input, or the arrays in order
        sizes  those that no shape determines

        Raises CallError where an array does not fit, or the model does not run at these sizes.
        """
        if not sizes and (results := self.by_name(*given)) is not None:
            return results
        feed = given[0] if len(given) == 1 else None
        if is_named := isinstance(feed, Mapping):
            given = self._arrays(feed)
        elif len(given) == len(self._order):
            given = tuple([given[at] for at in self._order])
        results = self._run(*given, **sizes)
        several = results if isinstance(results, tuple) else (results,)
        if is_named or self._is_mapping:
            return {name: several[place] for name, place in self.saved.outputs.items()}
        in_order = tuple([several[place] for place in self.saved.outputs.values()])
        return in_order if len(in_order) > 1 else in_order[0]

    def _arrays(self, given: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arrays of a mapping, in the order of the signature."""
        names = self.saved.inputs
        if given.keys() != names.keys():
            wrong = sorted(map(str, {*given} ^ {*names}))
            raise CallError(
                self.signature.name,
                f"takes {', '.join(names) or 'no array'}, got {', '.join(map(str, given)) or 'none'}",
                at=wrong[0],
                because=f"its inputs are {', '.join(names) or 'none'}",
            )
        return tuple(map(given.__getitem__, self._names))


@trim_traceback
def load(path: str | os.PathLike[str]) -> SavedKernel:
    """Return the kernel or the model of a file that `save` wrote. No compiler is imported, and constants are read from the mapped file:
    processes that load one file have them in memory once.

    path  of the file, or of the shared library beside it

    Raises DescribeError for a file that cannot be read, that is damaged, or that a newer version wrote; TargetError on a processor that it
    was not made for.
    """
    if not isinstance(path, str | os.PathLike):
        raise DescribeError(
            "load",
            f"cannot read {path!r}",
            because="it is not a path",
            help=('oc.load("encoder.offcut")',),
        )
    where = Path(os.fsdecode(path)).absolute()
    beside = where.name if where.suffix == _LIBRARY_SUFFIX else None
    if beside is not None:
        where = where.with_suffix(_SUFFIX)
    manifest, members = read_container(where)
    newest = manifest.get("format")
    if not isinstance(newest, int) or newest < 1:
        raise unreadable(where, f"its manifest has the format {newest!r}")
    if newest > FORMAT:
        by = manifest.get("offcut", "a newer version")
        raise DescribeError(
            "load",
            f"cannot read {where}",
            because=f"offcut {by} wrote it in format {newest}, and {offcut.__version__} reads up to {FORMAT}",
            help=(f"pip install 'offcut>={by}'", "saved again by this version"),
        )
    try:
        signature = _signature(manifest["signature"])
        saved = SavedCode(
            str(manifest["kind"]),
            signature,
            str(manifest["triple"]),
            _texts(manifest["features"]),
            _texts(manifest["faults"]),
            _places(manifest["inputs"], len(signature.inputs)),
            _places(manifest["outputs"], len(signature.outputs)),
            str(manifest["returns"]),
            int(manifest.get("threads", 1)),
            dict(manifest.get("source", {})),
            str(manifest.get("key", "")),
        )
        library, constants = manifest.get("library"), members[CONSTANTS]
        code = bytes(members[CODE]) if library is None else LibraryFile.read(library)
        kernels = _split_objects(members, manifest.get("kernels", ()))
        places = [(int(first), int(count)) for first, count in manifest["constants"]]
    except (LookupError, TypeError, ValueError, AttributeError, ParseError) as error:
        raise unreadable(where, f"its manifest is incomplete: {error}") from None
    if beside is not None and not (isinstance(code, LibraryFile) and code.name == beside):
        own = f"in {code.name}" if isinstance(code, LibraryFile) else "in the file itself"
        raise unreadable(where, f"its machine code is not {beside}, but {own}")
    if any(first < 0 or first % _LINE or first + count > len(constants) for first, count in places):
        raise unreadable(where, "its manifest names constants that it does not hold")
    return _load_code(where, saved, code, kernels, constants, [first for first, _ in places])


def _texts(given: Any) -> tuple[str, ...]:
    """Return a list of texts; raises TypeError for anything else."""
    if not isinstance(given, list):
        raise TypeError(f"{given!r} is not a list")
    return tuple(map(str, given))


def _places(given: Any, count: int) -> Mapping[str, int]:
    """Return places below `count` by name; raises TypeError or ValueError for anything else."""
    if not isinstance(given, dict):
        raise TypeError(f"{given!r} is not a mapping")
    places = {str(name): int(place) for name, place in given.items()}
    if any(not 0 <= place < count for place in places.values()):
        raise ValueError(f"there are {count} arrays, and {given!r} names others")
    return places


def _split_objects(members: Mapping[str, Any], counts: Any) -> list[list[bytes]]:
    """Return the object files of kernels, of as many bytes each as `counts` says; raises LookupError or TypeError where there are fewer."""
    kernels, at = list[list[bytes]](), 0
    for each in counts:
        objects = list[bytes]()
        for count in each:
            objects.append(bytes(members[KERNELS][at : at + count]))
            at += count
        kernels.append(objects)
    if kernels and at != len(members[KERNELS]):
        raise LookupError("it does not hold its kernels")
    return kernels


def _load_code(
    where: Path,
    saved: SavedCode,
    code: bytes | LibraryFile,
    kernels: Sequence[Sequence[bytes]],
    constants: Any,
    places: Sequence[int],
) -> SavedKernel:
    """Return what a file holds, its code in this process.

    kernels    object files of each kernel that the code does not hold
    constants  bytes of all of them; places: where each begins
    """
    name = saved.signature.name
    if not is_own_architecture(saved.triple):
        made_for, here = saved.triple.partition("-")[0], platform.machine()
        because = f"it is for {made_for}, and this process runs on {here}"
        raise other_processor(where, name, because)
    arrays = (*saved.signature.inputs, *saved.signature.outputs)
    if any(one.dtype == "bfloat16" for one in arrays) and not is_installed("ml_dtypes"):
        raise lacks_package(where, name, "numpy has bfloat16 by ml_dtypes alone", "ml_dtypes")
    module, owner = _code(where, saved, code, kernels)
    try:
        supported = module.address("offcut_supported")
        entry, workspace, fastcall = (
            module.address(f"offcut_{name}") for name in ("entry", "workspace", "fastcall")
        )
    except (RuntimeError, InternalError) as error:
        raise unreadable(where, f"its machine code cannot be loaded: {error}") from None
    if not ctypes.CFUNCTYPE(ctypes.c_int32)(supported)():
        features = ", ".join(saved.features)
        because = f"it needs {features}, and this machine lacks one of these"
        raise other_processor(where, name, because)
    if saved.threads > 1 and not open_pool(module):
        raise unreadable(where, "there is no memory for its threads")
    address = constants.__array_interface__["data"][0]
    is_model = saved.kind == "model"
    call = make_callable(
        saved.signature,
        entry,
        workspace,
        fastcall,
        [(address + first, constants) for first in places],
        owner=owner,
        faults=dict(enumerate(saved.faults, FIRST_FAULT)) if is_model else None,
    )
    if is_model:
        return SavedModel(where, saved, call, _address(module, BY_NAME))
    kind = type("SavedKernel", (SavedKernel,), {"__call__": call, "__doc__": SavedKernel.__doc__})
    kernel: SavedKernel = kind(where, saved)
    return kernel


def _code(
    where: Path,
    saved: SavedCode,
    code: bytes | LibraryFile,
    kernels: Sequence[Sequence[bytes]],
) -> tuple[Any, Any]:
    """Return the machine code in this process, which gives addresses by symbols, and what stays as long as it runs.

    kernels  object files of each kernel that the code does not hold
    """
    if isinstance(code, LibraryFile):
        library = where.parent / code.name
        try:
            opened = open_library(library, code)
            return opened, opened
        except FileNotFoundError:
            because = f"its machine code is in {code.name}, which is not beside it"
        except (OSError, RuntimeError) as error:
            because = f"its machine code cannot be loaded from {code.name}: {error}"
        raise unreadable(where, because)
    try:
        from offcut.backends.llvm.loader import load_objects
    except ModuleNotFoundError:
        because = "its machine code is an object file, which llvmlite loads"
        raise lacks_package(
            where, saved.signature.name, because, "llvmlite", "save(path, shared=True)"
        ) from None
    try:
        loaded = [load_objects(objects, saved.triple) for objects in kernels]
        functions = {
            f"{KERNEL_SYMBOL.format(number)}_{name}": kernel.address(f"offcut_{name}")
            for number, kernel in enumerate(loaded)
            for name in ("entry", "workspace")
        }
        module = load_objects([code], saved.triple, functions)
        return module, (module, loaded)
    except RuntimeError as error:
        raise unreadable(where, f"its machine code cannot be loaded: {error}") from None


def _address(module: Any, symbol: str) -> int:
    """Return the address of a function; 0 where the code, of an older version, has none."""
    try:
        return int(module.address(symbol))
    except (RuntimeError, InternalError):
        return 0
