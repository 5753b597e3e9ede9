"""The contract of every verb: one JSON document or one paragraph, the documented exit code, no traceback."""

from __future__ import annotations

import errno
import json
import re
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from assay_client.cli import main as main_module
from assay_client.cli.main import app, main
from assay_client.cli.reporters.failure import Failure, render_failure
from assay_client.cli.verb import LazyVerbs
from assay_client.cli.verb_list import ADMIN, GROUPS, LAB, MODULES, ONE_BOX, Group
from assay_client.ending import ended_in_order, raise_if_asked
from assay_sampling import errors
from tests.support.client import hand_made

DOCS = Path(__file__).parents[2] / "docs"
Assay = Callable[..., Any]


def commands(command: Any, name: str = "assay") -> Iterator[tuple[str, Any]]:
    """Every verb that does something, with its full name."""
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    for child in command.list_commands(None):
        yield from commands(command.get_command(None, child), f"{name} {child}")


def test_every_verb_has_json_and_says_what_it_does() -> None:
    found = dict(commands(typer.main.get_command(app)))
    assert {name.split()[1] for name in found} == set(MODULES)
    for name, command in found.items():
        options = {text for parameter in command.params for text in parameter.opts}
        assert "--json" in options or name == "assay help", name
        assert command.help, name


def test_the_verbs_that_scripts_rely_on_are_there() -> None:
    assert {group.heading: list(group.verbs) for group in (*ONE_BOX, LAB, ADMIN)} == {
        "Start here": ["demo", "samples", "doctor", "docs", "help"],
        "Measure": ["init", "plan", "run", "report", "metrics", "import"],
        "Select and judge": ["inspect", "select", "compare", "classify", "evaluate", "explain"],
        "Simulate": ["export", "simulate", "project", "pka-table", "scale-model", "cold-start", "reuse"],
        "Lab": [
            "login", "logout", "health", "submit", "status", "queue", "pause", "resume", "cancel", "retry",
            "fetch", "campaigns", "agents", "gpus", "slurm",
        ],
        "Admin": ["token", "identities", "revoke", "role", "budget", "audit"],
    }  # fmt: skip


@pytest.mark.parametrize(("words", "groups"), [((), GROUPS), (("lab",), (LAB,)), (("admin",), (ADMIN,))])
def test_a_help_page_names_the_verbs_of_its_groups(
    assay: Assay, words: tuple[str, ...], groups: tuple[Group, ...]
) -> None:
    ended = assay(*words, "--help")
    assert (ended.code, ended.stderr) == (0, "")
    for group in groups:
        lines = ended.stdout.partition(f"\n{group.heading}:\n")[2].partition("\n\n")[0]
        assert re.findall(r"^  (\S+) ", lines, re.MULTILINE) == list(group.verbs)


def test_the_list_says_of_each_verb_what_its_own_help_begins_with() -> None:
    for group in (*ONE_BOX, LAB, ADMIN):
        commands_of = LazyVerbs(group.modules())
        assert group.verbs == {name: commands_of[name].get_short_help_str(200) for name in group.verbs}


def test_the_help_page_imports_no_verb() -> None:
    look = (
        "import sys; from assay_client.cli.main import main; main(['--help']); "
        "assert not [m for m in sys.modules if m.startswith('assay_client.cli.verbs')]; "
        "assert not {'numpy', 'pyarrow', 'grpc', 'rich'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", look], check=True, capture_output=True)


def test_what_a_verb_does_is_said_whole_on_80_columns(assay: Assay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in [(), ("lab",), ("lab", "campaigns"), ("admin",), ("scale-model",)]:
        assert "..." not in assay(*arguments, "--help").stdout.partition("Commands:")[2]


@pytest.mark.parametrize("columns", ["80", "200"])
def test_help_speaks_in_words_not_in_types(
    assay: Assay, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for name, command in commands(typer.main.get_command(app)):
        shown = assay(*name.split()[1:], "--help").stdout
        types_of_python = re.findall(r"<[^>]*>|list\[|[{}]|\[\[|\b(?:str|int|float|path|Path)\b", shown)
        assert types_of_python == [], name
        usage = shown.partition("\n\n")[0].split()
        for parameter in command.params:
            if parameter.param_type_name == "argument":
                word = str(parameter.metavar)
                assert (word if parameter.required else f"[{word}]") in usage, name


def test_the_help_of_select_names_every_method(assay: Assay) -> None:
    from assay_sampling.methods.registry import samplers  # noqa: PLC0415

    words = " ".join(assay("select", "--help").stdout.split())
    assert ", ".join(samplers()) in words


def test_without_a_verb_the_help_goes_to_standard_error(assay: Assay) -> None:
    ended = assay()
    assert (ended.code, ended.stdout) == (2, "")
    assert "Usage: assay" in ended.stderr


def test_version(assay: Assay) -> None:
    ended = assay("--version")
    assert ended.code == 0
    assert re.fullmatch(r"assay \d+\.\d+\.\d+\S*\n", ended.stdout)


@pytest.mark.parametrize(
    "arguments",
    [
        ["statsu"], ["lab", "status", "--nope"], ["lab", "status", "--follow"], ["status"], ["lab"],
        ["lab", "status", "--server", "nonsense"], ["lab", "nope"],
        ["report", "c-1", "--format", "pdf"], ["report", "c-1", "--format", "html", "--json"], ["plan"],
        ["doctor", "--for", "nobody"],
    ],
)  # fmt: skip
def test_usage_errors_are_one_paragraph_and_code_2(assay: Assay, arguments: list[str]) -> None:
    ended = assay(*arguments)
    assert (ended.code, ended.stdout) == (2, "")
    if "--json" in arguments:
        assert json.loads(ended.stderr)["error"]["exit_code"] == 2
    else:
        assert re.fullmatch(r"error: [^\n]+: [^\n]+; [^\n]+\n", ended.stderr)


def test_an_unknown_verb_names_the_one_that_was_meant(assay: Assay) -> None:
    assert "did you mean: assay lab status?" in assay("statsu").stderr
    assert "write: assay lab status" in assay("status").stderr
    assert "write: assay select" in assay("lab", "select").stderr


def broken_verb(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make ``assay doctor`` raise."""
    module = types.ModuleType("broken")
    module.app = typer.Typer()  # type: ignore[attr-defined]

    @module.app.command()  # type: ignore[attr-defined]
    def doctor(as_json: bool = typer.Option(False, "--json")) -> None:
        raise error

    monkeypatch.setitem(sys.modules, "broken", module)
    monkeypatch.setitem(MODULES, "doctor", "broken")


EVERY_ERROR = [
    (errors.AssayError("s", "c", "r"), 1),
    (errors.ParameterError("s", "c", "r"), 2),
    (errors.InputError("f.csv", "c", "r", line=3, field="x"), 3),
    (errors.LaunchTableError("s", "c", "r"), 3),
    (errors.CounterUnavailableError("s", "c", "r"), 3),
    (errors.CampaignError("s", "c", "r"), 4),
    (errors.ServerUnreachableError("s", "c", "r"), 5),
    (errors.RunFailedError("s", "c", "r"), 6),
    (errors.RefusedError("s", "c", "r"), 7),
    (errors.MisalignedError("s", "c", "r", ("a", "b")), 7),
    (errors.StorageError("s", "c", "r"), 8),
    (errors.MissingExtraError("assay run", "yaml", "server"), 9),
    (errors.NotReadyError("s", "c", "r"), 10),
]


@pytest.mark.parametrize(("error", "code"), EVERY_ERROR, ids=lambda value: type(value).__name__)
def test_every_typed_error_is_one_paragraph_with_its_code(
    assay: Assay, monkeypatch: pytest.MonkeyPatch, error: errors.AssayError, code: int
) -> None:
    broken_verb(monkeypatch, error)
    ended = assay("doctor")
    assert (ended.code, ended.stdout) == (code, "")
    assert ended.stderr == f"error: {error}\n"


def test_no_error_leaves_anybody_without_a_next_step() -> None:
    kinds = [errors.AssayError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert len(kinds) > 10
    for kind in kinds:
        error = kind.__new__(kind)
        errors.AssayError.__init__(error, "the thing", "the cause")
        for text in (render_failure(Failure.of(error), as_json=as_json) for as_json in (True, False)):
            remedy = json.loads(text)["error"]["remedy"] if text.startswith("{") else text.partition("; ")[2]
            assert len(remedy) > 10, kind
    told = errors.ParameterError("the thing", "the cause", "its own remedy")
    assert Failure.of(told).remedy == "its own remedy"


@pytest.mark.parametrize(("error", "code"), EVERY_ERROR, ids=lambda value: type(value).__name__)
def test_under_json_an_error_is_one_line_of_json(
    assay: Assay, monkeypatch: pytest.MonkeyPatch, error: errors.AssayError, code: int
) -> None:
    broken_verb(monkeypatch, error)
    ended = assay("doctor", "--json")
    assert (ended.code, ended.stdout) == (code, "")
    assert ended.stderr.count("\n") == 1
    differences = {"differences": ["a", "b"]} if isinstance(error, errors.MisalignedError) else {}
    assert json.loads(ended.stderr) == {
        "error": {
            "type": type(error).__name__,
            "subject": error.subject,
            "cause": error.cause,
            "remedy": error.remedy,
            "exit_code": code,
            **differences,
        }
    }


def test_every_exit_code_is_documented() -> None:
    documented = {
        int(m) for m in re.findall(r"^\| (\d+) \|", (DOCS / "exit-codes.md").read_text(), re.MULTILINE)
    }
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.AssayError)]
    assert {kind.exit_code for kind in kinds} | {0, 1, 2, 130, 141, 143} == documented


def test_a_hostile_name_cannot_steer_the_terminal_or_break_the_paragraph(
    assay: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_verb(monkeypatch, errors.InputError("a\x1b[2Jb\nc\udcff.csv", "bad\r\nline", "mend it"))
    ended = assay("doctor")
    assert ended.stderr.count("\n") == 1
    assert "\x1b" not in ended.stderr
    assert "a<U+001B>[2Jb c<U+DCFF>.csv: bad" in ended.stderr


def test_an_unforeseen_error_is_a_paragraph_without_traceback(
    assay: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASSAY_DEBUG", raising=False)
    broken_verb(monkeypatch, ZeroDivisionError("division by zero"))
    ended = assay("doctor")
    assert (ended.code, ended.stdout) == (1, "")
    assert re.fullmatch(
        r"error: internal error: ZeroDivisionError: division by zero; this is a bug; [^\n]*--debug[^\n]*\n",
        ended.stderr,
    )


def test_a_folder_that_refuses_is_no_bug(assay: Assay, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_verb(monkeypatch, PermissionError(errno.EACCES, "Permission denied", "/home/x/.bashrc"))
    ended = assay("doctor")
    assert ended.code == errors.StorageError.exit_code
    assert ended.stderr.startswith("error: /home/x/.bashrc: it cannot be used (Permission denied); ")
    assert "bug" not in ended.stderr


@pytest.mark.parametrize("how", ["option", "variable"])
def test_debug_shows_the_traceback(assay: Assay, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setenv("ASSAY_DEBUG", "1" if how == "variable" else "0")
    broken_verb(monkeypatch, ZeroDivisionError("division by zero"))
    ended = assay(*(["--debug"] if how == "option" else []), "doctor")
    assert ended.code == 1
    assert "Traceback (most recent call last)" in ended.stderr
    assert ended.stderr.rstrip().splitlines()[-1].startswith("error: internal error:")


def test_not_enough_memory_is_no_bug(assay: Assay, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_verb(monkeypatch, MemoryError())
    ended = assay("doctor")
    assert ended.code == 1
    assert "enough memory" in ended.stderr
    assert "bug" not in ended.stderr


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [(KeyboardInterrupt(), 130, "error: assay: interrupted\n"), (BrokenPipeError(), 141, "")],
    ids=["interrupt", "pipe"],
)
def test_signals_and_closed_pipes_end_quietly(
    assay: Assay, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, text: str
) -> None:
    monkeypatch.setattr(main_module, "_detach_output", lambda: None)
    broken_verb(monkeypatch, error)
    ended = assay("doctor")
    assert (ended.code, ended.stdout, ended.stderr) == (code, "", text)


def test_sigterm_unwinds_what_a_verb_had_started(monkeypatch: pytest.MonkeyPatch) -> None:
    unwound: list[str] = []

    def wait(_: object) -> int:
        with ended_in_order(lambda: unwound.append("told")):
            try:
                signal.raise_signal(signal.SIGTERM)
                raise_if_asked()
            finally:
                unwound.append("unwound")
        return 0

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(main_module, "_invoke", wait)
    assert main(["lab", "status"]) == 143
    assert unwound[-1] == "unwound"
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.processes
def test_a_closed_pipe_as_the_shell_makes_it() -> None:
    program = Path(sys.executable).with_name("assay")
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {program} --help | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stderr == ""
    # The help may have been written before the reader went away.
    assert ended.stdout in ("0\n", "141\n")


@pytest.mark.processes
def test_a_narrow_locale_shows_any_name(assay_process: Assay) -> None:
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    ended = assay_process("lab", "status", "--server", "unix:/nope/größe", env=environment)
    assert ended.code == 5
    assert ended.stderr.startswith("error: unix:/nope/gr")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("verb", "unneeded"),
    [
        ("lab.status", ["cryptography", "pyarrow", "numpy", "sklearn"]),
        ("lab.submit", ["cryptography", "pyarrow", "numpy", "sqlalchemy"]),
        ("judge.inspect", ["cryptography", "grpc", "sklearn", "sqlalchemy"]),
    ],
)
def test_a_verb_loads_only_what_it_needs(verb: str, unneeded: list[str]) -> None:
    code = (
        f"import sys, assay_client.cli.main, assay_client.cli.verbs.{verb}; "
        f"print(sorted(set(sys.modules) & set({unneeded})))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "[]\n"


@pytest.mark.processes
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_produced(assay_process: Assay, shell: str) -> None:
    ended = assay_process(env={"_ASSAY_COMPLETE": f"source_{shell}"})
    assert ended.code == 0
    assert f"_ASSAY_COMPLETE=complete_{shell}" in ended.stdout


@pytest.mark.processes
def test_verbs_are_completed(assay_process: Assay) -> None:
    words = {"_ASSAY_COMPLETE": "complete_bash", "COMP_WORDS": "assay do", "COMP_CWORD": "1"}
    assert assay_process(env=words).stdout.split() == ["doctor", "docs"]


def test_a_full_disk_behind_standard_output_is_told_as_one(tmp_path: Path) -> None:
    recording = tmp_path / "light.json"
    hand_made.write_kineto(recording, 20)
    command = [str(Path(sys.executable).with_name("assay")), "inspect", str(recording)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 8
    assert "standard output" in done.stderr
    assert "No space left" in done.stderr
    assert "bug" not in done.stderr and "Traceback" not in done.stderr
