"""Settings: declared once, written with their units, taken from flag, variable, file, in that order."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from typer.testing import CliRunner

from assay_core.program import CONTEXT_SETTINGS, LogLevelSetting, version_option
from assay_core.program_log import LogLevel
from assay_core.settings.command_line import with_settings
from assay_core.settings.declaration import InvalidSettingError, ProgramSettings, Setting
from assay_core.settings.quantities import bytes_text, parse_bytes, parse_span_seconds, span_text
from assay_core.settings.settling import read_settings_file, settle
from assay_core.settings.table import settings_table
from assay_sampling.errors import InputError, ParameterError


class MadeSettings(ProgramSettings):
    """Of a program that does not exist."""

    program: ClassVar[str] = "made"
    variable_prefix: ClassVar[str] = "MADE_"

    state_dir: Annotated[Path, Setting("Where it keeps things.", flag="state")] = Path("here")
    names: Annotated[tuple[str, ...], Setting("What things are called.")] = ()
    drain_seconds: Annotated[float, Setting("How long it may go on."), Field(ge=0)] = 5.0
    lease_ms: Annotated[int, Setting("How long it is patient."), Field(ge=1)] = 60_000
    limit_bytes: Annotated[
        int | None, Setting("What it holds | at most.", default="a quarter"), Field(ge=1)
    ] = None
    slots: Annotated[int, Setting("How many."), Field(ge=0, le=4)] = 1
    log_level: LogLevelSetting = LogLevel.INFO

    @classmethod
    def default_file(cls) -> Path:
        return Path("/nonexistent/made.toml")


FIELDS = {setting.field: None for setting in MadeSettings.declared()}


def settled(
    environment: dict[str, str] | None = None, file: Path | None = None, **flags: Any
) -> MadeSettings:
    return settle(MadeSettings, {**FIELDS, **flags}, file=file, environment=environment or {})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("1.5 s", 1.5),
        ("500ms", 0.5),
        ("15m", 900),
        ("15min", 900),
        ("2h", 7200),
        ("7D", 604_800),
        ("0", 0),
    ],
)
def test_a_span_is_written_with_its_unit(text: str, seconds: float) -> None:
    assert parse_span_seconds(text, "x") == seconds


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("90", "'90' has no unit"),
        ("-1s", "is not a span of time"),
        ("", "is not a span of time"),
        ("1w", "is not a span of time"),
        ("nans", "is not a span of time"),
        ("1e3s", "is not a span of time"),
        ("٣s", "is not a span of time"),
    ],
)
def test_a_span_without_its_unit_is_refused(text: str, cause: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parse_span_seconds(text, "--drain")
    assert caught.value.subject == "--drain" and cause in caught.value.cause


@given(st.integers(min_value=0, max_value=10**12))
def test_what_is_printed_can_be_typed(number: int) -> None:
    assert round(parse_span_seconds(span_text(number / 1000), "x") * 1000) == number
    assert parse_bytes(bytes_text(number), "x") == number


def test_a_flag_comes_before_a_variable_before_the_file_before_the_default(tmp_path: Path) -> None:
    file = tmp_path / "made.toml"
    file.write_text('drain = "1s"\nlease = "2s"\nslots = 3\nnames = ["a, b", "c"]\n')
    variables = {"MADE_DRAIN": "3s", "MADE_LEASE": "4s", "MADE_LIMIT": "2KiB", "MADE_SLOTS": ""}
    found = settled(variables, file, drain_seconds="5s")
    assert (found.drain_seconds, found.lease_ms, found.slots, found.limit_bytes) == (5.0, 4000, 3, 2048)
    assert (found.names, found.state_dir, found.log_level) == (("a, b", "c"), Path("here"), LogLevel.INFO)
    assert settled({"MADE_NAMES": "a, b,"}).names == ("a", "b")
    assert settled({"MADE_CONFIG": str(file)}).drain_seconds == 1.0
    assert settled({"ASSAY_LOG_LEVEL": "error"}).log_level is LogLevel.ERROR


@pytest.mark.parametrize(
    ("flags", "variables", "subject", "cause"),
    [
        ({"drain_seconds": "5"}, {}, "--drain", "has no unit"),
        ({}, {"MADE_DRAIN": "5"}, "$MADE_DRAIN", "has no unit"),
        ({"slots": "5"}, {}, "--slots", "less than or equal to 4, not '5'"),
        ({}, {"MADE_SLOTS": "x"}, "$MADE_SLOTS", "valid integer"),
        ({"lease_ms": "0.1ms"}, {}, "--lease", "greater than or equal to 1"),
        ({"limit_bytes": "8 quintals"}, {}, "--limit", "is not a number of bytes"),
        ({"log_level": "loud"}, {}, "--log-level", "'debug', 'info', 'warning' or 'error', not 'loud'"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_the_name_it_was_given_by(
    flags: dict[str, str], variables: dict[str, str], subject: str, cause: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        settled(variables, **flags)
    assert caught.value.subject == subject and cause in caught.value.cause


@pytest.mark.parametrize(
    ("text", "field", "cause"),
    [
        ("drian = '3s'", "drian", "there is no such setting"),
        ("drain = 3", "drain", "3 has no unit"),
        ("drain = '3'", "drain", "'3' has no unit"),
        ("limit = 1024", "limit", "1024 has no unit"),
        ("slots = 5", "slots", "less than or equal to 4"),
        ("slots = 'x'", "slots", "valid integer"),
        ("names = 'a'", "names", "takes a list"),
        ("state = ['a']", "state", "takes one value"),
        ("drain = ", None, "not TOML"),
        ("\xff", None, "not TOML"),
    ],
)
def test_a_file_that_is_not_valid_is_refused_with_its_key(
    tmp_path: Path, text: str, field: str | None, cause: str
) -> None:
    file = tmp_path / "made.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError) as caught:
        read_settings_file(MadeSettings, file)
    assert (caught.value.field, caught.value.path) == (field, str(file))
    assert cause in caught.value.cause


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        settled(file=tmp_path / "none.toml")


def test_values_in_code_are_checked_too() -> None:
    with pytest.raises(InvalidSettingError, match=r"slots: .* not '9'"):
        MadeSettings(slots=9)
    with pytest.raises(InvalidSettingError, match="sluts: extra inputs"):
        MadeSettings(sluts=9)  # type: ignore[call-arg]


def test_a_verb_fails_at_no_variable_that_it_has_no_use_for() -> None:
    found = settle(MadeSettings, {"slots": "2"}, environment={"MADE_DRAIN": "nonsense"})
    assert (found.slots, found.drain_seconds) == (2, 5.0)


def test_the_documentation_is_made_of_the_declarations() -> None:
    rows = settings_table(MadeSettings).splitlines()
    assert len(rows) == 2 + len(FIELDS)
    assert "| `--drain SPAN` | `MADE_DRAIN` | `drain` | 5s | How long it may go on. |" in rows
    assert "| `--limit SIZE` | `MADE_LIMIT` | `limit` | a quarter | What it holds \\| at most. |" in rows
    assert rows[-1].startswith("| `--log-level debug\\|info\\|warning\\|error` | `ASSAY_LOG_LEVEL` |")


def _program() -> typer.Typer:
    program = typer.Typer(context_settings=CONTEXT_SETTINGS, add_completion=False, rich_markup_mode=None)

    @program.command()
    @with_settings(MadeSettings)
    def run(
        what: Annotated[str, typer.Argument()],
        *,
        settings: MadeSettings,
        loud: bool = False,
        version: Annotated[bool, version_option("made")] = False,
    ) -> None:
        typer.echo(f"{what} {settings.drain_seconds:g} {settings.names} {loud}")

    @program.command()
    @with_settings(MadeSettings, "slots")
    def look(*, settings: MadeSettings) -> None:
        typer.echo(f"{settings.slots} {settings.drain_seconds:g}")

    return program


def test_a_command_has_the_flags_of_its_settings(tmp_path: Path) -> None:
    file = tmp_path / "made.toml"
    file.write_text('drain = "7s"\nslots = 2\n')
    program, runner = _program(), CliRunner()

    def said(*words: str) -> str:
        done = runner.invoke(program, words)
        assert done.exit_code == 0, done.output
        return done.stdout.strip()

    assert (
        said("run", "x", "--drain", "2m", "--names", "a b", "--names", "c", "--loud")
        == "x 120 ('a b', 'c') True"
    )
    assert said("run", "--config", str(file), "x") == "x 7 () False"
    assert said("look", "--config", str(file)) == "2 5", "what it has no use for keeps its default"
    assert said("run", "--version").startswith("made ")
    assert "$MADE_DRAIN; default: 5s" in " ".join(said("run", "-h").split())
    assert runner.invoke(program, ["look", "--drain", "2s"]).exit_code == 2
