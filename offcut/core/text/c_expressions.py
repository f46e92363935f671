"""Print expressions as C or C++ in the types of a dialect, with floor division if a quotient may be negative.

The text calls functions of these names, which the dialect defines: ``floor_div``, ``floor_mod``, ``magnitude``, ``lesser``,
``greater``, ``min``, ``max``, ``shift_left``, ``shift_right``, ``__uint_as_float``; of halves ``to_float``, ``to_bf16``,
``to_f16``; and the functions of the C library.

Names that C has taken: no function of an exported kernel, and no parameter, can have one.

Words that C or C++ keep, what compilers and `stdint.h` define, and the functions of the C library: a
kernel of such a name would be called wherever the program means the library's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from offcut.core import index as ix
from offcut.core.dtypes import FLOATS, HALVES, ITEM_BYTES
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Select,
    Unary,
    Var,
    dtype_of,
)
from offcut.core.function_table import FUNCTIONS
from offcut.core.program import For, If, Let, Stmt, Store, Tile, walk
from offcut.core.text.printer import format_expr, format_head
from offcut.errors import DescribeError

_OPERATORS = {"bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>"}
_WIDENED = ("int8", "uint8", "int16", "uint16")
_SHIFTS = {"shl": "shift_left", "shr": "shift_right"}
OR, AND, COMPARISON, SUM, PRODUCT, UNARY = range(6)
"""How tightly operations bind, the loosest first; -1: looser than all of them."""


@dataclass(frozen=True)
class Dialect:
    """Names, types and operators of a C-like language.

    types     of elements and of indices, by their name in programs
    name      from the name of a size, an iterator or an array to that in the text
    to_whole  the conversion of a float to an integer, of ``{type}`` and ``{value}``
    error     from an expression and a reason to the error for what has no text
    logic     the words of ``and``, ``or`` and ``not``, with spaces around
    """

    types: Mapping[str, str]
    name: Callable[[str], str]
    to_whole: str
    error: Callable[[str, str], DescribeError]
    logic: Mapping[str, str] = field(
        default_factory=lambda: {"and": " && ", "or": " || ", "not": "!"}
    )


@dataclass(frozen=True)
class CExpressions:
    """A printer of expressions.

    element  from a load to the text of its value
    signed   iterators and lets that may be negative (`signed_names`)
    """

    dialect: Dialect
    element: Callable[[Load], str]
    signed: frozenset[str] = frozenset()

    def text(self, expr: Expr, level: int = 0) -> str:
        """Return the text of an expression, in parentheses if it binds less tightly than `level`, the level of the operand's place.

        Raises the dialect's DescribeError for an unsupported expression.
        """
        own_level, text = self._level_and_text(expr)
        return f"({text})" if own_level < level else text

    def _level_and_text(self, expr: Expr) -> tuple[int, str]:
        match expr:
            case Const(value, dtype):
                return UNARY, self.literal(value, dtype)
            case Var(name):
                return UNARY, self.dialect.name(name)
            case Load():
                return UNARY, self.element(expr)
            case Cast(a, dtype):
                return UNARY, self.cast(a, dtype)
            case Unary(op, a) if dtype_of(a) in HALVES:
                wide = Unary(op, Cast(a, "float32"))
                return UNARY, f"to_{self.type(dtype_of(a))}({self.text(wide)})"
            case Unary("neg", a):
                text = self.text(a, UNARY)
                negative = f"-({text})" if text.startswith("-") else f"-{text}"
                dtype = dtype_of(a)
                return UNARY, self.narrow(negative, dtype) if dtype in _WIDENED else negative
            case Unary("abs", a) if dtype_of(a) not in FLOATS:
                return UNARY, f"magnitude({self.text(a)})"
            case Unary(op, a) if op in FUNCTIONS and dtype_of(a) in FLOATS:
                return UNARY, f"{self.function(op, dtype_of(a))}({self.text(a)})"
            case Binary(op, a, b):
                return self.binary(op, a, b)
            case Compare(op, a, b) if dtype_of(a) in HALVES:
                return COMPARISON, f"to_float({self.text(a)}) {op} to_float({self.text(b)})"
            case Compare(op, a, b):
                return COMPARISON, f"{self.text(a, SUM)} {op} {self.text(b, SUM)}"
            case Logic(op, args):
                return self.logic(op, args)
            case Select(condition, then, other):
                return -1, self.select(condition, then, other)
        raise self.dialect.error(format_expr(expr), "this expression has no text so far")

    def type(self, dtype: str) -> str:
        """Return the type of elements of `dtype`."""
        if dtype not in self.dialect.types:
            raise self.dialect.error(dtype, "this type has no text so far")
        return self.dialect.types[dtype]

    def logic(self, op: str, args: tuple[Expr, ...]) -> tuple[int, str]:
        """Return the binding level and the text of ``not``, ``and`` or ``or``."""
        word = self.dialect.logic[op]
        if op == "not":
            return AND if word[-1:] == " " else UNARY, f"{word}{self.text(args[0], UNARY)}"
        level = AND if op == "and" else OR
        return level, word.join(self.text(arg, level + 1) for arg in args)

    def select(self, condition: Expr, then: Expr, other: Expr) -> str:
        """Return the text of a conditional expression."""
        return f"{self.text(condition, COMPARISON)} ? {self.text(then)} : {self.text(other)}"

    def cast(self, a: Expr, dtype: str) -> str:
        """Return the text of a value cast to `dtype`."""
        source = dtype_of(a)
        if source == dtype:
            return self.text(a, UNARY)
        if source in HALVES:
            value = f"to_float({self.text(a)})"
            return value if dtype == "float32" else self.convert(value, "float32", dtype)
        return self.convert(self.text(a), source, dtype)

    def convert(self, value: str, source: str, dtype: str) -> str:
        """Return the text `value`, of type `source`, converted to `dtype`."""
        if (source, dtype) == ("float64", "float16"):
            raise self.dialect.error(
                f"{source} to {dtype}", "it rounds once, and has no text so far"
            )
        if dtype in HALVES:
            return f"to_{self.type(dtype)}({value if source == 'float32' else f'(float)({value})'})"
        if dtype == "bool":
            return f"({value} != 0)"
        if source in FLOATS and dtype not in FLOATS:
            return self.dialect.to_whole.format(type=self.type(dtype), value=value)
        return f"({self.type(dtype)}){parenthesize(value)}"

    def binary(self, op: str, a: Expr, b: Expr) -> tuple[int, str]:
        """Return the binding level and the text of an operation; results of integers that C promotes to int are narrowed."""
        dtype = dtype_of(a)
        level, text = self.operation(op, a, b, dtype)
        if dtype in _WIDENED and op in ("+", "-", "*", "shl"):
            return UNARY, self.narrow(text, dtype)
        return level, text

    def narrow(self, text: str, dtype: str) -> str:
        """Return the text of an int converted to the smaller type `dtype`."""
        return f"({self.type(dtype)})({text})"

    def operation(self, op: str, a: Expr, b: Expr, dtype: str) -> tuple[int, str]:
        """Return the binding level and the text of an operation on values of `dtype`."""
        if dtype in HALVES:
            wide = Binary(op, Cast(a, "float32"), Cast(b, "float32"))
            return UNARY, f"to_{self.type(dtype)}({self.text(wide)})"
        if op in ("+", "-"):
            return SUM, f"{self.text(a, SUM)} {op} {self.text(b, SUM + (op == '-'))}"
        if op in ("*", "/"):
            return PRODUCT, f"{self.text(a, PRODUCT)} {op} {self.text(b, UNARY)}"
        if op in ("//", "%"):
            return self.floor(op, a, b, dtype)
        if op in _SHIFTS and not (isinstance(b, Const) and 0 <= b.value < 8 * ITEM_BYTES[dtype]):
            return UNARY, f"{_SHIFTS[op]}({self.text(a)}, {self.text(b)})"
        if op in _OPERATORS:
            return -1, f"{self.text(a, UNARY)} {_OPERATORS[op]} {self.text(b, UNARY)}"
        if op in ("min", "max") or op in FUNCTIONS:
            return UNARY, self.combine(op, dtype, self.text(a), self.text(b))
        raise self.dialect.error(op, "this operation has no text so far")

    def floor(self, op: str, a: Expr, b: Expr, dtype: str) -> tuple[int, str]:
        """Return the binding level and the text of a floor division (``//``) or its remainder (``%``)."""
        if dtype not in FLOATS and ix.is_nonnegative(a, self.signed):
            sign = "/" if op == "//" else "%"
            return PRODUCT, f"{self.text(a, PRODUCT)} {sign} {self.text(b, UNARY)}"
        name = "floor_div" if op == "//" else "floor_mod"
        return UNARY, f"{name}({self.text(a)}, {self.text(b)})"

    def combine(self, op: str, dtype: str, a: str, b: str) -> str:
        """Return the text of a sum, or of a function, of two values of `dtype` with the texts `a` and `b`."""
        if dtype in HALVES:
            wide = self.combine(op, "float32", f"to_float({a})", f"to_float({b})")
            return f"to_{self.type(dtype)}({wide})"
        if op == "+":
            return f"{a} + {b}"
        if op in ("min", "max"):
            floats = {"min": "lesser", "max": "greater"}
            return f"{floats[op] if dtype in FLOATS else op}({a}, {b})"
        return f"{self.function(op, dtype)}({a}, {b})"

    def function(self, op: str, dtype: str) -> str:
        """Return the name of a function of floats: that of the C library."""
        name = {"round": "rint", "abs": "fabs"}.get(op, FUNCTIONS[op].libm)
        return f"{name}{'f' if dtype == 'float32' else ''}"

    def literal(self, value: int | float, dtype: str) -> str:
        """Return the text of a number of a type."""
        if dtype in HALVES:
            return f"to_{self.type(dtype)}({self.literal(value, 'float32')})"
        if dtype in FLOATS:
            if value != value:
                return "__uint_as_float(0x7fc00000)"
            if value in (float("inf"), float("-inf")):
                return f"__uint_as_float(0x{'7f' if value > 0 else 'ff'}800000)"
            return f"{float(value)!r}{'f' if dtype == 'float32' else ''}"
        if dtype == "bool":
            return "true" if value else "false"
        suffix = {"uint32": "u", "int64": "ll", "uint64": "ull"}.get(dtype, "")
        if value in (-(2**31), -(2**63)):  # a sign is no part of a number in C
            return f"(-{-value - 1}{suffix} - 1)"
        return f"{int(value)}{suffix}"


def signed_names(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Return the iterators and lets that are not proved to be nonnegative."""
    signed: frozenset[str] = frozenset()
    while True:
        firsts = (pair for stmt in walk(body) for pair in _first_values(stmt))
        names = frozenset(name for name, first in firsts if not ix.is_nonnegative(first, signed))
        if names <= signed:
            return signed
        signed |= names


def _first_values(stmt: Stmt) -> list[tuple[str, Expr]]:
    """Return the names that a statement binds, each with its minimum value."""
    match stmt:
        case For(name, lo):
            return [(name, lo)]
        case Let(name, lo):
            return [(name, ix.const(lo))]
        case Tile(axes):
            return [(axis.iter, axis.start) for axis in axes]
    return []


def parenthesize(text: str) -> str:
    """Return a text in parentheses, unless it is a single word."""
    return text if text.isidentifier() or text.isdigit() else f"({text})"


@dataclass(frozen=True)
class CStatements:
    """A printer of statements.

    text   from an expression to its text
    store  from a store to its line
    """

    dialect: Dialect
    text: Callable[[Expr], str]
    store: Callable[[Store], str]

    def lines(self, stmt: Stmt) -> list[str]:
        """Return the lines of a statement.

        Raises the dialect's DescribeError for an unsupported statement.
        """
        match stmt:
            case For(_, _, _, body):
                return braces(self.head(stmt), self.block(body))
            case If(condition, then, other):
                lines = braces(f"if ({self.text(condition)})", self.block(then))
                return [*lines, *(braces("else", self.block(other)) if other else ())]
            case Let():
                return braces("", [self.let(stmt), *self.block(stmt.body)])
            case Store():
                return [self.store(stmt)]
        raise self.dialect.error(format_head(stmt), "this statement has no text so far")

    def block(self, body: tuple[Stmt, ...]) -> list[str]:
        """Return the lines of statements."""
        return [line for stmt in body for line in self.lines(stmt)]

    def head(self, loop: For, offset: str = "", step: str = "++{}") -> str:
        """Return the head of a loop.

        offset  added to its first iteration
        step    to the next iteration, of the name of the iterator
        """
        name, begin = self.dialect.name(loop.iter), self.text(loop.lo)
        if offset:
            begin = offset if begin == "0" else f"{begin} + {offset}"
        kind = self.dialect.types["index"]
        return f"for ({kind} {name} = {begin}; {name} < {self.text(loop.hi)}; {step.format(name)})"

    def let(self, let: Let) -> str:
        """Return the declaration of the value of a `let`."""
        kind = self.dialect.types["index"]
        return f"const {kind} {self.dialect.name(let.name)} = {self.text(let.value)};"


def braces(opening: str, lines: list[str]) -> list[str]:
    """Return lines in braces behind `opening`."""
    return [f"{opening} {{".lstrip(), *("  " + line for line in lines), "}"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KEYWORDS = _words("""
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires restrict
    return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using
    virtual void volatile wchar_t while xor xor_eq
""")
_TYPES = _words("""
    clock_t div_t double_t fenv_t fexcept_t float_t fpos_t imaxdiv_t intmax_t intptr_t ldiv_t
    lldiv_t max_align_t mbstate_t nullptr_t ptrdiff_t sig_atomic_t size_t ssize_t time_t uintmax_t
    uintptr_t va_list wctrans_t wctype_t wint_t FILE
""")
_SIZED = re.compile(
    r"u?int(_fast|_least)?(8|16|32|64)_t|U?INT(_FAST|_LEAST)?(8|16|32|64)_(MAX|MIN|WIDTH)"
)
# What gcc and clang define unasked, and the standard's macros that stand for a value.
_MACROS = _words("""
    BUFSIZ CHAR_BIT EOF HUGE_VAL I INFINITY INTMAX_MAX INTMAX_MIN INTPTR_MAX INTPTR_MIN INT_MAX
    INT_MIN LONG_MAX LONG_MIN NAN NULL PTRDIFF_MAX PTRDIFF_MIN RAND_MAX SIZE_MAX UINTMAX_MAX
    UINTPTR_MAX UINT_MAX ULONG_MAX assert complex errno i386 imaginary linux noreturn stderr stdin
    stdout unix
""")
_WORDS = _KEYWORDS | _TYPES | _MACROS
_OF_ANY_FLOAT = _words("""
    acos acosh asin asinh atan atan2 atanh cabs cacos cacosh carg casin casinh catan catanh cbrt
    ccos ccosh ceil cexp cimag clog conj copysign cosh cpow cproj creal csin csinh csqrt ctan ctanh
    erfc exp10 exp2 expm1 fabs fdim floor fma fmax fmin fmod frexp gamma hypot ilogb j0 j1 jn ldexp
    lgamma llrint llround log10 log2 logb lrint lround modf nan nearbyint nextafter nexttoward
    remainder remquo rint round scalb scalbln scalbn sincos sinh sqrt tan tgamma trunc y0 y1 yn
""") | {row.libm for row in FUNCTIONS.values() if not row.intrinsic}
LIBRARY = _words("""
    _Exit abort abs accept access aligned_alloc alloca asctime at_quick_exit atexit atof atoi atol
    atoll bcmp bcopy bind brk bsearch btowc bzero calloc chdir chmod chown clearerr clock close
    connect creat ctime difftime div dup dup2 environ execl execle execlp execv execve execvp exit
    fclose fcntl fdopen feof ferror fflush ffs fgetc fgetpos fgets fgetwc fgetws fileno fopen fork
    fprintf fputc fputs fputwc fputws fread free freopen fscanf fseek fsetpos fstat fsync ftell
    ftruncate fwide fwprintf fwrite fwscanf getc getchar getcwd getenv getline getopt getpid gets
    getwc getwchar gmtime index ioctl isalnum isalpha isascii isatty isblank iscntrl isdigit isgraph
    islower isprint ispunct isspace isupper iswalnum iswalpha iswdigit iswspace isxdigit kill labs
    ldiv link listen llabs lldiv localeconv localtime longjmp lseek lstat madvise main malloc mblen
    mbrlen mbrtowc mbsinit mbsrtowcs mbstowcs mbtowc memccpy memchr memcmp memcpy memmove mempcpy
    memset mkdir mktime mmap mprotect munmap nanosleep nice open opendir pause perror pipe poll
    posix_memalign printf putc putchar putenv puts putwc putwchar qsort quick_exit raise rand
    random read readdir readlink realloc recv remove rename rewind rindex rmdir sbrk scanf select
    send setbuf setenv setjmp setlocale setvbuf shutdown sigaction signal sigprocmask sleep snprintf
    socket sprintf srand srandom sscanf stat stpcpy strcasecmp strcat strchr strcmp strcoll strcpy
    strcspn strdup strerror strftime strlen strncasecmp strncat strncmp strncpy strndup strnlen
    strpbrk strrchr strsep strsignal strspn strstr strtod strtof strtok strtol strtold strtoll
    strtoul strtoull strxfrm swab symlink sync syscall sysconf system thrd_create time timespec_get
    times tmpfile tmpnam toascii tolower toupper truncate umask uname ungetc ungetwc unlink usleep
    utime valloc vfork vfprintf vfscanf vprintf vscanf vsnprintf vsprintf vsscanf wait waitpid
    wcscat wcschr wcscmp wcscpy wcslen wcsncpy wcsstr wcstod wcstol wcstombs wctob wctomb wmemcpy
    wmemset wprintf write wscanf
""") | {word + kind for word in _OF_ANY_FLOAT for kind in ("", "f", "l")}
"""Functions of the C library, as ISO C and POSIX have them, and ``main``."""


def is_word(name: str) -> bool:
    """Whether a name means something else where a C or C++ compiler meets it, as a parameter too."""
    return name in _WORDS or _SIZED.fullmatch(name) is not None
