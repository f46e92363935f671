"""Who competes in a study: offcut with a strategy, a schedule, a price, a target of one's own; other libraries; functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import offcut as oc
from offcut.backends.arguments import checked_strategy
from offcut.core.extras import installing
from offcut.describe.microkernel import Microkernel
from offcut.describe.request import Array
from offcut.errors import OffcutError
from offcut.experiment.timing import fastest
from offcut.partition import STRATEGIES
from offcut.studies import compile_options
from offcut.studies.entries import ENTRY_KEYS, ContenderTable
from offcut.studies.errors import (
    Place,
    check_keys,
    check_names,
    file_of,
    refusal,
    text_of,
    texts_of,
    threads_of,
)
from offcut.studies.models import FRONTENDS
from offcut.studies.offcut_operators import Described
from offcut.studies.peers import (
    COMPUTES,
    LOOP_COMPILERS,
    PEERS,
    Peers,
    Way,
    load_peers,
    missing_packages,
)
from offcut.studies.peers.operators import results_of
from offcut.studies.table import plural
from offcut.studies.tasks import Compiled, Operator, Task, at_page_offset
from offcut.studies.user_objects import Named, check_callable, digest_of_file, load_named

OURS = (
    *("strategy", "schedule", "price", "microkernels", "rules", "threads", "frontend"),
    *compile_options.KEYS,
)
NO_WAY = "study: cannot measure a peer"
"""What the reason of a peer begins with that computes no such operator."""


@dataclass(frozen=True)
class Ready:
    """A contender that is ready for a task.

    run        one call
    read       its results, from what that returned
    way        which of its ways it is
    predicted  what the call is predicted to cost; None of a peer
    compile_seconds  that compiling took, if it was compiled for this task
    simulated  seconds of the call by the target's simulator, which is then not timed; None where it runs
    """

    run: Callable[[], Any]
    read: Callable[[Any], tuple[Array, ...]]
    way: str
    predicted: Any = None
    compile_seconds: float = 0.0
    simulated: float | None = None


class Contender(Protocol):
    """Something that computes an operator."""

    @property
    def name(self) -> str:
        """Return its name in tables."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Return what it is, as plain data with digests of files: another one is measured anew."""

    @property
    def is_peer(self) -> bool:
        """Return whether it is something else than offcut."""

    def ready(self, operator: Operator, task: Task) -> Ready:
        """Return it, ready for `task`.

        Raises OffcutError, or whatever a peer raises, where it cannot compute it.
        """


@dataclass
class Ours:
    """offcut with some arguments of `oc.compile`.

    make  gives them for an operator; called when its kernel is compiled
    """

    name: str
    identity: Mapping[str, Any]
    make: Callable[[Operator], Mapping[str, Any]]
    is_peer: bool = False
    _compiled: dict[str, Compiled | OffcutError] = field(default_factory=dict)

    def ready(self, operator: Operator, task: Task) -> Ready:
        """Return a call of a kernel that is compiled once for each operator."""
        start = time.perf_counter()
        is_new = operator.name not in self._compiled
        compiled = self.compiled(operator)
        seconds = time.perf_counter() - start if is_new else 0.0
        run, read = compiled.call(task)
        simulated = getattr(compiled, "simulated", lambda task: None)(task)
        return Ready(
            run, read, getattr(compiled, "way", "offcut"), compiled.cost(task), seconds, simulated
        )

    def compiled(self, operator: Operator) -> Compiled:
        """Return the operator, compiled once for all sizes.

        Raises OffcutError where it cannot be.
        """
        if operator.name not in self._compiled:
            try:
                self._compiled[operator.name] = operator.workload.compiled(self.make(operator))
            except OffcutError as error:
                self._compiled[operator.name] = error
        cached = self._compiled[operator.name]
        if isinstance(cached, OffcutError):
            raise cached
        return cached


@dataclass
class Library:
    """A library, by the fastest of its ways, or by one of them; or another compiler of the loops that are described."""

    name: str
    identity: Mapping[str, Any]
    peer: str
    threads: int
    is_peer: bool = True
    _loaded: Peers | None = None

    def ready(self, operator: Operator, task: Task) -> Ready:
        """Return the fastest way that the library has for the task."""
        ways = self.ways(operator, task)
        with self.loaded.session():
            best = fastest({way.name: way.run for way in ways})
        way = next(one for one in ways if one.name == best)
        run = _inside(way.run, self.loaded.session)
        return Ready(run, lambda outputs: results_of(way.read(outputs)), best)

    @property
    def loaded(self) -> Peers:
        """Return the library, loaded when it is first needed.

        Raises DescribeError where it, or what it is called with, is not installed.
        """
        if self._loaded is None:
            check_peer(self.peer)
            self._loaded = load_peers([self.peer], self.threads)
        return self._loaded

    def ways(self, operator: Operator, task: Task) -> tuple[Way, ...]:
        """Return the ways that the library has for a task.

        Raises DescribeError where it has none.
        """
        own_task = task.loops if self.peer in LOOP_COMPILERS else task.for_peers
        ways: tuple[Way, ...] = ()
        if own_task is not None:
            (peer,) = self.loaded.available
            with self.loaded.session():
                ways = peer.ways(own_task)
        if not ways:
            computes = COMPUTES.get(self.peer) or COMPUTES[self.peer.partition(".")[0]]
            because = f"{self.peer} has no way to compute {operator.name}: it computes {computes}"
            help = 'peer = "module:function"'
            raise refusal(self.name, because, help, what="cannot measure a peer")
        return ways


def _inside(run: Callable[[], Any], session: Callable[[], Any]) -> Callable[[], Any]:
    from contextlib import nullcontext

    if session is nullcontext:
        return run

    def inside() -> Any:
        with session():
            return run()

    return inside


def check_peer(peer: str) -> None:
    """Raise DescribeError where a package of a peer is not installed."""
    for package in missing_packages(peer):
        because = f"{package} is not installed"
        raise refusal(peer, because, installing(package), what=f"cannot measure {peer}")


@dataclass
class Own:
    """A function of a user's: ``function(inputs, sizes)`` gives what to call, without arguments; that gives an array, or several.

    inputs  copies of all arrays by name, constants too: what it writes there, nobody else reads
    is_peer whether it is something else than offcut
    """

    name: str
    identity: Mapping[str, Any]
    function: Callable[[Mapping[str, Array], Mapping[str, int]], Callable[[], Any]]
    is_peer: bool = True

    def ready(self, operator: Operator, task: Task) -> Ready:
        """Return what the function gives for the task."""
        every = {**task.operands, **task.constants}
        arrays = {name: at_page_offset(x, k) for k, (name, x) in enumerate(every.items())}
        return Ready(self.function(arrays, dict(task.sizes)), results_of, self.name)


def read_contenders(
    tables: Sequence[ContenderTable], threads: int, file: Path
) -> tuple[Contender, ...]:
    """Return the contenders of a study's file.

    threads  of those that say nothing

    Raises DescribeError for what is none, with its place in the file.
    """
    contenders = [_contender(one.keys, threads, one.at, file.parent) for one in tables]
    _check_strategies(contenders, Place(file.name))
    check_names([one.name for one in contenders], "contender", Place(file.name))
    return tuple(contenders)


def _contender(
    table: Mapping[str, Any], threads: int, at: Place, folder: Path
) -> Ours | Library | Own:
    for key in (key for key in ("peer", "function") if key in table):
        check_keys(table, (key, "name", "threads", *ENTRY_KEYS), at)
        if key == "peer":
            return _peer(table, threads, at, folder)
        return _own(key, table, threads, at, folder)
    check_keys(table, ("name", *OURS, "peer", "function", *ENTRY_KEYS), at)
    if not any(key in table for key in OURS):
        raise refusal(at, "it says nothing that competes", 'strategy = "auto"', 'peer = "numpy"')
    if table.get("frontend", FRONTENDS[0]) not in FRONTENDS:
        because = f"there is no frontend {table['frontend']!r}"
        raise refusal(at / "frontend", because, ", ".join(FRONTENDS))
    if "strategy" in table and "schedule" in table:
        raise refusal(at, "a schedule says all that a strategy would", "one of the two")
    identity: dict[str, Any] = {key: table[key] for key in OURS if key in table}
    identity["threads"] = threads_of(table, at, threads)
    options: dict[str, Any] = {"threads": identity["threads"]}
    if "frontend" in table:
        options["frontend"] = table["frontend"]
    options |= compile_options.check_options(table, identity, at, folder)
    if "strategy" in table:
        options["strategy"] = _checked_strategy(table["strategy"], identity, at, folder)
    if "schedule" in table:
        path = file_of(table, "schedule", at, folder, 'schedule = "tuned.schedule"')
        identity["schedule"] = digest_of_file(path)
        options["schedule"] = path.read_text(encoding="utf-8")
    if "price" in table:
        price = load_named(text_of(table, "price", at), "offcut.prices", folder, at / "price")
        check_callable(price, at / "price", "the loops of a variant, sizes, and the built-in price")
        identity["price_digest"] = price.digest
        options["price"] = price.value
    if "microkernels" in table:
        example = "oc.external_microkernel(…), or a list of these"
        options |= _objects(table, "microkernels", Microkernel, example, identity, at, folder)
    if "rules" in table:
        from offcut.graph import Rule

        example = "offcut.graph.rule(name, before, after), or a list of these"
        options |= _objects(table, "rules", Rule, example, identity, at, folder)
    name = text_of(table, "name", at) or _name(table)
    return Ours(name, identity, partial(compile_options.compile_options, options, table, folder))


def _objects(
    table: Mapping[str, Any],
    key: str,
    kind: type,
    example: str,
    identity: dict[str, Any],
    at: Place,
    folder: Path,
) -> dict[str, list[Any]]:
    """Return the option that the names under a key stand for: objects of one kind, or lists of these; digests go to `identity`.

    key  also the group of entry points, such as ``offcut.microkernels``

    Raises DescribeError for anything else.
    """
    objects, what = list[Any](), key.removesuffix("s")
    for text in texts_of(table[key], at / key, f'{key} = ["module:name"]'):
        own = load_named(text, f"offcut.{key}", folder, at / key)
        values = own.value if isinstance(own.value, list | tuple) else [own.value]
        for value in values:
            if not isinstance(value, kind):
                because = f"{own.name} is {type(value).__name__}, not a {what}"
                raise refusal(at / key, because, example)
        identity.setdefault(f"{what}_digests", []).append(own.digest)
        objects += values
    return {key: objects}


def check_operator(contender: Contender, operator: Operator, at: Place) -> None:
    """Check that an operator has the axes that a contender gives strategies for, and a graph where it gives rules.

    at  the place of the contender

    Raises DescribeError with the axes that it has.
    """
    strategy = contender.identity.get("strategy")
    if not isinstance(operator.workload, Described):
        return
    if "rules" in contender.identity:
        because = f"{operator.name} is one kernel, and rules rewrite the graph of a model"
        raise refusal(at / "rules", because, "only = '…', the operators that are models")
    if not isinstance(strategy, Mapping):
        return
    try:
        operator.workload.check_axes(strategy)
    except OffcutError as error:
        because, axes = f"{operator.name}: {error.because}", ", ".join(error.help)
        help = (f"the axes are {axes}", "only = '…', the operators that have the axis")
        raise refusal(at / "strategy", because, *help, what=error.refused) from error


def _check_strategies(contenders: Sequence[Contender], at: Place) -> None:
    """Refuse two strategies of a user's with one name, of which the second would take the place of the first."""
    registered: dict[str, str] = {}
    for one in contenders:
        for label, own in one.identity.get("strategy_digests", {}).items():
            if registered.setdefault(label, own) != own:
                texts = " and ".join(text.split()[0] for text in (registered[label], own))
                raise refusal(at, f"two strategies are called {label!r}: {texts}", "rename one")


def _checked_strategy(strategy: Any, identity: dict[str, Any], at: Place, folder: Path) -> Any:
    """Return a strategy as `oc.compile` takes it.

    Raises DescribeError for what names none.
    """
    named_strategy = _strategy(strategy, identity, at, folder)
    choices = [(named_strategy, at / "strategy")]
    if isinstance(strategy, Mapping):
        choices = [({axis: x}, at / "strategy" / axis) for axis, x in named_strategy.items()]
    for choice, place in choices:
        try:
            checked_strategy(choice)
        except OffcutError as error:
            what, *help = (_as_in_file(text, identity) for text in (error.refused, *error.help))
            raise refusal(place, error.because, *help, what=what) from error
    return named_strategy


def _as_in_file(text: str, identity: Mapping[str, Any]) -> str:
    """Return a text with the user's strategies as the file names them, ``'mine:halves'``, in place of their labels."""
    for label, own in identity.get("strategy_digests", {}).items():
        text = text.replace(repr(label), repr(own.split()[0]))
    return text


def _strategy(strategy: Any, identity: dict[str, Any], at: Place, folder: Path) -> Any:
    """Return the strategy, or the strategies among which ``auto`` chooses, with those of the user's own registered."""
    known = {"auto", "mix", *(one.name for one in STRATEGIES)}
    if isinstance(strategy, Mapping):
        return {axis: _strategy(one, identity, at, folder) for axis, one in strategy.items()}
    names = []
    for one in texts_of(strategy, at / "strategy", 'strategy = "auto"'):
        if one.partition("(")[0] not in known:
            own = load_named(one, "offcut.strategies", folder, at / "strategy", sorted(known))
            names.append(_register(own, at))
            identity.setdefault("strategy_digests", {})[names[-1]] = f"{own.name} {own.digest}"
        else:
            names.append(one)
    return names if isinstance(strategy, list) else names[0]


def _register(own: Named, at: Place) -> str:
    """Return the name that a user's generator of tiles is registered under: that of the function."""
    label = str(getattr(own.value, "__name__", own.name.rpartition(":")[2]))
    try:
        oc.strategy(label)(own.value)
    except OffcutError as error:
        what = f"cannot take the strategy {own.name!r}"
        raise refusal(at / "strategy", error.because, *error.help, what=what) from error
    return label


def _name(table: Mapping[str, Any]) -> str:
    parts = []
    for key in (key for key in OURS if key in table):
        value = table[key]
        text = "+".join(value) if isinstance(value, list) else str(value)
        if isinstance(value, Mapping):
            text = " ".join(map(str, value.values()))
        if key == "threads":
            text = plural(value, "thread")
        if key not in ("strategy", "target", "machine", "threads"):
            text = f"{key} {text}"
        parts += [] if key == "target" and "machine" in table else [text]
    return " ".join(parts)


def _peer(table: Mapping[str, Any], threads: int, at: Place, folder: Path) -> Library | Own:
    text = text_of(table, "peer", at)
    name, count = text_of(table, "name", at) or text, threads_of(table, at, threads)
    package = text.partition(".")[0]
    if text in LOOP_COMPILERS:
        return Library(name, {"peer": text}, text, count)
    if text in PEERS or text in PEERS.get(package, ()):
        return Library(name, {"peer": text, "threads": count}, text, count)
    if ":" not in text and package in PEERS:
        listed = ", ".join((package, *PEERS[package]))
        raise refusal(at / "peer", f"there is no peer {text!r}", listed)
    known = (*PEERS, *(way for ways in PEERS.values() for way in ways), *LOOP_COMPILERS)
    return _own("peer", table, threads, at, folder, known)


def _own(
    key: str,
    table: Mapping[str, Any],
    threads: int,
    at: Place,
    folder: Path,
    known: Sequence[str] = (),
) -> Own:
    """Return the function that is a peer, or under the key ``function`` one of ours."""
    text, count = text_of(table, key, at), threads_of(table, at, threads)
    own = load_named(text, "offcut.peers", folder, at / key, known)
    check_callable(own, at / key, "inputs and sizes")
    identity = {key: text, "digest": own.digest, "threads": count}
    return Own(text_of(table, "name", at) or text, identity, own.value, key == "peer")
