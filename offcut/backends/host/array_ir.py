"""LLVM IR of functions on arrays of Python: their address, shape and strides; new ones made.

LLVM IR of a function: an object in -> its address, shape and strides in elements out, or a refusal.

A numpy array is read from its structure, any other by the DLPack exchange function of its type.

LLVM IR of a function: a shape and an element type in -> a new array, its address and its strides out.
"""

from __future__ import annotations

from collections.abc import Sequence

from offcut.backends.host import dlpack
from offcut.backends.host.builtin_function import (
    BYTES_OF,
    DATA,
    DESCR,
    FIELDS,
    FLAGS,
    RANK,
    SHAPE,
    STRIDES,
    TYPE_OF,
    WRITEABLE,
)
from offcut.backends.llvm import ir


def dlpack_code(dtype: str) -> int:
    """Return DLPack's 4 bytes of an element type as an integer: type code, width in bits, and 1 lane."""
    code, bits = dlpack.DLPACK_CODES[dtype]
    return code | bits << 8 | 1 << 16


def _scan(way: str, entry: str, done: str, judge: str) -> str:
    """A loop over the axes of an array, from the block `entry` to the block `done`.

    way    what its names begin with
    judge  says of an axis, by its extent and its stride, whether the kernel can run on it, and what its
           stride is in elements: `good` and `kept`
    """
    return f"""\
{way}.loop:
  %{way}.i = phi i64 [ 0, %{entry} ], [ %{way}.next, %{way}.axis ]
  %{way}.usable = phi i1 [ true, %{entry} ], [ %{way}.still.usable, %{way}.axis ]
  %{way}.empty = phi i1 [ false, %{entry} ], [ %{way}.now.empty, %{way}.axis ]
  %{way}.more = icmp slt i64 %{way}.i, %rank64
  br i1 %{way}.more, label %{way}.axis, label %{done}
{way}.axis:
  %{way}.extent.at = getelementptr i64, ptr %{way}.shape, i64 %{way}.i
  %{way}.extent = load i64, ptr %{way}.extent.at
  %{way}.stride.at = getelementptr i64, ptr %{way}.strides, i64 %{way}.i
  %{way}.stride = load i64, ptr %{way}.stride.at
  %{way}.is.inner = icmp eq i64 %{way}.i, %inner{judge}
  %{way}.still.usable = and i1 %{way}.usable, %{way}.good
  %{way}.none = icmp eq i64 %{way}.extent, 0
  %{way}.now.empty = or i1 %{way}.empty, %{way}.none
  %{way}.shape.to = getelementptr i64, ptr %shape, i64 %{way}.i
  store i64 %{way}.extent, ptr %{way}.shape.to
  %{way}.strides.to = getelementptr i64, ptr %strides, i64 %{way}.i
  store i64 %{way}.kept, ptr %{way}.strides.to
  %{way}.next = add i64 %{way}.i, 1
  br label %{way}.loop
"""


_NUMPY = _scan(
    "n",
    "n.read",
    "n.done",
    """
  %n.unit = icmp eq i64 %n.stride, %size
  %n.single = icmp sle i64 %n.extent, 1
  %n.suits = or i1 %n.unit, %n.single
  %n.rest = and i64 %n.stride, %mask
  %n.whole = icmp eq i64 %n.rest, 0
  %n.forward = icmp sge i64 %n.stride, 0
  %n.steps = and i1 %n.whole, %n.forward
  %n.good = select i1 %n.is.inner, i1 %n.suits, i1 %n.steps
  %n.bytes = select i1 %n.is.inner, i64 %size, i64 %n.stride
  %n.kept = ashr i64 %n.bytes, %shift""",
)
_DLPACK = _scan(
    "d",
    "d.head",
    "d.checked",
    """
  %d.unit = icmp eq i64 %d.stride, 1
  %d.forward = icmp sge i64 %d.stride, 0
  %d.good = select i1 %d.is.inner, i1 %d.unit, i1 %d.forward
  %d.kept = select i1 %d.is.inner, i64 1, i64 %d.stride""",
)
READ_ARRAY = f"""
; Reads one array: its shape, its strides in elements, its address. Null where the fast way refuses
; it, the table where it is a numpy array, else the row of its type in the exchange table.
; Of an array without elements any strides will do. Straight code as it stands: optimising it would
; double what it costs to compile, for 10 ns a call; hence optnone, here and in offcut_fastcall.
define internal ptr @offcut_array(ptr %table, ptr %object, ptr %descr, i32 %rank, i64 %shift, i32 %code, i32 %flags, ptr %shape, ptr %strides, ptr %address) noinline optnone {{
entry:
  %dl = alloca [6 x i64]
  %type.at = getelementptr i8, ptr %object, i64 {TYPE_OF}
  %type = load ptr, ptr %type.at
  %ndarray.at = getelementptr ptr, ptr %table, i64 {FIELDS.index("ndarray")}
  %ndarray = load ptr, ptr %ndarray.at
  %rank64 = sext i32 %rank to i64
  %inner = sub i64 %rank64, 1
  %size = shl i64 1, %shift
  %mask = sub i64 %size, 1
  %numpy = icmp eq ptr %type, %ndarray
  br i1 %numpy, label %n.descr, label %d.find
n.descr:
  %descr.at = getelementptr i8, ptr %object, i64 {DESCR}
  %own.descr = load ptr, ptr %descr.at
  %same = icmp eq ptr %own.descr, %descr
  br i1 %same, label %n.rank, label %refuse
n.rank:
  %n.rank.at = getelementptr i8, ptr %object, i64 {RANK}
  %n.own.rank = load i32, ptr %n.rank.at
  %n.ranked = icmp eq i32 %n.own.rank, %rank
  br i1 %n.ranked, label %n.flags, label %refuse
n.flags:
  %flags.at = getelementptr i8, ptr %object, i64 {FLAGS}
  %own.flags = load i32, ptr %flags.at
  %common = and i32 %own.flags, %flags
  %flagged = icmp eq i32 %common, %flags
  br i1 %flagged, label %n.read, label %refuse
n.read:
  %n.shape.at = getelementptr i8, ptr %object, i64 {SHAPE}
  %n.shape = load ptr, ptr %n.shape.at
  %n.strides.at = getelementptr i8, ptr %object, i64 {STRIDES}
  %n.strides = load ptr, ptr %n.strides.at
  %n.data.at = getelementptr i8, ptr %object, i64 {DATA}
  %n.data = load ptr, ptr %n.data.at
  store ptr %n.data, ptr %address
  br label %n.loop
{_NUMPY}n.done:
  %n.fits = or i1 %n.usable, %n.empty
  br i1 %n.fits, label %n.accept, label %refuse
n.accept:
  ret ptr %table
d.find:
  %exchange.at = getelementptr ptr, ptr %table, i64 {FIELDS.index("exchange")}
  %exchange = load ptr, ptr %exchange.at
  %scalar = icmp eq i32 %rank, 0
  br i1 %scalar, label %refuse, label %d.row
d.row:
  %k = phi i64 [ 0, %d.find ], [ %k.next, %d.other ]
  %k.word = mul i64 %k, {dlpack.EXCHANGE_WORDS}
  %row = getelementptr i64, ptr %exchange, i64 %k.word
  %row.type = load ptr, ptr %row
  %found = icmp eq ptr %row.type, %type
  br i1 %found, label %d.get, label %d.other
d.other:
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, {dlpack.EXCHANGE_SLOTS}
  br i1 %k.more, label %d.row, label %refuse
d.get:
  %get.at = getelementptr i64, ptr %row, i64 1
  %get = load ptr, ptr %get.at
  %got = call i32 %get(ptr %object, ptr %dl)
  %d.ok = icmp eq i32 %got, 0
  br i1 %d.ok, label %d.head, label %d.clear
d.head:
  %device.at = getelementptr i8, ptr %dl, i64 8
  %device = load i32, ptr %device.at
  %host = icmp eq i32 %device, 1
  %d.rank.at = getelementptr i8, ptr %dl, i64 16
  %d.own.rank = load i32, ptr %d.rank.at
  %d.ranked = icmp eq i32 %d.own.rank, %rank
  %code.at = getelementptr i8, ptr %dl, i64 20
  %own.code = load i32, ptr %code.at
  %coded = icmp eq i32 %own.code, %code
  %d.shape.at = getelementptr i8, ptr %dl, i64 24
  %d.shape = load ptr, ptr %d.shape.at
  %d.strides.at = getelementptr i8, ptr %dl, i64 32
  %d.strides = load ptr, ptr %d.strides.at
  %strided = icmp ne ptr %d.strides, null
  %offset.at = getelementptr i8, ptr %dl, i64 40
  %offset = load i64, ptr %offset.at
  %base = load i64, ptr %dl
  %d.data = add i64 %base, %offset
  store i64 %d.data, ptr %address
  %d.low = and i64 %d.data, %mask
  %d.aligned = icmp eq i64 %d.low, 0
  %write = and i32 %flags, {WRITEABLE}
  %reads = icmp eq i32 %write, 0
  %mutable.at = getelementptr i64, ptr %row, i64 5
  %mutable = load i64, ptr %mutable.at
  %is.mutable = icmp ne i64 %mutable, 0
  %may = or i1 %reads, %is.mutable
  %h1 = and i1 %host, %d.ranked
  %h2 = and i1 %coded, %strided
  %h3 = and i1 %d.aligned, %may
  %h4 = and i1 %h1, %h2
  %h5 = and i1 %h3, %h4
  br i1 %h5, label %d.loop, label %refuse
{_DLPACK}d.checked:
  %d.fits = or i1 %d.usable, %d.empty
  br i1 %d.fits, label %d.grad, label %refuse
d.grad:
  %grad.at = getelementptr i64, ptr %row, i64 4
  %grad = load ptr, ptr %grad.at
  %plain = icmp eq ptr %grad, null
  br i1 %plain, label %d.sign, label %d.ask
d.ask:
  %getattr.at = getelementptr ptr, ptr %table, i64 {FIELDS.index("PyObject_GetAttr")}
  %getattr = load ptr, ptr %getattr.at
  %answer = call ptr %getattr(ptr %object, ptr %grad)
  %answered = icmp ne ptr %answer, null
  br i1 %answered, label %d.answer, label %d.clear
d.answer:
  %decref.at = getelementptr ptr, ptr %table, i64 {FIELDS.index("Py_DecRef")}
  %decref = load ptr, ptr %decref.at
  call void %decref(ptr %answer)
  %true.at = getelementptr ptr, ptr %table, i64 {FIELDS.index("true")}
  %true = load ptr, ptr %true.at
  %records = icmp eq ptr %answer, %true
  br i1 %records, label %refuse, label %d.sign
d.sign:
  %neg.number = add i64 %k, {dlpack.EXCHANGE_SLOTS * dlpack.EXCHANGE_WORDS}
  %neg.at = getelementptr i64, ptr %exchange, i64 %neg.number
  %neg = load ptr, ptr %neg.at
  %signed = icmp eq ptr %neg, null
  br i1 %signed, label %d.done, label %d.method
d.method:
  %m.getattr.at = getelementptr ptr, ptr %table, i64 {FIELDS.index("PyObject_GetAttr")}
  %m.getattr = load ptr, ptr %m.getattr.at
  %method = call ptr %m.getattr(ptr %object, ptr %neg)
  %m.there = icmp ne ptr %method, null
  br i1 %m.there, label %d.call, label %d.clear
d.call:
  %vectorcall.at = getelementptr ptr, ptr %table, i64 {FIELDS.index("PyObject_Vectorcall")}
  %vectorcall = load ptr, ptr %vectorcall.at
  %negated = call ptr %vectorcall(ptr %method, ptr null, i64 0, ptr null)
  %m.decref.at = getelementptr ptr, ptr %table, i64 {FIELDS.index("Py_DecRef")}
  %m.decref = load ptr, ptr %m.decref.at
  call void %m.decref(ptr %method)
  %m.answered = icmp ne ptr %negated, null
  br i1 %m.answered, label %d.negated, label %d.clear
d.negated:
  call void %m.decref(ptr %negated)
  %m.true.at = getelementptr ptr, ptr %table, i64 {FIELDS.index("true")}
  %m.true = load ptr, ptr %m.true.at
  %is.negated = icmp eq ptr %negated, %m.true
  br i1 %is.negated, label %refuse, label %d.done
d.done:
  ret ptr %row
d.clear:
  %clear.at = getelementptr ptr, ptr %table, i64 {FIELDS.index("PyErr_Clear")}
  %clear = load ptr, ptr %clear.at
  call void %clear()
  br label %refuse
refuse:
  ret ptr null
}}
"""


class BuiltinWriter:
    """The instructions of a function with CPython's signature METH_FASTCALL | METH_KEYWORDS.

    fields  the names of the first words of its table
    f       what is written so far
    """

    def __init__(self, fields: Sequence[str], f: ir.FunctionWriter | None = None) -> None:
        self.f, self._fields = ir.FunctionWriter() if f is None else f, fields
        self.table = self.f.let(f"getelementptr i8, ptr %self, i64 {BYTES_OF}")

    def function(self, symbol: str, attributes: str = "nounwind") -> str:
        """Return LLVM IR of the function."""
        parameters = "ptr %self, ptr %args, i64 %nargs, ptr %kwnames"
        return f"define ptr @{symbol}({parameters}) {attributes} {{\n{self.f.text()}\n}}\n"

    def place(self, base: str, number: str | int) -> str:
        """Return the address of the 8-byte word `number` behind a base."""
        return self.f.let(f"getelementptr i64, ptr {base}, i64 {number}")

    def word(self, base: str, number: str | int, kind: str = "i64") -> str:
        """Return the 8-byte word `number` behind a base, as a value of LLVM type `kind`."""
        return self.f.let(f"load {kind}, ptr {self.place(base, number)}")

    def field(self, name: str, kind: str = "ptr") -> str:
        """Return a word of the table."""
        return self.word(self.table, self._fields.index(name), kind)

    def call(self, kind: str, name: str, arguments: str) -> str:
        """Call a function of CPython whose address is a word of the table; return its result, "" for void."""
        call = f"call {kind} {self.field(name)}({arguments})"
        if kind == "void":
            self.f.do(call)
            return ""
        return self.f.let(call)

    def require(self, holds: str, otherwise: str) -> None:
        """Branch to the block `otherwise` unless the i1 `holds`."""
        go_on = self.f.name("on")
        self.f.do(f"br i1 {holds}, label {go_on}, label {otherwise}")
        self.f.start(go_on)


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
