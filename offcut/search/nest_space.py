"""Which ways a nest may run in, and how many of them compete; and which loops nests share: the tree of nests of a schedule, each of its shared loops
kept or taken apart.

    together b h          taken apart      nest scores      way …  loops b h
      nest scores                          nest result      way …  loops b h
      nest result

Loops that are taken apart become plain loops of each nest that was in them, by the names that its own axes have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from math import comb
from random import Random

from offcut.core.cached_hash import CachedHash, node
from offcut.core.memo import lazy_property, memoize_method
from offcut.schedule import Nest, Staging, Together, Way, in_loops, nests_in, nests_with_axes
from offcut.search.variant_space import VariantForm, label_of

Leaves = tuple[str, ...]


@dataclass(frozen=True)
class Tree:
    """The nests of a schedule, as shared as they may be.

    parts  with all loops shared
    axes   of each stage, the names of its own axes, outermost first
    """

    parts: tuple[Nest | Together, ...]
    axes: Mapping[str, tuple[str, ...]]

    @property
    def loops(self) -> tuple[Leaves, ...]:
        """The shared loops, outermost first, each by the stages in it."""
        return tuple(leaves(part) for part in _togethers(self.parts))

    @property
    def nests(self) -> tuple[Nest, ...]:
        """The nests, in order."""
        return tuple(nests_in(self.parts))

    def around(self, stage: str) -> tuple[str, ...]:
        """The axes of all loops that may be shared around a nest."""
        return next(axes for nest, axes in nests_with_axes(self.parts) if nest.stage == stage)

    def written(
        self, kept: frozenset[Leaves], ways: Mapping[str, tuple[Way, ...]]
    ) -> tuple[Nest | Together, ...]:
        """The nests in these ways; of the shared loops, those in `kept` stay."""

        def parts(
            given: Sequence[Nest | Together], outer: tuple[str, ...], shared: int
        ) -> Iterator[Nest | Together]:
            for part in given:
                if isinstance(part, Nest):
                    loops = self.axes[part.stage][shared : len(outer)]
                    yield self._nest(part, loops, ways[part.stage])
                    continue
                axes = (*outer, *part.axes)
                if self._leaves[id(part)] in kept:
                    inside = tuple(parts(part.parts, axes, len(axes)))
                    yield replace(part, axes=axes[shared:], parts=inside)
                else:
                    yield from parts(part.parts, axes, shared)

        return tuple(parts(self.parts, (), 0))

    @memoize_method
    def _nest(self, nest: Nest, loops: tuple[str, ...], ways: tuple[Way, ...]) -> Nest:
        """The nest in these ways, which run in further plain loops."""
        return replace(nest, ways=tuple(in_loops(way, loops) for way in ways))

    @lazy_property
    def _leaves(self) -> dict[int, Leaves]:
        return {id(part): leaves(part) for part in _togethers(self.parts)}

    def read(
        self, parts: Sequence[Nest | Together]
    ) -> tuple[frozenset[Leaves], dict[str, tuple[Way, ...]]]:
        """What `written` has made `parts` of."""
        kept = frozenset(leaves(part) for part in _togethers(parts)) & frozenset(self.loops)
        ways = {}
        for nest, axes in nests_with_axes(parts):
            apart = len(self.around(nest.stage)) - len(axes)
            ways[nest.stage] = tuple(_without(way, apart) for way in nest.ways)
        return kept, ways

    def only(self, stages: frozenset[str]) -> Tree:
        """The same, of these stages alone."""
        return replace(self, parts=tuple(_only(self.parts, stages)))


def leaves(part: Nest | Together) -> Leaves:
    """The stages of the nests in it, in order."""
    return tuple(nest.stage for nest in nests_in((part,)))


def _togethers(parts: Sequence[Nest | Together]) -> Iterator[Together]:
    for part in parts:
        if isinstance(part, Together):
            yield part
            yield from _togethers(part.parts)


def _only(parts: Sequence[Nest | Together], stages: frozenset[str]) -> Iterator[Nest | Together]:
    for part in parts:
        if isinstance(part, Nest):
            if part.stage in stages:
                yield part
        else:
            inside = tuple(_only(part.parts, stages))
            if inside:
                yield replace(part, parts=inside)


def _without(way: Way, loops: int) -> Way:
    if not loops:
        return way
    pack = way.pack and replace(way.pack, loops=way.pack.loops[loops:])
    return replace(way, loops=way.loops[loops:], pack=pack)


@node
@dataclass(frozen=True, slots=True)
class Chosen(CachedHash):
    """The ways of a nest, without labels, and how the constant lies that their columns read; None: as the array does."""

    ways: tuple[Way, ...]
    lay: Staging | None


@dataclass(frozen=True)
class NestSpace:
    """Which ways a nest may run in.

    first   what the space begins with
    forms   whose ways there are; those of `first` among them
    most    ways that may compete
    labels  of ways that have one already
    """

    stage: str
    first: Chosen
    forms: tuple[VariantForm, ...]
    most: int
    labels: Mapping[Way, str]

    @staticmethod
    def of(nest: Nest, forms: tuple[VariantForm, ...], most: int) -> NestSpace:
        """The space of a nest that begins with its ways, as far as they are of these forms."""
        labels = {replace(way, label="").plain: way.label for way in nest.ways}
        keys = {(form.cover, form.pack): form.lay for form in reversed(forms)}
        lays = (keys[key] for way in nest.ways if (key := (way.cover, way.pack)) in keys)
        first = Chosen(tuple(labels), next(lays, None))
        made = NestSpace(nest.stage, first, forms, max(most, len(labels)), labels)
        return replace(made, first=made.nearest(first))

    @property
    def laid(self) -> frozenset[str]:
        """The constants whose panels it chooses."""
        return frozenset(form.lay.what for form in self.forms if form.lay is not None)

    @property
    def size(self) -> int:
        """How many sets of ways there are: of one lay, at most `most`, with one packed copy at most."""
        total = 0
        for plain, packs in self.bundles:
            alone = sum(form.size for form in plain)
            total += _subsets(0, alone, self.most)
            for forms in packs:
                total += _subsets(alone, alone + sum(form.size for form in forms), self.most)
        return total

    @property
    def every(self) -> Iterator[Chosen]:
        """All of them, fewer ways first."""
        for count in range(1, self.most + 1):
            for plain, packs in self.bundles:
                lay = next(chain(plain, *packs)).lay
                alone = [way for form in plain for way in form.ways]
                yield from (Chosen(ways, lay) for ways in combinations(alone, count))
                for forms in packs:
                    packing = [way for form in forms for way in form.ways]
                    for ways in combinations((*packing, *alone), count):
                        if any(way.pack is not None for way in ways):
                            yield Chosen(ways, lay)

    @lazy_property
    def bundles(
        self,
    ) -> tuple[tuple[tuple[VariantForm, ...], tuple[tuple[VariantForm, ...], ...]], ...]:
        """By lay, the forms that pack nothing, and by packed copy, those that read it."""
        found = []
        for lay in dict.fromkeys(form.lay for form in self.forms):
            alike = [form for form in self.forms if form.lay == lay]
            plain = tuple(form for form in alike if form.pack is None)
            packs = dict.fromkeys(form.pack for form in alike if form.pack is not None)
            packed = (tuple(form for form in alike if form.pack == pack) for pack in packs)
            found.append((plain, tuple(packed)))
        return tuple(found)

    @memoize_method
    def near(self, chosen: Chosen) -> tuple[Chosen, ...]:
        """Those that differ in one choice: of one way, of its form, or in one way more or less."""
        return tuple(self._beside(chosen))

    def _beside(self, chosen: Chosen) -> Iterator[Chosen]:
        ways = chosen.ways
        for place, way in enumerate(ways):
            others = (*ways[:place], *ways[place + 1 :])
            moved = self.moves(way, chosen.lay)
            for now in moved:
                yield from self.legal((*others, now), chosen.lay)
            if others:
                yield from self.legal(others, chosen.lay)
            if len(ways) < self.most:
                for now in moved:
                    yield from self.legal((*ways, now), chosen.lay)
        for form in self.forms:
            if form.lay != chosen.lay:
                yield Chosen(tuple(dict.fromkeys(map(form.nearest, ways))), form.lay)

    @memoize_method
    def moves(self, way: Way, lay: Staging | None) -> tuple[Way, ...]:
        """The ways that differ from `way` in one choice, or in their form."""
        return tuple(self._moved(way, lay))

    def _moved(self, way: Way, lay: Staging | None) -> Iterator[Way]:
        own = self.form(way, lay)
        if own is not None:
            yield from own.near(way)
        for form in self.forms:
            if form is not own and form.lay == lay:
                yield form.nearest(way)

    def drawn(self, rng: Random) -> Chosen:
        """A set of ways: how many of them, a form, and what it leaves to choose, each drawn alike."""
        count, form = rng.randint(1, self.most), rng.choice(self.forms)
        chosen = Chosen((form.drawn(rng),), form.lay)
        for _ in range(count - 1):
            other = rng.choice([one for one in self.forms if one.lay == form.lay])
            for more in self.legal((*chosen.ways, other.drawn(rng)), form.lay):
                chosen = more
        return chosen

    def crossed(self, a: Chosen, b: Chosen, rng: Random) -> Chosen:
        """Ways of either, or of both where they lie alike."""
        if a.lay != b.lay or rng.random() < 0.5:
            return rng.choice((a, b))
        pool = tuple(dict.fromkeys((*a.ways, *b.ways)))
        ways = rng.sample(pool, rng.randint(1, min(self.most, len(pool))))
        return next(iter(self.legal(ways, a.lay)), a)

    def legal(self, ways: Sequence[Way], lay: Staging | None) -> Iterator[Chosen]:
        """`ways` as they compete, if they can: not where their packed copies differ, or two are one."""
        packs = [way.pack for way in ways if way.pack is not None]
        alike = not packs or packs.count(packs[0]) == len(packs)
        if alike and len({*ways}) == len(ways):
            yield Chosen(tuple(ways), lay)

    def written(self, chosen: Chosen) -> tuple[Way, ...]:
        """The ways in an order that depends on them alone, those of `first` as they stand there, each with a label
        of its own.
        """
        return self._in_order(chosen.ways)

    @memoize_method
    def _text(self, way: Way) -> str:
        return repr(way)

    @memoize_method
    def _in_order(self, ways: tuple[Way, ...]) -> tuple[Way, ...]:
        own = {way: place for place, way in enumerate(self.first.ways)}
        found: list[Way] = []
        for way in sorted(ways, key=lambda way: (own.get(way, len(own)), self._text(way))):
            label = self.labels.get(way) or label_of(way)
            alike = sum(one.label.split("/")[0] == label for one in found)
            named = f"{label}/{alike + 1}" if alike and way not in own else label
            found.append(replace(way, label=named))
        return tuple(found)

    @staticmethod
    def read(ways: Sequence[Way], lay: Staging | None) -> Chosen:
        """What `written` has made `ways` of."""
        return Chosen(tuple(replace(way, label="") for way in ways), lay)

    def form(self, way: Way, lay: Staging | None) -> VariantForm | None:
        """The form that a way is of; None where it is of none."""
        alike = (f for f in self.forms if (f.cover, f.pack, f.lay) == (way.cover, way.pack, lay))
        return next((form for form in alike if _is_of(way, form)), None)

    def nearest(self, chosen: Chosen) -> Chosen:
        """What is most like ways of a nest whose forms may be others."""
        found = [self.form(way, chosen.lay) for way in chosen.ways]
        if all(form is not None for form in found):
            return chosen
        first = self.forms[0]
        return Chosen(tuple(dict.fromkeys(map(first.nearest, chosen.ways))), first.lay)


def _is_of(way: Way, form: VariantForm) -> bool:
    cut = len(way.splits) == len(form.cuts)
    fits = (own in cuts.options for own, cuts in zip(way.splits, form.cuts, strict=False))
    return cut and all(fits) and form.order(way) is not None


def _subsets(less: int, all: int, most: int) -> int:
    """How many sets of 1 to `most` of `all` things there are that are no sets of the first `less`."""
    return sum(comb(all, count) - comb(less, count) for count in range(1, most + 1))
