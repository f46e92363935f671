"""Object code on disk: reused by other processes, rebuilt when damaged, private, keyed by content."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from compiled import contraction, floats
from conftest import rejection

import offcut as oc
from offcut import Kernel
from offcut.backends import compile_request, verify
from offcut.backends.abi import Signature
from offcut.backends.cpu.machine import isa, jit
from offcut.backends.cpu.target import Cpu
from offcut.backends.host import cache
from offcut.backends.target import Options
from offcut.errors import PartitionError
from tests.agree import agree, exact_matmul
from tests.facade import forget_code, forget_plans

ROOT = Path(cache.__file__).parents[3]

# Compiles one kernel, runs it, and says whether code was generated, and what the result is.
PROGRAM = """
import numpy as np, offcut as oc
from offcut.backends.cpu.machine import isa, jit
generated, generate = [], jit.object_code
def counted(*args, **options):
    generated.append(1)
    return generate(*args, **options)
jit.object_code = counted
n, k = oc.dim("n", max=4096), oc.reduce_axis(9, "k")
A, B = oc.placeholder((n, 9), name="A"), oc.placeholder((9, 20), name="B")
C = oc.compute((n, 20), lambda i, j: oc.sum(A[i, k] * B[k, j], axis=k), name="C")
kernel = oc.compile(C, inputs=[A, B], strategy="cut")
a, b = np.arange(45, dtype="f").reshape(5, 9), np.arange(180, dtype="f").reshape(9, 20)
print(len(generated), float(abs(kernel(a, b) - a @ b).max()))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, read and written, with no code kept in this process."""
    monkeypatch.setenv("OFFCUT_CACHE", str(tmp_path / "cache"))
    forget_code()
    forget_plans()
    yield tmp_path / "cache"
    forget_code()
    forget_plans()


@pytest.fixture
def lowered(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what no entry was found of, and was lowered now."""
    names, lower = list[str](), Cpu.lower

    def noted(target: Cpu, planned: Any, signature: Signature, options: Options) -> bytes:
        names.append(signature.name)
        return lower(target, planned, signature, options)

    monkeypatch.setattr(Cpu, "lower", noted)
    return names


def process(**environment: str) -> tuple[int, float]:
    """(modules generated, largest error) of `PROGRAM` in a process of its own."""
    given = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    modules, error = done.stdout.split()
    return int(modules), float(error)


def compiled(strategy: str = "cut") -> Kernel:
    what = contraction("mk,k->m")
    return oc.compile(what.result, inputs=what.inputs, strategy=strategy)


def entries(home: Path) -> list[Path]:
    return sorted(home.iterdir())


def check_values(kernel: Kernel) -> None:
    a, b = floats("a", 15, 9), floats("b", 9)
    agree(kernel(a, b), exact_matmul(a, b))


def test_a_second_process_generates_no_code(home: Path) -> None:
    generated, error = process()
    assert (generated > 0, error) == (True, 0.0)
    kept = {path.name: path.read_bytes() for path in entries(home)}
    assert process() == (0, 0.0)
    assert {path.name: path.read_bytes() for path in entries(home)} == kept


@pytest.mark.slow
def test_two_processes_that_write_at_once_both_work_and_leave_whole_entries(home: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        for generated, error in pool.map(lambda _: process(), range(3)):
            assert (generated >= 0, error) == (True, 0.0)
    assert not [path for path in entries(home) if path.name.startswith("new-")]
    assert process() == (0, 0.0)


def test_an_entry_is_found_in_the_same_process(
    lowered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled()
    monkeypatch.setattr(jit, "object_code", lambda *_, **__: pytest.fail("code was generated"))
    again = compiled()
    assert len(lowered) == 1
    check_values(again)


@pytest.mark.parametrize("damage", ["empty", "torn", "edited", "other magic", "longer", "text"])
def test_a_damaged_entry_is_rebuilt(home: Path, lowered: list[str], damage: str) -> None:
    compiled()
    kept = {path: path.read_bytes() for path in entries(home)}
    # A measured rate, a list of numbers, is kept in the process too.
    whole = {path: data for path, data in kept.items() if not data.endswith(b"]")}
    for path, data in whole.items():
        middle = len(data) // 2
        path.write_bytes(
            {
                "empty": b"",
                "torn": data[:middle],
                "edited": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
                "other magic": b"offcut-object-0\n" + data[16:],
                "longer": data + b"\0",
                "text": b"not an object file\n" * 10,
            }[damage]
        )
    forget_code()
    forget_plans()
    again = compiled()
    assert len(lowered) == 2
    check_values(again)
    assert {path: path.read_bytes() for path in whole} == whole
    assert entries(home) == sorted(kept)
    compiled()
    assert len(lowered) == 2


def test_an_entry_under_the_name_of_another_is_none(home: Path) -> None:
    one, other = "1" * 64, "2" * 64
    cache.write(one, b"one")
    cache.write(other, b"other")
    (home / one).rename(home / "aside")
    (home / other).rename(home / one)
    (home / "aside").rename(home / other)
    assert cache.read(one) is None
    assert cache.read(other) is None
    cache.write(one, b"one")
    assert cache.read(one) == b"one"


def test_what_cannot_be_written_leaves_nothing_behind_and_is_warned_of_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with warnings.catch_warnings(record=True, action="always") as warned:
        cache.write("1" * 64, b"one")
        cache.write("2" * 64, b"one")
    assert list(home.iterdir()) == []
    assert [str(one.message) for one in warned] == [
        f"offcut: compiled code is not cached in {home}: No space left on device; each process "
        "compiles again (OFFCUT_CACHE=another folder, or off)"
    ]


def test_a_default_folder_that_cannot_be_made_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("OFFCUT_CACHE")
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda _: str(tmp_path / "file" / "offcut"))
    with warnings.catch_warnings(record=True, action="always") as warned:
        cache.write("1" * 64, b"one")
        cache.write("2" * 64, b"one")
    assert len(warned) == 1
    assert "is not cached in" in str(warned[0].message)
    assert ": Not a directory; " in str(warned[0].message)


def test_an_entry_that_cannot_be_read_is_built_again(home: Path) -> None:
    compiled()
    for path in entries(home):
        path.unlink()
        path.mkdir()
    forget_code()
    check_values(compiled())


def test_off_keeps_nothing(home: Path, lowered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFCUT_CACHE", "off")
    compiled()
    forget_code()
    again = compiled()
    assert len(lowered) == 2
    check_values(again)
    assert not home.exists()


@pytest.mark.parametrize("where", ["file", "file/cache"])
def test_a_folder_that_is_asked_for_and_cannot_be_made_is_refused(
    where: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("OFFCUT_CACHE", str(tmp_path / where))
    reason = os.strerror(errno.EEXIST if where == "file" else errno.ENOTDIR)
    with rejection(f"""\
TargetError: OFFCUT_CACHE: cannot keep code in {tmp_path / where}
  because  it is not a folder, and none can be made there: {reason}
  help     OFFCUT_CACHE=another folder, or off"""):
        compiled()


def test_a_default_folder_that_cannot_be_made_means_no_cache(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.delenv("OFFCUT_CACHE")
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(tmp_path / "file" / name))
    check_values(compiled())


def test_the_folder_and_its_entries_are_the_users_alone(home: Path) -> None:
    compiled()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert entries(home)
    assert {stat.S_IMODE(path.stat().st_mode) for path in entries(home)} == {0o600}


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o700])
def test_a_folder_that_is_there_keeps_its_rights(
    mode: int, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    monkeypatch.setenv("OFFCUT_CACHE", str(shared))
    cache.write("entry", b"payload")
    assert cache.read("entry") == b"payload"
    assert stat.S_IMODE(shared.stat().st_mode) == mode


@pytest.mark.parametrize(("mode", "alone"), [(0o777, True), (0o1777, True), (0o770, False)])
def test_a_folder_that_others_may_write_to_is_refused(
    mode: int, alone: bool, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    monkeypatch.setenv("OFFCUT_CACHE", str(shared))
    monkeypatch.setattr(cache, "_is_alone_in", lambda group: alone)
    with rejection(f"""\
TargetError: cache: cannot keep code in {shared}
  because  others may write there (its mode is {mode:o}), and code that is kept is run
  help     chmod go-w of it
  help     OFFCUT_CACHE=another folder, or off"""):
        compiled()
    assert stat.S_IMODE(shared.stat().st_mode) == mode


def test_a_group_of_the_users_own_may_write_to_the_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    own.chmod(0o770)
    monkeypatch.setenv("OFFCUT_CACHE", str(own))
    monkeypatch.setattr(cache, "_is_alone_in", lambda group: True)
    assert cache.cache_dir() == own


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="the system has no users")
def test_a_folder_of_another_user_is_refused_where_it_is_named_and_else_not_used(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: 424242)
    monkeypatch.delenv("OFFCUT_CACHE")
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(theirs))
    with pytest.warns(RuntimeWarning, match="it belongs to another user"):
        check_values(compiled())
    assert entries(theirs) == []
    monkeypatch.setenv("OFFCUT_CACHE", str(theirs))
    with rejection(f"""\
TargetError: OFFCUT_CACHE: cannot keep code in {theirs}
  because  it belongs to another user, and code that is kept is run
  help     OFFCUT_CACHE=another folder, or off"""):
        compiled()


def test_an_edited_source_is_another_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache.key("the same")
    assert before == cache.key("the same")
    assert before != cache.key("the", "same")
    monkeypatch.setattr(cache, "_source_digest", lambda _: "edited")
    assert cache.key("the same") != before


@pytest.mark.parametrize("name", ["part.py", "machine.toml"])
def test_the_digest_of_the_sources_sees_an_edit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "offcut" / name
    source.parent.mkdir()
    source.write_text("x = 1\n")
    monkeypatch.setattr(oc, "__file__", str(source.parent / "__init__.py"))
    digest = partial(cache._source_digest.__wrapped__, frozenset[str]())
    before = digest()
    assert digest() == before
    source.write_text("x = 12\n")
    assert digest() != before
    edited = digest()
    (source.parent / ".#part.py").symlink_to("nobody@nowhere.1")
    (source.parent / "again").symlink_to(source.parent)
    assert digest() == edited


def test_of_an_installed_package_the_record_of_the_installer_is_read_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oc, "__file__", str(tmp_path / "offcut" / "__init__.py"))
    monkeypatch.setattr(cache, "_sources", lambda *_: pytest.fail("sources are looked at"))
    record = tmp_path / f"offcut-{oc.__version__}.dist-info" / "RECORD"
    record.parent.mkdir()
    digests = set[str]()
    for text in ("a.py,sha256=1,1\n", "a.py,sha256=2,1\n"):
        record.write_text(text)
        digests.add(cache._source_digest.__wrapped__(frozenset[str]()))
    assert len(digests) == 2


def test_the_digest_leaves_out_the_rooms_that_compiling_may_not_import() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    rooms = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    above = rooms[: rooms.index("pipeline")]
    folders = {room for room in above if (Path(oc.__file__).parent / room).is_dir()}
    assert folders == cache.BUILT_ON_COMPILING


def test_another_strategy_or_other_features_are_other_entries(
    lowered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled("cut")
    compiled("guard")
    monkeypatch.setenv("OFFCUT_HIDE_FEATURES", "avx")
    hidden = compiled("cut")
    assert len(lowered) == 3
    check_values(hidden)
    compiled("cut")
    assert len(lowered) == 3


def test_constants_are_no_part_of_the_key(lowered: list[str]) -> None:
    what = contraction("mk,kn->mn", {"k": 3, "n": 5})
    one, other = floats("one", 3, 5), floats("other", 3, 5)
    x = floats("x", 4, 3)
    first = oc.compile(what.result, inputs=what.inputs, constants={"B": one}, strategy="ladder")
    second = oc.compile(what.result, inputs=what.inputs, constants={"B": other}, strategy="ladder")
    assert len(lowered) == 1
    agree(first(x), exact_matmul(x, one))
    agree(second(x), exact_matmul(x, other))


def test_a_proof_is_kept_by_what_was_compared(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled()
    proofs: list[object] = []
    monkeypatch.setattr(verify, "check_equal", lambda *asked, **_: proofs.append(asked))
    forget_plans()
    compiled().plan(m=1, k=1)
    forget_plans()
    assert proofs == []


def test_what_a_program_was_checked_for_is_not_asked_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[object] = []
    monkeypatch.setattr(compile_request, "check_in_bounds", lambda *asked: checked.append(asked))
    monkeypatch.delenv("OFFCUT_VERIFY", raising=False)
    for expected in (1, 1):
        compiled()
        assert len(checked) == expected
    monkeypatch.setenv("OFFCUT_VERIFY", "1")
    compiled()
    assert len(checked) == 2


def test_a_program_that_is_refused_is_refused_again(home: Path) -> None:
    n = oc.dim("n")
    x = oc.placeholder((n,), name="X")
    shifted = oc.compute((n,), lambda i: x[i + 1], name="Y")
    for _ in range(2):
        with pytest.raises(PartitionError, match="out of bounds"):
            oc.compile(shifted)


def test_the_nearest_machine_is_read_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = frozenset({"avx2", "fma"})
    first = isa._kept_nearest("x86_64", features)
    assert first == isa.nearest_machine("x86_64", features)
    monkeypatch.delattr(isa, "nearest_machine")
    assert isa._kept_nearest("x86_64", features) == first
