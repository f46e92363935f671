"""What the form of a program costs: described and pasted, and an operator alone and behind another.

    python bench/one_form.py            # two minutes
    python bench/one_form.py --quick    # some seconds

One computation is compiled as `oc.ops` or `oc.compute` describes it, and once more from the text of
its plain loops: both take turns on the same arrays, one thread. Then ``dense(embedding(T, ids), W)`` as
one kernel takes turns with the dense layer on rows that were looked up before.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from harness import Line, publish, ratio_to_best, read_options, row_of, table

import offcut as oc
from offcut.experiment.contraction import Array, Computation, build, parse_contraction
from offcut.experiment.outputs import wide_console
from offcut.experiment.timing import Ratio, measure
from offcut.studies.rows import Row

FORMS, LOOKED_UP = "≤ 1.02", "≤ 1.10"
K, N = 768, 3072
VOCABULARY = 30522


def normal(*shape: int) -> Array:
    """Standard normal values."""
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def convolution() -> Computation:
    """A 3×3 convolution of one channel, which reads 0 outside of the image."""
    h, w = oc.dim("h", min=1, max=4096), oc.dim("w", min=1, max=4096)
    image, window = oc.placeholder((h, w), name="X"), oc.placeholder((3, 3), name="W")
    r, s = oc.reduce_axis(3, name="r"), oc.reduce_axis(3, name="s")

    def element(i: Any, j: Any) -> Any:
        y, x = i + r - 1, j + s - 1
        inside = (y >= 0) & (y < h) & (x >= 0) & (x < w)
        return oc.sum(oc.where(inside, image[y, x] * window[r, s], 0.0), axis=(r, s))

    return Computation((image, window), oc.compute((h, w), element, name="Y"))


def softmax() -> Computation:
    """`oc.ops.softmax` of the rows of x, (m, n)."""
    x = oc.placeholder(tuple(oc.dim(letter, min=1, max=2**16) for letter in "mn"), name="X")
    return Computation((x,), oc.ops.softmax(x, name="result"))


def layernorm(columns: int) -> Computation:
    """`oc.ops.layernorm` of the rows of x, (m, columns)."""
    x = oc.placeholder((oc.dim("m", min=1, max=2**16), columns), name="X")
    gain, bias = (oc.placeholder((columns,), name=name) for name in ("gain", "bias"))
    return Computation((x, gain, bias), oc.ops.layernorm(x, gain, bias, name="result"))


def cases(
    quick: bool,
) -> Iterator[tuple[str, Computation, dict[str, Array], tuple[tuple[Array, ...], ...]]]:
    """Of each computation: a name, what describes it, constants, and the arrays of each call."""
    dense = build(parse_contraction("mk,kn->mn"), {"k": K, "n": N}, {"m": (1, 4096)})
    calls = tuple((normal(m, K),) for m in ((17,) if quick else (1, 17, 128, 333)))
    yield f"dense {K}×{N}, constant B", dense, {"B": normal(K, N)}, calls
    weight = normal(K, N)
    yield f"dense {K}×{N}, B at run time", dense, {}, tuple((x, weight) for (x,) in calls)
    images = ((251, 253),) if quick else ((28, 28), (251, 253), (997, 1003))
    window = normal(3, 3)
    yield "padded 3×3 with where", convolution(), {}, tuple((normal(*s), window) for s in images)
    rows = ((128, 384),) if quick else ((1, 384), (128, 384), (512, 777))
    yield "softmax", softmax(), {}, tuple((normal(*shape),) for shape in rows)
    constants = {"gain": normal(K), "bias": normal(K)}
    calls = tuple((normal(m, K),) for m in ((128,) if quick else (1, 17, 128, 512)))
    yield f"layer norm of {K}", layernorm(K), constants, calls


def in_both_forms(quick: bool, budget: float) -> Iterator[Row]:
    """A row for each call; bits are compared before it is timed."""
    for name, described, constants, calls in cases(quick):
        text = str(oc.create_schedule(described.result).source)
        pasted = oc.compile(oc.parse(text), constants=constants, threads=1)
        kernels = {"described": described.compile(constants), "pasted": pasted}
        for arrays in calls:
            first, other = (kernel(*arrays) for kernel in kernels.values())
            runs = {
                form: partial(kernel, *arrays, out=np.empty_like(first))
                for form, kernel in kernels.items()
            }
            timings = measure(runs, budget=budget)
            wrong = "" if np.array_equal(first, other) else "not the bits of the described one"
            label = f"{name}, {'×'.join(map(str, arrays[0].shape))}"
            times = {form: timing.samples for form, timing in timings.items()}
            yield row_of("the same nest", label, times, wrong={"pasted": wrong})


def looked_up(quick: bool, budget: float) -> Iterator[Row]:
    """The dense layer alone and with the lookup in its kernel."""
    m = oc.dim("m", min=1, max=4096)
    words = oc.placeholder((VOCABULARY, K), "float32", name="T")
    ids, x = oc.placeholder((m,), "int32", name="ids"), oc.placeholder((m, K), name="x")
    weight = oc.placeholder((K, N), "float32", name="W")
    given = {"T": normal(VOCABULARY, K), "W": normal(K, N)}
    alone = Computation((x, weight), oc.ops.dense(x, weight, name="Y"))
    rows = oc.ops.embedding(words, ids, name="rows")
    together = Computation((words, ids, weight), oc.ops.dense(rows, weight, name="Y"))
    kernel, fused = alone.compile({"W": given["W"]}), together.compile(given)
    for count in (17, 128) if quick else (1, 17, 43, 128, 333, 512):
        numbers = np.random.default_rng(count).integers(0, VOCABULARY, count).astype(np.int32)
        taken = given["T"][numbers]
        first, other = kernel(taken), fused(numbers)
        runs = {
            "dense": partial(kernel, taken, out=np.empty_like(first)),
            "with lookup": partial(fused, numbers, out=np.empty_like(first)),
        }
        timings = measure(runs, budget=budget)
        wrong = "" if np.allclose(first, other, rtol=1e-4, atol=1e-3) else "not those of dense"
        times = {
            "dense alone": timings["dense"].samples,
            "in one kernel": timings["with lookup"].samples,
        }
        title = f"dense(embedding(T, ids), W), {K}×{N}"
        yield row_of(title, f"{count} rows", times, wrong={"in one kernel": wrong})


def apart(ratio: Ratio, both: bool) -> float:
    """The ratio; for `both`, whichever of the two is the slower."""
    return max(ratio.value, ratio.inverse.value) if both else ratio.value


def main() -> None:
    """Measure, print, write."""
    options = read_options(__doc__ or "", ("budget", "out"))
    console, rows = wide_console(), list[Row]()
    lines: list[Line] = []
    for made, name, asked in (
        (in_both_forms, "pasted over described", FORMS),
        (looked_up, "over dense alone", LOOKED_UP),
    ):
        found = list(made(options.quick, options.budget))
        goals = dict.fromkeys((row.name for row in found), asked)
        console.print(table(found, "µs", name, goals=goals))
        ratios = [ratio for row in found if (ratio := ratio_to_best(row)) is not None]
        worst = max(ratios, key=lambda one: apart(one[0], both=made is in_both_forms))
        lines.append((f"farthest {name}", asked, str(worst[0]), worst[1]))
        rows += found
    raise SystemExit(publish("one_form", rows, options, lines))


if __name__ == "__main__":
    main()
