"""Spectra, regions, deformed and transposed windows of ONNX, at symbolic sizes, against ONNX's reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx.parser
from conftest import slow
from onnx.reference import ReferenceEvaluator

import offcut as oc
from tests.agree import agree, of_peer
from tests.plugins.test_onnx import drawn, each, parsed

BITS = 'g (int32[n, 3] x, int32[3] y) => (int32[n, 3] a, int32[n, 3] b) { c = BitwiseXor(x, y) d = BitwiseNot(c) a = BitShift<direction = "LEFT">(d, y) b = BitwiseOr(x, a) }'


def test_bits_and_shifts_of_any_number_of_rows() -> None:
    y = np.array([1, 31, 32], "int32")
    each(
        parsed(BITS),
        [
            {"x": np.arange(-3 * n, 0, dtype="int32").reshape(n, 3) * 99991, "y": y}
            for n in (1, 2, 17)
        ],
    )


@pytest.mark.every(3)
@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("length", [5, 8, 12])
def test_a_transform_of_known_frames_in_any_batch(inverse: int, onesided: int, length: int) -> None:
    """Of real elements where it is one-sided and forward, else of complex ones; cropped, as it is, and padded."""
    parts = 1 if onesided and not inverse else 2
    proto = parsed(
        f"g (float[batch, 8, m, {parts}] x) => (float[?, ?, ?, ?] y)"
        f"{{ y = DFT<inverse = {inverse}, onesided = {onesided}>(x, length, axis) }}",
        length=np.array(length),
        axis=np.array(1),
    )
    given = [(1, 1), (3, 2), (2, 17)]
    each(proto, [{"x": drawn(b, b, 8, m, parts)} for b, m in given])


def test_a_transform_of_any_extent_is_refused() -> None:
    with pytest.raises(
        oc.DescribeError, match="an extent of a transform is m, which is not a number"
    ):
        oc.from_onnx(parsed("g (float[3, m, 2] x) => (float[?, ?, ?] y) { y = DFT(x) }"))


@pytest.mark.parametrize("windowed", [False, True])
def test_frames_of_signals_of_any_length(windowed: bool) -> None:
    window = "w" if windowed else ""
    proto = parsed(
        "g (float[batch, t, 1] x) => (float[?, ?, ?, ?] y) { y = STFT(x, step, "
        + window
        + ", length) }",
        step=np.array(5),
        length=np.array(16),
        **({"w": np.hanning(16).astype("f4")} if windowed else {}),
    )
    feeds = [{"x": drawn(t, b, t, 1)} for b, t in ((1, 16), (2, 21), (3, 100))]
    model = oc.from_onnx(proto, threads=1)
    for feed in feeds:  # the reference evaluator asks for a window
        x = feed["x"][..., 0].astype("f8")
        starts = range(0, x.shape[1] - 15, 5)
        frames = np.stack([x[:, at : at + 16] for at in starts], 1)
        exact = np.fft.rfft(frames * (np.hanning(16) if windowed else 1))
        found = model(feed)["y"]
        agree(found[..., 0], of_peer(exact.real, np.abs(frames).sum(-1).max()))
        agree(found[..., 1], of_peer(exact.imag, np.abs(frames).sum(-1).max()))


@pytest.mark.parametrize(
    ("transform", "mode"),
    [
        *(("half_pixel", "max"), ("output_half_pixel", "avg")),
        *(slow("half_pixel", "avg"), slow("output_half_pixel", "max")),
    ],
)
def test_regions_of_images_of_any_size(mode: str, transform: str) -> None:
    proto = parsed(
        "g (float[n, 3, h, w] x, float[r, 4] regions, int64[r] batch) => (float[?, ?, ?, ?] y)"
        f'{{ y = RoiAlign<mode = "{mode}", coordinate_transformation_mode = "{transform}",'
        " output_height = 2, output_width = 3, sampling_ratio = 2, spatial_scale = 0.5>"
        "(x, regions, batch) }"
    )
    feeds = []
    for n, h, w, r in ((1, 1, 1, 1), (2, 7, 5, 4), (3, 12, 9, 2)):
        rng = np.random.default_rng([n, h, w])
        low, size = rng.uniform(-4, 2 * h, (r, 2)), rng.uniform(0, 2 * w, (r, 2))
        regions = np.concatenate([low, low + size], 1).astype("f4")
        feeds.append(
            {"x": drawn(h, n, 3, h, w), "regions": regions, "batch": rng.integers(0, n, r)}
        )
    each(proto, feeds)


def test_regions_of_as_many_points_as_they_are_large_are_refused() -> None:
    text = "g (float[n, 3, h, w] x, float[r, 4] regions, int64[r] batch) => (float[?, ?, ?, ?] y) { y = RoiAlign(x, regions, batch) }"
    with pytest.raises(oc.DescribeError, match="as many points as a region is large"):
        oc.from_onnx(parsed(text))


@pytest.mark.parametrize("groups", [slow(1), 2])
def test_a_deformed_convolution_of_images_of_any_size(groups: int) -> None:
    proto = parsed(
        "g (float[n, 4, h, w] x, float[n, 24, p, q] offset, float[n, 12, p, q] mask) => (float[?, ?, ?, ?] y)"
        f"{{ y = DeformConv<group = {groups}, offset_group = 2, pads = [1, 0, 1, 0], strides = [2, 1],"
        " dilations = [1, 2]>(x, weights, offset, bias, mask) }",
        weights=drawn(7, 6, 4 // groups, 2, 3),
        bias=drawn(8, 6),
    )
    feeds = []
    for n, h, w in ((1, 3, 6), (2, 6, 9)):
        places = n, (h + 2 - 2) // 2 + 1, w - 4
        offset = 2 * drawn(1, places[0], 24, *places[1:])
        mask = drawn(2, places[0], 12, *places[1:])
        feeds.append({"x": drawn(h, n, 4, h, w), "offset": offset, "mask": mask})
    each(proto, feeds)


@pytest.mark.parametrize("order", [0, slow(1)])
def test_places_of_what_is_greatest_and_back(order: int) -> None:
    proto = parsed(
        "g (float[n, 3, h, w] x) => (float[?, ?, ?, ?] y, int64[?, ?, ?, ?] places)"
        f"{{ y, places = MaxPool<kernel_shape = [2, 3], strides = [2, 3], storage_order = {order}>(x) }}"
    )
    model = each(proto, [{"x": drawn(h, n, 3, h, w)} for n, h, w in ((1, 2, 3), (2, 5, 8), (3, 8, 17))])  # fmt: skip
    pooled = [node.op for node in model.graph.nodes if "pool" in node.op]
    assert pooled == ["max_pool2d_with_places"]  # which has both results
    back = parsed(
        "g (float[n, 3, h, w] x) => (float[?, ?, ?, ?] z)"
        "{ y, places = MaxPool<kernel_shape = [2, 3], strides = [2, 3]>(x)"
        " z = MaxUnpool<kernel_shape = [2, 3], strides = [2, 3]>(y, places) }"
    )
    each(back, [{"x": drawn(h, n, 3, h, w)} for n, h, w in ((1, 2, 3), (2, 6, 9))])


def test_places_of_what_is_greatest_in_windows_with_holes() -> None:
    proto = parsed(
        "g (float[n, 2, h, w] x) => (float[?, ?, ?, ?] y, int64[?, ?, ?, ?] places)"
        "{ y, places = MaxPool<kernel_shape = [2, 2], dilations = [2, 3]>(x) }"
    )
    each(proto, [{"x": drawn(h, n, 2, h, w)} for n, h, w in ((1, 3, 4), (2, 5, 8))])


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_determinants_of_any_number_of_matrices(order: int) -> None:
    proto = parsed(f"g (float[n, {order}, {order}] x) => (float[n] y) {{ y = Det(x) }}")
    each(proto, [{"x": drawn(n, n, order, order)} for n in (1, 2, 33)])


def test_a_crop_at_another_size_beside_axes_of_any() -> None:
    proto = parsed(
        "g (float[n, m, 7, 9] x) => (float[?, ?, ?, ?] y)"
        '{ y = Resize<mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize",'
        " axes = [2, 3], extrapolation_value = 3.5>(x, roi, , sizes) }",
        roi=np.array([0.2, -0.3, 0.9, 0.8], "f4"),
        sizes=np.array([5, 4]),
    )
    model = oc.from_onnx(proto, threads=1)
    whole = np.array([0, 0, 0.2, -0.3, 1, 1, 0.9, 0.8], "f4")
    for n, m in ((1, 1), (2, 5)):
        x = drawn(m, n, m, 7, 9)
        text = (
            f"g (float[{n}, {m}, 7, 9] x) => (float[?, ?, ?, ?] y)"
            '{ y = Resize<mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize",'
            " extrapolation_value = 3.5>(x, roi, , sizes) }"
        )
        plain = parsed(text, roi=whole, sizes=np.array([n, m, 5, 4]))
        (exact,) = ReferenceEvaluator(plain).run(None, {"x": x})
        agree(model({"x": x})["y"], of_peer(exact))


def test_windows_of_three_axes_are_laid_over_each_other() -> None:
    def given(n: int) -> Any:
        return {"x": drawn(n, n, 2 * 2 * 1 * 3, 2 * 4 * 3)}

    proto = parsed(
        "g (float[n, 12, 24] x) => (float[?, ?, ?, ?, ?] y)"
        "{ y = Col2Im<strides = [2, 1, 1], pads = [0, 0, 1, 0, 0, 0]>(x, image, block) }",
        image=np.array([4, 4, 4]),
        block=np.array([2, 1, 3]),
    )
    each(proto, [given(n) for n in (1, 2, 5)])


VOLUME = "g (float[n, 1, 8, 8, 8] x) => (float[?, ?, ?, ?, ?] y, int64[?, ?, ?, ?, ?] p)"
REFUSED = {
    "g (float[n, 9, 9] x) => (float[n] y) { y = Det(x) }": "the determinant of 9 rows",
    "g (float[n, 4, 2] x) => (float[?, ?, ?] y) { l = Constant<value_int = 99999999>() y = DFT(x, l) }": (
        "a transform of 4 elements by a length of 99999999"
    ),
    "g (float[n, 4, 2] x) => (float[?, ?, ?] y) { l = Constant<value_int = 4>() a = Constant<value_int = 2>() y = DFT(x, l, a) }": (
        "a transform along real and imaginary parts"
    ),
    "g (float[n, t, 1] x, float[8] w) => (float[?, ?, ?, ?] y) { s = Constant<value_int = 2>() l = Constant<value_int = 4>() y = STFT(x, s, w, l) }": (
        "a window of 8 elements for frames of 4"
    ),
    VOLUME + "{ y, p = MaxPool<kernel_shape = [2, 2, 2]>(x) }": (
        "the places of what is greatest over three axes"
    ),
    "g (float[n, 2, h] x, float[4, 2, 3] w, float[n, 3, p] o) => (float[?, ?, ?] y) { y = DeformConv(x, w, o) }": (
        "windows of 1 axes"
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_taken_is_told_by_its_reason(text: str) -> None:
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(parsed(text))
    assert f": {REFUSED[text]}\n" in f"{refused.value}\n"


def test_bits_of_floats_are_no_integers() -> None:
    text = "g (float[n] x) => (int32[n] y) { y = BitCast<to = 6>(x) }"
    with pytest.raises(oc.DescribeError) as refused:
        oc.from_onnx(parsed(text, 26))
    assert "BitCast y: bits of float32 as int32\n  help     integers of as many bits" in str(
        refused.value
    )


@pytest.mark.parametrize("transform", ["asymmetric", "half_pixel", "align_corners"])
@pytest.mark.parametrize("rounding", ["floor", "round_prefer_ceil"])
def test_nearest_elements_by_a_scale_that_is_rounded_are_those_of_onnxruntime(
    transform: str, rounding: str
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="a peer, for ties of float32")
    text = f"""<ir_version: 9, opset_import: ["" : 19]>
    scaled (float[n, 1, h, w] x) => (float[n, 1, p, q] y) {{
      s = Constant<value = float[4] {{1.0, 1.0, 1.7, 0.6}}>()
      y = Resize<coordinate_transformation_mode = "{transform}", nearest_mode = "{rounding}">(x, , s)
    }}"""
    proto = onnx.parser.parse_model(text)
    model, session = oc.from_onnx(proto), onnxruntime.InferenceSession(proto.SerializeToString())
    for extent in (2, 5, 20, 50, 101):
        x = np.arange(extent * (extent + 3), dtype=np.float32).reshape(1, 1, extent, extent + 3)
        (expected,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(model(x)["y"], expected)
