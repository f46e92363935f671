"""The element types of `vector_math`: where each function is constant, and the coefficients of its polynomials.

`vector_math` says what the polynomials p, q and w stand for. Source: our own weighted minimax fits (Remez exchange at 50
digits, mpmath).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MathFormat:
    """An element type, and the constants of its functions.

    mantissa    stored bits of the significand
    ln2         (first, second part), the first short
    exp_range   arguments of `exp` outside give what its ends give: 0 and inf
    tanh_end    ``tanh(|x|)`` rounds to 1 from here on, or sooner
    w_end       likewise of `1 - erfc`, and the polynomial w holds up to here
    q, p, w     coefficients of these polynomials, the constant first, rounded when written
    q_alone     those of q where ``1 + r + r^2 q(r)`` is what is wanted
    turn        half of pi, in two parts
    arc         coefficients of the polynomial of `atan2`
    """

    scalar: str
    integer: str
    suffix: str
    mantissa: int
    ln2: tuple[float, float]
    exp_range: tuple[float, float]
    tanh_end: float
    w_end: float
    q: tuple[float, ...]
    q_alone: tuple[float, ...]
    p: tuple[float, ...]
    w: tuple[float, ...]
    turn: tuple[float, float]
    arc: tuple[float, ...]

    @property
    def bias(self) -> int:
        """Added to an exponent where it is stored."""
        return 127 if self.scalar == "float" else 1023

    @property
    def sign(self) -> int:
        """The sign bit, as the integer that has no other bit."""
        return -1 << (self.mantissa + self.bias.bit_length() + 1)

    def literal(self, value: float) -> str:
        """`value` rounded to this type, exactly, as LLVM writes it: the bits of a double."""
        if self.scalar == "float":
            (value,) = struct.unpack("<f", struct.pack("<f", value))
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


FORMATS = {
    "float32": MathFormat(
        scalar="float",
        integer="i32",
        suffix="f32",
        mantissa=23,
        ln2=(0.693145751953125, 1.42860682e-06),
        exp_range=(-104.0, 89.0),
        tanh_end=10.0,
        w_end=4.0,
        # |r| <= 0.347: relative error of expm1 2^-31.9
        q=(
            0.5000000044,
            0.1666666637,
            0.04166635954,
            0.008333389623,
            0.001394074387,
            0.000198458876,
        ),
        # |r| <= 0.347: relative error of exp 2^-28.3
        q_alone=(0.4999999345, 0.1666652063, 0.04166838805, 0.00836871688, 0.001381459865),
        # |x| <= 0.55: relative error of tanh 2^-29.8
        p=(-0.3333331756, 0.1333258615, -0.05385231079, 0.02107168234, -0.006274243891),
        # -4 <= z <= 0: relative error of sign(x) (1 - erfc) 2^-27.9
        w=(
            0.1283791716,
            -0.6366193822,
            0.1027778304,
            0.01915307153,
            -0.0001603680631,
            -0.001666988045,
            -0.0006328103417,
            -0.000117632751,
            -9.255217895e-6,
        ),
        turn=(1.57079637050628662109375, -4.37113882867379e-08),
        # 0 <= t <= 1: relative error of atan 2^-28.2
        arc=(
            -0.33333333081,
            0.19999949321,
            -0.14284003795,
            0.11088261629,
            -0.08931826777,
            0.07031914250,
            -0.04896051403,
            0.02630500111,
            -0.00914462976,
            0.00148869194,
        ),
    ),
    "float64": MathFormat(
        scalar="double",
        integer="i64",
        suffix="f64",
        mantissa=52,
        ln2=(6.93147180369123816490e-01, 1.90821492927058770002e-10),
        exp_range=(-746.0, 710.0),
        tanh_end=20.0,
        w_end=6.0,
        # |r| <= 0.347: relative error of expm1 2^-61.7
        q=(
            0.500000000000000001,
            0.166666666666666766,
            0.0416666666666665072,
            0.00833333333332158562,
            0.00138888888889629437,
            0.000198412698862707314,
            0.0000248015871718217725,
            2.75572440342281064e-6,
            2.75574028975790732e-7,
            2.51091079167708639e-8,
            2.08753616096418241e-9,
        ),
        # |r| <= 0.347: relative error of exp 2^-57.9
        q_alone=(
            0.500000000000001063,
            0.166666666666664125,
            0.0416666666665301585,
            0.00833333333349446166,
            0.00138888889436301342,
            0.000198412695065787239,
            0.0000248014930988873915,
            2.7557586373785181e-6,
            2.76302483853230206e-7,
            2.50000616255312796e-8,
        ),
        # |x| <= 0.55: relative error of tanh 2^-60.6
        p=(
            -0.333333333333332984,
            0.133333333333266205,
            -0.053968253963760434,
            0.0218694883858509662,
            -0.00886323260136567777,
            0.00359209202971561858,
            -0.00145554284137920129,
            0.000588444469231551981,
            -0.000233381524442788708,
            0.0000833163919138241665,
            -0.0000194946549253025243,
        ),
        # -6 <= z <= 0: relative error of sign(x) (1 - erfc) 2^-57.5
        w=(
            0.128379167095512568,
            -0.63661977236758361,
            0.102772603301788741,
            0.0191284470050697832,
            -0.000209194694849776035,
            -0.00169620638580046881,
            -0.00059012555316813817,
            -0.0000258786052213894863,
            0.0000644918585156194529,
            0.0000297240418663860133,
            3.40725949599879918e-6,
            -2.8351468221778297e-6,
            -1.74155340786599868e-6,
            -3.36369158597127417e-7,
            1.37179192673300385e-7,
            1.41760374143237802e-7,
            6.57328029458534881e-8,
            2.09624180440883601e-8,
            4.99764299649242448e-9,
            9.08210676079163225e-10,
            1.24839267393917054e-10,
            1.26108288260823994e-11,
            8.84546573110617734e-13,
            3.85048772561366829e-14,
            7.83413313314031143e-16,
        ),
        turn=(1.57079632679489655800, 6.12323399573676603587e-17),
        # 0 <= t <= 1: relative error of atan 2^-59.7
        arc=(
            -0.3333333333333333325,
            0.19999999999999919325,
            -0.14285714285701233348,
            0.11111111110268297335,
            -0.090909090619352799497,
            0.076923070788270292606,
            -0.066666579345737678411,
            0.05882264416776448826,
            -0.052624922290256753144,
            0.047580800836378206238,
            -0.043306538430670662529,
            0.039386875407986321269,
            -0.035271331066871294103,
            0.030330719265790506586,
            -0.024191345810140718636,
            0.017183981722113348077,
            -0.010412153260359241547,
            0.0051409128567469387159,
            -0.0019612554271685325993,
            0.00053768392973962447209,
            -0.000093711863450526254286,
            7.7676243302899185543e-6,
        ),
    ),
}
