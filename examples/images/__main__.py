"""`python -m examples.images`: classify random images, and say which target runs what."""

import argparse

import numpy as np

from examples.images.network import drawn, graph
from examples.images.reference import scores
from offcut.graph import compile_graph

LEAST_FILLED = 0.5
"""Of what a matrix unit computes: the first layer, of 3 channels where a word has 16, stays below."""


def main() -> int:
    """Run the network on the targets that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m examples.images", description=__doc__)
    parser.add_argument("--targets", default="vta,cpu", metavar="NAMES", help="in order (vta,cpu)")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="images (1)")
    parser.add_argument("--image", type=int, default=224, metavar="N", help="their extent (224)")
    asked = parser.parse_args()
    weights = drawn(asked.image)
    targets = tuple(asked.targets.split(","))
    model = compile_graph(graph(weights), target=targets, least_filled=LEAST_FILLED)
    print(model.plan(batch=asked.batch))
    shape = (asked.batch, asked.image, asked.image, 3)
    images = np.random.default_rng(0).integers(-128, 127, shape, "int8", endpoint=True)
    found = model(images)
    equal = bool(np.array_equal(found, scores(weights, images)))
    print(f"{found.size} scores, {'' if equal else 'not '}bit for bit those of numpy's integers")
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
