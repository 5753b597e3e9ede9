"""The job scripts of agents: what a person writes stays a word of the command, and never becomes shell."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_client.slurm.script import FURTHER_OPTIONS, AgentJob, further_options, job_script
from assay_core.settings.slurm_times import slurm_seconds
from assay_sampling.errors import ParameterError

# Prints the words that it is given, each with a null character behind it: an agent for these tests.
SAYS_ITS_WORDS = ("/usr/bin/printf", "%s\\0")
HOSTILE = [
    "$(touch hacked)", "`touch hacked`", "; touch hacked;", "a\ntouch hacked\n", "'; touch hacked; '",
    '"$HOME"', "a b", "", "-n", "--", "#SBATCH --wrap=x", "\r", "\u2028",
    "\x1b[2J", "*", "~", "é", "!!", "\\", "$'\\n'",
]  # fmt: skip
WORD = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_characters="\0"), max_size=30))


def _encodable(word: str) -> bool:
    try:
        word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def run_script(script: str, folder: Path) -> list[str]:
    """Check the script with ``bash -n``, run it, and return the words that the agent got."""
    text = script.encode("utf-8", "surrogateescape")
    subprocess.run(["/bin/bash", "-n"], input=text, check=True, timeout=60)
    done = subprocess.run(
        ["/bin/bash", "-s"], input=text, cwd=folder, capture_output=True, check=True, timeout=60
    )
    return [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]


@settings(max_examples=60, deadline=None)
@given(arguments=st.lists(WORD.filter(_encodable), max_size=6))
def test_every_word_reaches_the_agent_as_it_was_written(
    arguments: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("job")
    job = AgentJob(SAYS_ITS_WORDS, Path("/shared"), arguments=arguments)
    words = run_script(job_script(job), folder)
    assert words == ["slurm-job", "--state-root", "/shared", "--drain", "45s", *arguments]
    assert not list(folder.iterdir())


@settings(max_examples=60, deadline=None)
@given(name=WORD)
def test_a_state_root_of_any_name_is_one_word_or_refused(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("job")
    root = Path("/shared") / name.replace("/", "")
    try:
        script = job_script(AgentJob(SAYS_ITS_WORDS, root))
    except ParameterError as error:
        assert "--state-root" in str(error)
        assert not str(root).isprintable() or "\\" in str(root)
        return
    assert run_script(script, folder)[:3] == ["slurm-job", "--state-root", str(root)]
    lines = [line for line in script.splitlines() if line.startswith("#SBATCH")]
    assert len(lines) == 5
    assert [line for line in lines if line.startswith("#SBATCH --output=")]
    assert not list(folder.iterdir())


@settings(max_examples=80, deadline=None)
@given(value=WORD)
def test_a_value_of_sbatch_is_one_line_of_plain_characters_or_refused(value: str) -> None:
    try:
        script = job_script(AgentJob(["agent"], Path("/shared"), directives={"partition": value}))
    except ParameterError:
        assert not re.fullmatch(r"[A-Za-z0-9]+", value)
        return
    assert f"#SBATCH --partition{'=' if value else ''}{value}" in script.split("\n")
    assert not set(value) & set("\n\r\t \"'`$\\#;")


def test_a_null_character_cannot_be_written() -> None:
    with pytest.raises(ParameterError, match="null"):
        job_script(AgentJob(["agent"], Path("/shared"), arguments=["a\0b"]))


def test_only_options_that_are_listed_are_passed_on() -> None:
    assert further_options({"mem": "8G"}) == {"mem": "8G"}
    for name in ("wrap", "signal", "export", "output", "uid", "array", "job-name", "mem\n"):
        with pytest.raises(ParameterError, match="is not passed on"):
            further_options({name: "x"})
    assert not {"signal", "output", "export", "wrap", "array", "requeue", "open-mode"} & set(FURTHER_OPTIONS)


def test_the_script_of_one_agent_and_of_three() -> None:
    one = job_script(AgentJob(["/opt/assay/bin/assay-agent"], Path("/scratch/ann/assay")))
    assert one == (
        "#!/bin/bash\n"
        "# Written by 'assay lab slurm sbatch'. The agent replaces this shell: signals reach it once.\n"
        "#SBATCH --job-name=assay-agent\n"
        '#SBATCH --output="/scratch/ann/assay/slurm-%j.log"\n'
        "#SBATCH --open-mode=append\n"
        "#SBATCH --requeue\n"
        "#SBATCH --signal=B:TERM@60\n"
        "umask 077\n"
        "exec /opt/assay/bin/assay-agent slurm-job --state-root /scratch/ann/assay --drain 45s\n"
    )
    three = job_script(AgentJob(["agent"], Path("/s"), agents=3, drain_seconds=600)).split("\n")
    assert "#SBATCH --array=0-2" in three
    assert "#SBATCH --signal=B:TERM@615" in three
    assert '#SBATCH --output="/s/slurm-%A_%a.log"' in three


def test_a_state_root_is_quoted_as_sbatch_reads_it() -> None:
    script = job_script(AgentJob(["agent"], Path('/s/100% of "us" $(x) #1')))
    assert '#SBATCH --output="/s/100%% of \\"us\\" $(x) #1/slurm-%j.log"' in script.split("\n")


def test_a_drain_that_no_signal_can_announce_is_refused() -> None:
    with pytest.raises(ParameterError, match="--drain"):
        job_script(AgentJob(["agent"], Path("/s"), drain_seconds=70_000))


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        ("1", 60), ("30", 1800), ("2:30", 150), ("4:00:00", 14_400), ("1-12", 129_600), ("1-2:3", 93_780),
        ("2-00:00:05", 172_805), ("UNLIMITED", None), ("infinite", None), ("0", None), ("4h", None),
        ("", None),
    ],
)  # fmt: skip
def test_times_as_slurm_writes_them(limit: str, seconds: int | None) -> None:
    assert slurm_seconds(limit) == seconds


@pytest.mark.parametrize(
    ("limit", "works"), [("2", False), ("2:00", False), ("2:01", True), ("0", True), ("3", True)]
)
def test_a_time_limit_that_leaves_no_time_before_the_drain_is_refused(limit: str, works: bool) -> None:
    job = AgentJob(["agent"], Path("/s"), directives={"time": limit})
    if works:
        assert f"#SBATCH --time={limit}" in job_script(job).splitlines()
        return
    with pytest.raises(ParameterError, match=r"--time: 120 s leave no time to work.*shorter --drain"):
        job_script(job)
