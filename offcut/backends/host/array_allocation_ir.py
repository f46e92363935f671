"""LLVM IR of a function: a shape and an element type in -> a new array, its address and its strides out."""

from __future__ import annotations

from offcut.backends.host.builtin_function import DATA, FIELDS


def _field(name: str, field: str) -> str:
    """Return instructions that load a word of the table as `name`."""
    return f"""\
  %{name}.at = getelementptr ptr, ptr %table, i64 {FIELDS.index(field)}
  %{name} = load ptr, ptr %{name}.at"""


ALLOCATE_ARRAY = f"""
; Makes an array of %shape: numpy's where %row is the table, else by the DLPack allocator in the row of its type in the exchange
; table. Stores the array, its address, and its strides in elements. Returns 0; or 1, with no error set, where there is none that
; a kernel can fill: what was made already lies at %result.
define internal i32 @offcut_allocate(ptr %table, ptr %row, ptr %descr, i32 %rank, i32 %code, ptr %shape, ptr %strides, ptr %result, ptr %address) noinline optnone {{
entry:
  %prototype = alloca [6 x i64]
  %managed.to = alloca ptr
  store ptr null, ptr %result
  %rank64 = zext i32 %rank to i64
  br label %c.loop
c.loop:
  %left = phi i64 [ %rank64, %entry ], [ %axis, %c.axis ]
  %step = phi i64 [ 1, %entry ], [ %wider, %c.axis ]
  %more = icmp sgt i64 %left, 0
  br i1 %more, label %c.axis, label %which
c.axis:
  %axis = sub i64 %left, 1
  %stride.to = getelementptr i64, ptr %strides, i64 %axis
  store i64 %step, ptr %stride.to
  %extent.at = getelementptr i64, ptr %shape, i64 %axis
  %extent = load i64, ptr %extent.at
  %wider = mul i64 %step, %extent
  br label %c.loop
which:
  %numpy = icmp eq ptr %row, %table
  br i1 %numpy, label %n.make, label %d.find
n.make:
{_field("incref", "Py_IncRef")}
  call void %incref(ptr %descr)
{_field("empty", "empty")}
  %n.made = call ptr %empty(i32 %rank, ptr %shape, ptr %descr, i32 0)
  %n.none = icmp eq ptr %n.made, null
  br i1 %n.none, label %failed, label %n.keep
n.keep:
  store ptr %n.made, ptr %result
  %n.data.at = getelementptr i8, ptr %n.made, i64 {DATA}
  %n.data = load i64, ptr %n.data.at
  store i64 %n.data, ptr %address
  ret i32 0
d.find:
  %allocate.at = getelementptr i64, ptr %row, i64 2
  %allocate = load ptr, ptr %allocate.at
  %convert.at = getelementptr i64, ptr %row, i64 3
  %convert = load ptr, ptr %convert.at
  %d.none = icmp eq ptr %allocate, null
  br i1 %d.none, label %failed, label %d.make
d.make:
  store i64 0, ptr %prototype ; the data: there are none yet
  %cpu.to = getelementptr i64, ptr %prototype, i64 1
  store i64 1, ptr %cpu.to
  %code64 = zext i32 %code to i64
  %code.high = shl i64 %code64, 32
  %kind = or i64 %code.high, %rank64
  %kind.to = getelementptr i64, ptr %prototype, i64 2
  store i64 %kind, ptr %kind.to
  %shape.to = getelementptr i64, ptr %prototype, i64 3
  store ptr %shape, ptr %shape.to
  %rows.to = getelementptr i64, ptr %prototype, i64 4
  store ptr null, ptr %rows.to
  %offset.to = getelementptr i64, ptr %prototype, i64 5
  store i64 0, ptr %offset.to
  %status = call i32 %allocate(ptr %prototype, ptr %managed.to, ptr null, ptr @offcut_ignore)
  %d.ok = icmp eq i32 %status, 0
  br i1 %d.ok, label %d.made, label %failed
d.made:
  %managed = load ptr, ptr %managed.to
  %tensor = getelementptr i64, ptr %managed, i64 4 ; after version, manager, deleter, flags
  %data = load i64, ptr %tensor
  %offset.at = getelementptr i64, ptr %tensor, i64 5
  %offset = load i64, ptr %offset.at
  %begin = add i64 %data, %offset
  store i64 %begin, ptr %address
  %own.at = getelementptr i64, ptr %tensor, i64 4
  %own = load ptr, ptr %own.at
  %strided = icmp ne ptr %own, null
  %source = select i1 %strided, ptr %own, ptr %strides
  br label %d.loop
d.loop:
  %d.i = phi i64 [ 0, %d.made ], [ %d.next, %d.axis ]
  %unit = phi i1 [ true, %d.made ], [ %d.unit, %d.axis ]
  %d.more = icmp slt i64 %d.i, %rank64
  br i1 %d.more, label %d.axis, label %d.convert
d.axis:
  %d.stride.at = getelementptr i64, ptr %source, i64 %d.i
  %d.stride = load i64, ptr %d.stride.at
  %d.stride.to = getelementptr i64, ptr %strides, i64 %d.i
  store i64 %d.stride, ptr %d.stride.to
  %d.extent.at = getelementptr i64, ptr %shape, i64 %d.i
  %d.extent = load i64, ptr %d.extent.at
  %d.beside = icmp eq i64 %d.stride, 1
  %d.single = icmp sle i64 %d.extent, 1
  %d.unit = or i1 %d.beside, %d.single
  %d.next = add i64 %d.i, 1
  br label %d.loop
d.convert:
  %d.status = call i32 %convert(ptr %managed, ptr %result)
  %converted = icmp eq i32 %d.status, 0
  br i1 %converted, label %d.check, label %d.drop
d.check:
  br i1 %unit, label %d.done, label %failed
d.done:
  ret i32 0
d.drop:
  store ptr null, ptr %result
  br label %failed
failed:
{_field("clear", "PyErr_Clear")}
  call void %clear()
  ret i32 1
}}

; Where DLPack's allocator reports an error: the slow path meets it again and tells.
define internal void @offcut_ignore(ptr %context, ptr %kind, ptr %message) {{
  ret void
}}
"""
