"""The decisions about the loops and the nests of a schedule, as a search space has them.

The decisions about the nests of a schedule: the variants of each, how many of them compete, and which loops nests share.

    together b h          taken apart      nest scores      variant …  loops b h
      nest scores                          nest result      variant …  loops b h
      nest result

Loops that are taken apart become plain loops of each nest that was in them, by the names that its own axes have.

How the loops of a program that stands as it is may be cut: one decision a loop, and which loops are cut together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from math import comb
from random import Random
from typing import Any

from offcut.backends.cpu.planning.variant_forms import VariantForm, label_of, plain_cuts, tile_forms
from offcut.core.analysis import analysis
from offcut.core.memo import CachedHash, forget, lazy_property, memoize_method, node
from offcut.core.program import For, Form, Program
from offcut.costmodel import Machine
from offcut.errors import PartitionError
from offcut.partition import CUT, MASK, AxisCut, LoopCut
from offcut.polyhedral import carried_by, request_budget
from offcut.schedule import (
    LoopVariant,
    Nest,
    Schedule,
    Split,
    Staging,
    Step,
    Together,
    cut_program,
    in_loops,
    loop_name,
    nests_in,
    nests_with_axes,
    parts_of,
    split_of,
    with_variants,
)
from offcut.search.schedule_space import AllOf, Decision

Steps = tuple[Step | None, ...]
"""What is said of each decision; None: nothing."""

_UNORDERED = frozenset({Form.PAD, Form.SHIFT})
"""Tiles whose instances have no order, or run again."""


@dataclass(frozen=True)
class LoopCuts:
    """The cuts of the loops of a program.

    A loop that carries dependences keeps its instances in order: tiles that run theirs together, or twice, are none of its
    cuts. Loops inside each other are cut together where the proof says that single tiles of them are legal: a cut of two
    loops moves the instances of the inner one, whatever its strategy.

    machine  whose policy says how large tiles are, and how many copies of a statement there may be
    """

    program: Program
    machine: Machine

    @lazy_property
    def loops(self) -> tuple[str, ...]:
        """Return the iterators of the loops, in order."""
        return tuple(dict.fromkeys(loop.iter for loop in analysis(self.program).of(For)))

    @lazy_property
    def loop_order(self) -> frozenset[str]:
        """Return the loops that carry dependences other than sums."""
        dependences = (one for carried in carried_by(self.program).values() for one in carried)
        return frozenset(one.loop for one in dependences if not one.reduction)

    def of(self, loop: str, own: Split | None = None) -> list[Split]:
        """Return the cuts of a loop in one level of tiles; like `own` inside of its outer levels, where it is cut already."""
        tail = MASK if own is None else own.levels[-1].tail
        assert tail is not None
        outer: Sequence[int] = () if own is None else [one.tile for one in own.levels[:-1]]
        tile = self.machine.policy.axis_tile if own is None else own.levels[-1].tile
        options = plain_cuts(AxisCut(loop, tail, tile), self.machine.policy.copies).options
        return [
            split_of(loop, LoopCut((*outer, one.tile), one.strategy))
            for one in options
            if not outer or outer[-1] % one.tile == 0
            if loop not in self.loop_order or not tile_forms(one) & _UNORDERED
        ]

    @memoize_method
    def are_legal(self, loops: frozenset[str]) -> bool:
        """Return whether these loops may be cut in one schedule; not where the proof does not say so in bounded work."""
        if len(loops) < 2 or not loops & self.loop_order:
            return True
        return all(self.are_legal(loops - {one}) for one in loops) and self._is_proved(loops)

    def _is_proved(self, loops: frozenset[str]) -> bool:
        forget()
        cuts = {loop: LoopCut((2,), CUT) for loop in loops}
        try:
            with request_budget("partition", f"cannot cut {self.program.name}"):
                cut_program(self.program, cuts, ())
        except PartitionError:
            return False
        return True


@dataclass(frozen=True)
class LoopDecisions(AllOf):
    """Decisions that are steps or nothing, among them cuts of loops, of which some may not stand beside others."""

    cuts: LoopCuts

    def alternatives(self) -> Iterator[Steps]:
        """Yield the combinations whose cuts may stand together."""
        return filter(self.is_legal, super().alternatives())

    def neighbours(self, at: Steps) -> Iterator[Steps]:
        """Yield the neighbours whose cuts may stand together."""
        return filter(self.is_legal, super().neighbours(at))

    def sample(self, rng: Random) -> Steps:
        """Return a combination, without the cuts that may not stand beside others."""
        return self._without_conflicts(super().sample(rng), rng)

    def crossover(self, a: Steps, b: Steps, rng: Random) -> Steps:
        """Return a combination of both, likewise."""
        return self._without_conflicts(super().crossover(a, b, rng), rng)

    def is_legal(self, steps: tuple[Any, ...]) -> bool:
        """Return whether the loops that are cut may be cut together."""
        return self.cuts.are_legal(
            frozenset(loop_name(step) for step in steps if isinstance(step, Split))
        )

    def _without_conflicts(self, steps: Steps, rng: Random) -> Steps:
        """Return `steps` without cuts that may not stand beside the others; which stay is drawn."""
        places = [place for place, step in enumerate(steps) if isinstance(step, Split)]
        legal = [None if place in places else step for place, step in enumerate(steps)]
        for place in rng.sample(places, len(places)):
            legal[place] = steps[place]
            if not self.is_legal(tuple(legal)):
                legal[place] = None
        return tuple(legal)


Stages = tuple[str, ...]


@dataclass(frozen=True)
class NestTree:
    """The nests of a schedule, and the loops that they share.

    parts  with all loops shared
    axes   of each stage, the names of its own axes, outermost first
    """

    parts: tuple[Nest | Together, ...]
    axes: Mapping[str, tuple[str, ...]]

    @lazy_property
    def loops(self) -> tuple[Stages, ...]:
        """Return the shared loops, outermost first, each by the stages in it."""
        return tuple(dict.fromkeys(self._stages.values()))

    @property
    def nests(self) -> tuple[Nest, ...]:
        """Return the nests, in order."""
        return tuple(nests_in(self.parts))

    def around(self, stage: str) -> tuple[str, ...]:
        """Return the axes of all loops that may be shared around a nest."""
        return next(axes for nest, axes in nests_with_axes(self.parts) if nest.stage == stage)

    def written(
        self, shared: Sequence[bool], variants: Mapping[str, tuple[LoopVariant, ...]]
    ) -> tuple[Nest | Together, ...]:
        """Return the nests in these variants.

        shared  which of `loops` stay
        """
        kept = {loop for loop, stays in zip(self.loops, shared, strict=True) if stays}

        def parts(
            given: Sequence[Nest | Together], outer: tuple[str, ...], depth: int
        ) -> Iterator[Nest | Together]:
            for part in given:
                if isinstance(part, Nest):
                    loops = self.axes[part.stage][depth : len(outer)]
                    yield self._nest(part, loops, variants[part.stage])
                    continue
                axes = (*outer, *part.axes)
                if self._stages[id(part)] in kept:
                    inside = tuple(parts(part.parts, axes, len(axes)))
                    yield replace(part, axes=axes[depth:], parts=inside)
                else:
                    yield from parts(part.parts, axes, depth)

        return tuple(parts(self.parts, (), 0))

    @memoize_method
    def _nest(self, nest: Nest, loops: tuple[str, ...], variants: tuple[LoopVariant, ...]) -> Nest:
        """Return the nest in these variants, which run in further plain loops."""
        return replace(nest, variants=tuple(in_loops(variant, loops) for variant in variants))

    @lazy_property
    def _stages(self) -> dict[int, Stages]:
        """Return the stages in each shared loop, by its identity."""
        return {id(loop): stages_of(loop) for loop in _shared_loops(self.parts)}

    def read(
        self, parts: Sequence[Nest | Together]
    ) -> tuple[tuple[bool, ...], dict[str, tuple[LoopVariant, ...]]]:
        """Return what `written` has made `parts` of."""
        kept = {stages_of(loop) for loop in _shared_loops(parts)}
        variants = {}
        for nest, axes in nests_with_axes(parts):
            depth = len(self.around(nest.stage)) - len(axes)
            variants[nest.stage] = tuple(_without(variant, depth) for variant in nest.variants)
        return tuple(loop in kept for loop in self.loops), variants

    def only(self, stages: frozenset[str]) -> NestTree:
        """Return the same, of these stages alone."""
        return replace(self, parts=tuple(_only(self.parts, stages)))


def stages_of(part: Nest | Together) -> Stages:
    """Return the stages of the nests in it, in order."""
    return tuple(nest.stage for nest in nests_in((part,)))


def _shared_loops(parts: Sequence[Nest | Together]) -> Iterator[Together]:
    for part in parts:
        if isinstance(part, Together):
            yield part
            yield from _shared_loops(part.parts)


def _only(parts: Sequence[Nest | Together], stages: frozenset[str]) -> Iterator[Nest | Together]:
    for part in parts:
        if isinstance(part, Nest):
            if part.stage in stages:
                yield part
        else:
            inside = tuple(_only(part.parts, stages))
            if inside:
                yield replace(part, parts=inside)


def _without(variant: LoopVariant, loops: int) -> LoopVariant:
    if not loops:
        return variant
    pack = variant.pack and replace(variant.pack, loops=variant.pack.loops[loops:])
    return replace(variant, loops=variant.loops[loops:], pack=pack)


def limit_variants(schedule: Schedule, most: int) -> Schedule:
    """Return a schedule in which each nest has its first variants, `most` of them."""
    for nest in nests_in(parts_of(schedule)):
        schedule = with_variants(schedule, nest.stage, lambda variants: variants[:most])
    return schedule


@node
@dataclass(frozen=True, slots=True)
class VariantSet(CachedHash):
    """The variants of a nest, without labels, and how the constant lies that their columns read; None: as the array does."""

    variants: tuple[LoopVariant, ...]
    lay: Staging | None


@dataclass(frozen=True)
class VariantDecision(Decision[VariantSet]):
    """Which variants a nest may run in, one or several that compete.

    first   what the space begins with
    forms   whose variants there are; those of `first` among them
    most    variants that may compete
    labels  of variants that have one already
    """

    stage: str
    first: VariantSet
    forms: tuple[VariantForm, ...]
    most: int
    labels: Mapping[LoopVariant, str]

    @staticmethod
    def of(nest: Nest, forms: tuple[VariantForm, ...], most: int) -> VariantDecision:
        """Return the decision about a nest that begins with its variants, as far as they are of these forms."""
        labels = {replace(variant, label="").plain: variant.label for variant in nest.variants}
        keys = {(form.cover, form.pack): form.lay for form in reversed(forms)}
        lays = (
            keys[key] for variant in nest.variants if (key := (variant.cover, variant.pack)) in keys
        )
        first = VariantSet(tuple(labels), next(lays, None))
        decision = VariantDecision(nest.stage, first, forms, max(most, len(labels)), labels)
        return replace(decision, first=decision.nearest(first))

    @property
    def laid_constants(self) -> frozenset[str]:
        """Return the constants whose panels it chooses."""
        return frozenset(form.lay.what for form in self.forms if form.lay is not None)

    @property
    def size(self) -> int:
        """Return how many sets of variants there are: of one lay, at most `most`, with one packed copy at most."""
        total = 0
        for plain, packs in self._bundles:
            alone = sum(form.size for form in plain)
            total += _subsets(0, alone, self.most)
            for forms in packs:
                total += _subsets(alone, alone + sum(form.size for form in forms), self.most)
        return total

    def alternatives(self) -> Iterator[VariantSet]:
        """Yield all of them, fewer variants first."""
        for count in range(1, self.most + 1):
            for plain, packs in self._bundles:
                lay = next(chain(plain, *packs)).lay
                alone = [variant for form in plain for variant in form.alternatives()]
                yield from (VariantSet(variants, lay) for variants in combinations(alone, count))
                for forms in packs:
                    packing = [variant for form in forms for variant in form.alternatives()]
                    for variants in combinations((*packing, *alone), count):
                        if any(variant.pack is not None for variant in variants):
                            yield VariantSet(variants, lay)

    @lazy_property
    def _bundles(
        self,
    ) -> tuple[tuple[tuple[VariantForm, ...], tuple[tuple[VariantForm, ...], ...]], ...]:
        """Return by lay the forms that pack nothing, and by packed copy those that read it."""
        bundles = []
        for lay in dict.fromkeys(form.lay for form in self.forms):
            alike = [form for form in self.forms if form.lay == lay]
            plain = tuple(form for form in alike if form.pack is None)
            packs = dict.fromkeys(form.pack for form in alike if form.pack is not None)
            packed = (tuple(form for form in alike if form.pack == pack) for pack in packs)
            bundles.append((plain, tuple(packed)))
        return tuple(bundles)

    @memoize_method
    def neighbours(self, at: VariantSet) -> tuple[VariantSet, ...]:
        """Return those that differ in one thing: in one variant, in its form, or by one variant more or less."""
        return tuple(self._neighbours(at))

    def _neighbours(self, at: VariantSet) -> Iterator[VariantSet]:
        for place, variant in enumerate(at.variants):
            others = (*at.variants[:place], *at.variants[place + 1 :])
            changes = self._changed_variants(variant, at.lay)
            for now in changes:
                yield from self._legal((*others, now), at.lay)
            if others:
                yield from self._legal(others, at.lay)
            if len(at.variants) < self.most:
                for now in changes:
                    yield from self._legal((*at.variants, now), at.lay)
        for form in self.forms:
            if form.lay != at.lay:
                yield VariantSet(tuple(dict.fromkeys(map(form.nearest, at.variants))), form.lay)

    @memoize_method
    def _changed_variants(
        self, variant: LoopVariant, lay: Staging | None
    ) -> tuple[LoopVariant, ...]:
        """Return the variants that differ from `variant` in one thing, or in their form."""
        own = self._form(variant, lay)
        others = (form for form in self.forms if form is not own and form.lay == lay)
        return (
            *(() if own is None else own.neighbours(variant)),
            *(form.nearest(variant) for form in others),
        )

    def sample(self, rng: Random) -> VariantSet:
        """Return a set of variants: how many of them, a form, and what it leaves to choose, each drawn alike."""
        count, form = rng.randint(1, self.most), rng.choice(self.forms)
        drawn = VariantSet((form.sample(rng),), form.lay)
        for _ in range(count - 1):
            other = rng.choice([one for one in self.forms if one.lay == form.lay])
            for more in self._legal((*drawn.variants, other.sample(rng)), form.lay):
                drawn = more
        return drawn

    def crossover(self, a: VariantSet, b: VariantSet, rng: Random) -> VariantSet:
        """Return variants of either, or of both where they lie alike."""
        if a.lay != b.lay or rng.random() < 0.5:
            return rng.choice((a, b))
        pool = tuple(dict.fromkeys((*a.variants, *b.variants)))
        variants = rng.sample(pool, rng.randint(1, min(self.most, len(pool))))
        return next(iter(self._legal(variants, a.lay)), a)

    @staticmethod
    def _legal(variants: Sequence[LoopVariant], lay: Staging | None) -> Iterator[VariantSet]:
        """Yield `variants` as they compete, if they can: not where their packed copies differ, or two are one."""
        packs = [variant.pack for variant in variants if variant.pack is not None]
        alike = not packs or packs.count(packs[0]) == len(packs)
        if alike and len({*variants}) == len(variants):
            yield VariantSet(tuple(variants), lay)

    def written(self, at: VariantSet) -> tuple[LoopVariant, ...]:
        """Return the variants in an order that depends on them alone, those of `first` as they stand there, each with a label
        of its own.
        """
        return self._with_labels(at.variants)

    @memoize_method
    def _with_labels(self, variants: tuple[LoopVariant, ...]) -> tuple[LoopVariant, ...]:
        own = {variant: place for place, variant in enumerate(self.first.variants)}
        labelled: list[LoopVariant] = []
        for variant in sorted(
            variants, key=lambda variant: (own.get(variant, len(own)), self._text(variant))
        ):
            label = self.labels.get(variant) or label_of(variant)
            alike = sum(one.label.split("/")[0] == label for one in labelled)
            distinct_label = f"{label}/{alike + 1}" if alike and variant not in own else label
            labelled.append(replace(variant, label=distinct_label))
        return tuple(labelled)

    @memoize_method
    def _text(self, variant: LoopVariant) -> str:
        return repr(variant)

    @staticmethod
    def read(variants: Sequence[LoopVariant], lay: Staging | None) -> VariantSet:
        """Return what `written` has made `variants` of."""
        return VariantSet(tuple(replace(variant, label="") for variant in variants), lay)

    def nearest(self, at: VariantSet) -> VariantSet:
        """Return what is most like variants of a nest whose forms may be others."""
        if all(self._form(variant, at.lay) is not None for variant in at.variants):
            return at
        first = self.forms[0]
        return VariantSet(tuple(dict.fromkeys(map(first.nearest, at.variants))), first.lay)

    def _form(self, variant: LoopVariant, lay: Staging | None) -> VariantForm | None:
        """Return the form that a variant is of; None if it is of none."""
        alike = (
            f for f in self.forms if (f.cover, f.pack, f.lay) == (variant.cover, variant.pack, lay)
        )
        return next((form for form in alike if form.has(variant)), None)


def _subsets(less: int, all: int, most: int) -> int:
    """Return how many sets of 1 to `most` of `all` things there are that are no sets of the first `less`."""
    return sum(comb(all, count) - comb(less, count) for count in range(1, most + 1))
