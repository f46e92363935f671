"""Units of a schedule: it names the loops that run as lanes and on threads, and these run so."""

import numpy as np
import pytest
from conftest import refusals, rejection

import offcut as oc
from offcut.core.program import LANE, THREAD, For, Tile, walk

CARRIED = """program carried
size n in 1:200
size m in 1:200
input X: float32[n, m]
output Y: float32[n, m]
output S: float32[m]
for i in 0:n
  for j in 0:m
    Y[i, j] = X[i, j]
for i in 1:n
  for j in 0:m
    Y[i, j] += Y[i - 1, j]
for j in 0:m
  S[j] = 0.0
  for i in 0:n
    S[j] += Y[i, j]
"""
BEGUN = "schedule carried\nseparate 16\n"
n, m = oc.dim("n", max=4096), oc.dim("m", max=4096)


def dense() -> oc.Tensor:
    A, W = oc.placeholder((n, 96), name="A"), oc.placeholder((96, 80), name="W")
    return oc.ops.matmul(A, W, name="C")


def softmax() -> oc.Tensor:
    return oc.ops.softmax(oc.placeholder((n, m), name="A"), name="P")


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_target_chooses_is_named_and_older_texts_leave_it_open(threads: int) -> None:
    kernel = oc.compile(softmax(), threads=threads)
    binds = [line for line in str(kernel.schedule).splitlines() if line.startswith("bind")]
    lanes = ["bind P_max.k lane tree", "bind P_sum.k lane tree"]
    assert binds == [*lanes, *(["bind P.i_block thread"] if threads == 2 else [])]
    rest = [line for line in str(kernel.schedule).splitlines() if line not in binds]
    older = "\n".join((*rest, "mark rows", "mark threads"))
    again = oc.compile(softmax(), threads=threads, schedule=oc.Schedule.parse(older))
    assert again.loops == kernel.loops


def run(lines: str, threads: int = 2) -> oc.Kernel:
    """Return CARRIED with these lines, whose values are right."""
    schedule = oc.Schedule.parse(BEGUN + lines)
    kernel = oc.compile(oc.parse(CARRIED), threads=threads, schedule=schedule)
    assert kernel.schedule == schedule
    for rows, columns in ((1, 1), (5, 7), (33, 130)):
        x = np.random.default_rng(0).integers(-8, 8, (rows, columns)).astype("float32")
        y, s = kernel(x)
        assert np.array_equal(y, np.cumsum(x, 0))
        assert np.array_equal(s, np.cumsum(x, 0).sum(0))
    return kernel


def units(kernel: oc.Kernel) -> list[str]:
    """Return the loops that a unit runs, and those of tiles, in the order of the text."""
    found = []
    for stmt in walk(kernel.loops.body):
        if isinstance(stmt, For) and stmt.unit is not None:
            found.append(f"{stmt.iter} {stmt.unit}")
        if isinstance(stmt, Tile):
            found.append(f"{', '.join(axis.iter for axis in stmt.axes)} tile")
    return found


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("bind Y.i thread", ["i thread"]),
        ("bind Y.j thread", ["j thread", "j thread"]),
        ("bind Y.i thread\nbind Y.j thread", ["i thread", "j thread"]),
        ("bind Y.j lane", ["j tile", "j tile"]),
        ("bind Y.i lane", ["i tile"]),
        ("bind S.j lane", ["j tile"]),
        ("bind S.i lane tree", ["i lane"]),
        (
            "split S.j 512 as j_chunk j_in\nbind S.j_in lane\nbind S.j_chunk thread",
            ["j_chunk thread", "j tile"],
        ),
        ("split S.j 7 as c r\nbind S.c thread\nbind S.r lane", ["j_chunk thread", "j tile"]),
        ("split S.j 200 as c r\nbind S.r lane\nbind S.c thread", ["j_chunk thread", "j tile"]),
        ("bind Y.i thread\nbind Y.j lane", ["i thread", "j tile", "j tile"]),
    ],
)
def test_loops_run_as_the_lines_say_and_no_others(lines: str, wanted: list[str]) -> None:
    assert units(run(lines)) == wanted


def test_without_threads_the_lines_of_threads_say_nothing() -> None:
    assert units(run("bind Y.i thread\nbind Y.j lane", threads=1)) == ["j tile", "j tile"]


def test_a_tile_that_lines_bind_to_threads_is_in_chunks_of_the_machine() -> None:
    older = oc.Schedule.parse(BEGUN + "bind S.j thread\nbind S.j lane")
    kernel = oc.compile(oc.parse(CARRIED), threads=2, schedule=older)
    chunk = oc.target("cpu").machine.threads.chunk
    lines = f"split S.j {chunk} as j_chunk j_in\nbind S.j_chunk thread\nbind S.j_in lane"
    assert str(kernel.schedule) == BEGUN + lines
    assert kernel.loops == run(lines).loops


def test_chunks_are_of_as_many_iterations_as_their_line_says() -> None:
    loops = str(run("split S.j 7 as c r\nbind S.c thread\nbind S.r lane").loops)
    assert (
        "for j_chunk in 0:(m + 6)//7  @thread\n  tile j in 7*j_chunk +: min(7, m - 7*j_chunk)"
        in loops
    )


REFUSED = refusals(
    r"""
chunks of a loop that is no lanes
given 'split S.j 8 as c r\nbind S.c thread'
bind: cannot bind chunks of S.j to thread
  at       line 4: bind S.c thread
  because  chunks are of a loop that runs as lanes, and this one does not
  help     bind S.r lane

chunks of none
given 'split S.j 0 as c r\nbind S.c thread\nbind S.r lane'
partition: cannot cut j by 0
  at       line 3: split S.j 0 as c r
  because  a tile is an int from 1 to 2**31 - 1: isl decides no symbolic tile size
  help     tile={"j": 8}
  help     tile={"j": (64, 16)} in two levels

chunks that nothing shares
given 'split S.j 8 as c r\nbind S.r lane'
schedule: cannot split j so
  at       line 3: split S.j 8 as c r
  because  the last level of a loop as it stands says what its tail does, sizes are of a ladder's last level, and no tile depends on another
  help     split j ladder 64 then balance 8 as j_group j_tile j_in
  help     bind S.c thread

what the loop carries
given 'bind S.i thread'
bind: cannot bind S.i to thread
  at       line 3: bind S.i thread
  because  with n = 2, m = 1, S[j] += Y[i, j] at j = 0, i = 0 writes what the instance j = 0, i = 1 overwrites
  help     the schedule without this line

lanes of a sum
given 'bind S.i lane'
bind: cannot bind S.i to lane
  at       line 3: bind S.i lane
  because  it adds up, and lanes of it hold partial sums
  help     bind S.i lane tree

partial sums of no sum
given 'bind Y.j lane tree'
bind: cannot bind Y.j to lane tree
  at       line 3: bind Y.j lane tree
  because  lanes hold partial sums of a loop that does nothing but add up

a stage that is none
given 'bind Z.i thread'
bind: cannot find the loop Z.i
  at       line 3: bind Z.i thread
  because  no loop computes Z

a loop that is none
given 'bind Y.j lane\nbind Y.k thread'
bind: cannot find the loop Y.k
  at       line 4: bind Y.k thread
  because  the loops of Y are i, j
  help     bind Y.i thread
  help     bind Y.j thread

a line twice
given 'bind Y.j lane\nbind Y.j lane'
schedule: cannot bind Y.j lane twice
  at       line 4: bind Y.j lane
  because  a line before it says how""",
    globals(),
)


@pytest.mark.parametrize("what", REFUSED)
def test_a_line_of_which_no_loop_may_run_so_is_refused(what: str) -> None:
    lines, message = REFUSED[what]
    with rejection(f"PartitionError: {message}"):
        oc.compile(oc.parse(CARRIED), threads=2, schedule=oc.Schedule.parse(BEGUN + lines))


def test_a_tree_is_refused_where_terms_stay_in_order() -> None:
    schedule = oc.Schedule.parse(BEGUN + "bind S.i lane tree")
    with rejection(
        "PartitionError: bind: cannot bind S.i to lane tree\n"
        "  at       line 3: bind S.i lane tree\n"
        "  because  with n = 2, m = 1, S[j] += Y[i, j] at j = 0, i = 0 writes what the instance "
        "j = 0, i = 1 overwrites\n"
        "  help     reassociate=True"
    ):
        oc.compile(oc.parse(CARRIED), schedule=schedule, reassociate=False)


NEST = """schedule C
split C.i mask 8 as rows row
split C.j mask 16 as columns column
order C rows columns row column
cover C at row vectors
"""


def test_loops_of_a_nest_are_called_as_its_splits_call_them() -> None:
    def marked(lines: str) -> list[str]:
        kernel = oc.compile(dense(), threads=2, schedule=oc.Schedule.parse(NEST + lines))
        a = np.random.default_rng(0).integers(-8, 8, (19, 96)).astype("float32")
        w = np.random.default_rng(1).integers(-8, 8, (96, 80)).astype("float32")
        assert np.array_equal(kernel(a, w), a @ w)
        return [one for one in units(kernel) if THREAD in one or f" {LANE}" in one]

    assert marked("") == []
    assert marked("bind C.rows thread") == ["i_tile thread"]
    assert set(marked("bind C.columns thread")) == {"j_tile thread"}
    assert set(marked("bind C.k lane tree")) == {"k lane"}
    assert marked("bind C.column lane") == []  # a tile runs as vectors
    inside = {
        "bind C.columns lane tree": (
            "lanes hold partial sums of a loop that does nothing but add up",
            "bind C.k lane tree",
        ),
        "bind C.row thread": ("it lies in a tile, which one thread runs", "a loop around the tile"),
        "bind C.rows lane": (
            "tiles, windows or lanes are inside of it",
            "a loop that holds none of them",
        ),
    }
    for line, (because, help) in inside.items():
        with pytest.raises(oc.PartitionError) as refused:
            marked(line)
        assert (refused.value.because, refused.value.help) == (because, (help,))
    with rejection(
        "PartitionError: bind: cannot find the loop C.i\n"
        "  at       line 6: bind C.i thread\n"
        "  because  the loops of C are rows, columns, row, column, k\n"
        "  help     bind C.rows thread\n"
        "  help     bind C.columns thread\n"
        "  help     bind C.row thread"
    ):
        marked("bind C.i thread")


@pytest.mark.isa("avx512f")
def test_a_tree_of_a_sum_that_a_microkernel_adds_up_is_refused() -> None:
    text = str(oc.compile(dense(), strategy="ladder").schedule)
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(dense(), schedule=oc.Schedule.parse(f"{text}\nbind C.k lane tree"))
    assert refused.value.because == "a microkernel adds it up, in an order of its own"
    assert refused.value.help == ("cover C vectors",)


OPTIONS = """schedule C
choose
  option rows
    split C.i mask 8 as rows row
    order C rows row j
    cover C at row vectors
  option columns
    split C.j mask 32 as columns column
    order C i columns column
    cover C at column vectors
"""


def test_loops_of_an_alternative_have_the_names_that_it_says() -> None:
    def shared(*loops: str) -> list[str]:
        lines = "".join(f"bind C.{loop} thread\n" for loop in loops)
        kernel = oc.compile(dense(), threads=2, schedule=oc.Schedule.parse(OPTIONS + lines))
        return [one for one in units(kernel) if THREAD in one]

    assert shared("rows") == ["i_tile thread"]
    assert shared("i") == ["i thread"]
    assert set(shared("columns")) == {"j_tile thread"}
    assert shared("rows", "i") == ["i_tile thread", "i thread"]


def test_a_unit_in_one_option_is_refused() -> None:
    cover = "    cover C at row vectors\n"
    for lines in (f"    bind C.rows thread\n{cover}", f"{cover}    bind C.rows thread\n"):
        with pytest.raises(oc.PartitionError) as refused:
            oc.compile(dense(), schedule=oc.Schedule.parse(OPTIONS.replace(cover, lines)))
        at = OPTIONS.replace(cover, lines).split("\n").index("    bind C.rows thread") + 1
        assert str(refused.value) == (
            "bind: cannot bind C.rows in one option\n"
            f"  at       line {at}: bind C.rows thread\n"
            "  because  a unit runs the loops of that name, of whichever option\n"
            "  help     the line behind the options"
        )
