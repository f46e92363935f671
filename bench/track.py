"""A few dozen kernels, saved for this commit and compared with the last saved ones of another.

    python bench/track.py                       # measure, save, compare with the last saved
    python bench/track.py --compare 0003 0007   # two that are saved, by number or by commit

pytest-benchmark measures and saves, in .benchmarks. Processor time, one thread; a cold compile starts
with an empty cache. A ratio is the median of the ratios of samples with its 95 % interval: above 1, the
later run is faster. The runs lie apart in time, so a drift of the machine is in it: where all kernels
move alike, it is one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import attention
import conv2d
import fused_attention
import pytest
import rows as norms
from layers import dense_groups

import offcut as oc
from offcut.experiment.bench import Options, fresh, publish
from offcut.experiment.ours import Ours, Task
from offcut.experiment.table import US, Asked, Cell, Row, summary, table, wide_console
from offcut.experiment.timing import Timing, fastest, restart_single_threaded

STORE = Path(".benchmarks")
SWEPT = dict.fromkeys("mbij", (1, 4096))


def dense(kind: str, m: int, k: int, n: int) -> Task:
    """A dense layer with a constant weight."""
    (group,) = dense_groups(kind, ((k, n),), (m,))
    made: Task = group.tasks[f"M={m}"]()
    return made


def convolution(layer: conv2d.Layer, image: int) -> Task:
    """A layer of ResNet-50 on one image."""
    (task,) = conv2d.group(layer, ((1, image),)).tasks.values()
    made: Task = task()
    return made


def layer_norm(rows: int, columns: int) -> Task:
    """A layer norm of some rows."""
    (task,) = norms.layer_norm_group(columns, (rows,)).tasks.values()
    made: Task = task()
    return made


TASKS: dict[str, Callable[[], Task]] = {
    **{
        f"dense {kind} {m}x{k}x{n}": partial(dense, kind, m, k, n)
        for kind in ("float32", "bfloat16", "int8")
        for m, k, n in ((1, 768, 768), (17, 768, 3072), (128, 768, 768), (43, 771, 770))
    },
    **{
        f"{name} {b} S={s}": partial(attention.task, text, b, s)
        for name, text in (("q kT", "bid,bjd->bij"), ("weights v", "bij,bjd->bid"))
        for b, s in ((12, 43), (12, 128))
    },
    **{
        f"attention {kind} S={s}": partial(fused_attention.task, kind, 1, s)
        for kind in ("float32", "bfloat16")
        for s in (7, 62, 257)
    },
    **{
        f"conv2d {w}x{w} {c}-{o} {image} stride {step}": partial(
            convolution, conv2d.Layer(w, c, o, image, step), image
        )
        for w, c, o, image, step in (
            *((3, 64, 64, 56, 1), (3, 512, 512, 7, 1), (3, 128, 128, 29, 2)),
            *((1, 256, 64, 56, 1), (1, 512, 1024, 14, 1)),
        )
    },
    **{f"softmax 512x{n}": partial(norms.softmax, n) for n in (5, 128, 777)},
    **{
        f"layer norm {m}x{n}": partial(layer_norm, m, n)
        for m, n in ((1, 768), (128, 768), (43, 1000))
    },
}


@pytest.mark.parametrize("name", TASKS)
def test_kernel(name: str, benchmark: Any) -> None:
    """A call at one size, of the way that is the fastest."""
    task, ours = TASKS[name](), Ours(SWEPT)
    ways = {way.name: way for way in ours.ways(task)}
    assert ways, ours.refused
    way = ways[fastest({name: way.run for name, way in ways.items()})]
    assert task.reference().mismatch(way.read(way.run())) == ""
    benchmark(way.run)


class Told:
    """A clock that fresh processes advance by the seconds that they say they took."""

    now = 0.0

    def __call__(self) -> float:
        """Seconds so far."""
        return self.now


TOLD = Told()


@pytest.mark.benchmark(timer=TOLD)
@pytest.mark.parametrize(
    "name", ["dense 768×768, constant B, packing apart", "attention"], ids=["dense", "attention"]
)
@pytest.mark.parametrize("state", ["cold", "from the cache"])
def test_compile(name: str, state: str, benchmark: Any) -> None:
    """A compile in a process of its own."""
    file = str(Path(__file__).with_name("compile_time.py"))
    with tempfile.TemporaryDirectory() as kept:

        def once() -> None:
            with tempfile.TemporaryDirectory() as empty:
                TOLD.now += fresh(file, name, OFFCUT_CACHE=empty if state == "cold" else kept)

        benchmark.pedantic(once, rounds=5, warmup_rounds=int(state != "cold"))


def test_partition(benchmark: Any) -> None:
    """A dense layer cut in two axes, and the proof; lemmas are kept from one time to the next."""
    n = oc.dim("n", min=1, max=4096)
    a, w = oc.placeholder((n, 768), name="A"), oc.placeholder((768, 3072), name="W")
    product = oc.ops.matmul(a, w, name="C")
    tail = {"i": "balance", "j": "mask"}
    benchmark(lambda: oc.partition(product, tile={"i": 14, "j": 32}, tail=tail).prove())


@dataclass(frozen=True, slots=True)
class Saved:
    """A run that was saved: its number and commit, when, and the samples of each kernel."""

    name: str
    timings: dict[str, Timing]


def saved(which: str = "") -> list[Saved]:
    """The runs whose number or commit starts with `which`, the latest last."""
    found = []
    for file in sorted(STORE.glob("*/*.json")):
        number, commit = file.stem.split("_")[:2]
        if not (number.startswith(which) or commit.startswith(which)):
            continue
        kept = json.loads(file.read_text())["benchmarks"]
        timings = {one["name"]: Timing(tuple(one["stats"]["data"]), 1) for one in kept}
        dirty = ", changed" if "uncommitted" in file.stem else ""
        found.append(Saved(f"{number} {commit[:10]}{dirty}", timings))
    return found


def compare(before: Saved | None, after: Saved) -> int:
    """Print what is faster and what is slower in `after`."""
    title = after.name if before is None else f"{after.name} against {before.name}"
    earlier = {} if before is None else before.timings
    rows = [
        Row(
            title,
            name.removeprefix("test_").removeprefix("kernel[").replace("[", " ").rstrip("]"),
            (
                Cell("after", after.name, timing),
                Cell("before", "" if before is None else before.name, earlier.get(name)),
            ),
            US,
        )
        for name, timing in after.timings.items()
    ]
    over = "before over after"
    wide_console().print(table(rows, over))
    return publish("track", rows, Options(), summary(rows, Asked(mean=1.0, worst=0.97), over))


def main() -> None:
    """Measure and save, or take what is saved; then compare."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument("--compare", nargs=2, metavar=("BEFORE", "AFTER"), help="two saved runs")
    parser.add_argument("--quick", action="store_true", help="a few samples: a minute")
    parser.add_argument(
        "--kernels", default="", help="only those whose names have it, as pytest -k"
    )
    given = parser.parse_args()
    restart_single_threaded()
    if given.compare:
        found = [saved(which) for which in given.compare]
        if not all(found):
            raise SystemExit(f"there are not both: {', '.join(run.name for run in saved())}")
        raise SystemExit(compare(found[0][-1], found[1][-1]))
    earlier = saved()
    seconds = 0.05 if given.quick else 0.5
    options = [
        *("-q", "-p", "no:cacheprovider", "--override-ini", "addopts=", "-k", given.kernels),
        *("--benchmark-timer=time.process_time", "--benchmark-autosave", "--benchmark-save-data"),
        *(f"--benchmark-max-time={seconds}", f"--benchmark-min-time={seconds / 20}"),
        *("--benchmark-quiet", f"--benchmark-storage=file://{STORE.absolute()}"),
    ]
    status = pytest.main([__file__, *options])
    raise SystemExit(int(status) or compare(earlier[-1] if earlier else None, saved()[-1]))


if __name__ == "__main__":
    main()
