"""The log: one line an event, with what it is about."""

from __future__ import annotations

import io
import json
import logging
import re
import threading
from collections.abc import Iterator

import pytest

from assay_core.program_log import LogFormat, LogLevel, log_about, set_up_log

log = logging.getLogger("assay_made.part")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_of_text_says_when_how_grave_who_what_and_about_what() -> None:
    stream = io.StringIO()
    set_up_log(LogLevel.INFO, LogFormat.TEXT, stream)
    with log_about(campaign="lab-1"), log_about(run="lab-1.0003", attempt=2):
        log.info("measured %d launches of\n%s", 3, "void f()")
        log.debug("not shown")
    log.warning("done")
    first, second = stream.getvalue().splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO assay_made\.part: "
        r"measured 3 launches of\\nvoid f\(\) campaign=lab-1 run=lab-1\.0003 attempt=2",
        first,
    )
    assert second.endswith(" WARNING assay_made.part: done")


def test_what_could_be_taken_for_another_field_is_quoted() -> None:
    stream = io.StringIO()
    set_up_log(LogLevel.INFO, LogFormat.TEXT, stream)
    with log_about(run='a attempt=9 "\n'):
        log.info("x")
    assert stream.getvalue().endswith(': x run="a attempt=9 \\"\\n"\n')
    assert len(stream.getvalue().splitlines()) == 1


def test_a_line_of_json_is_one_object_with_the_same() -> None:
    stream = io.StringIO()
    set_up_log(LogLevel.ERROR, LogFormat.JSON, stream)
    try:
        raise ValueError("no")
    except ValueError:
        with log_about(run="r", slice=1):
            log.exception("failed\nhere")
    line = json.loads(stream.getvalue())
    assert stream.getvalue().count("\n") == 1
    assert (line["level"], line["logger"], line["message"]) == ("error", "assay_made.part", "failed\nhere")
    assert (line["run"], line["slice"]) == ("r", 1)
    assert line["exception"].endswith("ValueError: no")


def test_threads_do_not_see_what_others_are_about() -> None:
    stream = io.StringIO()
    set_up_log(LogLevel.INFO, LogFormat.JSON, stream)
    with log_about(run="mine"):
        other = threading.Thread(target=lambda: log.info("other"))
        other.start()
        other.join()
        log.info("mine")
    lines = {each["message"]: each.get("run") for each in map(json.loads, stream.getvalue().splitlines())}
    assert lines == {"other": None, "mine": "mine"}
