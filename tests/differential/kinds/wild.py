"""Anything on integers, with every access guarded: loops, bounds, conditions and indices at random."""

from __future__ import annotations

from ..drawing import Draw, Drawn, nest

SPACE, MARGIN = "n + m + 48", 12
RANKS = {"X": 1, "Y": 2, "A": 1, "B": 2, "C": 1, "L": 1, "E": 1, "F": 2, "G": 1, "H": 2}
TIGHT = {"E": ("n",), "F": ("n", "m"), "G": ("n",), "H": ("n", "m")}


class _Wild:
    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.around: list[str] = []

    def index(self) -> str:
        x, y = self.draw.pick(*self.around), self.draw.pick(*self.around)
        return self.draw.pick(
            x, x, x, x, f"{x} + 1", f"{x} - 1", f"{x} + 2", f"{x}//2", f"{x} % 4", f"max(0, n - {x})",
            f"min({x}, m)", f"({x} + {y})//2", f"({x} + {y}) % 5", f"max(0, {x} - {y})", "2",
        )  # fmt: skip

    def access(self, buffer: str) -> tuple[str, str]:
        """An access, and the condition under which it is inside."""
        index = [self.index() for _ in range(RANKS[buffer])]
        if buffer not in TIGHT:
            return f"{buffer}[{', '.join(f'{x} + {MARGIN}' for x in index)}]", ""
        inside = (f"{x} >= 0 and {x} < {e}" for x, e in zip(index, TIGHT[buffer], strict=True))
        return f"{buffer}[{', '.join(index)}]", " and ".join(inside)

    def read(self) -> str:
        access, inside = self.access(self.draw.pick(*"XXYAABCLEFGH"))
        return f"where({inside}, {access}, {self.draw.pick('0', '1', '-2')})" if inside else access

    def value(self) -> str:
        a, b = self.read(), self.read()
        return self.draw.pick(
            a, a, f"{a} + {b}", f"{a} - {b}", f"{a} * {b}", f"min({a}, {b})", f"max({a}, {b})", f"{a} % 3",
            f"int32({self.draw.pick(*self.around)})", f"where({self.condition()}, {a}, {b})",
        )  # fmt: skip

    def condition(self) -> str:
        x, y = self.draw.pick(*self.around), self.draw.pick(*self.around, "n", "m")
        found = self.draw.pick(
            f"{x} >= 1", f"{x} < n - 1", f"{x} == 2", f"{x} != 0", f"{x} + {y} < m", f"{x} <= {y}",
            f"2*{x} < n + 1", f"{x} % 2 == 0", f"({x} + {y}) % 3 == 1", f"{x}//2 < {y}", "n < m",
            f"n*{x} < {y} + 4", f"X[{x} + {MARGIN}] > 0", f"A[{x} + {MARGIN}] <= C[{x} + {MARGIN}]",
        )  # fmt: skip
        return self.draw.pick(
            found, found, found, f"not ({found})", f"({found} and {y} > 1)", f"({found} or {x} > 4)"
        )

    def store(self) -> list[str]:
        access, inside = self.access(self.draw.pick(*"AABBCGHL"))
        op = self.draw.pick("=", "=", "=", "+=", "-=", "max=", "min=")
        line = f"{access} {op} {self.value()}"
        return [f"if {inside}", f"  {line}"] if inside else [line]

    def loop(self, depth: int) -> list[str]:
        name = f"{'ijkl'[len(self.around)]}"
        low, high = self.low(), self.high()
        step = self.draw.pick(*("",) * 6, ":2", ":3")
        self.around.append(name)
        body: list[str] = []
        for _ in range(self.draw.pick(1, 1, 2)):
            if depth and self.draw.chance(0.5):
                body += self.loop(depth - 1)
            elif self.draw.chance(0.4):
                body += nest([f"if {self.condition()}"], self.store())
                if self.draw.chance(0.3):
                    body += nest(["else"], self.store())
            else:
                body += self.store()
        self.around.pop()
        return nest([f"for {name} in {low}:{high}{step}"], body)

    def low(self) -> str:
        choices = ["0", "0", "0", "1", "2", "n//2", "0 - 2", "m - 3"]
        for x in self.around:
            choices += [x, f"{x} - 2", f"max(0, {x} - 1)", f"{x}//2", f"{x} % 3"]
        return self.draw.pick(*choices)

    def high(self) -> str:
        choices = [
            "n",
            "n",
            "m",
            "n - 1",
            "n + 3",
            "3",
            "7",
            "min(n, m)",
            "(n + m)//2",
            "(n + 3)//4",
            "max(n, m)",
        ]
        for x in self.around:
            choices += [
                x,
                f"{x} + 1",
                f"min(n, {x} + 3)",
                f"n - {x}",
                f"({x} + n)//2",
                f"{x} + 4",
                f"n - {x} % 3",
            ]
        return self.draw.pick(*choices)


def wild(draw: Draw) -> Drawn:
    found = Drawn(["size n in 0:60", "size m in 0:60"])
    for name, kind in (
        ("X", "input"),
        ("Y", "input"),
        ("E", "input"),
        ("F", "input"),
        ("A", "inout"),
        ("B", "inout"),
        ("C", "inout"),
        ("G", "inout"),
        ("H", "inout"),
        ("L", "inout"),
    ):
        shape = TIGHT.get(name, (SPACE,) * RANKS[name])
        found.head.append(f"{kind} {name}: int32[{', '.join(shape)}]")
    for _ in range(draw.pick(1, 1, 2)):
        found.body += _Wild(draw).loop(draw.pick(0, 1, 1, 2))
    used = "\n".join(found.body)
    found.head = [
        line
        for line in found.head
        if not line.startswith(("input", "inout")) or f"{line.split(':')[0].split()[-1]}[" in used
    ]
    return found
