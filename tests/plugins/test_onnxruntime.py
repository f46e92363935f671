"""Scripts written for onnxruntime, unchanged but for the import: what they print, and what they compute, by offcut and by onnxruntime."""

from __future__ import annotations

import contextlib
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
import offcut.onnxruntime as ours
from offcut.core.extras import is_installed
from offcut.onnxruntime import overrides
from tests.agree import agree, of_peer

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

CLASSIFIER = """<ir_version: 9, opset_import: ["" : 17], producer_name: "tests", model_version: 3,
    doc_string: "of two layers", metadata_props: ["labels": "cat,dog,emu"]>
    classifier (float[batch, 8] pixels) => (float[batch, 3] probabilities, int64[batch] label)
    <float[8, 5] w = {0.1, -0.2, 0.3, 0.4, -0.5, 0.6, 0.7, -0.8, 0.9, 1.0, 0.1, 0.2, -0.3, 0.4, 0.5, 0.6, -0.7, 0.8, 0.9, 0.1,
     0.2, 0.3, 0.4, -0.5, 0.6, 0.7, 0.8, 0.9, 0.1, 0.2, 0.3, -0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.1, -0.2, 0.3},
     float[5, 3] v = {0.5, -0.5, 0.25, 1.0, 0.75, -1.0, 0.3, 0.2, 0.1, -0.6, 0.4, 0.2, 0.9, -0.3, 0.7}>
    { a = MatMul(pixels, w)  b = Relu(a)  c = MatMul(b, v)  probabilities = Softmax<axis=-1>(c)
      label = ArgMax<axis=1, keepdims=0>(c) }"""
ENCODER = """<ir_version: 9, opset_import: ["" : 17]>
    encoder (int64[batch, sequence] input_ids, float[batch, sequence] attention_mask) => (float[batch, sequence, 4] last_hidden_state)
    <float[6, 4] table = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0, 2.1,
     2.2, 2.3, 2.4}, int64[1] last = {-1}>
    { e = Gather(table, input_ids)  m = Unsqueeze(attention_mask, last)  last_hidden_state = Mul(e, m) }"""

CACHE = """<ir_version: 9, opset_import: ["" : 17]>
    step (float[n, past, 4] cache, float[n, new, 4] x) => (float[n, length, 4] grown, float[n, 4] total)
    <int64[1] axis = {1}> { grown = Concat<axis=1>(cache, x)  total = ReduceSum<keepdims=0>(grown, axis) }"""
PRELUDE = """
import numpy as np
import onnx
import onnxruntime as ort
session, result = ort.InferenceSession(CLASSIFIER), []
"""
SCRIPTS = {
    "the first of every tutorial": """
input_name = session.get_inputs()[0].name
label_name = session.get_outputs()[1].name
x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
result = session.run([label_name], {input_name: x.astype(np.float32)})
print(input_name, label_name, result[0].dtype, result[0].tolist())
""",
    "inputs are drawn from what a model says of them": """
import onnxruntime as rt
sess = rt.InferenceSession(ENCODER, providers=rt.get_available_providers()[-1:])
kinds = {"tensor(int64)": np.int64, "tensor(float)": np.float32}
feed = {}
for i in sess.get_inputs():
    print(i.name, i.type, i.shape)
    shape = [d if isinstance(d, int) else 3 for d in i.shape]
    feed[i.name] = np.ones(shape, kinds[i.type])
result = sess.run(None, feed)
print([(o.name, o.type, o.shape) for o in sess.get_outputs()], result[0].shape)
""",
    "options of a service": """
so = ort.SessionOptions()
so.intra_op_num_threads = 1
so.inter_op_num_threads = 1
so.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
so.enable_mem_pattern = False
so.log_severity_level = 3
so.add_session_config_entry("session.intra_op.allow_spinning", "0")
print(so.get_session_config_entry("session.intra_op.allow_spinning"))
session = ort.InferenceSession(CLASSIFIER, sess_options=so, providers=["CPUExecutionProvider"])
result = session.run(None, {"pixels": np.ones((2, 8), np.float32)})
print(session.get_providers(), session.get_session_options().intra_op_num_threads)
""",
    "a model of bytes": """
import onnxruntime
with open(CLASSIFIER, "rb") as f:
    session = onnxruntime.InferenceSession(f.read(), None, ["CPUExecutionProvider"])
result = session.run(["probabilities"], {session.get_inputs()[0].name: np.zeros((1, 8), dtype="float32")})
print(np.argmax(result[0], axis=1).tolist(), [len(r) for r in result])
""",
    "outputs are asked for in another order, by keyword": """
session = ort.InferenceSession(path_or_bytes=CLASSIFIER, providers=[("CPUExecutionProvider", {})])
outputs = [o.name for o in session.get_outputs()][::-1]
result = session.run(output_names=outputs, input_feed={"pixels": np.full((4, 8), 0.5, np.float32)})
print(dict(zip(outputs, [r.shape for r in result])), session.get_provider_options())
""",
    "what a file says of itself": """
meta = ort.InferenceSession(CLASSIFIER).get_modelmeta()
print(meta.graph_name, meta.producer_name, meta.version, meta.description, meta.domain == "", meta.custom_metadata_map)
labels = meta.custom_metadata_map["labels"].split(",")
print(labels[2])
""",
    "wrong names are refused": """
x = np.ones((2, 8), np.float32)
for names, feed in ((None, {}), (None, {"image": x}), (None, {"pixels": x, "image": x}), (["logits"], {"pixels": x})):
    try:
        session.run(names, feed)
    except ValueError as error:
        print("ValueError", str(error).splitlines()[0])
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
""",
    "wrong arrays are refused": """
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
for x in (np.ones((2, 8)), np.ones(8, np.float32), np.ones((2, 7), np.float32), np.ones((2, 8), np.int32)):
    try:
        session.run(None, {"pixels": x})
    except InvalidArgument as error:
        print(*(line for line in str(error).splitlines() if "because" not in line))
try:
    session.run(None, {"pixels": 1.0})
except RuntimeError as error:
    print(error)
""",
    "files that are none": """
for source in ("no such file.onnx", b"no model"):
    try:
        ort.InferenceSession(source)
    except ort.capi.onnxruntime_pybind11_state.NoSuchFile as error:
        print("NoSuchFile", str(error).splitlines()[0])
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
""",
    "memory is bound": """
x, y = np.linspace(0, 1, 16, dtype=np.float32).reshape(2, 8), np.empty((2, 3), np.float32)
binding = session.io_binding()
binding.bind_cpu_input("pixels", x)
binding.bind_output("label")
binding.bind_output(name="probabilities", device_type="cpu", device_id=0, element_type=np.float32, shape=y.shape, buffer_ptr=y.ctypes.data)
session.run_with_iobinding(binding)
label, probabilities = binding.copy_outputs_to_cpu()
print(label.tolist(), np.array_equal(y, probabilities), [o.shape() for o in binding.get_outputs()])
value = ort.OrtValue.ortvalue_from_numpy(x)
print(value.shape(), value.data_type(), value.device_name(), value.is_tensor(), value.element_type())
into = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
binding = session.io_binding()
binding.bind_ortvalue_input("pixels", value)
binding.bind_ortvalue_output("probabilities", into)
session.run_with_iobinding(binding, ort.RunOptions())
result = [y, into.numpy(), *(v.numpy() for v in session.run_with_ort_values(["probabilities"], {"pixels": value}))]
binding.bind_output("logits")
for wrong in (lambda: binding.bind_cpu_input("image", x), lambda: session.run_with_iobinding(binding)):
    try:
        wrong()
    except RuntimeError as error:
        print(error)
""",
    "results are called back": """
import threading
done, result = threading.Event(), []
def callback(outputs, user_data, error):
    result.extend(outputs)
    print(user_data, repr(error))
    done.set()
session.run_async(None, {"pixels": np.ones((1, 8), np.float32)}, callback, "one")
print(done.wait(60))
""",
    "threads share a session": """
import concurrent.futures
session = ort.InferenceSession(CLASSIFIER, providers=["CPUExecutionProvider"])
def predict(n):
    return session.run(["probabilities"], {"pixels": np.full((1 + n % 5, 8), n / 20, np.float32)})[0]
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    result = list(pool.map(predict, range(20)))
print([r.shape for r in result][:3])
""",
    "lists, and a batch after the other": """
session = ort.InferenceSession(ENCODER)
ids = [[1, 2, 3], [4, 5, 0]]
mask = [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]
result = [session.run(None, {"input_ids": ids, "attention_mask": mask})[0]]
for n in (1, 2, 7):
    feed = {"input_ids": np.ones((n, n + 1), np.int64), "attention_mask": np.ones((n, n + 1), np.float32)}
    result += session.run([], feed)
pooled = result[0].sum(axis=1) / np.maximum(np.sum(mask, axis=1, keepdims=True), 1e-9)
print(pooled.shape, ort.get_device(), "CPUExecutionProvider" in ort.get_all_providers())
""",
    "a size is fixed": """
options = ort.SessionOptions()
options.add_free_dimension_override_by_name("batch", 2)
session = ort.InferenceSession(CLASSIFIER, options)
result = session.run(None, {"pixels": np.ones((2, 8), np.float32)})
print(result[0].shape)
""",
    "shapes are those of the file, an axis without a name is None, a name that it does not have has no effect": """
model = onnx.parser.parse_model(HALVED)
model.graph.input[0].type.tensor_type.shape.dim[3].ClearField("dim_param")
options = ort.SessionOptions()
options.add_free_dimension_override_by_name("images", 2)
options.add_free_dimension_override_by_name("nothing", 2)
for each in (None, options):
    session = ort.InferenceSession(model.SerializeToString(), each)
    print(session.get_inputs()[0].shape, session.get_outputs()[0].shape)
""",
    "options are numbers, texts and truths": """
so, ro = ort.SessionOptions(), ort.RunOptions()
so.enable_mem_pattern = 0
so.execution_order = ort.ExecutionOrder.MEMORY_EFFICIENT
print(so.enable_mem_pattern, int(ort.GraphOptimizationLevel.ORT_ENABLE_ALL), int(so.execution_order))
for wrong in (
    lambda: so.add_session_config_entry("session.set_denormal_as_zero", 1),
    lambda: setattr(so, "graph_optimization_level", 99),
    lambda: setattr(so, "intra_op_num_threads", "2"),
    lambda: ort.InferenceSession(CLASSIFIER, {"intra_op_num_threads": 2}),
):
    try:
        wrong()
    except TypeError:
        print("TypeError")
print(ort.preload_dlls(), ort.has_collective_ops())
""",
    "a run that is to terminate is refused": """
session, x = ort.InferenceSession(CLASSIFIER), np.ones((2, 8), np.float32)
options = ort.RunOptions()
result = session.run(None, {"pixels": x}, options)
options.terminate = True
try:
    session.run(None, {"pixels": x}, options)
except ort.capi.onnxruntime_pybind11_state.Fail as error:
    print(str(error).splitlines()[0])
for names, given in ((None, {}), ([3], None), ([None], None)):
    try:
        session.run(names, {"pixels": x}, given)
    except TypeError:
        print("TypeError")
""",
    "an index that leads out of an array, texts in place of numbers": """
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
session, mask = ort.InferenceSession(ENCODER), np.ones((1, 2), np.float32)
for ids in (np.array([[1, 6]]), np.array([["a", "b"]]), np.array([["a", "b"]], dtype=object)):
    try:
        session.run(None, {"input_ids": ids, "attention_mask": mask})
    except InvalidArgument as error:
        print(str(error).splitlines()[0].split("Non-zero")[0].split("cannot run")[0])
""",
    "files that are wrong have errors of the same classes": """
def refused(change):
    model = onnx.load(CLASSIFIER)
    change(model)
    try:
        ort.InferenceSession(model.SerializeToString())
    except Exception as error:
        print(type(error).__name__)
refused(lambda model: setattr(model.graph.node[0], "op_type", "NoSuchOperator"))
refused(lambda model: setattr(model.graph.node[0], "domain", "of.nobody"))
refused(lambda model: setattr(model.opset_import[0], "version", 99))
try:
    ort.InferenceSession(FOLDER)
except ort.capi.onnxruntime_pybind11_state.InvalidProtobuf as error:
    print(str(error).splitlines()[0].replace(FOLDER, "folder"))
""",
    "what cannot be bound or read is a RuntimeError": """
session, x = ort.InferenceSession(CLASSIFIER), np.linspace(0, 1, 16, dtype=np.float32).reshape(2, 8)
binding = session.io_binding()
def told(function):
    try:
        print(function())
    except RuntimeError as error:
        print("RuntimeError", str(error).split(": Required")[0].split(": Non-zero")[0].splitlines()[0])
told(lambda: session.run_with_iobinding(binding))
binding.bind_output("label")
told(lambda: session.run_with_iobinding(binding))
told(lambda: binding.bind_cpu_input("pixels", x.tolist()))
binding.bind_cpu_input("pixels", x.astype(np.float64))
told(lambda: session.run_with_iobinding(binding))
value = ort.OrtValue.ortvalue_from_numpy(x.copy())
told(lambda: value.update_inplace(x[:1]))
told(lambda: ort.OrtValue.ortvalue_from_numpy(x.tolist()))
value.update_inplace(2 * x)
print(ort.OrtValue.ortvalue_from_numpy(np.array(3.0)).shape(), np.from_dlpack(value).shape)
result = [value.numpy()]
""",
    "a batch of nothing, and a cache of nothing before it grows": """
for n in (2, 0, 3, 0, 1):
    result += session.run(None, {"pixels": np.full((n, 8), 0.25, np.float32)})
step = ort.InferenceSession(onnx.parser.parse_model(CACHE).SerializeToString())
cache = np.zeros((2, 0, 4), np.float32)
for n in (3, 1, 1):
    cache, total = step.run(None, {"cache": cache, "x": np.full((2, n, 4), 0.5, np.float32)})
    result += [cache, total]
for wrong in (np.zeros((0, 7), np.float32), np.zeros((2, 0), np.float32)):
    try:
        session.run(None, {"pixels": wrong})
    except ort.capi.onnxruntime_pybind11_state.InvalidArgument as error:
        print(str(error).splitlines()[1])
print(cache.shape, [one.shape for one in result])
""",
    "what runs take is a file of events": """
import json
options = ort.SessionOptions()
options.enable_profiling = True
options.profile_file_prefix = FOLDER + "/profile"
session = ort.InferenceSession(CLASSIFIER, options)
result = [session.run(["probabilities"], {"pixels": np.full((n, 8), 0.5, np.float32)})[0] for n in (1, 3, 3)]
path = session.end_profiling()
with open(path) as file:
    events = json.load(file)
print(path.startswith(FOLDER + "/profile_20"), path.endswith(".json"), sum(one["name"] == "model_run" for one in events))
kernels = [one for one in events if one["cat"] == "Node" and "op_name" in one["args"]]
print(len(kernels) >= 3, {one["ph"] for one in kernels}, all(one["dur"] >= 0 and one["ts"] >= 0 for one in kernels))
print(repr(session.end_profiling()), repr(ort.InferenceSession(CLASSIFIER).end_profiling()))
""",
}
HALVED = """<ir_version: 9, opset_import: ["" : 17]> halved (float[images, 3, high, wide] x) => (float[images, 3, h, w] y)
    <float[4] twice = {1.0, 1.0, 2.0, 2.0}>
    { a = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(x)  b = Resize<mode="nearest">(a, , twice)  y = Add(b, x) }"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    made = {"HALVED": HALVED, "CACHE": CACHE, "FOLDER": str(folder)}
    for name, text in (("CLASSIFIER", CLASSIFIER), ("ENCODER", ENCODER)):
        path = folder / f"{name.lower()}.onnx"
        onnx.save(onnx.parser.parse_model(text), path)
        made[name] = str(path)
    return made


def ran(script: str, files: dict[str, str]) -> tuple[str, list[Any]]:
    """What a script prints, and its result."""
    names: dict[str, Any] = dict(files)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(script, "script", "exec"), names)
    return out.getvalue(), names["result"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_prints_and_computes_what_it_does_with_onnxruntime(
    name: str, files: dict[str, str]
) -> None:
    script = PRELUDE + SCRIPTS[name]
    mine = script.replace("import onnxruntime", "import offcut.onnxruntime").replace(
        "from onnxruntime", "from offcut.onnxruntime"
    )
    mine = mine.replace("import offcut.onnxruntime\n", "import offcut.onnxruntime as onnxruntime\n")
    printed, results = ran(mine, files)
    assert printed
    if not is_installed("onnxruntime"):
        pytest.skip("onnxruntime is not installed: nothing to compare with")
    wanted, theirs = ran(script, files)
    assert printed == wanted
    assert len(results) == len(theirs)
    for result, expected in zip(results, theirs, strict=True):
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        agree(result, of_peer(expected))


def test_a_session_of_a_saved_file_is_called_alike(files: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "classifier.offcut"
    oc.from_onnx(files["CLASSIFIER"]).save(path)
    session, x = ours.InferenceSession(path), np.ones((3, 8), np.float32)
    for result, wanted in zip(
        session.run(None, {"pixels": x}),
        ours.InferenceSession(files["CLASSIFIER"]).run(None, {"pixels": x}),
        strict=True,
    ):
        np.testing.assert_array_equal(result, wanted)
    said = session.get_modelmeta()
    assert (said.graph_name, said.producer_name, said.version) == ("classifier", "tests", 3)
    assert said.custom_metadata_map == {"labels": "cat,dog,emu"}
    assert session.get_inputs() == [ours.NodeArg("pixels", "tensor(float)", ["batch", 8])]
    with rejection(
        "InvalidArgument: [ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions for input: pixels for the following indices\n"
        " index: 1 Got: 5 Expected: 8\n"
        " Please fix either the inputs/outputs or the model.\n"
        "  because  axis 1 of pixels is 5, the kernel was compiled for 8 in (batch, 8)"
    ):
        session.run(None, {"pixels": x[:, :5]})
    n = oc.dim("n", max=9)
    onnx.save(onnx.parser.parse_model(HALVED), tmp_path / "halved.onnx")
    oc.from_onnx(tmp_path / "halved.onnx").save(tmp_path / "halved.offcut")
    for name in ("halved.offcut", "halved.onnx"):  # also of the cache
        again = ours.InferenceSession(tmp_path / name)
        assert again.get_inputs()[0].shape == ["images", 3, "high", "wide"]
        assert again.get_modelmeta().graph_name == "halved"
    kernel = oc.compile(oc.compute((n,), lambda i: oc.placeholder((n,), name="x")[i], name="y"))
    kernel.save(tmp_path / "kernel.offcut")
    with pytest.raises(oc.CallError, match="it holds a kernel, and no model"):
        ours.InferenceSession(tmp_path / "kernel.offcut")


def test_a_list_that_is_no_array_is_refused_as_onnxruntime_does(files: dict[str, str]) -> None:
    session = ours.InferenceSession(files["CLASSIFIER"])
    for rows in [[[1.0] * 8, [1.0]], [["one"] * 8], [[10**400] * 8]]:
        with pytest.raises(RuntimeError, match=r"^Could not create tensor from given input list$"):
            session.run(None, {"pixels": rows})


def test_what_is_bound_elsewhere_or_too_small_is_refused(files: dict[str, str]) -> None:
    session = ours.InferenceSession(files["CLASSIFIER"])
    with rejection(
        "CallError: OrtValue: cannot place an array on 'cuda'\n"
        "  because  models run on the processor\n"
        '  help     "cpu"'
    ):
        session.io_binding().bind_output("label", "cuda")
    binding = session.io_binding()
    binding.bind_cpu_input("pixels", np.ones((2, 8), np.float32))
    small = ours.OrtValue.ortvalue_from_shape_and_type([1, 3], 1)
    binding.bind_ortvalue_output("probabilities", small)
    with rejection(
        "BindingError: run_with_iobinding: cannot write probabilities of shape (2, 3) to what is bound\n"
        "  because  that is float32[1, 3], and the output is float32[2, 3]"
    ):
        session.run_with_iobinding(binding)
    copied = pickle.loads(pickle.dumps(session))
    given = {"pixels": np.ones((2, 8), np.float32)}
    np.testing.assert_array_equal(copied.run(None, given)[0], session.run(None, given)[0])
    again = pickle.loads(pickle.dumps(ours.capi.onnxruntime_pybind11_state.Fail.of("it", "that")))
    assert str(again) == "[ONNXRuntimeError] : 1 : FAIL : it\n  because  that"


def test_a_node_that_does_not_run_is_refused_with_what_would_be_accepted() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        drawn (float[n, 4] x) => (int64[2, m] y) { y = NonZero(x) }""")
    with rejection(
        "NotImplemented: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation: cannot take one node of drawn\n"
        "  because  NonZero y: how many elements it gives depends on values of its inputs\n"
        "  help     from_onnx(…, constants={…}) of what it reads, where a call never changes it"
    ):
        ours.InferenceSession(model.SerializeToString())


SCALED = """<ir_version: 9, opset_import: ["" : 17]>
    scaled (float[n, 2] x, float[2] scale, int64[1] axis) => (float[n, 1] y)
    <float[2] scale = {2.0, 3.0}, float shift = {0.5}, int64[1] axis = {1}>
    { a = Mul(x, scale)  b = Add(a, shift)  y = ReduceSum<keepdims=1>(b, axis) }"""


def test_a_call_may_override_initializers_that_are_inputs() -> None:
    peer = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = onnx.parser.parse_model(SCALED).SerializeToString()
    sessions = [
        runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
        for runtime in (ours, peer)
    ]
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for session in sessions:
        assert [one.name for one in session.get_inputs()] == ["x"]
        overridable = session.get_overridable_initializers()
        assert sorted((one.name, one.type, one.shape) for one in overridable) == [
            ("axis", "tensor(int64)", [1]),
            ("scale", "tensor(float)", [2]),
        ]
        (plain,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(plain, (x * [2, 3] + 0.5).sum(1, keepdims=True))
        for scale in ([1.0, -1.0], [0.0, 4.0]):
            feed = {"x": x, "scale": np.array(scale, np.float32)}
            (result,) = session.run(["y"], feed)
            np.testing.assert_array_equal(result, (x * scale + 0.5).sum(1, keepdims=True))
        (plain,) = session.run(None, {"x": x, "scale": None})
        np.testing.assert_array_equal(plain, (x * [2, 3] + 0.5).sum(1, keepdims=True))
    mine = sessions[0]
    with pytest.raises(ours.capi.onnxruntime_pybind11_state.InvalidArgument) as refused:
        mine.run(None, {"x": x, "scale": np.ones(3, np.float32)})
    assert "index: 0 Got: 3 Expected: 2" in str(refused.value)
    with pytest.raises(ours.capi.onnxruntime_pybind11_state.InvalidArgument) as unknown:
        mine.run(None, {"x": x, "shift": np.ones((), np.float32)})
    assert "Invalid input name: shift" in str(unknown.value)


SHAPED = """<ir_version: 9, opset_import: ["" : 17]>
    shaped (float[n, 6] x, float[1] scale, int64[2] to, int64[1] first) => (float[a, b] y)
    <float[1] scale = {2.0}, int64[2] to = {-1, 3}, int64[1] first = {0}, int64[1] last = {1000}, int64[1] axis = {1}>
    { p = Mul(x, scale)  q = Slice(p, first, last, axis)  y = Reshape(q, to) }"""


def test_initializers_that_a_node_knows_at_import_are_given_by_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = onnx.parser.parse_model(SHAPED).SerializeToString()
    mine, theirs = (
        runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
        for runtime in (ours, peer)
    )
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    feeds = [
        {"to": np.array([2, -1])},
        {"to": np.array([-1, 2]), "scale": np.float32([3])},
        {"to": np.array([-1, 2]), "scale": np.float32([4])},
        {"first": np.array([3])},
        {"first": np.array([2]), "to": np.array([-1, 4])},
    ]
    for feed in feeds:
        (result,), (wanted,) = (one.run(None, {"x": x, **feed}) for one in (mine, theirs))
        np.testing.assert_array_equal(result, wanted)
    sessions = mine._overrides._sessions
    assert len(sessions) == 4  # a scale is an input of one session
    monkeypatch.setattr(overrides, "MAX_VALUES", 3)
    mine.run(None, {"x": x, "to": np.array([3, -1])})
    assert len(sessions) == 3
    (again,) = mine.run(None, {"x": x, **feeds[0]})
    assert again.shape == (2, 12)


def test_an_initializer_of_another_type_or_shape_is_refused_before_it_is_compiled() -> None:
    session = ours.InferenceSession(onnx.parser.parse_model(SHAPED).SerializeToString())
    x, invalid = np.ones((2, 6), np.float32), ours.capi.onnxruntime_pybind11_state.InvalidArgument
    for to, text in (
        (np.array([2, -1], np.int32), "Unexpected input data type. Actual: (tensor(int32)) , expected: (tensor(int64))"),
        (np.array([2, -1, 3]), "Got invalid dimensions for input: to for the following indices\n index: 0 Got: 3 Expected: 2"),
    ):  # fmt: skip
        with pytest.raises(invalid) as refused:
            session.run(None, {"x": x, "to": to})
        assert text in str(refused.value)


def test_a_long_initializer_that_a_node_has_to_know_is_refused_with_the_node() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (float[n, 100] x, int64[100] parts) => (float[n, 1] y) {
            q = SplitToSequence<axis = 1> (x, parts)  y = SequenceAt (q, place) }""")  # fmt: skip
    for name, array in (("parts", np.ones(100, np.int64)), ("place", np.array(3))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    session = ours.InferenceSession(model.SerializeToString())
    x = np.arange(100, dtype=np.float32)[None]
    assert session.run(None, {"x": x})[0] == 3
    with pytest.raises(ours.capi.onnxruntime_pybind11_state.NotImplemented) as refused:
        session.run(None, {"x": x, "parts": np.ones(100, np.int64)})
    assert "SplitToSequence q: its split is not known at import" in str(refused.value)


def test_initializers_of_an_old_format_are_constants() -> None:
    model = onnx.parser.parse_model(SCALED)
    model.ir_version = 3
    model.graph.input.append(onnx.helper.make_tensor_value_info("shift", 1, []))
    session = ours.InferenceSession(model.SerializeToString())
    assert session.get_overridable_initializers() == []
    x = np.ones((1, 2), np.float32)
    with pytest.raises(ours.capi.onnxruntime_pybind11_state.InvalidArgument) as refused:
        session.run(None, {"x": x, "scale": x[0]})
    assert "Invalid input name: scale" in str(refused.value)
