"""What was judged is what runs: links that another flips between the judgement and the start have no say."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.pinned import Pinned, entered_folder, first_fault, pin_program
from assay_agent.policy.file import read_policy
from assay_agent.policy.gate import Gate
from assay_core.records.attempt import AttemptKey
from assay_core.records.work import CommandSource, RecordedSource, Work
from assay_protos import agent_pb2
from assay_sampling.launches.table import BASELINE
from assay_sampling.running.failures import FailureClass
from tests.support.agent.agent_processes import agent_process
from tests.support.agent.fake_server import FakeServer, wait_for

RUNS = 24


class Box:
    """What is allowed and what is forbidden, in two folders, and a link that leads to one or the other."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        for name in ("allowed", "forbidden"):
            folder = self.root / name
            (folder / "work").mkdir(parents=True)
            for file in ("program", "script.sh", "r.csv"):
                (folder / file).write_text(f"#!/bin/sh\necho {name} >> {self.root}/told\n")
                (folder / file).chmod(0o755)
        self.link = self.root / "link"
        self.lead_to("allowed")
        self.file = self.root / "policy.toml"
        self.file.write_text(
            "version = 1\nallow_root = true\n"
            f'environment = ["ASSAY_KINETO_FILE"]\ndirectories = ["{self.root}/allowed/work"]\n'
            f'recordings = ["{self.root}/allowed/*"]\n'
            f'[[allow]]\nprogram = "{self.root}/allowed/*"\narguments = []\n'
            f'[[allow]]\nprogram = "/bin/sh"\narguments = ["{self.root}/allowed/*.sh", "..."]\n'
        )
        self.gate = Gate(read_policy(self.file), server_is_ours=True)

    def write_policy(self, rules: str) -> None:
        self.file.write_text(f"version = 1\nallow_root = true\n{rules}")
        self.gate = Gate(read_policy(self.file), server_is_ours=True)

    def write_rule(self, arguments: list[str]) -> None:
        """One rule for the allowed program; ROOT in its arguments is the folder."""
        given = json.dumps([argument.replace("ROOT", str(self.root)) for argument in arguments])
        self.write_policy(f'[[allow]]\nprogram = "{self.root}/allowed/program"\narguments = {given}\n')

    def lead_to(self, name: str) -> None:
        """Let the link lead elsewhere, in one step."""
        new = self.root / "new"
        new.unlink(missing_ok=True)
        new.symlink_to(self.root / name)
        new.replace(self.link)

    def admitted(self, *argv: str, directory: str = "") -> CommandSource:
        work = self.gate.admit(assignment(command=CommandSource(argv, {}, directory)))
        assert work.command is not None
        return work.command

    @property
    def told(self) -> set[str]:
        """Which programs ran."""
        path = self.root / "told"
        return set(path.read_text().split()) if path.exists() else set()

    @contextmanager
    def flipping(self) -> Iterator[None]:
        """The link goes to and fro as fast as it can."""
        end = threading.Event()

        def flip() -> None:
            while not end.wait(0.0002):
                self.lead_to("forbidden")
                self.lead_to("allowed")

        thread = threading.Thread(target=flip)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


def assignment(command: CommandSource | None = None, recorded: RecordedSource | None = None) -> Work:
    return Work(
        key=AttemptKey("c-1.0000", 0, 1, 7),
        campaign_id="c-1",
        workload="w",
        device_kind="V100",
        level="light",
        condition=BASELINE,
        profiler="kineto",
        command=command,
        recorded=recorded,
    )


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_a_link_flipped_after_the_judgement_has_no_say(box: Box) -> None:
    """The hook between check and start: everything that a command names was resolved once."""
    command = box.admitted(f"{box.link}/program")
    script = box.admitted("/bin/sh", f"{box.link}/script.sh", "x", directory=f"{box.link}/work")
    relative = box.admitted("/bin/sh", "../script.sh", directory=f"{box.link}/work")
    recorded = box.gate.admit(assignment(recorded=RecordedSource(box.link / "r.csv"))).recorded
    box.lead_to("forbidden")
    for judged in (command, script, relative):
        subprocess.run(judged.argv, check=True, cwd=judged.working_directory or None)
        assert first_fault(judged.pins) == ""
    assert box.told == {"allowed"}
    assert script.working_directory == f"{box.root}/allowed/work"
    assert recorded == RecordedSource(box.root / "allowed" / "r.csv")
    with pytest.raises(ProfilerError):
        box.admitted(f"{box.link}/program")


@pytest.mark.parametrize("name", ["allowed", "forbidden"])
def test_a_program_that_changes_while_it_is_judged_is_refused(
    box: Box, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The folder becomes a link after the path was resolved, and before the program was opened."""
    resolve = os.path.realpath

    def resolve_and_swap(path: str) -> str:
        found = resolve(path)
        if path == f"{box.link}/program":
            (box.root / "allowed").rename(box.root / "away")
            (box.root / "allowed").symlink_to(box.root / ("away" if name == "allowed" else name))
        return found

    monkeypatch.setattr("assay_agent.policy.gate.os.path.realpath", resolve_and_swap)
    with pytest.raises(ProfilerError, match=r"no rule .* allows|was changed while it was judged"):
        box.admitted(f"{box.link}/program")


def test_a_pin_tells_a_program_from_what_took_its_place(box: Box) -> None:
    path = str(box.root / "allowed" / "program")
    pin = pin_program(path, path)
    assert pin is not None and pin.fault() == ""
    (box.root / "allowed" / "program").write_text("#!/bin/sh\nanother\n")
    assert pin.fault() == f"the file {path!r} was replaced or written to"
    (box.root / "allowed").rename(box.root / "away")
    (box.root / "allowed").symlink_to(box.root / "forbidden")
    assert pin.fault() == f"{path!r} leads to '{box.root}/forbidden/program' now"
    assert pin_program(path, path) is None
    folder = str(box.root / "away" / "work")
    assert Pinned(folder, folder).fault() == ""
    with pytest.raises(FileNotFoundError):
        pin_program(f"{folder}/none", f"{folder}/none")
    (box.root / "away" / "link").symlink_to("/bin/sh")
    assert pin_program(f"{box.root}/away/link", f"{box.root}/away/link") is None


def test_scripts_and_folders_that_lead_elsewhere_are_found_before_the_start(box: Box) -> None:
    work, script = box.root / "allowed" / "work", box.root / "allowed" / "script.sh"
    judged = box.admitted("/bin/sh", str(script), directory=str(work))
    assert first_fault(judged.pins) == ""
    script.rename(box.root / "moved.sh")
    script.symlink_to(box.root / "forbidden" / "script.sh")
    assert first_fault(judged.pins) == f"{str(script)!r} leads to '{box.root}/forbidden/script.sh' now"
    script.unlink()
    (box.root / "moved.sh").rename(script)
    work.rename(box.root / "moved")
    work.symlink_to(box.root / "forbidden" / "work")
    assert first_fault(judged.pins) == f"{str(work)!r} leads to '{box.root}/forbidden/work' now"


def test_a_path_within_a_word_is_what_it_leads_to(box: Box) -> None:
    """``--data=/srv/**`` let in ``--data=/srv/../etc/shadow``, and links as they were written."""
    box.write_rule(["--data=ROOT/allowed/**", "@ROOT/allowed/*", "-IROOT/allowed/**"])
    asked = f"--data={box.link}/r.csv", f"@{box.link}/script.sh", f"-I{box.link}/work"
    judged = box.admitted(f"{box.root}/allowed/program", *asked)
    there = box.root / "allowed"
    assert judged.argv[1:] == (f"--data={there}/r.csv", f"@{there}/script.sh", f"-I{there}/work")
    box.lead_to("forbidden")
    assert first_fault(judged.pins) == ""
    for number, hostile in (
        (0, f"--data={there}/../forbidden/r.csv"), (0, f"--data={box.link}/r.csv"), (0, f"{there}/r.csv"),
        (0, f"--file={there}/r.csv"), (0, "--data=r.csv"), (1, f"@{there}/../forbidden/r.csv"), (2, "-I/etc"),
    ):  # fmt: skip
        words = [f"--data={there}/r.csv", f"@{there}/script.sh", f"-I{there}/work"]
        words[number] = hostile
        with pytest.raises(ProfilerError, match=f"argument {number + 1}, "):
            box.admitted(f"{there}/program", *words)


def test_a_rule_that_does_not_fit_leaves_nothing_for_the_next(box: Box) -> None:
    rule = f'[[allow]]\nprogram = "{box.root}/allowed/program"\narguments = '
    patterns = f'["{box.root}/forbidden/*", "x"]', '["...", ]'
    box.write_policy("".join(f"{rule}{pattern}\n" for pattern in patterns))
    asked = f"{box.root}/forbidden/../forbidden/r.csv"
    judged = box.admitted(f"{box.root}/allowed/program", asked, "y")
    assert judged.argv[1:] == (asked, "y")  # as it was given: no path pattern of the rule judged it


def test_a_program_that_is_not_there_is_no_changed_one(box: Box) -> None:
    """A name that is wrong, or a folder that the agent's user may not enter, was called a changed file."""
    for name, why in (
        ("none", "No such file or directory"), ("program", ""), ("x" * 300, "File name too long")
    ):  # fmt: skip
        if not why:
            assert box.admitted(f"{box.root}/allowed/{name}").argv
            continue
        with pytest.raises(ProfilerError, match=rf"cannot be opened \({why}\)") as raised:
            box.admitted(f"{box.root}/allowed/{name}")
        assert raised.value.failure_class == FailureClass.APPLICATION_FAILED
        assert raised.value.remedy.startswith("correct the command in the campaign file")


def test_who_else_decides_what_runs_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """A rule for what others write into protects nobody: the agent's log and ``policy check`` name them."""
    with tempfile.TemporaryDirectory(prefix="assay-shared-", dir="/tmp") as shared:
        Path(shared).chmod(0o755)  # no closed folder above
        box = Box(Path(shared))
        program = f"{box.root}/allowed/program"
        box.admitted(program)
        assert caplog.messages == []
        (box.root / "allowed" / "program").chmod(0o775)
        why = "other users may write into it (mode 0775)"
        assert box.gate.decide(CommandSource((program,), {}, "")).note.endswith(why)
        (box.root / "allowed" / "program").chmod(0o755)
        (box.root / "allowed").chmod(0o777)
        for _ in range(2):
            assert box.admitted("/bin/sh", f"{box.root}/allowed/script.sh").argv
        assert caplog.messages == [
            f"{box.file}: the rule allows '{box.root}/allowed/script.sh', but others decide what is there: "
            f"other users may write into {box.root}/allowed (mode 0777)"
        ]


def test_a_folder_that_was_opened_is_entered_whatever_takes_its_name(box: Box) -> None:
    work = box.root / "allowed" / "work"
    with entered_folder(work) as entered:
        work.rename(box.root / "moved")
        work.symlink_to(box.root / "forbidden" / "work")
        done = subprocess.run(["/bin/pwd", "-P"], cwd=entered, capture_output=True, text=True, check=True)
    assert done.stdout == f"{box.root}/moved\n"
    with (
        pytest.raises(OSError, match=r"leads elsewhere|Not a directory|Too many levels"),
        entered_folder(work),
    ):
        pass


def test_a_link_that_a_rule_names_and_nobody_else_can_change_stays(box: Box) -> None:
    """By the path of its start a Python knows its virtual environment."""
    python = box.root / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/bin/sh")
    box.write_policy(f'[[allow]]\nprogram = "{python}"\n')
    assert box.admitted(str(python)).argv == (str(python),)
    resolved = os.path.realpath("/bin/sh")
    # By any other name it is what it leads to: another folder's pyvenv.cfg would name other modules.
    other = box.root / "allowed" / "python"
    other.symlink_to("/bin/sh")
    assert box.admitted(str(other)).argv == (resolved,)
    if os.geteuid() == 0:
        os.chown(python.parent, 65534, 65534)
        assert box.admitted(str(python)).argv == (resolved,)
        # Without its modules: whoever wonders is told why.
        note = box.gate.decide(CommandSource((str(python),), {}, "")).note
        assert note.startswith(
            f"{resolved!r} is started, without the virtual environment that {str(python)!r}"
        )
        assert f"because {python.parent} belongs to user " in note


@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", ["program", "script"])
def test_a_link_flipped_as_fast_as_can_be_never_runs_what_is_forbidden(
    server: FakeServer, tmp_path: Path, box: Box, what: str
) -> None:
    """Measured on 2026-11-22: 2 of 16 tries ran the forbidden script."""
    argv = [f"{box.link}/program"] if what == "program" else ["/bin/sh", f"{box.link}/script.sh"]
    command = agent_pb2.CommandSource(
        argv=argv, working_directory=f"{box.root}/allowed/work", kineto_file="trace.json"
    )
    for number in range(RUNS):
        server.add_run(f"c-1.{number:04d}", profiler="kineto", synthetic=True, command=command)
    options = ("--virtual", "V100", "--recorded-slots", "0", "--policy", str(box.file))
    with box.flipping(), agent_process(server, tmp_path / "state", *options):
        wait_for(lambda: len(server.failures) == RUNS, 200)
    # It writes no trace, or the link led to what is forbidden when it was judged.
    classes = {request.failure.failure_class for request in server.failures}
    assert classes <= {"nothing_profiled", "refused_by_policy"}
    assert box.told == {"allowed"}
