"""What torch calculates of floats of 16 bits in float32, and rounds once: near the ends of their range, by factors beyond it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch
import torch.nn.functional as F


@pytest.fixture(autouse=True)
def _errors_of_ours_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFCUT_VERIFY", "1")
    torch._dynamo.reset()


def rounded_once(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Functions whose steps leave the range of float16, or lose what is small, where x is from 1e-2 to 300."""
    hidden = (x > 0).to(x.dtype) * -1e9
    return (
        *(hidden, x * 1e5, x / 1e5, 0.1 * x, 0.1 / x, F.leaky_relu(x, 0.3), F.elu(x, 0.3)),
        *(torch.sinh(x / 30), torch.cosh(x / 30), torch.expm1(x / 1e3), F.mish(x), torch.log10(x.abs())),
        *(x**3, torch.addcmul(x, x, x, value=0.3), torch.addcdiv(x, x, x, value=1e5)),
        *(x.norm(dim=-1), torch.linalg.vector_norm(x, 3, -1), x.std(-1), x.var(-1) / 2, torch.cdist(x, -x)),
        F.batch_norm(x, x[0] * 0, x[0].abs() * 1e-6),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_what_torch_rounds_once_is_rounded_once(dtype: torch.dtype) -> None:
    run = torch.compile(rounded_once, backend="offcut", dynamic=True)
    for rows in (3, 2, 5):
        sign = torch.where(torch.arange(rows * 24) % 3 == 0, -1.0, 1.0)
        x = (torch.logspace(-2, 2.4, rows * 24) * sign).reshape(rows, 24).to(dtype)
        with torch.no_grad():
            found, exact = run(x), rounded_once(x.double())
        for number, (ours, wanted) in enumerate(zip(found, exact, strict=True)):
            most = 8 * torch.finfo(dtype).eps
            torch.testing.assert_close(
                ours.double(),
                wanted.to(dtype).double(),
                rtol=most,
                atol=1e-6,
                msg=lambda text, n=number: f"{n}: {text}",
            )
