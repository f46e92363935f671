"""The code of the tensor unit's microkernels, as LLVM IR.

One function computes ``C[0:rows, 0:columns] (+)= sum over k of A[row, k] * B[k, column]``. A step
takes 64 bytes of each row of A, and one tile of B, 1 KiB in a row, for each panel of 16 columns.
More than 16 rows are halved, and run as 2×2 tiles of C: each operand that is loaded serves twice.
At most 16 rows run as 1×4, so that B is streamed past one tile of A. The tiles have the height that
is asked for, so a block of few rows costs less, and no row that is not there is read.

The depth is taken in chunks of which A fills half of the nearest cache: there it stays while B is
streamed past it, and C is kept in memory from chunk to chunk. Where A's rows lie so far apart that
they share a few sets of that cache, a chunk of A is copied together first. The last bytes of the
rows, where the depth is no multiple of a step, are copied once into scratch and filled up with zeros,
and B is packed with zeros to whole steps: any depth runs at full speed. A last panel that the columns
do not fill lies in scratch until it is complete.

Every element of C adds its terms in an order that depends on the depth alone, since a sum that is
stored and loaded again has not changed. The unit takes denormals for zeros, and writes none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from offcut.backends.cpu.microkernels.llvm_blocks import first_lanes
from offcut.core.dtypes import ITEM_BYTES

ARGUMENTS = (
    "ptr noalias readonly %a, i64 %a_row, i64 %rows, ptr noalias readonly %b, i64 %b_row, "
    "ptr noalias %c, i64 %c_row, i64 %depth, i64 %columns, i64 %accumulate"
)
"""The parameters of a wide microkernel, which `text` describes."""

TILE_ROWS = 16  # rows of a tile register, each of 64 bytes; columns of a panel
MAX_ROWS = 2 * TILE_ROWS
STEP_BYTES = 64  # of a row of A in a step
CHUNK_BYTES = 24 * 1024  # of A in a chunk
SHARED_BYTES = 2048  # rows a multiple of it apart fall into one or two sets of the cache
SHARED_ROWS = 8  # so many of them fit the ways of a set, beside what is streamed
COPIED_COLUMNS = 128  # from so many on, a copy is read often enough

_MULTIPLY = {"bfloat16": "tdpbf16ps", "int8": "tdpbssd", "uint8": "tdpbusd"}
_ROW = "<16 x i32>"  # a row of a tile of C, as bits
_STEP = "<64 x i8>"  # of a row of A
_COLUMN_BYTES = sum(STEP_BYTES << 16 * tile for tile in range(4))


def halves_of(rows: int) -> int:
    """How many tiles lie below each other."""
    return 1 if rows <= TILE_ROWS else 2


def widest(halves: int) -> int:
    """How many tiles of C may lie side by side: four registers of eight are C's."""
    return 4 // halves


def symbol(kind: str) -> str:
    """The name of the function."""
    return f"oc_amx_{kind}"


def text(kind: str) -> str:
    """LLVM IR of the function of `ARGUMENTS`, with the declarations that it needs.

    a            elements of `kind`, one after the other along the depth
    rows         1 … 32
    b            panels of 16 columns: elements ``[depth / interleave][16][interleave]``, zeros up to
                 a multiple of `multiple` and past the last column
    c            float32 or int32, one after the other along the columns
    a_row, c_row, b_row   bytes from row to row; of B, from panel to panel
    depth        0 …; with 0, C becomes 0 or stays
    columns      1 …
    accumulate   not 0: what C holds is added to

    Nothing of A beyond ``[rows, depth]`` is read, nothing of C beyond ``[rows, columns]`` is touched.
    """
    return "\n".join([*_function(kind), "", *sorted(_declarations(kind))])


def _declarations(kind: str) -> set[str]:
    tile = ("tileloadd64", "tileloaddt164", "tilestored64")
    masked = {
        f"declare {v} @llvm.masked.load.{name}.p0(ptr, i32, {mask}, {v})"
        for v, name, mask in ((_STEP, "v64i8", "<64 x i1>"), (_ROW, "v16i32", "<16 x i1>"))
    }
    return {
        "declare void @llvm.x86.ldtilecfg(ptr)",
        "declare void @llvm.x86.tilerelease()",
        "declare void @llvm.x86.tilezero(i8)",
        f"declare void @llvm.x86.{_MULTIPLY[kind]}(i8, i8, i8)",
        *(f"declare void @llvm.x86.{name}(i8, ptr, i64)" for name in tile),
        *masked,
        f"declare void @llvm.masked.store.v16i32.p0({_ROW}, ptr, i32, <16 x i1>)",
        "declare i64 @llvm.umax.i64(i64, i64)",
        "declare i64 @llvm.umin.i64(i64, i64)",
    }


def _function(kind: str) -> Iterator[str]:
    yield f"define void @{symbol(kind)}({ARGUMENTS}) nounwind {{"
    yield "entry:"
    yield "  %config = alloca <8 x i64>, align 64"
    yield f"  %ends = alloca [{MAX_ROWS} x [{STEP_BYTES} x i8]], align 64"
    yield f"  %edge = alloca [{MAX_ROWS} x {_ROW}], align 64"
    yield f"  %copied = alloca [{CHUNK_BYTES} x i8], align 64"
    yield f"  %bytes = mul i64 %depth, {ITEM_BYTES[kind]}"
    yield f"  %steps_end = and i64 %bytes, {-STEP_BYTES}"
    yield f"  %end_bytes = and i64 %bytes, {STEP_BYTES - 1}"
    yield "  %any_end = icmp ne i64 %end_bytes, 0"
    yield "  %fresh = icmp eq i64 %accumulate, 0"
    yield f"  %edge_columns = and i64 %columns, {TILE_ROWS - 1}"
    yield "  %any_edge = icmp ne i64 %edge_columns, 0"
    yield f"  %whole_columns = and i64 %columns, {-TILE_ROWS}"
    yield "  %edge_offset = mul i64 %whole_columns, 4"
    yield "  %edge_c = getelementptr i8, ptr %c, i64 %edge_offset"
    yield from first_lanes("edge_mask", "%edge_columns", TILE_ROWS, "i32")
    yield from _configuration()
    yield from _chunking()
    yield "  br i1 %any_end, label %ends_row, label %ends_done"
    yield from _copied_ends()
    yield "  %edge_before = xor i1 %fresh, true"
    yield "  %edge_read = and i1 %any_edge, %edge_before"
    yield "  br i1 %edge_read, label %edge_in_row, label %edge_in_done"
    yield from _over_rows("edge_in", "ends_done", _edge_row(inwards=True))
    yield "  br label %chunk"
    yield from _chunk()
    yield "  br i1 %two, label %head2, label %head1"
    for halves in (1, 2):
        yield from _columns(halves, kind)
    yield "done:"
    yield "  br i1 %final_chunk, label %complete, label %chunk"
    yield "complete:"
    yield "  br i1 %any_edge, label %edge_out_row, label %edge_out_done"
    yield from _over_rows("edge_out", "complete", _edge_row(inwards=False))
    yield "  call void @llvm.x86.tilerelease()"
    yield "  ret void"
    yield "}"


def _configuration() -> Iterator[str]:
    """The heights of the tile registers: palette 1, every row of 64 bytes.

    Two halves: C in 0, 1 (upper) and 2, 3 (lower), A in 4 and 5, B in 6 and 7.
    One: C in 0 … 3, A in 4, B in 5 … 7.
    """
    yield f"  %two = icmp ugt i64 %rows, {TILE_ROWS}"
    yield "  %rows_up = add i64 %rows, 1"
    yield "  %half = lshr i64 %rows_up, 1"
    yield "  %upper = select i1 %two, i64 %half, i64 %rows"
    yield "  %lower = sub i64 %rows, %upper"
    yield "  %of_c = select i1 %two, i64 %lower, i64 %rows"
    yield f"  %of_5 = select i1 %two, i64 %lower, i64 {TILE_ROWS}"
    yield f"  %heights_upper = mul i64 %upper, {1 | 1 << 8 | 1 << 32}"
    yield f"  %heights_c = mul i64 %of_c, {1 << 16 | 1 << 24}"
    yield "  %heights_5 = shl i64 %of_5, 40"
    yield "  %heights_05 = or i64 %heights_upper, %heights_c"
    yield "  %heights_low = or i64 %heights_05, %heights_5"
    yield f"  %heights = or i64 %heights_low, {TILE_ROWS << 48 | TILE_ROWS << 56}"
    words = (1, 0, _COLUMN_BYTES, _COLUMN_BYTES, 0, 0, 0, 0)
    words_text = ", ".join(f"i64 {word}" for word in words)
    yield f"  %configured = insertelement <8 x i64> <{words_text}>, i64 %heights, i32 6"
    yield "  store <8 x i64> %configured, ptr %config, align 64"
    yield "  call void @llvm.x86.ldtilecfg(ptr %config)"


def _chunking() -> Iterator[str]:
    """How many bytes of a row a chunk takes, all about the same, and whether it is copied."""
    yield f"  %steps = udiv i64 %steps_end, {STEP_BYTES}"
    yield f"  %fitting = udiv i64 {CHUNK_BYTES // STEP_BYTES}, %rows"
    yield "  %fitting_less = sub i64 %fitting, 1"
    yield "  %steps_up = add i64 %steps, %fitting_less"
    yield "  %chunks_or_none = udiv i64 %steps_up, %fitting"
    yield "  %chunks = call i64 @llvm.umax.i64(i64 %chunks_or_none, i64 1)"
    yield "  %chunks_less = sub i64 %chunks, 1"
    yield "  %steps_over = add i64 %steps, %chunks_less"
    yield "  %chunk_steps = udiv i64 %steps_over, %chunks"
    yield f"  %chunk_bytes = mul i64 %chunk_steps, {STEP_BYTES}"
    yield f"  %apart = and i64 %a_row, {SHARED_BYTES - 1}"
    yield "  %sharing = icmp eq i64 %apart, 0"
    yield f"  %crowded = icmp ugt i64 %rows, {SHARED_ROWS}"
    yield f"  %read_often = icmp uge i64 %columns, {COPIED_COLUMNS}"
    yield "  %any_steps = icmp ne i64 %steps, 0"
    yield "  %thrashing = and i1 %sharing, %crowded"
    yield "  %worth = and i1 %read_often, %any_steps"
    yield "  %copying = and i1 %thrashing, %worth"
    yield f"  %copied_step = mul i64 %rows, {STEP_BYTES}"
    yield f"  %a_now_row = select i1 %copying, i64 {STEP_BYTES}, i64 %a_row"
    yield f"  %a_now_step = select i1 %copying, i64 %copied_step, i64 {STEP_BYTES}"


def _chunk() -> Iterator[str]:
    """The start of a chunk: where A and B are, which may be a copy of A, a step after the other."""
    yield "chunk:"
    yield "  %chunk_at = phi i64 [ 0, %edge_in_done ], [ %chunk_end, %done ]"
    yield "  %chunk_left = sub i64 %steps_end, %chunk_at"
    yield "  %chunk_now = call i64 @llvm.umin.i64(i64 %chunk_left, i64 %chunk_bytes)"
    yield "  %chunk_end = add i64 %chunk_at, %chunk_now"
    yield "  %final_chunk = icmp eq i64 %chunk_end, %steps_end"
    yield "  %end_now = and i1 %any_end, %final_chunk"
    yield "  %first_chunk = icmp eq i64 %chunk_at, 0"
    yield "  %zeroed = and i1 %fresh, %first_chunk"
    yield "  %a_there = getelementptr i8, ptr %a, i64 %chunk_at"
    yield f"  %b_chunk_offset = mul i64 %chunk_at, {TILE_ROWS}"
    yield "  %b_chunk = getelementptr i8, ptr %b, i64 %b_chunk_offset"
    yield f"  %b_end = mul i64 %chunk_now, {TILE_ROWS}"
    yield "  br i1 %copying, label %copy_row, label %copy_done"
    body = [
        "  %copy_offset = mul i64 %copy_now, %a_row",
        "  %copy_from = getelementptr i8, ptr %a_there, i64 %copy_offset",
        f"  %copy_at = mul i64 %copy_now, {STEP_BYTES}",
        "  %copy_to = getelementptr i8, ptr %copied, i64 %copy_at",
        "  br label %copy_step",
        "copy_step:",
        "  %copy_k = phi i64 [ 0, %copy_row ], [ %copy_k_next, %copy_step ]",
        "  %copy_source = getelementptr i8, ptr %copy_from, i64 %copy_k",
        f"  %copy_value = load {_STEP}, ptr %copy_source, align 1",
        "  %copy_k_offset = mul i64 %copy_k, %rows",
        "  %copy_target = getelementptr i8, ptr %copy_to, i64 %copy_k_offset",
        f"  store {_STEP} %copy_value, ptr %copy_target, align 64",
        f"  %copy_k_next = add nuw i64 %copy_k, {STEP_BYTES}",
        "  %copy_k_more = icmp ult i64 %copy_k_next, %chunk_now",
        "  br i1 %copy_k_more, label %copy_step, label %copy_end",
        "copy_end:",
    ]
    yield from _over_rows("copy", "chunk", body, latch="copy_end")
    yield "  %a_now = phi ptr [ %a_there, %chunk ], [ %copied, %copy_end ]"


def _over_rows(name: str, before: str, body: Sequence[str], latch: str = "") -> Iterator[str]:
    """A loop over the rows, ``%{name}_now``, whose `body` ends in `latch`; then ``{name}_done``."""
    yield f"{name}_row:"
    yield f"  %{name}_now = phi i64 [ 0, %{before} ], [ %{name}_next, %{latch or f'{name}_row'} ]"
    yield from body
    yield f"  %{name}_next = add nuw i64 %{name}_now, 1"
    yield f"  %{name}_more = icmp ult i64 %{name}_next, %rows"
    yield f"  br i1 %{name}_more, label %{name}_row, label %{name}_done"
    yield f"{name}_done:"


def _copied_ends() -> Iterator[str]:
    """The last bytes of A's rows, filled up with zeros."""
    body = [
        "  %ends_row_offset = mul i64 %ends_now, %a_row",
        "  %ends_offset = add i64 %ends_row_offset, %steps_end",
        "  %ends_from = getelementptr i8, ptr %a, i64 %ends_offset",
        *first_lanes("ends_mask", "%end_bytes", STEP_BYTES, "i8"),
        (
            "  %ends_bytes = call <64 x i8> @llvm.masked.load.v64i8.p0(ptr %ends_from, i32 1, "
            "<64 x i1> %ends_mask, <64 x i8> zeroinitializer)"
        ),
        f"  %ends_at = mul i64 %ends_now, {STEP_BYTES}",
        "  %ends_to = getelementptr i8, ptr %ends, i64 %ends_at",
        "  store <64 x i8> %ends_bytes, ptr %ends_to, align 64",
    ]
    yield from _over_rows("ends", "entry", body)


def _edge_row(inwards: bool) -> list[str]:
    """A row of the columns that fill no panel, between C and the scratch that it is computed in."""
    name = "edge_in" if inwards else "edge_out"
    lines = [
        f"  %{name}_offset = mul i64 %{name}_now, %c_row",
        f"  %{name}_c = getelementptr i8, ptr %edge_c, i64 %{name}_offset",
        f"  %{name}_scratch = getelementptr {_ROW}, ptr %edge, i64 %{name}_now",
    ]
    if inwards:
        return [
            *lines,
            f"  %{name}_value = call {_ROW} @llvm.masked.load.v16i32.p0(ptr %{name}_c, i32 4, "
            f"<16 x i1> %edge_mask, {_ROW} zeroinitializer)",
            f"  store {_ROW} %{name}_value, ptr %{name}_scratch, align 64",
        ]
    return [
        *lines,
        f"  %{name}_value = load {_ROW}, ptr %{name}_scratch, align 64",
        f"  call void @llvm.masked.store.v16i32.p0({_ROW} %{name}_value, ptr %{name}_c, i32 4, "
        "<16 x i1> %edge_mask)",
    ]


def _columns(halves: int, kind: str) -> Iterator[str]:
    """The columns of a block of rows, the widest tiles first."""
    most, h = widest(halves), f"{halves}"
    covered = most * TILE_ROWS
    latch = f"tile{h}x{most}_next"
    yield f"head{h}:"
    yield f"  %column{h} = phi i64 [ 0, %copy_done ], [ %column_next{h}, %{latch} ]"
    yield f"  %left{h} = sub i64 %columns, %column{h}"
    yield f"  %panel{h} = udiv i64 %column{h}, {TILE_ROWS}"
    yield f"  %b_offset{h} = mul i64 %panel{h}, %b_row"
    yield f"  %b_now{h} = getelementptr i8, ptr %b_chunk, i64 %b_offset{h}"
    yield f"  %c_offset{h} = mul i64 %column{h}, 4"
    yield f"  %c_now{h} = getelementptr i8, ptr %c, i64 %c_offset{h}"
    yield f"  %final{h} = icmp ule i64 %left{h}, {covered}"
    yield f"  %at_edge{h} = and i1 %final{h}, %any_edge"
    yield f"  %last_row{h} = select i1 %at_edge{h}, i64 {STEP_BYTES}, i64 %c_row"
    yield f"  %left_up{h} = add i64 %left{h}, {TILE_ROWS - 1}"
    yield f"  %panels{h} = udiv i64 %left_up{h}, {TILE_ROWS}"
    cases = " ".join(f"i64 {w}, label %tile{h}x{w}" for w in range(1, most))
    yield f"  switch i64 %panels{h}, label %tile{h}x{most} [ {cases} ]"
    for panels in range(1, most + 1):
        yield from _tile(halves, panels, _MULTIPLY[kind])
        if panels < most:
            yield "  br label %done"
    yield f"  br i1 %final{h}, label %done, label %{latch}"
    yield f"{latch}:"
    yield f"  %column_next{h} = add i64 %column{h}, {covered}"
    yield f"  br label %head{h}"


def _tile(halves: int, panels: int, multiply: str) -> Iterator[str]:
    """One tile of `halves` × `panels` registers of C, over a chunk; the block is left open."""
    h, name = f"{halves}", f"tile{halves}x{panels}"
    tiles = [(half, p) for half in range(halves) for p in range(panels)]
    register = {(half, p): half * widest(halves) + p for half, p in tiles}
    stride = ["%c_row"] * (panels - 1) + [f"%last_row{h}"]
    c = {(half, p): f"%{name}_c{half}_{p}" for half, p in tiles}
    yield f"{name}:"
    if halves == 2:
        yield f"  %{name}_lower = mul i64 %upper, %a_now_row"
        yield f"  %{name}_a = getelementptr i8, ptr %a_now, i64 %{name}_lower"
        yield f"  %{name}_end_offset = mul i64 %upper, {STEP_BYTES}"
        yield f"  %{name}_end = getelementptr i8, ptr %ends, i64 %{name}_end_offset"
    for p in range(panels):
        yield f"  %{name}_b_offset{p} = mul i64 %b_row, {p}"
        yield f"  %{name}_b{p} = getelementptr i8, ptr %b_now{h}, i64 %{name}_b_offset{p}"
        here = c[0, p] if p < panels - 1 else f"%{name}_in_place"
        yield f"  {here} = getelementptr i8, ptr %c_now{h}, i64 {p * STEP_BYTES}"
    yield f"  {c[0, panels - 1]} = select i1 %at_edge{h}, ptr %edge, ptr %{name}_in_place"
    for half, p in tiles:
        if half:
            yield f"  %{name}_down{p} = mul i64 %upper, {stride[p]}"
            yield f"  {c[half, p]} = getelementptr i8, ptr {c[0, p]}, i64 %{name}_down{p}"
    yield f"  br i1 %zeroed, label %{name}_fresh, label %{name}_resume"
    yield f"{name}_fresh:"
    for tile in tiles:
        yield f"  call void @llvm.x86.tilezero(i8 {register[tile]})"
    yield f"  br label %{name}_begin"
    yield f"{name}_resume:"
    for half, p in tiles:
        yield _access("tileloadd64", register[half, p], c[half, p], stride[p])
    yield f"  br label %{name}_begin"
    yield f"{name}_begin:"
    yield f"  br i1 %any_steps, label %{name}_step, label %{name}_between"
    a = ["%a_now", f"%{name}_a"][:halves]
    b = [f"%{name}_b{p}" for p in range(panels)]
    yield f"{name}_step:"
    yield f"  %{name}_k = phi i64 [ 0, %{name}_begin ], [ %{name}_k_next, %{name}_step ]"
    yield f"  %{name}_a_at = phi i64 [ 0, %{name}_begin ], [ %{name}_a_next, %{name}_step ]"
    yield f"  %{name}_b_at = mul i64 %{name}_k, {TILE_ROWS}"
    moved_a = [f"%{name}_a_now{half}" for half in range(halves)]
    moved_b = [f"%{name}_b_now{p}" for p in range(panels)]
    for new, old in zip(moved_a, a, strict=True):
        yield f"  {new} = getelementptr i8, ptr {old}, i64 %{name}_a_at"
    for new, old in zip(moved_b, b, strict=True):
        yield f"  {new} = getelementptr i8, ptr {old}, i64 %{name}_b_at"
    yield from _step(moved_a, "%a_now_row", moved_b, multiply)
    yield f"  %{name}_a_next = add nuw i64 %{name}_a_at, %a_now_step"
    yield f"  %{name}_k_next = add nuw i64 %{name}_k, {STEP_BYTES}"
    yield f"  %{name}_more = icmp ult i64 %{name}_k_next, %chunk_now"
    yield f"  br i1 %{name}_more, label %{name}_step, label %{name}_between"
    yield f"{name}_between:"
    yield f"  br i1 %end_now, label %{name}_last, label %{name}_store"
    yield f"{name}_last:"
    last_b = [f"%{name}_b_last{p}" for p in range(panels)]
    for new, old in zip(last_b, b, strict=True):
        yield f"  {new} = getelementptr i8, ptr {old}, i64 %b_end"
    yield from _step(["%ends", f"%{name}_end"][:halves], str(STEP_BYTES), last_b, multiply)
    yield f"  br label %{name}_store"
    yield f"{name}_store:"
    for half, p in tiles:
        yield _access("tilestored64", register[half, p], c[half, p], stride[p])


def _step(a: Sequence[str], a_row: str, b: Sequence[str], multiply: str) -> Iterator[str]:
    """64 bytes of each row of A, times a tile of B for each panel; B is streamed past the cache."""
    halves = len(a)
    spare = range(4 + halves, 8)  # registers of B, taken in turn
    for half, address in enumerate(a):
        yield _access("tileloadd64", 4 + half, address, a_row)
    for p, address in enumerate(b):
        of_b = spare[p % len(spare)]
        yield _access("tileloaddt164", of_b, address, str(STEP_BYTES))
        for half in range(halves):
            of_c = half * widest(halves) + p
            yield f"  call void @llvm.x86.{multiply}(i8 {of_c}, i8 {4 + half}, i8 {of_b})"


def _access(what: str, register: int, address: str, stride: str) -> str:
    return f"  call void @llvm.x86.{what}(i8 {register}, ptr {address}, i64 {stride})"
