"""Sums of products: axes in any order, from any start, under conditions, with anything after them."""

from __future__ import annotations

from ..drawing import Draw, Drawn, listed, nest

# element types of the operands, and of the sum
TYPES = (
    *((("float32", "float32"), "float32"),) * 4,
    (("float64", "float64"), "float64"),
    (("int32", "int32"), "int32"),
    (("int8", "int8"), "int32"),
    (("uint8", "int8"), "int32"),
    (("float16", "float16"), "float32"),
    (("bfloat16", "bfloat16"), "float32"),
    (("int64", "int64"), "int64"),
)
EXTENTS = {"i": "m", "j": "n", "k": "K", "b": "g", "l": "L"}


def product(a: str, b: str, types: tuple[str, str], total: str) -> str:
    """a*b in the type of the sum."""
    x, y = (v if t == total else f"{total}({v})" for v, t in zip((a, b), types, strict=True))
    return f"{x} * {y}"


def sizes_of(draw: Draw, axes: str) -> tuple[list[str], dict[str, str]]:
    """Declarations of sizes, and the extent of every axis: most are sizes, some are constants."""
    lines, extents = [], {}
    for axis in axes:
        if draw.chance(0.2):
            extents[axis] = str(draw.pick(1, 1, 2, 3, 4, 8, 16, 17, 32))
        else:
            extents[axis] = EXTENTS[axis]
            fact = draw.pick(*("",) * 8, " multiple_of 4", " multiple_of 8")
            low = draw.pick(0, 0, 0, 1) if not fact else 0
            lines.append(f"size {extents[axis]} in {low}:{draw.pick(60, 200, 4097)}{fact}")
    return lines, extents


def bound(draw: Draw, axis: str, extent: str, around: str, extents: dict[str, str]) -> str:
    """A loop over `axis`; the whole of it most often."""
    low, high = "0", extent
    if draw.chance(0.25):
        low, high = draw.pick(
            ("1", extent), ("0", f"{extent} - 1"), ("1", f"{extent} - 1"), ("2", extent),
            ("0", f"{extent}//2"), (f"{extent}//2", extent),
        )  # fmt: skip
    elif around and draw.chance(0.2):
        outer = draw.pick(*around)
        low, high = draw.pick(
            ("0", f"min({outer} + 1, {extent})"),
            (f"min({outer}, {extent})", extent),
            (f"max(0, {outer} - 2)", f"min({extent}, {outer} + 3)"),
            ("0", f"min({extent}, {extents[outer]})"),
        )
    step = draw.pick(*("",) * 12, ":2", ":3")
    return f"for {axis} in {low}:{high}{step}"


def contraction(draw: Draw) -> Drawn:
    """D[…] = start; D[…] += T[…] * C[…]; an epilogue."""
    types, total = draw.pick(*TYPES)
    rows = draw.pick("ij", "ij", "ij", "i", "j", "bij", "bi")
    deep = draw.pick("k", "k", "k", "kl")
    lines, extents = sizes_of(draw, rows + deep)
    out = draw.mixed(rows)
    left = draw.mixed([a for a in rows if a != "j"] + list(deep))
    right = draw.mixed(
        [a for a in rows if a != "i" and (a != "b" or draw.chance(0.6))] + list(deep)
    )
    kind = draw.pick("output", "inout")
    started = draw.pick(
        "zero", "zero", "constant", "vector", "matrix", "old", "old", "index", "mixed"
    )
    if started == "old" or kind == "output":
        kind = "inout" if started == "old" else kind
    if started == "mixed" and kind == "output":
        started = "vector"
    found = Drawn(lines, large=True)
    d = f"D[{listed(out)}]"
    shape = {
        x: listed(extents[a] for a in axes) for x, axes in (("D", out), ("T", left), ("C", right))
    }
    found.head += [
        f"{kind} D: {total}[{shape['D']}]",
        f"input T: {types[0]}[{shape['T']}]",
        f"{draw.pick('input', 'input', 'input', 'constant') if _fixed(right, extents) else 'input'} C: {types[1]}[{shape['C']}]",
    ]
    vector_axis = draw.pick(*out)
    if started in ("vector", "mixed"):
        found.head.append(f"input bias: {total}[{extents[vector_axis]}]")
    if started == "matrix":
        found.head.append(f"input X: {total}[{shape['D']}]")
    start = {
        "zero": "0", "constant": draw.pick("5", "-3", "1"), "vector": f"bias[{vector_axis}]",
        "matrix": f"X[{listed(out)}]", "old": "", "index": f"{total}({out[0]})",
        "mixed": draw.pick(f"max({d}, bias[{vector_axis}])", f"where({out[0]} > 1, {d}, 2)", f"max({d}, 0)"),
    }[started]  # fmt: skip
    term = product(f"T[{listed(left)}]", f"C[{listed(right)}]", types, total)
    term = draw.pick(
        *(term,) * 8,
        term.replace(" * ", " + "),
        f"2 * {term}",
        f"max({term}, 0)",
        term.replace(" * ", " - "),
    )
    op = draw.pick(*("+=",) * 8, "-=", "max=", "min=")
    update = [f"{d} {op} {term}"]
    if draw.chance(0.2):
        a, b = draw.pick(*out), draw.pick(*deep)
        condition = draw.pick(
            f"{b} <= {a}",
            f"{b} != {a}",
            f"{a} + {b} < 9",
            f"{b} % 2 == 0",
            f"{a} > 0",
            f"T[{listed(left)}] > 0",
        )
        update = (
            [f"if {condition}", f"  {update[0]}"]
            if draw.chance(0.5)
            else [f"{d} {op} where({condition}, {term}, 0)"]
        )
    after = _epilogue(draw, found, d, out, extents, total) if draw.chance(0.4) else []
    _place(
        draw, found, out, list(deep), extents, [f"{d} = {start}"] if start else [], update, after
    )
    if draw.chance(0.3) and total.startswith("float"):
        found.data = "specials"
    return found


def _fixed(axes: list[str], extents: dict[str, str]) -> bool:
    return all(extents[axis].isdigit() for axis in axes)


def _epilogue(
    draw: Draw, found: Drawn, d: str, out: list[str], extents: dict[str, str], total: str
) -> list[str]:
    """Statements over the result."""
    lines: list[str] = []
    shape = listed(extents[a] for a in out)
    for _ in range(draw.pick(1, 1, 2)):
        what = draw.pick("relu", "scale", "add", "second", "where", "cast")
        if what == "add" and not any(line.startswith("input Y") for line in found.head):
            found.head.append(f"input Y: {total}[{shape}]")
            lines.append(f"{d} += Y[{listed(out)}]")
        elif what == "second" and not any("output E" in line for line in found.head):
            found.head.append(f"output E: {total}[{shape}]")
            lines.append(f"E[{listed(out)}] = {d} {draw.pick('+ 1', '* 2', '- 3')}")
        elif what == "cast" and total == "float32" and not any("output H" in x for x in found.head):
            found.head.append(f"output H: bfloat16[{shape}]")
            lines.append(f"H[{listed(out)}] = bfloat16({d})")
        elif what == "where":
            lines.append(f"{d} = where({out[0]} > 1, {d}, 2*{d})")
        elif what == "scale":
            lines.append(f"{d} = {d} * {draw.pick('2', '3', '-1')} + 1")
        else:
            lines.append(f"{d} = max({d}, 0)")
    return lines


def _place(
    draw: Draw,
    found: Drawn,
    out: list[str],
    deep: list[str],
    extents: dict[str, str],
    start: list[str],
    update: list[str],
    after: list[str],
) -> None:
    """The statements in one nest, or in several, the loops in any order that is right."""
    order = draw.mixed(out)
    outer, seen = [], ""
    for axis in order:
        outer.append(bound(draw, axis, extents[axis], seen, extents))
        seen += axis
    inner = []
    for axis in deep:
        inner.append(bound(draw, axis, extents[axis], seen, extents))
    shape = draw.pick("one", "one", "apart", "mixed")
    if shape == "one":
        found.body += nest(outer, [*start, *nest(inner, update), *after])
        return
    if start:
        found.body += nest(outer, start)
    loops = [*outer, *inner]
    if shape == "mixed" and not any(
        f" {a}" in head.split(" in ")[1] for a in out + deep for head in loops
    ):
        loops = draw.mixed(loops)
    found.body += nest(loops, update)
    if after:
        found.body += nest(outer, after)


def products(draw: Draw) -> Drawn:
    """Products one after the other, of one operand or of each other's results."""
    types, total = draw.pick(*TYPES[:6])
    found = Drawn(["size m in 0:60", "size n in 0:60", "size K in 0:60"], large=True)
    found.head += [
        f"input A: {types[0]}[m, K]",
        f"input B: {types[1]}[K, n]",
        f"{draw.pick('output', 'local')} D: {total}[m, n]",
        f"output E: {total}[m, {draw.pick('n', 'K')}]",
    ]
    wide = found.head[-1].split(", ")[-1][0]
    term = product("A[i, k]", "B[k, j]", types, total)
    found.body += nest(
        ["for i in 0:m", "for j in 0:n"],
        [
            f"D[i, j] = {draw.pick('0', '1', f'{total}(j)')}",
            *nest(["for k in 0:K"], [f"D[i, j] += {term}"]),
        ],
    )
    if wide == "n":
        found.body += nest(
            ["for i in 0:m", "for j in 0:n"],
            ["E[i, j] = 0", "for k in 0:m", "  E[i, j] += D[i, j] * D[k, j]"],
        )
    else:
        found.head.append(f"input W: {total}[n, K]")
        found.body += nest(
            ["for i in 0:m"],
            [
                *nest(["for l in 0:K"], [f"E[i, l] = {draw.pick('0', '2')}"]),
                *nest(
                    draw.mixed(["for l in 0:K", "for j in 0:n"]), ["E[i, l] += D[i, j] * W[j, l]"]
                ),
            ],
        )
    if draw.chance(0.3) and total.startswith("float"):
        found.data = "specials"
    return found
