"""Kernel names as NVIDIA's own tools demangle them, so that traced launches match detailed ones by name.

Symbols follow the Itanium C++ ABI, section 5.1. NVIDIA's tools write them in their own way: numbers of
templates with their type (``<(int)4>``), template parameters of the signature as ``T1``, ``T2``, ``const`` in
front, ``float *``, ``>>``, ``<unnamed>`` for the anonymous namespace, ``[lambda(int) (instance 1)]``. Only
what occurs in kernels' names is read; for anything else (expressions, pointers to members) the result is
None.
"""

from __future__ import annotations

from collections.abc import Callable

_BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char",
    "s": "short", "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long",
    "x": "long long", "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float",
    "d": "double", "e": "long double", "g": "__float128", "z": "...",
}  # fmt: skip
_BUILTIN_D = {"n": "std::nullptr_t", "i": "char32_t", "s": "char16_t", "u": "char8_t", "h": "__fp16"}
_STANDARD = {
    "t": "std", "a": "std::allocator", "b": "std::basic_string", "s": "std::string", "i": "std::istream",
    "o": "std::ostream", "d": "std::iostream",
}  # fmt: skip
_OPERATORS = {
    "cl": "()", "ix": "[]", "pl": "+", "mi": "-", "ml": "*", "dv": "/", "rm": "%", "eq": "==", "ne": "!=",
    "lt": "<", "gt": ">", "le": "<=", "ge": ">=", "aS": "=", "pL": "+=", "mI": "-=", "ls": "<<", "rs": ">>",
}  # fmt: skip
_ANONYMOUS = "_GLOBAL__N_"
_QUALIFIERS = {"K": "const", "V": "volatile", "r": "__restrict__"}
_DEEPEST = 200


class _Unknown(Exception):
    """The symbol has something that is not read here."""


def demangled(symbol: str) -> str | None:
    """The C++ name of a symbol; the symbol itself if it is not C++, None if it cannot be read."""
    if not symbol.startswith("_Z"):
        return symbol
    parser = _Parser(symbol, 2)
    try:
        name = parser.encoding()
    except (_Unknown, IndexError, RecursionError):
        return None
    return name if parser.at == len(symbol) else None


class _Parser:
    """Reads one symbol; ``at`` is where it is."""

    def __init__(self, text: str, at: int) -> None:
        self._text, self.at = text, at
        self._substitutions: list[str] = []  # what S_, S0_, ... stand for
        self._depth = 0

    # ---- reading ----

    def _peek(self, count: int = 1) -> str:
        return self._text[self.at : self.at + count]

    def _skip(self, words: str) -> bool:
        is_next = self._text.startswith(words, self.at)
        self.at += len(words) if is_next else 0
        return is_next

    def _need(self, words: str) -> None:
        if not self._skip(words):
            raise _Unknown

    def _digits(self) -> int:
        begin = self.at
        while self._peek().isdigit():
            self.at += 1
        if begin == self.at:
            raise _Unknown
        return int(self._text[begin : self.at])

    def _number(self, base: int) -> int:
        """The number before an underscore: without digits 0, "0" is 1, and so on."""
        begin = self.at
        while self._peek() and self._peek() != "_":
            self.at += 1
        digits = self._text[begin : self.at]
        self._need("_")
        try:
            return int(digits, base) + 1 if digits else 0
        except ValueError:
            raise _Unknown from None

    def _remember(self, name: str) -> str:
        self._substitutions.append(name)
        return name

    # ---- functions and names ----

    def encoding(self) -> str:
        """A function with its signature, or a variable."""
        name, is_template, qualifiers = self._name()
        if not self._peek() or self._peek() in "E.":
            return name
        returned = self._type() if is_template and not _is_constructor(name) else ""
        arguments = self._types_until_end()
        return f"{returned} {name}({arguments}){qualifiers}".lstrip()

    def _types_until_end(self) -> str:
        types = []
        while self._peek() and self._peek() not in "E.":
            types.append(self._type())
        return "" if types == ["void"] else ", ".join(types)

    def _name(self) -> tuple[str, bool, str]:
        """The name, whether it ends with template arguments, and qualifiers of a member function."""
        if self._skip("N"):
            return self._nested()
        if self._skip("Z"):
            return self._local()
        if self._peek() == "S" and self._peek(2) != "St":
            name = self._substitution()
        else:
            name = ("std::" if self._skip("St") else "") + self._unqualified("")
            if self._peek() == "I":
                self._remember(name)
        if self._peek() == "I":
            return name + self._template_arguments(), True, ""
        return name, False, ""

    def _nested(self) -> tuple[str, bool, str]:
        qualifiers = ""
        while self._peek() in _QUALIFIERS:
            qualifiers += f" {_QUALIFIERS[self._take()]}"
        for reference, text in (("R", " &"), ("O", " &&")):
            qualifiers += text if self._skip(reference) else ""
        name, is_template = "", False
        while not self._skip("E"):
            name, is_template, is_new = self._component(name)
            if is_new and self._peek() != "E":
                self._remember(name)
        return name, is_template, qualifiers

    def _take(self) -> str:
        self.at += 1
        return self._text[self.at - 1]

    def _component(self, prefix: str) -> tuple[str, bool, bool]:
        """The prefix with one more component, whether that is template arguments, whether to remember it."""
        next_ = self._peek()
        if next_ == "I":
            return prefix + self._template_arguments(), True, True
        if next_ == "T":
            return self._parameter(), False, True
        if next_ == "S":
            return self._substitution(), False, False
        return self._joined(prefix, self._unqualified(prefix)), False, True

    @staticmethod
    def _joined(prefix: str, name: str) -> str:
        return f"{prefix}::{name}" if prefix else name

    def _local(self) -> tuple[str, bool, str]:
        """An entity in a function; returns the same as :meth:`_name`."""
        function = self.encoding()
        self._need("E")
        entity, is_template, qualifiers = self._name()
        if self._skip("_"):
            self._digits()
        return f"{function}::{entity}", is_template, qualifiers

    def _unqualified(self, prefix: str) -> str:
        next_ = self._peek()
        if next_.isdigit():
            name = self._source_name()
        elif next_ == "L":  # internal linkage
            self.at += 1
            return self._unqualified(prefix)
        elif self._peek(2) in ("C1", "C2", "C3", "D0", "D1", "D2"):
            kind = self._take()
            self.at += 1
            name = ("~" if kind == "D" else "") + prefix.rpartition("::")[2].partition("<")[0]
        elif self._peek(2) in ("Ul", "Ut"):
            name = self._unnamed()
        elif self._peek(2) in _OPERATORS:
            space = " " if self._peek(2) == "cl" else ""
            name = f"operator{space}{_OPERATORS[self._peek(2)]}"
            self.at += 2
        else:
            raise _Unknown
        while self._skip("B"):
            name += f"[abi:{self._source_name()}]"
        return name

    def _source_name(self) -> str:
        length = self._digits()
        name = self._text[self.at : self.at + length]
        self.at += length
        if len(name) != length:
            raise _Unknown
        return "<unnamed>" if name.startswith(_ANONYMOUS) else name

    def _unnamed(self) -> str:
        kind = self._peek(2)
        self.at += 2
        if kind == "Ut":
            return f"[unnamed type (instance {self._number(10) + 1})]"
        arguments = self._types_until_end()
        self._need("E")
        return f"[lambda({arguments}) (instance {self._number(10) + 1})]"

    # ---- templates and substitutions ----

    def _template_arguments(self) -> str:
        self._need("I")
        return f"<{self._arguments()}>"

    def _arguments(self) -> str:
        arguments = []
        while not self._skip("E"):
            argument = self._argument()
            if argument:
                arguments.append(argument)
        return ", ".join(arguments)

    def _argument(self) -> str:
        if self._skip("L"):
            return self._literal()
        if self._skip("J"):
            return self._arguments()
        if self._skip("X"):  # the only expression read is a template parameter
            parameter = self._parameter()
            self._need("E")
            return parameter
        return self._type()

    def _literal(self) -> str:
        if self._skip("_Z"):
            name = self.encoding()
            self._need("E")
            return f"&{name}"
        type_ = self._type()
        sign = "-" if self._skip("n") else ""
        number = self._digits()
        self._need("E")
        return f"({type_}){sign}{number}"

    def _parameter(self) -> str:
        self._need("T")
        return f"T{self._number(10) + 1}"

    def _substitution(self) -> str:
        self._need("S")
        if self._peek() in _STANDARD:
            return _STANDARD[self._take()]
        try:
            return self._substitutions[self._number(36)]
        except IndexError:
            raise _Unknown from None

    # ---- types ----

    def _type(self) -> str:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _Unknown
        try:
            return self._any_type()
        finally:
            self._depth -= 1

    def _any_type(self) -> str:
        next_ = self._peek()
        if next_ in _BUILTIN:
            self.at += 1
            return _BUILTIN[next_]
        if next_ == "D":
            return self._d_type()
        readers: dict[str, Callable[[], str]] = {
            "P": lambda: self._pointer("*"), "R": lambda: self._pointer("&"),
            "O": lambda: self._pointer("&&"), "K": self._qualified, "V": self._qualified,
            "r": self._qualified, "F": self._function, "A": self._array, "T": self._parameter_type,
            "S": self._substituted_type,
        }  # fmt: skip
        if next_ in readers:
            return readers[next_]()
        if next_.isdigit() or next_ in ("N", "Z"):
            return self._remember(self._name()[0])
        raise _Unknown

    def _d_type(self) -> str:
        kind = self._peek(2)[1:]
        if kind == "p":
            self.at += 2
            return self._remember(f"{self._type()}...")
        if kind not in _BUILTIN_D:
            raise _Unknown
        self.at += 2
        return _BUILTIN_D[kind]

    def _pointer(self, mark: str) -> str:
        self.at += 1
        return self._remember(_pointed(self._type(), mark))

    def _qualified(self) -> str:
        words = []
        while self._peek() in _QUALIFIERS:
            words.append(_QUALIFIERS[self._take()])
        inner = self._type()
        if inner.endswith(("*", "&", ")")):
            return self._remember(inner + " ".join(words))
        return self._remember(f"{' '.join(words)} {inner}")

    def _function(self) -> str:
        self._need("F")
        self._skip("Y")
        returned = self._type()
        arguments = self._types_until_end()
        self._need("E")
        return self._remember(f"{returned} ({arguments})")

    def _array(self) -> str:
        self._need("A")
        length = self._digits() if self._peek().isdigit() else ""
        self._need("_")
        return self._remember(f"{self._type()} [{length}]")

    def _parameter_type(self) -> str:
        name = self._remember(self._parameter())
        if self._peek() == "I":
            name = self._remember(name + self._template_arguments())
        return name

    def _substituted_type(self) -> str:
        if self._peek(2) == "St":
            return self._remember(self._name()[0])
        name = self._substitution()
        if self._peek() == "I":
            name = self._remember(name + self._template_arguments())
        return name


def _pointed(inner: str, mark: str) -> str:
    for opening in (" (", " ["):
        # For a function or an array, the mark is in parentheses before its arguments or length.
        if inner.endswith((")", "]")) and opening in inner:
            head, tail = inner.rsplit(opening, 1) if opening == " [" else inner.split(opening, 1)
            return f"{head} ({mark}){opening.strip()}{tail}"
    return f"{inner}{mark}" if inner.endswith(("*", "&")) else f"{inner} {mark}"


def _is_constructor(name: str) -> bool:
    parts = name.partition("<")[0].split("::")
    return len(parts) > 1 and parts[-1].lstrip("~") == parts[-2]
