"""Every refusal of tuning, of learning from records, and of pools of devices, word for word."""

from __future__ import annotations

import importlib.util
import json
import socket
from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import refusals, rejection
from typer.testing import CliRunner

import offcut as oc
from offcut.costmodel.learned import columns, train, xgboost_loader
from offcut.errors import OffcutError
from offcut.search.pool import Pool, connect, pool_of
from offcut.search.pool.connection import serve
from offcut.tuning.learning import random_programs
from offcut.tuning.learning.learn import learn, target_of
from offcut.tuning.learning.online_model import Cases
from offcut.tuning.learning.random_programs import sample
from offcut.tuning.problem import make_problem, read_sizes
from tests.facade import CorrectedModel, Dataset, Limits, app
from tests.workers import certificates_in

n, m = oc.dim("n", min=2, max=512, multiple_of=2), oc.dim("m", min=1, max=64)
A = oc.placeholder((n, 8), name="A")
DOUBLED = oc.compute((n, 8), lambda i, j: A[i, j] * 2.0, name="C")
P, Q = oc.placeholder((n, m), name="P"), oc.placeholder((n, m), name="Q")
ADDED = oc.compute((n, m), lambda i, j: P[i, j] + Q[i, j], name="S")
HELP = """\
  help     sizes={"n": [1, 7, 33]}
  help     sizes={"n": (1, 512)}
  help     sizes={"n": {1: 0.7, 33: 0.3}}"""


def divides(schedule: oc.Schedule, n: int) -> float:
    return 1 / 0


def says(schedule: oc.Schedule, n: int) -> str:
    return "cheap"


CASES: dict[str, tuple[Any, dict[str, Any], str]] = {
    **refusals(
        """\
given DOUBLED, {'sizes': {'k': [2]}}
tune: cannot tune for k
  at       sizes=
  because  the sizes are n

given DOUBLED, {'sizes': {'n': [2, 514]}}
tune: cannot tune for 514
  at       sizes of n
  because  n is from 2 to 512

given DOUBLED, {'sizes': {'n': [3]}}
tune: cannot tune for 3
  at       sizes of n
  because  n is a multiple of 2

given DOUBLED, {'sizes': {'n': 4.5}}
tune: cannot tune for 4.5
  at       sizes of n
  because  it is not a list, range, pair or mapping

given DOUBLED, {'sizes': {'n': [2.5]}}
tune: cannot tune for 2.5
  at       sizes of n
  because  it is not a whole number

given DOUBLED, {'sizes': {'n': {2: 0.0}}}
tune: cannot tune for {2: 0.0}
  at       sizes of n
  because  some weight is above 0

given DOUBLED, {'sizes': {'n': []}}
tune: cannot tune for []
  at       sizes of n
  because  there is no value in it

given DOUBLED, {'sizes': {'n': (64, 2)}}
tune: cannot tune for (64, 2)
  at       sizes of n
  because  a tuple is both ends, ascending

given DOUBLED, {'sizes': {'n': {2: -1.0}}}
tune: cannot tune for -1.0
  at       sizes of n
  because  a weight is a number that is at least 0

given DOUBLED, {'sizes': {'n': [2]}, 'trials': 0}
tune: cannot take trials=0
  because  trials is an int, at least 1

given DOUBLED, {'sizes': {'n': [2]}, 'alternatives': True}
tune: cannot take alternatives=True
  because  alternatives is an int, at least 1

given DOUBLED, {'sizes': {'n': [2]}, 'seconds': 0.0}
tune: cannot take seconds=0.0
  because  seconds is a number above 0

given DOUBLED, {'sizes': {'n': [2]}, 'seed': 2 ** 64}
tune: cannot take seed=18446744073709551616
  because  seed is an int of 64 bits

given DOUBLED, {'sizes': {'n': [2]}, 'constants': 3}
tune: cannot take constants=3
  because  constants is names of inputs, or arrays by name

given DOUBLED, {'sizes': {'n': [2]}, 'features': 3}
tune: cannot take features=3
  because  features is functions of a Case, one after the other

given DOUBLED, {'sizes': {'n': [2]}, 'limits': {}}
tune: cannot take limits={}
  because  limits is Limits(…)

given DOUBLED, {'sizes': {'n': [2]}, 'progress': 3}
tune: cannot take progress=3
  because  progress is a function that is told of each trial, True or False

given DOUBLED, {'sizes': {'n': [2]}, 'price': 3.0}
tune: cannot take price=3.0
  because  it is not a function
  help     lambda schedule, n: 2e-9 * n

given DOUBLED, {'sizes': {'n': [2]}, 'price': divides, 'explorer': 'random'}
tune: cannot take price=divides
  because  it raised ZeroDivisionError: division by zero
  help     lambda schedule, n: 2e-9 * n

given DOUBLED, {'sizes': {'n': [2]}, 'price': says, 'explorer': 'random'}
tune: cannot take price=says
  because  it gave 'cheap', and a price is seconds, at least 0
  help     lambda schedule, n: 2e-9 * n

given DOUBLED, {'sizes': {'n': [2]}, 'target': 'interpret'}
tune: cannot tune C for target='interpret'
  because  target='interpret' decides nothing that a schedule says
""",
        globals(),
    ),
    "no sizes": (
        DOUBLED,
        {},
        f"""\
tune: cannot tune for None
  because  it does not say which values n take
{HELP}""",
    ),
    "a size is missing": (
        ADDED,
        {"sizes": {"n": [2]}},
        f"""\
tune: cannot tune for {{'n': [2]}}
  because  it does not say which values m take
{HELP}""",
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_what_cannot_be_tuned_is_refused(case: str, tmp_path: Path) -> None:
    output, given, text = CASES[case]
    with pytest.raises(OffcutError) as refused:
        oc.tune(output, records=tmp_path / "r", **given)
    assert str(refused.value) == text
    assert not (tmp_path / "r").exists()


def test_records_are_a_file() -> None:
    with pytest.raises(OffcutError) as refused:
        oc.tune(DOUBLED, sizes={"n": [2]}, records=3)
    assert str(refused.value) == (
        "tune: cannot take records=3\n  because  records is the path of a file, or Records(path)"
    )


def test_records_are_kept_in_a_file() -> None:
    with pytest.raises(OffcutError) as refused:
        oc.Records(3)  # type: ignore[arg-type]
    assert str(refused.value) == (
        'records: cannot keep records in 3\n  because  records are a file\n  help     Records("a file")'
    )


def test_sizes_that_no_call_has_are_refused(tmp_path: Path) -> None:
    a, b = oc.dim("a", max=64), oc.dim("b", max=64)
    oc.assume(a <= b)
    X = oc.placeholder((a, b), name="X")
    Y = oc.compute((a, b), lambda i, j: X[i, j] + 1.0, name="Y")
    with pytest.raises(OffcutError) as refused:
        oc.tune(Y, sizes={"a": [1, 9], "b": [8]}, records=tmp_path / "r")
    assert (
        str(refused.value)
        == """\
tune: cannot tune for a = 9, b = 8
  at       sizes=
  because  every call meets a <= b"""
    )


READ = {
    "n": "it is not a name with a list or a range of whole numbers from 0 on",
    "n=1:2:0": "the range does not advance: its step is 0",
    "=3": "it is not a name with a list or a range of whole numbers from 0 on",
}


@pytest.mark.parametrize("text", list(READ))
def test_sizes_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(OffcutError) as refused:
        read_sizes([text])
    assert (
        str(refused.value)
        == f"""\
tune: cannot read the sizes
  at       --sizes {text}
  because  {READ[text]}
  help     --sizes n=1,7,33
  help     --sizes n=1:512
  help     --sizes n=1:512:8"""
    )


def test_a_size_is_given_once() -> None:
    with pytest.raises(OffcutError, match="--sizes n=… came before"):
        read_sizes(["n=1", "n=2"])


LIMITS: dict[str, tuple[Any, str, str]] = {
    "budget": (-1, "a number", "0.3"),
    "patience": ("60", "a number", "60.0"),
    "resolution": ([1], "a number", "0.02"),
    "hopeless": (None, "a number", "4.0"),
    "noise": (nan, "a number", "0.5"),
    "reference": (True, "a number", "300.0"),
    "memory": (1.5, "an int", "4294967296"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_a_number_above_0_or_from_0_on(name: str) -> None:
    value, kind, default = LIMITS[name]
    end = "from 0 on" if name == "noise" else "above 0"
    with rejection(f"""\
DescribeError: Limits: cannot take {name}={value!r}
  because  {name} is {kind} {end}
  help     Limits({name}={default})"""):
        Limits(**{name: value})
    assert Limits(noise=0).noise == 0
    assert Limits(noise=inf, memory=np.int64(1 << 30), budget=np.float32(0.5)).patience == 60.0


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(OffcutError) as refused:
        act()
    return str(refused.value)


def rows(count: int) -> Dataset:
    texts = np.full(count, "x")
    numbers = np.ones(count)
    return Dataset(
        ("f",), np.ones((count, 1)), texts, texts, texts, texts, texts, numbers, numbers, numbers
    )


def test_too_little_to_learn_from() -> None:
    assert (
        refusal(lambda: train(rows(3)))
        == """\
learn: cannot learn a correction
  because  there are 3 rows of 1 schedules, and 8 of 2 are the least
  help     offcut tune … --records FILE measures more"""
    )


def test_records_that_teach_nothing_say_what_was_left_out(tmp_path: Path) -> None:
    records = oc.Records(tmp_path / "r.sqlite")
    records.add(oc.Record("p", "schedule C", "m", "1", {"n": 7}, oc.Outcome.OK, 2e-6, 0.1))
    out = tmp_path / "model.json", tmp_path / "rows.npz"

    assert (
        refusal(lambda: learn([records.path], *out))
        == """\
learn: cannot learn a correction
  at       1 schedules left out: the text of the program was not kept
  because  there are 0 rows of 0 schedules, and 8 of 2 are the least
  help     offcut tune … --records FILE measures more"""
    )
    assert not out[0].exists()


def test_records_that_are_not_there(tmp_path: Path) -> None:
    missing = tmp_path / "none.sqlite"

    assert (
        refusal(lambda: learn([missing], tmp_path / "m.json", tmp_path / "r.npz"))
        == f"""\
learn: cannot read none.sqlite
  at       {missing}
  because  it is not there
  help     offcut tune … --records {missing}"""
    )


NO_MODELS = {
    "not text": (b"\xff", "it is not JSON"),
    "of another format": (b'{"format": "offcut model 9"}', "it is not an offcut model 2"),
    "half of one": (b'{"format": "offcut model 2", "names": []}', "it lacks 'ensemble'"),
}


@pytest.mark.parametrize("case", NO_MODELS)
def test_a_file_that_is_no_model(tmp_path: Path, case: str) -> None:
    said, because = NO_MODELS[case]
    file = tmp_path / "model.json"
    file.write_bytes(said)

    assert (
        refusal(lambda: CorrectedModel.load(file))
        == f"""\
learn: cannot read model.json
  at       {file}
  because  {because}
  help     offcut learn RECORDS -o MODEL makes one"""
    )


DAMAGED: dict[str, tuple[object, str]] = {
    "numbers that are texts": ("many", "ValueError: could not convert string to float: 'many'"),
    "not finite": (float("nan"), "ValueError: it gives no number"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_model_that_is_damaged(tmp_path: Path, case: str) -> None:
    pytest.importorskip("xgboost", reason="the extra learned is not installed")
    level, because = DAMAGED[case]
    file = tmp_path / "model.json"
    held = {
        "format": "offcut model 2",
        "doubt": 0.1,
        "closed": 0.2,
        "useless": "",
        "learned": {},
        "names": ["f"],
        "familiar": {
            "names": ["f"],
            "limit": 1,
            "low": [0],
            "high": [1],
            "width": [1],
            "kept": [[0]],
        },
        "ensemble": {"members": [], "levels": [level]},
    }
    file.write_text(json.dumps(held), encoding="utf-8")

    assert (
        refusal(lambda: CorrectedModel.load(file))
        == f"""\
learn: cannot read model.json
  at       {file}
  because  what it holds is damaged: {because}
  help     offcut learn RECORDS -o MODEL makes one"""
    )


def test_a_library_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> object:
        raise OSError("libgomp.so.1: cannot open shared object file\nand much more")

    monkeypatch.setattr(xgboost_loader, "is_installed", lambda name: True)
    monkeypatch.setattr(xgboost_loader, "import_module", fails)

    assert not xgboost_loader.is_available()
    assert (
        refusal(lambda: xgboost_loader.load_xgboost("learn"))
        == """\
learn: cannot use a learned model
  because  xgboost does not load: OSError: libgomp.so.1: cannot open shared object file
  help     this needs the extra "learned": pip install ".[learned]" in the folder of offcut"""
    )


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    assert "because  No such file or directory" in refusal(
        lambda: CorrectedModel.load(tmp_path / "m.json")
    )


def test_rows_that_are_none(tmp_path: Path) -> None:
    file = tmp_path / "rows.npz"
    file.write_text(json.dumps([]), encoding="utf-8")

    assert refusal(lambda: Dataset.load(file)).startswith(f"""\
learn: cannot read rows.npz
  at       {file}
  because  it holds no rows: """)


def test_a_model_of_features_that_are_not_here() -> None:
    assert (
        refusal(lambda: columns(("a", "b"), ("b", "mine", "yours"), "model.json"))
        == """\
learn: cannot use the model
  at       model.json
  because  it was learned from mine, yours, which no feature gives here
  help     offcut learn makes a model of the features that there are"""
    )
    assert columns(("a", "b"), ("b", "a"), "model.json") == [1, 0]


def test_without_xgboost_nothing_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xgboost_loader, "is_installed", lambda name: False)
    with rejection("""\
TargetError: learn: cannot use a learned model
  because  xgboost is not installed
  help     this needs the extra "learned": pip install ".[learned]" in the folder of offcut"""):
        xgboost_loader.load_xgboost("learn")


def test_where_nothing_is_kept_a_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFCUT_RECORDS", "off")
    monkeypatch.delenv("OFFCUT_MODEL", raising=False)
    done = CliRunner().invoke(app, ["learn", "records.jsonl"])
    assert done.exit_code == 2
    assert (
        done.stderr
        == """\
learn: cannot keep a model
  because  OFFCUT_RECORDS is off
  help     offcut learn records.sqlite -o model.json
"""
    )


def test_one_correction_is_of_one_target(tmp_path: Path) -> None:
    def place(name: str) -> oc.search.Place:
        return oc.search.Place(name, name, {}, 1, True)

    with pytest.raises(OffcutError) as refused:
        target_of([place("vta"), place("cpu")], None)
    assert str(refused.value) == (
        "learn: cannot learn one correction of cpu, vta\n"
        "  because  what is counted of one target is not what is counted of another\n"
        "  help     offcut learn --target cpu\n"
        "  help     offcut learn --target vta"
    )
    with pytest.raises(OffcutError) as refused:
        target_of([place("vta")], "gemmini")
    assert str(refused.value) == (
        "learn: cannot learn for target='gemmini'\n"
        "  because  the records are of vta\n"
        "  help     offcut learn --random --target gemmini"
    )
    assert (target_of([place("vta")], None), target_of([], None)) == ("vta", None)


def test_a_target_that_takes_no_random_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_programs, "KINDS", ("chain float32",))
    with pytest.raises(OffcutError) as refused:
        sample(oc.target("vta"), oc.Records(tmp_path / "r.sqlite"), 1)
    assert str(refused.value).startswith(
        "learn: cannot learn from random programs on target='vta'\n"
        "  because  it refuses all of them, the first so: compile: cannot "
    )
    assert str(refused.value).endswith(
        "\n  help     offcut learn RECORDS: of programs that it takes"
    )


def test_a_target_whose_cost_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    n = oc.dim("n", min=1, max=8)
    x = oc.placeholder((n, 32), "int8", name="X")
    y = oc.compute((n, 32), lambda i, j: oc.maximum(x[i, j], 0), name="Y")
    target = oc.target("gemmini")
    problem = make_problem("learn", y, [x], (), {"n": [3]}, target, target.options("learn"))
    monkeypatch.setattr(type(target), "predict_costs", lambda *given: lambda schedule: ())
    assert refusal(lambda: Cases(problem)(oc.Schedule.parse("schedule Y"))) == (
        "learn: cannot describe this schedule\n  because  of calls on gemmini nothing is predicted"
    )


NO_ADDRESS = {
    "nowhere": "it is not tls://, a host, and a port",
    "tcp://host:80/path": "it is not tls://, a host, and a port",
    "tcp://host:80000": "Port out of range 0-65535",
}
DOUBLED_TEXT = """\
program doubled
size n in 1:65
input A: float32[n]
output B: float32[n]
for i in 0:n
  B[i] = A[i] * 2.0
"""


@pytest.mark.parametrize("address", NO_ADDRESS)
def test_what_is_no_address_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(OffcutError) as refused:
        oc.tune(oc.parse(DOUBLED_TEXT), sizes={"n": [2]}, pool=address, records=tmp_path / "r")

    assert (
        str(refused.value)
        == f"""\
tune: cannot take pool={address!r}
  because  {NO_ADDRESS[address]}
  help     pool="tls://host:8786"
  help     pool="local\""""
    )
    assert not (tmp_path / "r").exists()


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(OffcutError, match="because  the address of a pool is a text"):
        pool_of(3, "tune")  # type: ignore[arg-type]


def test_without_distributed_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(OffcutError) as refused:
        pool_of("tcp://localhost:8786", "tune")

    assert (
        str(refused.value)
        == """\
tune: cannot use a pool of devices
  because  distributed is not installed
  help     this needs the extra "pool": pip install ".[pool]" in the folder of offcut"""
    )


@pytest.mark.parametrize(
    ("address", "op"),
    [("tcp://rack:8786", "tune"), ("tcp://10.0.0.1:8786", "worker"), ("tcp://[::2]:8786", "tune")],
)
def test_another_machine_without_certificates_is_refused(address: str, op: str) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    with pytest.raises(OffcutError) as refused:
        pool_of(address, op)

    assert (
        str(refused.value)
        == f"""\
{op}: cannot take pool={address!r}
  because  it leads to another machine, and nobody there has to show a certificate: whoever reaches a port of the pool could run code here
  help     pool="{address.replace("tcp", "tls")}", with certificates as docs/search/pool.md says
  help     pool="tcp://localhost:8786", of a scheduler on this machine"""
    )


def test_this_machine_needs_no_certificates() -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    for host in ("127.1.2.3", "localhost", "[::1]"):
        assert pool_of(f"tcp://{host}:8786", "tune").security() is None


CERTIFICATES = {
    "none": "nothing says which certificates its members show each other",
    "no folder": "{folder}/cert.pem cannot be read: No such file or directory",
    "no key": "{folder}/key.pem cannot be read: No such file or directory",
    "an open key": "others can use {folder}/key.pem, whose mode is 644: it is the secret of the pool, of mode 600",
}


@pytest.mark.parametrize("case", CERTIFICATES)
def test_certificates_that_are_not_there_or_open_are_refused(case: str, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    folder = tmp_path / "certificates"
    if case != "no folder":
        folder.mkdir()
        certificates_in(folder)
        (folder / "key.pem").chmod(0o644)
    if case == "no key":
        (folder / "key.pem").unlink()
    with pytest.raises(OffcutError) as refused:
        pool_of(Pool("tls://rack:8786", certificates=None if case == "none" else folder), "tune")

    assert (
        str(refused.value)
        == f"""\
tune: cannot take pool='tls://rack:8786'
  because  {CERTIFICATES[case].format(folder=folder)}
  help     Pool(address, certificates=a folder with cert.pem and key.pem)
  help     --certificates folder, of the command"""
    )


def test_the_configuration_of_dask_names_certificates_too(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    import dask

    folder = certificates_in(tmp_path)
    pair = {"cert": str(folder / "cert.pem"), "key": str(folder / "key.pem")}
    tls = "distributed.comm.tls"
    names = {f"{tls}.ca-file": pair["cert"]}
    for role in ("client", "worker"):
        names |= {f"{tls}.{role}.{kind}": path for kind, path in pair.items()}
    with dask.config.set(names):
        security = pool_of("tls://rack:8786", "tune").security()

    assert security is not None
    assert (security.tls_client_cert, security.tls_worker_key) == tuple(pair.values())


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize("op", ["tune", "worker"])
def test_a_scheduler_that_is_not_there_is_said_after_a_while(op: str, nobody: str) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    pool = Pool(nobody, answer=0.3)
    with pytest.raises(OffcutError) as refused:
        connect(pool, op).__enter__() if op == "tune" else serve(pool, "a", lambda: None)

    text = str(refused.value)
    assert text.startswith(
        f"{op}: cannot reach {nobody}\n  because  no dask scheduler answers in 0.3 s"
    )
    assert text.endswith("help     dask scheduler --host 127.0.0.1 --port 8786, on this machine")


def test_a_worker_of_the_local_pool_is_refused() -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    done = CliRunner().invoke(app, ["worker", "local"])

    assert done.exit_code == 2
    assert (
        done.output.strip()
        == """\
worker: cannot be a device of pool='local'
  because  whoever tunes with that measures by himself
  help     offcut worker tls://host:8786"""
    )


def test_the_command_hands_the_pool_on(tmp_path: Path) -> None:
    program = tmp_path / "p.offcut"
    program.write_text(DOUBLED_TEXT, encoding="utf-8")
    done = CliRunner().invoke(app, ["tune", str(program), "--sizes", "n=7", "--pool", "nowhere"])

    assert done.exit_code == 2
    assert done.output.startswith("tune: cannot take pool='nowhere'")
