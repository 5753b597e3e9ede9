"""``-`` in place of a file: standard input, copied into a file because readers look at it more than once."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from assay_sampling.errors import ParameterError, StorageError

_NAME = "standard-input"


def with_standard_input(context: Any, words: list[str]) -> list[str]:
    """The words of a verb with the path of the copy in place of ``-``; the copy goes with the context.

    A ``-`` behind an option that takes a value belongs to that option. Raises ParameterError if ``-`` is
    given twice or standard input is a terminal, StorageError if there is no space for the copy.
    """
    valued = {
        name
        for each in context.command.get_params(context)
        if each.param_type_name == "option" and not each.is_flag
        for name in each.opts
    }
    places = [
        at
        for at, word in enumerate(words)
        if word == "-" and not (at and words[at - 1] in valued) and "--" not in words[:at]
    ]
    if not places:
        return words
    if len(places) > 1:
        raise ParameterError("-", "standard input is named twice", "name it once, and files otherwise")
    if sys.stdin is None or sys.stdin.isatty():
        raise ParameterError("-", "standard input is a terminal", "pipe a file into it, or name the file")
    folder = Path(tempfile.mkdtemp(prefix="assay-"))
    context.call_on_close(lambda: shutil.rmtree(folder, ignore_errors=True))
    try:
        with (folder / _NAME).open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
    except OSError as error:
        raise StorageError(
            "standard input",
            f"it cannot be copied to {folder} ({error.strerror or error})",
            "free space there, set TMPDIR to another folder, or name a file",
        ) from error
    [place] = places
    return [*words[:place], str(folder / _NAME), *words[place + 1 :]]


__all__ = ["with_standard_input"]
