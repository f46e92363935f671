"""Our kernels as functions of TVM, and operators of Relax that are served by them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from conftest import rejection

pytest.importorskip("tvm", reason="needs apache-tvm: make test-hosts installs it")

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import offcut as oc
import offcut.plugins.tvm as plugin
from tests.agree import agree, computed, of_peer

SIZES = [0, 1, 7, 8, 9, 29]


@I.ir_module
class Net:
    """``softmax(relu(x @ w)) + x @ w``, for any number of rows."""

    @R.function
    def main(x: R.Tensor(("n", 12), "float32"), w: R.Tensor((12, 21), "float32")) -> R.Tensor(
        ("n", 21), "float32"
    ):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.nn.softmax(b, axis=-1)
            d = R.add(a, c)
            R.output(d)
        return d


@I.ir_module
class Sorted:
    """What has no rule, beside what has one."""

    @R.function
    def main(x: R.Tensor(("n", 12), "float32")) -> R.Tensor(("n", 12), "float32"):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.nn.selu(a)
            c = R.tanh(b)
            R.output(c)
        return c


def by_numpy(x: Any, w: Any) -> Any:
    a = x.astype(np.float64) @ w
    b = np.exp(np.maximum(a, 0))
    return a + b / b.sum(-1, keepdims=True)


def machine_of(module: Any, **options: Any) -> Any:
    return relax.VirtualMachine(tvm.compile(module, "llvm", **options), tvm.cpu())


def called(module: Any) -> list[str]:
    """The global functions that a module's function calls."""
    bindings = module["main"].body.blocks[0].bindings
    names = (
        one.value.args[0].global_symbol
        for one in bindings
        if getattr(one.value.op, "name", "") == "relax.call_dps_packed"
    )
    return [name.rpartition(".")[0] for name in names]


def test_a_module_runs_on_our_kernels_at_every_size() -> None:
    left: dict[str, str] = {}
    module = plugin.dispatch_pass(left)(Net)
    assert called(module) == ["offcut.matmul", "offcut.relu", "offcut.softmax", "offcut.add"]
    assert not left
    machine = machine_of(module)
    random = np.random.default_rng(0)
    for n in SIZES:
        x, w = (random.standard_normal(s).astype(np.float32) for s in ((n, 12), (12, 21)))
        found = machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w)).numpy()
        agree(found, computed(by_numpy, x, w))


def test_what_has_no_rule_stays_and_its_loops_are_cut() -> None:
    module = plugin.dispatch_pass()(Sorted)
    assert called(module) == ["offcut.relu", "offcut.tanh"]
    report = plugin.register("offcut-test", tile={"ax1": 8})
    machine = machine_of(module, tir_pipeline="offcut-test")
    assert [name for name in report.cut if "selu" in name]
    for n in SIZES:
        x = np.random.default_rng(n).standard_normal((n, 12)).astype(np.float32)
        found = machine["main"](tvm.runtime.tensor(x)).numpy()
        wanted = np.tanh(1.0507009873554805 * np.maximum(x, 0))
        agree(found, of_peer(wanted))


def test_a_constant_is_packed_into_its_kernel_and_not_passed() -> None:
    w = np.random.default_rng(1).standard_normal((12, 21)).astype(np.float32)
    bound = relax.transform.BindParams("main", {"w": tvm.runtime.tensor(w)})(Net)
    module = plugin.dispatch_pass()(bound)
    first = module["main"].body.blocks[0].bindings[0].value
    assert len(first.args[1].fields) == 1
    machine = machine_of(module)
    x = np.random.default_rng(2).standard_normal((9, 12)).astype(np.float32)
    found = machine["main"](tvm.runtime.tensor(x)).numpy()
    agree(found, computed(by_numpy, x, w))


def product() -> Any:
    n = oc.dim("n")
    x, w = oc.placeholder((n, 12), name="x"), oc.placeholder((12, 21), name="w")
    return oc.compile(oc.ops.matmul(x, w, name="product"), inputs=[x, w])


def zeros(*shape: int, dtype: str = "float32") -> Any:
    return np.zeros(shape, dtype)


MISFITS = [
    ((zeros(3, 12), zeros(12, 21)), "product takes 3 arrays"),
    (
        (zeros(3, 12), zeros(12, 21), zeros(2, 21)),
        "the shapes that product was given do not fit each other",
    ),
    (
        (zeros(3, 12, dtype="float64"), zeros(12, 21), zeros(3, 21)),
        "argument 1 of product is not a row-major float32[n, 12] on the CPU",
    ),
    (
        (zeros(3, 12), zeros(21, 12).T, zeros(3, 21)),
        "argument 2 of product is not a row-major float32[12, 21] on the CPU",
    ),
    (
        (zeros(3, 12), 7, zeros(3, 21)),
        "argument 2 of product is not a row-major float32[12, 21] on the CPU",
    ),
]


@pytest.mark.parametrize(("given", "text"), MISFITS, ids=lambda one: "")
def test_arrays_that_do_not_fit_are_refused_by_tvms_error(given: Any, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        plugin.to_packed_function(product())(*given)


def test_a_result_that_overlaps_an_operand_is_refused() -> None:
    n = oc.dim("n")
    x = oc.placeholder((n,), name="x")
    function = plugin.to_packed_function(oc.compile(oc.ops.relu(x, name="r")))
    memory = zeros(8)
    with pytest.raises(ValueError, match="a result of r overlaps another array"):
        function(memory[:5], memory[3:])


def test_a_registered_kernel_is_found_by_its_name() -> None:
    plugin.register_kernel("offcut.test.product", product())
    x, w, y = np.ones((3, 12), np.float32), np.ones((12, 21), np.float32), zeros(3, 21)
    tvm.get_global_func("offcut.test.product")(x, w, y)
    assert (y == 12).all()


def test_a_kernel_with_a_size_that_no_shape_determines_is_refused() -> None:
    program = oc.parse("""\
program first
size n in 0:9
size m in 0:9
input A: float32[n]
output B: float32[n]
for i in 0:n
  if i < m
    B[i] = A[i]
  else
    B[i] = 0.0""")
    with rejection(
        "DescribeError: tvm: cannot hand first to TVM\n  because  no shape determines m"
    ):
        plugin.to_packed_function(oc.compile(program))


def constant(*shape: int) -> Any:
    random = np.random.default_rng(sum(shape))
    return relax.const(random.standard_normal(shape).astype(np.float32))


OP = relax.op
LAYERS: dict[str, tuple[tuple[Any, ...], Any, set[str]]] = {
    "norms": (
        (12,),
        lambda x: OP.nn.rms_norm(
            OP.nn.layer_norm(x, constant(12), constant(12), axes=[-1]), constant(12), axes=[1]
        ),
        {"layer_norm", "rms_norm"},
    ),
    "convolution": (
        (3, "h", 9),
        lambda x: OP.nn.max_pool2d(
            OP.nn.conv2d(x, constant(8, 3, 3, 3), padding=1), (2, 2), (2, 2)
        ),
        {"conv2d", "max_pool2d"},
    ),
    "groups": (
        (4, "h", 9),
        lambda x: OP.nn.avg_pool2d(
            OP.nn.conv2d(x, constant(8, 1, 3, 3), groups=4, dilation=2, padding=2),
            *((3, 3), (2, 2), (1, 1)),
        ),
        {"conv2d", "avg_pool2d"},
    ),
    "reductions": (
        ("h", 5),
        lambda x: OP.subtract(
            OP.max(x, axis=[1], keepdims=True), OP.mean(x, axis=[1], keepdims=True)
        ),
        {"max", "mean", "subtract"},
    ),
    "choice": (
        (5,),
        lambda x: OP.where(OP.less(x, constant(5)), OP.nn.leakyrelu(x, 0.1), OP.nn.log_softmax(x)),
        {"less", "where", "leakyrelu", "log_softmax"},
    ),
    "gram": ((5,), lambda x: OP.matmul(x, OP.permute_dims(x)), {"matmul", "permute_dims"}),
    "norm of two axes": (
        (4, 5),
        lambda x: OP.nn.layer_norm(OP.nn.relu(x), constant(4, 5), constant(4, 5), axes=[-2, -1]),
        {"relu"},
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_served_and_computes_what_tvm_computes(name: str) -> None:
    shape, layer, operators = LAYERS[name]
    sizes = {one: tvm.tirx.Var(one, "int64") for one in ("n", "h")}
    x = relax.Var("x", relax.TensorType([sizes.get(one, one) for one in ("n", *shape)], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(layer(x))
        builder.emit_func_output(result)
    module = builder.get()
    made = plugin.dispatch_pass()(module)
    assert {one.rpartition(".")[2] for one in called(made)} == operators
    ours, theirs = machine_of(made), machine_of(module)
    for n in (1, 3, 8, 13):
        drawn = np.random.default_rng(n).standard_normal(
            [n if one == "n" else n + 4 if one == "h" else one for one in ("n", *shape)]
        )
        given = tvm.runtime.tensor(drawn.astype(np.float32))
        found, wanted = (one["main"](given).numpy() for one in (ours, theirs))
        agree(found, of_peer(wanted))
