"""Several nests, one after the other, that hand arrays on."""

from __future__ import annotations

from ..drawing import Draw, Drawn, nest

LOOP = ("0:n", "0:n", "0:n", "0:n", "1:n", "0:n - 1", "1:n - 1", "0:n:2", "0:n//2")


def pipeline(draw: Draw) -> Drawn:
    """Two to five statements over vectors and matrices, each over what came before."""
    dtype = draw.pick("float32", "float32", "int32", "float64")
    found = Drawn(
        ["size n in 0:60", "size m in 0:60", f"input A: {dtype}[n]", f"input X: {dtype}[n, m]"]
    )
    vectors, matrices = ["A"], ["X"]
    for number in range(draw.number(2, 4)):
        matrix = draw.chance(0.5)
        name = f"{'M' if matrix else 'V'}{number}"
        kind = (
            draw.pick("output", "output", "inout", "local")
            if number
            else draw.pick("output", "local")
        )
        shape = "[n, m]" if matrix else "[n]"
        found.head.append(f"{kind} {name}: {dtype}{shape}")
        v, w = draw.pick(*vectors), draw.pick(*vectors)
        x = draw.pick(*matrices)
        over = "0:n" if kind in ("output", "local") else draw.pick(*LOOP)
        if matrix:
            value = draw.pick(
                f"{x}[i, j] + {v}[i]",
                f"max({x}[i, j], {v}[i])",
                f"{x}[i, j] * 2",
                f"where(i > j, {x}[i, j], {v}[i])",
                f"{x}[n - 1 - i, j]",
                f"{x}[i, m - 1 - j] - {w}[i]",
            )
            found.body += nest(
                draw.mixed([f"for i in {over}", "for j in 0:m"]), [f"{name}[i, j] = {value}"]
            )
            matrices.append(name)
        elif draw.chance(0.5):
            op = draw.pick("+=", "max=", "min=")
            value = draw.pick(f"{x}[i, j]", f"{x}[i, j] * {v}[i]", f"{x}[i, j] - {v}[i]")
            found.body += nest(
                [f"for i in {over}"],
                [
                    f"{name}[i] = {draw.pick('0', '2', f'{v}[i]')}",
                    *nest(["for j in 0:m"], [f"{name}[i] {op} {value}"]),
                ],
            )
            vectors.append(name)
        else:
            shifted = draw.pick(
                "i", "i", "i", "n - 1 - i", "max(0, i - 1)", "min(n - 1, i + 1)", "i//2"
            )
            value = draw.pick(
                f"{v}[{shifted}] + {w}[i]",
                f"{v}[{shifted}] * 3",
                f"max({v}[{shifted}], {w}[i])",
                f"where({v}[i] > 0, {v}[{shifted}], {w}[i])",
            )
            found.body += nest([f"for i in {over}"], [f"{name}[i] = {value}"])
            vectors.append(name)
    if all(not line.startswith(("output", "inout")) for line in found.head):
        found.head.append(f"output R: {dtype}[n]")
        found.body += nest(["for i in 0:n"], [f"R[i] = {vectors[-1]}[i]"])
    if draw.chance(0.3) and dtype != "int32":
        found.data = "specials"
    return found
