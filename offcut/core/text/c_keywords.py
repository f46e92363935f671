"""Names that C has taken: no function of an exported kernel, and no parameter, can have one.

Words that C or C++ keep, what compilers and `stdint.h` define, and the functions of the C library: a
kernel of such a name would be called wherever the program means the library's.
"""

from __future__ import annotations

import re

from offcut.core.function_table import FUNCTIONS


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
