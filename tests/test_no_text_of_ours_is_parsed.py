"""No module searches, splits or matches a text that Assay itself wrote: codes and parameters cross seams.

Types hold most of it: a note, a failure, an error is an object, and mypy refuses to search in one. What is
left are the texts made from them. This test walks every product module and follows, function by function,
what is a text of ours: attributes, keys and names that are called so (``cause``, ``reason``, ``note``),
``str(error)``, f-strings of these, and what they are assigned to. On such a text ``in``, ``==`` with words,
``split``, ``startswith``, ``find`` and the like, and patterns of ``re`` are refused.

Words of other programs are matched, as they must be: where such a text goes by one of our names, the place is
in ``WORDS_OF_OTHERS`` with the program whose words they are.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_FOLDERS = ("sampling", "protos/assay_core", "agent", "server", "client")

# Attributes, keys of documents and variables that hold sentences of ours.
_SAID = frozenset({"cause", "remedy", "detail", "explained", "interval_reason", "meaning", "reason", "why"})
_KEYS = _SAID | {"note", "notes", "problem", "refused", "text", "warning", "warnings"}
_NAMES = (_SAID - {"explained"}) | {"message", "note", "notes", "warning", "warnings"}
_ERRORS = frozenset({"error", "err", "exc", "exception", "failure", "problem"})
_TEXT_OF = frozenset({"note_text", "sentence_of"})

_TAKES_APART = frozenset(
    {"count", "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "rfind", "rindex",
     "rpartition", "rsplit", "split", "startswith"}
)  # fmt: skip
_SAME_TEXT = frozenset({"casefold", "get", "lower", "lstrip", "replace", "rstrip", "strip", "upper"})
_PATTERN_METHODS = frozenset({"findall", "finditer", "fullmatch", "match", "search", "split", "sub"})

# file, function: whose words they are.
WORDS_OF_OTHERS = {
    (
        "server/assay_server/store/postgresql/refusals.py",
        "_without_code",
    ): "libpq, which gives no code where a connection was not made",
    (
        "server/assay_server/store/objects/bucket.py",
        "_bucket_error",
    ): "obstore, whose errors carry no status, and the object store's answer in them",
    ("sampling/assay_sampling/readers/base.py", "said_by_profiler"): "what a profiler wrote into its file",
    (
        "agent/assay_virtual/workloads/loading.py",
        "_document",
    ): "Python's tomllib, which has no line as a value",
}


def test_no_text_of_ours_is_parsed() -> None:
    found = {}
    for path in sorted(p for folder in _FOLDERS for p in (_ROOT / folder).rglob("*.py")):
        if "_pb2" in path.name or "node_modules" in path.parts:
            continue
        for line, function, what in parsed_texts(path.read_text()):
            name = str(path.relative_to(_ROOT))
            found.setdefault((name, function), f"{name}:{line}: {function}: {what}")
    refused = [text for place, text in found.items() if place not in WORDS_OF_OTHERS]
    assert not refused, "texts of ours are parsed; carry a value instead:\n" + "\n".join(refused)
    # An entry whose place is gone would let the next text through unseen.
    assert not WORDS_OF_OTHERS.keys() - found.keys()


@pytest.mark.parametrize(
    "source",
    [
        'def f(error):\n    return "no counters" in str(error)',
        'def f(error):\n    return error.cause == "PKS not applicable: no counters"',
        'def f(error):\n    return error.cause == NO_COUNTERS',
        'def f(row):\n    return row["reason"].partition("; first differences: ")[0]',
        'def f(row):\n    return row.get("reason", "").split("; ")',
        'def f(notes):\n    return any("dropped" in note for note in notes)',
        'def f(notes):\n    return [n for n in notes if "dropped" in n.text]',
        'def f(launches):\n    return [x for x in launches.notes if "lost" in x.text]',
        'def f(flag):\n    return flag.detail.startswith("for ")',
        'import re\ndef f(error):\n    return re.search("lost", error.cause)',
        'def f(problem):\n    return _LOST.search(problem.cause)',
        'def f(error):\n    told = f"{error}"\n    if told.endswith("again"):\n        return 1',
        'def f(error):\n    told = str(error).lower().strip()\n    return "again" not in told',
        'def f(note):\n    return note_text(note).find("dropped") >= 0',
        'def f(failure):\n    return failure.remedy in (_HERE, _ELSEWHERE)',
        'class A:\n    def f(self):\n        return self.reason.removeprefix("GPU ")',
        'def f(entry):\n    match entry["reason"]:\n        case "no counters":\n            return 1',
    ],
)  # fmt: skip
def test_a_text_that_is_parsed_is_found(source: str) -> None:
    assert list(parsed_texts(source)), source


@pytest.mark.parametrize(
    "source",
    [
        'def f(error):\n    return f"{error.cause}; {error.remedy}" if error.remedy else error.cause',
        'def f(note):\n    return note.code == "kernels_lost" or note.flag in ("a", "b")',
        'def f(row):\n    return row["reason"] == "" or row["reason"] != ""',
        'def f(error):\n    return error.cause[:300], str(error).splitlines()[0]',
        'def f(line):\n    return _LOST.search(line) and "dropped" in line',
        'def f(codes, note):\n    return note.code in codes',
        'def f(notes):\n    return make_note("short_names") in notes',
        'def f(error, known):\n    return "; ".join([error.cause, *known])',
    ],
)  # fmt: skip
def test_what_only_shows_a_text_is_let_through(source: str) -> None:
    assert not list(parsed_texts(source)), source


def parsed_texts(source: str) -> Iterator[tuple[int, str, str]]:
    """Line, function and code of each place in a module that takes a text of ours apart."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = {id(child) for each in functions for child in ast.walk(each) if child is not each}
    for scope in (tree, *functions):
        if id(scope) in inner:
            continue  # what is inside of a function is looked at with it
        name = getattr(scope, "name", "(module)")
        own = [node for node in ast.walk(scope) if scope is not tree or id(node) not in inner]
        texts = _assigned_texts(own)
        for node in own:
            if _takes_apart(node, texts):
                yield node.lineno, name, textwrap.shorten(ast.unparse(node), 120)  # type: ignore[attr-defined]


def _assigned_texts(nodes: list[ast.AST]) -> set[str]:
    """Variables that hold a text of ours, and elements of lists of such texts."""
    texts: set[str] = set()
    while True:
        before = len(texts)
        for node in nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if _is_text(node.value, texts):
                    texts |= {target.id for target in targets if isinstance(target, ast.Name)}
        if len(texts) == before:
            return texts


def _is_text(node: ast.expr, texts: set[str]) -> bool:
    match node:
        case ast.Name(id=name):
            found = name in _NAMES or name in texts
        case ast.Attribute(value=of, attr=name):
            found = name in _SAID or (name == "text" and _is_said(of))
        case ast.Subscript(slice=ast.Constant(value=key)):
            found = key in _KEYS
        case ast.JoinedStr(values=values):
            parts = (part.value for part in values if isinstance(part, ast.FormattedValue))
            found = any(_is_text(part, texts) or _is_error(part) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right) | ast.IfExp(body=left, orelse=right):
            found = _is_text(left, texts) or _is_text(right, texts)
        case ast.BoolOp(values=values):
            found = any(_is_text(value, texts) for value in values)
        case ast.Call():
            found = _gives_text(node, texts)
        case _:
            found = False
    return found


def _gives_text(call: ast.Call, texts: set[str]) -> bool:
    if isinstance(call.func, ast.Name):
        of_error = call.func.id in ("str", "repr") and any(
            _is_error(each) or _is_text(each, texts) for each in call.args
        )
        return of_error or call.func.id in _TEXT_OF
    if isinstance(call.func, ast.Attribute):
        if call.func.attr == "get" and call.args and isinstance(call.args[0], ast.Constant):
            return call.args[0].value in _KEYS
        return call.func.attr in _SAME_TEXT and _is_text(call.func.value, texts)
    return False


def _is_error(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in _ERRORS


def _is_said(node: ast.expr) -> bool:
    """Whether a note or an error: what else has a ``text`` is somebody else's."""
    return isinstance(node, ast.Name) and (node.id in _ERRORS or node.id in ("n", "note", "x"))


def _takes_apart(node: ast.AST, texts: set[str]) -> bool:
    if isinstance(node, ast.Compare):
        return _compares(node, texts)
    if isinstance(node, ast.Match):
        return _is_text(node.subject, texts)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    method = node.func.attr
    if method in _TAKES_APART and _is_text(node.func.value, texts):
        return True
    return method in _PATTERN_METHODS and any(_is_text(each, texts) for each in node.args)


def _compares(node: ast.Compare, texts: set[str]) -> bool:
    sides = [node.left, *node.comparators]
    for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
        if isinstance(operator, ast.In | ast.NotIn):
            # Whether a note is among others is asked of values; whether words are in a text, of the text.
            if _is_text(left, texts) or (_is_text(right, texts) and not _is_value(left)):
                return True
        elif isinstance(operator, ast.Eq | ast.NotEq) and (_is_text(left, texts) or _is_text(right, texts)):
            other = right if _is_text(left, texts) else left
            if not (isinstance(other, ast.Constant) and not other.value):
                return True
    return False


def _is_value(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "make_note"
