"""SIGHUP: what changes now and what waits; and the hangup of a terminal, which is not a wish to reload."""

from __future__ import annotations

import os
import pty
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, ClassVar, Self

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from pydantic import model_validator
from typer.testing import CliRunner

from assay_core.settings.command_line import with_settings
from assay_core.settings.declaration import ProgramSettings, Setting
from assay_core.settings.reloading import reloaded
from assay_core.settings.table import settings_table
from assay_sampling.errors import ParameterError


class MadeSettings(ProgramSettings):
    """Of a program that does not exist: ``low`` must stay below ``high``."""

    program: ClassVar[str] = "made"
    variable_prefix: ClassVar[str] = "MADE_"
    reloads: ClassVar[bool] = True

    low: Annotated[int, Setting("Changes.", at_runtime=True)] = 1
    high: Annotated[int, Setting("Stays.")] = 10
    name: Annotated[str, Setting("Changes, too.", at_runtime=True)] = ""

    @classmethod
    def default_file(cls) -> Path:
        return Path("/nonexistent/made.toml")

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        if self.low >= self.high:
            raise ParameterError("--low", f"{self.low} is not below {self.high}", "choose another")
        return self


settings = st.builds(MadeSettings, low=st.integers(0, 9), high=st.integers(10, 20), name=st.text(max_size=3))


@given(settings, settings)
def test_what_may_change_changes_and_the_rest_is_named(before: MadeSettings, asked: MadeSettings) -> None:
    found = reloaded(before, asked)
    assert found.settings == MadeSettings(low=asked.low, high=before.high, name=asked.name)
    assert {s.field for s in found.changed} == {
        field for field in ("low", "name") if getattr(before, field) != getattr(asked, field)
    }
    assert [s.field for s in found.waiting] == (["high"] if before.high != asked.high else [])
    again = reloaded(found.settings, asked)
    assert not again.changed, "what changed is in force"
    assert again.waiting == found.waiting, "what waits is named each time"


def test_what_fits_only_with_what_waits_is_refused() -> None:
    with pytest.raises(ParameterError, match="15 is not below 10"):
        reloaded(MadeSettings(), MadeSettings(low=15, high=20))


def test_settings_are_settled_again_from_the_same_flags_and_the_file_as_it_is(tmp_path: Path) -> None:
    file, seen = tmp_path / "made.toml", []
    app = typer.Typer()

    @app.command()
    @with_settings(MadeSettings)
    def run(*, settings: MadeSettings, again: object) -> None:
        file.write_text("low = 5\nhigh = 17\n")
        assert callable(again)
        seen.extend([settings, again()])

    file.write_text("low = 2\n")
    ended = CliRunner().invoke(app, ["--config", str(file), "--high", "12"])
    assert ended.exit_code == 0, ended.output
    assert seen == [MadeSettings(low=2, high=12), MadeSettings(low=5, high=12)]


def test_the_table_of_settings_says_what_a_hangup_reloads() -> None:
    rows = {line.split("`")[1]: line for line in settings_table(MadeSettings).splitlines()[2:]}
    assert {flag.split()[0] for flag, row in rows.items() if "SIGHUP reloads it." in row} == {
        "--low",
        "--name",
    }


DAEMON = """\
import pathlib, sys
from assay_server.signals import until_asked_to_end
file = pathlib.Path(sys.argv[1])
def say(word): file.write_text(file.read_text() + word)
file.write_text("")
with until_asked_to_end(lambda: say("reloaded ")) as ending:
    say("ready ")
    ending.wait()
    say("ended ")
"""


@pytest.mark.processes
def test_a_hangup_reloads_while_the_terminal_is_there_and_ends_the_program_when_it_has_gone(
    tmp_path: Path,
) -> None:
    said = tmp_path / "said"
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", DAEMON, str(said)])

    def wait_for(text: str) -> None:
        until = time.monotonic() + 90
        while not said.exists() or said.read_text() != text:
            assert time.monotonic() < until, said.read_text()
            time.sleep(0.02)

    try:
        wait_for("ready ")
        os.kill(child, signal.SIGHUP)
        wait_for("ready reloaded ")
        os.close(terminal)
        wait_for("ready reloaded ended ")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
