"""Targets as a user meets them: names, plug-ins, machines that are not here."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut.backends.cpu.machine import isa
from offcut.backends.cpu.microkernels import amx
from offcut.backends.target import TargetPlan, python_callable
from offcut.costmodel import Accelerator, Machine, device
from offcut.costmodel import machine as schema
from tests.agree import agree, exact_matmul
from tests.facade import load_machine

n = oc.dim("n", min=1, max=4096)
A, W = oc.placeholder((n, 96), name="A"), oc.placeholder((96, 80), name="W")
k = oc.reduce_axis(96, name="k")
C = oc.compute((n, 80), lambda i, j: oc.sum(A[i, k] * W[k, j], axis=k), name="C")
MACHINES = ("avx2", "cascade-lake", "sapphire-rapids", "zen4", "neoverse-n1")


def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """A plug-in whose module has this text, and whose entry point is its `target`."""
    (tmp_path / f"{name}_plugin.py").write_text(text)
    metadata = tmp_path / f"offcut_{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: offcut-{name}\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(f"[offcut.targets]\n{name} = {name}_plugin:target\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_plug_in_is_listed_and_gets_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "import offcut as oc\ndef target(machine):\n    return oc.target('cpu', machine=machine)\n"
    )
    plugged(tmp_path, monkeypatch, "another", text)
    assert oc.targets() == (
        *("accelerator", "another", "cpu", "cuda", "gemmini"),
        *("interpret", "vta", "vta-osdi18"),
    )
    assert oc.target("another", machine="zen4").machine == load_machine("zen4")
    assert oc.target("another").machine == oc.target("cpu").machine


def test_a_target_may_hold_a_machine_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "from offcut.backends.interpret.target import Interpret\n"
        "from offcut.backends.target import Target\n"
        "class Held(Target):\n"
        "    name = 'held'\n"
        "    policy, lower, load = Interpret.policy, Interpret.lower, Interpret.load\n"
        "    def __init__(self, machine):\n"
        "        self.machine = machine\n"
        "target = Held\n"
    )
    plugged(tmp_path, monkeypatch, "held", text)
    assert oc.target("held", machine="zen4").machine == load_machine("zen4")


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("import a_module_that_is_not_there\n", "ModuleNotFoundError: No module named"),
        ("target = 3\n", "TypeError: 'int' object is not callable"),
        ("target = str\n", "it gives a str, no offcut.backends.target.Target"),
    ],
)
def test_a_plug_in_that_cannot_be_loaded_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, because: str
) -> None:
    name = f"broken{len(text)}"
    plugged(tmp_path, monkeypatch, name, text)
    with pytest.raises(oc.TargetError) as refused:
        oc.compile(C, target=name)
    first, at, reason, *_ = str(refused.value).splitlines()
    assert first == f"compile: cannot load target='{name}'"
    assert at == f"  at       {name}_plugin:target, an entry point of offcut.targets"
    assert reason.startswith(f"  because  {because}")


@pytest.mark.every(2)
@pytest.mark.parametrize("name", MACHINES)
def test_a_plan_is_made_for_a_machine_that_is_not_here(name: str) -> None:
    there = oc.target("cpu", machine=name)
    plan = there.plan(C, inputs=[A, W], constants=["W"], n=77)
    kernels = {kernel.name for kernel in there.microkernels()}
    assert plan.pieces
    assert {piece.microkernel for piece in plan.pieces} <= kernels
    cut = oc.partition(C, tile={"i": 8, "j": 8}, tail="ladder", target=there)
    assert {piece.microkernel for piece in cut.pieces} <= kernels
    cut.prove()


def test_a_plan_for_neoverse_n1_is_in_its_four_lanes() -> None:
    there = oc.target("cpu", machine="neoverse-n1")
    plan = there.plan(C, inputs=[A, W], constants=["W"], n=77)
    assert {piece.microkernel for piece in plan.pieces} == {"fma_float32_neon"}
    assert all(piece.tile["j"] % 4 == 0 for piece in plan.pieces)
    assembly = there.source(C, inputs=[A, W], constants=["W"], form="asm")
    assert "fmla\tv" in assembly
    assert not re.search(r"%[xyz]mm", assembly)


def test_a_plan_takes_constants_by_name_or_as_arrays() -> None:
    there = oc.target("cpu", machine="zen4")
    named = there.plan(C, inputs=[A, W], constants=["W"], n=9)
    given = there.plan(C, inputs=[A, W], constants={"W": np.ones((96, 80), "float32")}, n=9)
    assert str(named) == str(given)
    text = oc.parse(str(oc.partition(C).source))
    assert [p.tile for p in there.plan(text, constants=["W"], n=9).pieces] == [
        p.tile for p in named.pieces
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "A",
            "plan: cannot take A as a constant by its name\n"
            "  because  its shape depends on sizes\n"
            '  help     constants={"A": an array}',
        ),
        ("Q", "plan: cannot take a constant for 'Q'\n  because  the inputs are A, W"),
    ],
)
def test_a_constant_of_which_a_name_says_too_little_is_refused(name: str, text: str) -> None:
    with rejection(f"DescribeError: {text}"):
        oc.target("cpu").plan(C, inputs=[A, W], constants=[name], n=3)


def test_a_machine_whose_features_are_here_runs_its_code() -> None:
    runs = [name for name in MACHINES if not isa.host_for_machine(load_machine(name)).lacking]
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s, dtype=np.float32) for s in ((45, 96), (96, 80)))
    for name in runs:
        if "amx_tile" in load_machine(name).features and not amx.is_amx_permitted():
            continue
        kernel = oc.compile(C, inputs=[A, W], target=oc.target("cpu", machine=name))
        agree(kernel(x, w), exact_matmul(x, w))


def test_code_for_features_that_are_not_here_is_refused_when_it_is_called(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        f'name = "mine"\nlike = "cascade-lake"\narchitecture = "{isa.host().machine.architecture}"\n'
        'features = ["avx512_4vnniw"]\n'
    )
    mine = oc.target("cpu", machine=path)
    assert str(mine.plan(C, n=3))
    kernel = oc.compile(C, target=mine)
    with rejection(
        "TargetError: C: cannot run code for mine here\n"
        "  because  this machine lacks avx5124vnniw\n"
        "  help     save(path), or export(folder), for a machine like that one"
    ):
        kernel()


def test_code_for_an_architecture_that_llvm_has_not_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\nlike = "cascade-lake"\narchitecture = "pdp11"\nfeatures = []\n')
    mine = oc.target("cpu", machine=path)
    assert str(mine.plan(C, n=3))
    with rejection(
        "TargetError: compile: cannot make code for mine\n  because  this LLVM has no architecture pdp11"
    ):
        mine.source(C, form="asm")


def test_the_page_on_machines_names_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs/extending/machine.md").read_text(encoding="utf-8")
    table = page[page.index("| table |") :]
    known = (value for module in (schema, device) for value in vars(module).values())
    records = [value for value in known if hasattr(value, "__dataclass_fields__")]
    assert {Machine, Accelerator} <= set(records)
    for record in records:
        for field in fields(record):
            assert f"`{field.name}`" in page or f"[{field.name}]" in table, field.name


class Adding(oc.Target):
    """A target whose code depends on what it holds, and on the class."""

    name = "adding"
    machine = load_machine("cascade-lake")
    factor = 1.0

    def __init__(self, term: float) -> None:
        self.term = term

    def policy(self, program: Any, users: Any, options: Any) -> Any:
        yield TargetPlan(program)

    def lower(self, planned: Any, signature: Any, options: Any) -> bytes:
        return str(self.term * self.factor).encode()

    def load(self, lowered: bytes, signature: Any, options: Any) -> Any:
        def bound(constants: Any) -> Any:
            return python_callable(signature, lambda inputs, sizes: [inputs[0] + float(lowered)])

        return bound


class Doubling(Adding):
    factor = 2.0


def test_targets_of_one_name_share_no_code() -> None:
    n = oc.dim("n")
    A = oc.placeholder((n,), "float64", name="A")
    B = oc.compute((n,), lambda i: A[i] + 1.0, name="B")
    found = [oc.compile(B, target=one)(np.zeros(1)) for one in (Adding(1), Adding(3), Doubling(3))]
    assert [float(x[0]) for x in found] == [1.0, 3.0, 6.0]


class Short(Adding):
    """A target that leaves the last element out."""

    def policy(self, program: Any, users: Any, options: Any) -> Any:
        yield TargetPlan(oc.parse(str(program).replace("in 0:n", "in 0:n - 1")))


class Claiming(Short):
    """The same, said to be what primitives made, which nobody asked for."""

    def policy(self, program: Any, users: Any, options: Any) -> Any:
        for planned in super().policy(program, users, options):
            yield replace(planned, by_hand=planned.program)


@pytest.mark.parametrize("kind", [Short, Claiming])
def test_a_plan_that_computes_something_else_is_refused(kind: type[Adding]) -> None:
    n = oc.dim("n")
    A = oc.placeholder((n,), "float64", name="A")
    B = oc.compute((n,), lambda i: A[i] + 1.0, name="B")
    with pytest.raises(oc.PartitionError, match=r"B\[0\].* n = 1|n = 1"):
        oc.compile(B, target=kind(1.0))


def test_a_machine_with_caches_of_a_line_is_planned_for(tmp_path: Path) -> None:
    caches = "".join(
        f'[[memory]]\nname = "L{k}"\nbytes = {64 * k}\nways = 1\nbytes_per_cycle = 100.0\nsource = "this test"\n'
        for k in (1, 2, 3)
    )
    described = tmp_path / "tiny.toml"
    described.write_text(f'like = "zen4"\nname = "tiny"\n{caches}')
    n = oc.dim("n", max=100)
    A, B = oc.placeholder((n, 64), name="A"), oc.placeholder((64, 48), name="B")
    plan = oc.target("cpu", machine=described).plan(oc.ops.matmul(A, B), n=33)
    assert "1×32  fma_float32_avx512" in str(plan)


BY_HAND = """\
schedule D
stage read W for C as W_near in near
split D.i balance 4 as i_tile ii
split D.j mask 8 as j_tile jj
order D i_tile j_tile ii jj
at C D.j_tile
at W_near D"""


def in_order() -> tuple[list[oc.Tensor], oc.Tensor]:
    n, k = oc.dim("n", min=1, max=64), oc.reduce_axis(16, name="k")
    a, w = oc.placeholder((n, 16), name="A"), oc.placeholder((16, 12), name="W")
    total = oc.compute((n, 12), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="C")
    return [a, w], oc.compute((n, 12), lambda i, j: oc.maximum(total[i, j], 0.0), name="D")


def test_a_target_of_ones_own_takes_decisions_by_hand_for_nothing() -> None:
    inputs, result = in_order()
    target, rng = oc.target("interpret"), np.random.default_rng(0)
    schedule = oc.Schedule.parse(BY_HAND)
    kernel = oc.compile(result, inputs=inputs, schedule=schedule, target=target)
    assert kernel.schedule == schedule
    text = kernel.source("loops")
    assert "let q in 1:5 = n//((n + 3)//4)" in text
    assert "alloc W_near[0 +: 16, 0 +: 12]" in text
    w = rng.standard_normal((16, 12), dtype=np.float32)
    for n in (1, 3, 4, 5, 17):
        a = rng.standard_normal((n, 16), dtype=np.float32)
        exact = exact_matmul(a, w)
        agree(kernel(a, w), replace(exact, value=np.maximum(exact.value, 0)))


def test_decisions_of_a_processor_alone_are_refused_by_a_target_of_ones_own() -> None:
    inputs, result = in_order()
    schedule = oc.Schedule.parse("schedule D\nbind * lane")
    with pytest.raises(oc.TargetError, match="cannot take schedule= for target='interpret'"):
        oc.compile(result, inputs=inputs, schedule=schedule, target="interpret")
