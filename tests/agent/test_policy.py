"""What a server may ask an agent to run: rules, and hostile wishes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_agent.execution.errors import ProfilerError
from assay_agent.policy.file import Policy, read_policy
from assay_agent.policy.gate import Gate, gate_for
from assay_agent.policy.patterns import matches, matches_path
from assay_core.records.attempt import AttemptKey
from assay_core.records.work import CommandSource, RecordedSource, Work
from assay_sampling.errors import InputError, NotReadyError
from assay_sampling.launches.table import BASELINE
from assay_sampling.running.failures import FailureClass


class Box:
    """A folder with programs, and gates with rules about them."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.bin, self.work = self.root / "bin", self.root / "work"
        self.bin.mkdir()
        self.work.mkdir()
        for name in ("matmul", "stencil"):
            self.program(self.bin / name)
        self.file = self.root / "policy.toml"

    @staticmethod
    def program(path: Path) -> Path:
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path

    def gate(self, text: str, *, user_id: int = 1000, **options: Any) -> Gate:
        self.file.write_text("version = 1\n" + text.replace("ROOT", str(self.root)))
        options = {"server_is_ours": True, "search_path": str(self.bin), **options}
        return Gate(read_policy(self.file), user_id=user_id, **options)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def command(*argv: str, directory: str = "", **environment: str) -> CommandSource:
    return CommandSource(argv, environment, directory)


def assignment(**source: Any) -> Work:
    return Work(
        key=AttemptKey("c-1.0000", 0, 1, 7),
        campaign_id="c-1",
        workload="w",
        device_kind="V100",
        level="light",
        condition=BASELINE,
        profiler="nsys",
        **source,
    )


MATMUL = '[[allow]]\nname = "ours"\nprogram = "ROOT/bin/matmul"\n'


def test_what_a_rule_names_may_run_and_nothing_else(box: Box) -> None:
    gate = box.gate(MATMUL)
    allowed = gate.decide(command(f"{box.bin}/matmul", "64"))
    assert (allowed.allowed, allowed.rule) == (True, "rule 'ours'")
    assert allowed.why == f"rule 'ours' of {box.file} allows it"
    refused = gate.decide(command(f"{box.bin}/stencil"))
    assert not refused.allowed
    assert refused.why == f"no rule of {box.file} allows the program '{box.bin}/stencil'"
    assert refused.remedy == (
        f"change the campaign, or have {box.file} allow it, reload the agent, and try again what failed: "
        "assay lab retry CAMPAIGN"
    )


def test_an_empty_policy_allows_nothing(box: Box) -> None:
    gate = box.gate("")
    assert not gate.decide(command(f"{box.bin}/matmul")).allowed
    assert not gate.decide_recording(box.root / "profile.csv").allowed


def test_a_program_is_what_its_links_and_dots_lead_to(box: Box) -> None:
    gate = box.gate('[[allow]]\nprogram = "ROOT/bin/*"\n')
    (box.bin / "shell").symlink_to("/bin/sh")
    (box.root / "elsewhere").symlink_to(box.bin / "matmul")
    assert not gate.decide(command(f"{box.bin}/shell", "-c", "id")).allowed
    assert not gate.decide(command(f"{box.bin}/../policy.toml")).allowed
    assert not gate.decide(command(f"{box.bin}/../../../../../bin/sh")).allowed
    assert gate.decide(command(f"{box.root}/elsewhere")).allowed
    assert gate.decide(command(f"{box.work}/../bin/matmul")).allowed


def test_a_rule_may_name_a_link_itself(box: Box) -> None:
    (box.root / "current").symlink_to(box.bin)
    assert (
        box.gate('[[allow]]\nprogram = "ROOT/current/matmul"\n').decide(command(f"{box.bin}/matmul")).allowed
    )
    gate = box.gate('[[allow]]\nprogram = "ROOT/current/*"\n')
    assert gate.decide(command(f"{box.root}/current/matmul")).allowed


def test_a_glob_stays_in_its_folder(box: Box) -> None:
    (box.bin / "deep").mkdir()
    box.program(box.bin / "deep" / "hidden")
    assert (
        not box.gate('[[allow]]\nprogram = "ROOT/bin/*"\n').decide(command(f"{box.bin}/deep/hidden")).allowed
    )
    assert box.gate('[[allow]]\nprogram = "ROOT/bin/**"\n').decide(command(f"{box.bin}/deep/hidden")).allowed


def test_a_program_without_a_slash_is_the_one_of_the_path_and_runs_as_such(box: Box) -> None:
    gate = box.gate(MATMUL)
    assert gate.decide(command("matmul")).program == f"{box.bin}/matmul"
    assert gate.decide(command("stencil")).program == f"{box.bin}/stencil"
    assert not gate.decide(command("stencil")).allowed
    missing = gate.decide(command("nowhere"))
    assert missing.why == "the program 'nowhere' is not in the PATH of the agent"
    admitted = gate.admit(assignment(command=command("matmul", "64")))
    assert admitted.command is not None and admitted.command.argv == (f"{box.bin}/matmul", "64")


def test_a_relative_path_that_is_searched_finds_nothing(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(box.bin)
    gate = box.gate(MATMUL, search_path=".:")
    assert not gate.decide(command("matmul")).allowed


@pytest.mark.parametrize(
    ("patterns", "given", "allowed"),
    [
        ([], [], True),
        ([], ["x"], False),
        (["[0-9]", "--fast"], ["7", "--fast"], True),
        (["[0-9]", "--fast"], ["--fast", "7"], False),
        (["[0-9]", "--fast"], ["7"], False),
        (["[0-9]", "..."], ["7"], True),
        (["[0-9]", "..."], ["7", "a", "/etc/passwd"], True),
        (["..."], [], True),
        (["--out=*"], ["--out=x"], True),
        (["--out=*"], ["--out=/etc/passwd"], False),
        (["--out=**"], ["--out=/etc/passwd"], True),
        (["data/**"], ["data/a/b"], True),
        (["data/**"], ["data/../../etc/shadow"], False),
        (["--in=data/**"], ["--in=data/.."], False),
        (["../data/**"], ["../data/a"], True),
        (["7"], ["7\n"], False),
        (["7*"], ["7\n--evil"], True),
    ],
)
def test_arguments_are_compared_one_by_one(
    box: Box, patterns: list[str], given: list[str], allowed: bool
) -> None:
    gate = box.gate(f"{MATMUL}arguments = {patterns}\n")
    assert gate.decide(command("matmul", *given)).allowed is allowed


def test_an_argument_that_is_a_path_is_what_it_leads_to(box: Box) -> None:
    gate = box.gate(f'directories = ["ROOT/work"]\n{MATMUL}arguments = ["ROOT/bin/*"]\n')
    directory = str(box.work)
    assert gate.decide(command("matmul", f"{box.bin}/x", directory=directory)).allowed
    assert gate.decide(command("matmul", "../bin/x", directory=directory)).allowed
    assert not gate.decide(command("matmul", f"{box.bin}/../x", directory=directory)).allowed
    assert not gate.decide(command("matmul", "x", directory=directory)).allowed
    (box.bin / "link").symlink_to("/etc/passwd")
    refused = gate.decide(command("matmul", f"{box.bin}/link", directory=directory))
    assert refused.why.endswith(f"but argument 1, '{box.bin}/link', is not '{box.root}/bin/*'")
    # Without a folder that somebody named, a relative path leads nowhere that can be judged.
    assert not gate.decide(command("matmul", f"{box.bin}/x"[1:])).allowed


def test_working_directories_are_those_of_the_file_and_of_the_rule(box: Box) -> None:
    text = f'directories = ["ROOT/work/**"]\n{MATMUL}directories = ["ROOT/bin"]\n'
    gate = box.gate(text)
    (box.work / "a").mkdir()
    (box.work / "out").symlink_to("/etc")
    for directory, allowed in (
        (box.work / "a", True),
        (box.bin, True),
        (box.root, False),
        (box.work / "out", False),
    ):
        assert gate.decide(command("matmul", directory=str(directory))).allowed is allowed
    assert gate.decide(command("matmul", directory=f"{box.work}/a/..//../bin")).allowed
    refused = gate.decide(command("matmul", directory=f"{box.work}/out"))
    assert refused.why.endswith("but not the working directory '/etc'")


def test_a_pattern_for_what_is_below_a_directory_says_that_the_directory_is_not(box: Box) -> None:
    gate = box.gate(f'directories = ["{box.work}/**"]\n[[allow]]\nprogram = "{box.bin}/matmul"\n')
    (box.work / "a").mkdir()
    assert gate.decide(command("matmul", directory=str(box.work / "a"))).allowed
    refused = gate.decide(command("matmul", directory=str(box.work)))
    assert refused.why.endswith(
        f"not the working directory '{box.work}', for '{box.work}/**' allows only what is below it: "
        "add the directory itself"
    )


LOADERS = (
    "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GLIBC_TUNABLES", "GCONV_PATH", "PATH", "PYTHONPATH",
    "PYTHONSTARTUP", "PYTHONHOME", "PYTHONPYCACHEPREFIX", "BASH_ENV", "ENV", "IFS",
    "CUDA_INJECTION64_PATH", "CUDA_INJECTION32_PATH", "NVTX_INJECTION64_PATH", "NV_TPS_LAUNCH_TOKEN",
    "NSYS_NVTX_PROFILER_REGISTER_ONLY", "OMP_TOOL", "OMP_TOOL_LIBRARIES", "OMP_TOOL_VERBOSE_INIT",
    "NODE_OPTIONS", "PERL5OPT", "PERL5LIB", "RUBYOPT", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS",
    "DOTNET_STARTUP_HOOKS", "LUA_INIT", "OMPI_MCA_mca_base_component_path", "NCCL_NET_PLUGIN",
    "UCX_MODULE_DIR", "OPENSSL_CONF", "HDF5_PLUGIN_PATH", "TRITON_CACHE_DIR", "CUDA_HOME", "CC",
    "NVCC_PREPEND_FLAGS", "GIT_SSH_COMMAND", "ASSAY_TRACER_CUPTI", "VK_LAYER_PATH", "OCL_ICD_FILENAMES",
    "INTEL_LIBITTNOTIFY64", "INTEL_JIT_PROFILER64", "KOKKOS_TOOLS_LIBS", "KOKKOS_PROFILE_LIBRARY",
    "ACC_PROFLIB",
    "NVSHMEM_BOOTSTRAP_PLUGIN", "NCCL_GIN_PLUGIN", "PJRT_NAMES_AND_LIBRARY_PATHS", "FLEXIBLAS", "MPLBACKEND",
    "PYTEST_PLUGINS", "CUDBG_INJECTION_PATH", "I_MPI_OFI_LIBRARY",
)  # fmt: skip
HARMLESS = (
    "OMP_NUM_THREADS", "OMP_PROC_BIND", "CUBLAS_WORKSPACE_CONFIG", "PYTHONHASHSEED", "NCCL_DEBUG",
    "MKL_NUM_THREADS", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "TZ", "BATCH", "ASSAY_KINETO_FILE",
    "UCX_TLS", "MALLOC_ARENA_MAX", "I_MPI_DEBUG",
)  # fmt: skip


@pytest.mark.parametrize("name", LOADERS)
def test_what_is_for_loaders_and_tools_no_policy_lets_in(box: Box, name: str) -> None:
    with pytest.raises(InputError) as raised:
        box.gate(f'environment = ["{name}"]\n{MATMUL}')
    assert raised.value.field == "environment.1"
    assert f"{name!r} is for loaders and tools, so no campaign may set it" in raised.value.cause
    # Whatever let it into the rules: it is refused when it is asked for, too.
    careless = box.gate(MATMUL)
    assert careless.policy is not None
    careless.policy = careless.policy.model_copy(update={"environment": [name]})
    refused = careless.decide(command("matmul", **{name: "/evil.so"}))
    assert refused.why.endswith(f"but never the environment variable {name}, which is for loaders and tools")
    assert refused.remedy.endswith("out of the campaign file: no policy lets them in")


@pytest.mark.parametrize("name", HARMLESS)
def test_other_variables_are_let_in_where_they_are_named(box: Box, name: str) -> None:
    assert box.gate(f'environment = ["{name}"]\n{MATMUL}').decide(command("matmul", **{name: "1"})).allowed
    assert box.gate(f'{MATMUL}environment = ["{name}"]\n').decide(command("matmul", **{name: "1"})).allowed
    refused = box.gate(MATMUL).decide(command("matmul", **{name: "1"}))
    assert refused.why.endswith(f"but not the environment variable {name}")


@pytest.mark.parametrize("pattern", ["OMP_*", "*", "**", "CUDA_?", "[A-Z]X"])
def test_variables_are_named_one_by_one(box: Box, pattern: str) -> None:
    with pytest.raises(InputError) as raised:
        box.gate(f'{MATMUL}environment = ["{pattern}"]\n')
    assert raised.value.field == "allow.1.environment.1"
    assert raised.value.cause == (
        f"{pattern!r} is a pattern, and would also let in variables that load code, as OMP_* lets in "
        "OMP_TOOL_LIBRARIES: name each variable by itself"
    )
    with pytest.raises(InputError, match="is not the name of an environment variable"):
        box.gate('environment = ["A B"]\n')


def test_the_file_that_a_program_is_told_to_write_must_be_allowed_and_within_its_folder(box: Box) -> None:
    text = f'directories = ["ROOT/work"]\n{MATMUL}'
    traced = replace(command("matmul", directory=str(box.work)), kineto_file="matmul.py")
    refused = box.gate(text).decide(traced)
    assert refused.why.endswith("but not the environment variable ASSAY_KINETO_FILE")
    allowing = box.gate(f'{text}environment = ["ASSAY_KINETO_FILE"]\n')
    assert allowing.decide(traced).allowed
    for gate in (allowing, Gate(None, server_is_ours=True)):
        decision = gate.decide(replace(traced, argv=("/bin/true",), kineto_file="../bin/matmul"))
        assert not decision.allowed and "leads out of the folder" in decision.why


def test_a_path_that_a_campaign_brings_has_no_say(box: Box) -> None:
    box.program(box.work / "matmul")
    for folder in (box.work, box.bin):
        assert not box.gate(MATMUL).decide(command("matmul", PATH=str(folder))).allowed


HOSTILE = [
    (command(), "the command names no program"),
    (command(""), "the command names no program"),
    (command("/bin/true\0"), "holds a null character"),
    (command("/bin/true", "a\0b"), "holds a null character"),
    (command("/bin/true", directory="/tmp\0"), "holds a null character"),
    (command("/bin/true", A="\0"), "holds a null character"),
    (command("--log-file=/etc/passwd", "/bin/true"), "would be an option of the profiler"),
    (command("/bin/tr\nue"), "cannot be printed"),
    (command("/bin/\x1b[2Jtrue"), "cannot be printed"),
    (command("./matmul"), "is a relative path"),
    (command("../bin/sh"), "is a relative path"),
    (command("/bin/true", directory="work"), "is not an absolute path"),
    (command("/bin/true", **{"A=B": "x"}), "is not the name of an environment variable"),
    (command("/bin/true", **{"A\nB": "x"}), "is not the name of an environment variable"),
    (command("/bin/true", **{"": "x"}), "is not the name of an environment variable"),
    (command("/bin/true", **{"BASH_FUNC_x%%": "() { :; }"}), "is not the name of an environment variable"),
]


@pytest.mark.parametrize(("asked", "why"), HOSTILE)
def test_what_no_honest_campaign_asks_for_is_refused_with_and_without_a_policy(
    box: Box, asked: CommandSource, why: str
) -> None:
    open_policy = 'directories = ["/**"]\n[[allow]]\nprogram = "/**"\n'
    for gate in (Gate(None, server_is_ours=True), box.gate(open_policy, search_path="/bin")):
        decision = gate.decide(asked)
        assert not decision.allowed
        assert why in decision.why
        assert decision.why.isprintable()


def test_without_a_policy_our_own_server_may_all_and_one_over_tcp_nothing() -> None:
    wish = command("/bin/sh", "-c", "make\nrun", directory="/tmp", LD_LIBRARY_PATH="/opt/lib")
    ours, tcp = Gate(None, server_is_ours=True), Gate(None, server_is_ours=False)
    assert ours.decide(wish).allowed
    assert ours.admit(assignment(command=wish)).command == wish
    ours.require_a_use()
    refused = tcp.decide(wish)
    assert not refused.allowed
    assert refused.why == (
        "there is no policy file, and over TCP other people and other machines ask for runs, and none of "
        "them is this agent's user: it may not run any command"
    )
    assert "--policy FILE" in refused.remedy and "unix:PATH" in refused.remedy
    assert ours.decide_recording(Path("/x.csv")).allowed
    assert not tcp.decide_recording(Path("/x.csv")).allowed
    assert "nothing is run, and no recording is read" in tcp.describe()
    assert "may run any command" in ours.describe()
    with pytest.raises(NotReadyError, match="over TCP other people"):
        tcp.require_a_use()


def test_without_a_policy_a_server_whose_socket_others_share_may_do_nothing() -> None:
    wish = command("/bin/true")
    assert gate_for(None, "unix:/run/s", "").decide(wish).allowed
    for address, why in (("unix:/run/s", "every member of its group asks for runs"), ("h:1", "over TCP")):
        gate = gate_for(None, address, "olga")
        decision = gate.decide(wish)
        assert (decision.allowed, why in decision.why) == (False, True)
        with pytest.raises(NotReadyError, match=why):
            gate.require_a_use()
    assert "Unix socket" not in gate_for(None, "unix:/run/s", "olga").decide(wish).remedy


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_AUDIT", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"])
def test_what_would_load_code_into_the_profiler_needs_a_policy(name: str) -> None:
    decision = Gate(None, server_is_ours=True).decide(command("/bin/true", **{name: "/x.so"}))
    assert not decision.allowed
    assert decision.why.startswith(f"{name} would load code into the profiler")


def test_recordings_are_read_where_the_policy_says(box: Box) -> None:
    gate = box.gate('recordings = ["ROOT/work/*.csv"]\n')
    assert gate.decide_recording(box.work / "a.csv").allowed
    assert not gate.decide_recording(box.work / ".." / "a.csv").allowed
    (box.work / "key.csv").symlink_to("/etc/shadow")
    assert not gate.decide_recording(box.work / "key.csv").allowed
    with pytest.raises(ProfilerError, match="'recordings'"):
        gate.admit(assignment(recorded=RecordedSource(Path("/etc/shadow"))))
    # A recording that is a folder: what its links lead to is sent, too.
    folder = box.work / "export.csv"
    folder.mkdir()
    (folder / "inside").symlink_to(box.work / "a.csv")
    assert gate.decide_recording(folder).allowed
    (folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet").symlink_to("/etc/shadow")
    refused = gate.decide_recording(folder)
    assert not refused.allowed
    assert refused.why == (
        f"in '{folder}' the link 'CUPTI_ACTIVITY_KIND_KERNEL.parquet' leads to '/etc/shadow', which no "
        f"pattern of 'recordings' in {box.file} matches"
    )
    # Both at once: neither hides the other.
    both = assignment(recorded=RecordedSource(Path("/etc/shadow")), command=command("matmul"))
    with pytest.raises(ProfilerError):
        box.gate(MATMUL).admit(both)


def test_a_refusal_is_a_failure_that_no_retry_helps(box: Box) -> None:
    with pytest.raises(ProfilerError) as raised:
        box.gate(MATMUL).admit(assignment(command=command("/bin/sh")))
    failed = raised.value.failure
    assert (failed.failure_class, failed.retryable) == (FailureClass.REFUSED_BY_POLICY, False)
    assert str(box.file) in failed.cause
    assert str(box.file) in failed.remedy
    assert failed.subject == "run c-1.0000 slice 0 attempt 1"


def test_root_and_other_users_run_nothing_unless_the_policy_says_so(box: Box) -> None:
    wish = command("matmul")
    as_root = box.gate(MATMUL, user_id=0)
    assert not as_root.decide(wish).allowed
    assert "does not say 'allow_root = true'" in as_root.wrong_user()
    with pytest.raises(NotReadyError, match="runs as root"):
        as_root.require_user()
    assert box.gate(f"allow_root = true\n{MATMUL}", user_id=0).decide(wish).allowed
    # A user whom nobody named is called by their number.
    assert box.gate(f'users = ["54321"]\n{MATMUL}', user_id=54321).decide(wish).allowed
    stranger = box.gate(f'users = ["assay"]\n{MATMUL}', user_id=54321)
    assert not stranger.decide(wish).allowed
    assert "'54321', who is not among 'users'" in stranger.wrong_user()


@pytest.mark.parametrize(
    ("text", "field", "cause"),
    [
        ("version = 2", "version", "Input should be 1"),
        ("", "version", "Field required"),
        ("version = 1\nalow = []", "alow", "Extra inputs are not permitted"),
        ('version = 1\n[[allow]]\nprogram = "bin/x"', "allow.1.program", "'bin/x' is not an absolute path"),
        ("version = 1\n[[allow]]\nname = 'x'", "allow.1.program", "Field required"),
        (
            'version = 1\n[[allow]]\nprogram = "/x"\narguments = ["...", "a"]',
            "allow.1.arguments",
            "comes last",
        ),
        ('version = 1\ndirectories = ["work"]', "directories.1", "not an absolute path"),
        ('version = 1\nallow_root = "no"', "allow_root", "valid boolean"),
        ('version = 1\npath = "/x"', "path", "no such key"),
        ("version = ", None, "not TOML"),
    ],
)
def test_a_policy_that_is_not_valid_is_refused_with_its_field(
    tmp_path: Path, text: str, field: str | None, cause: str
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(InputError) as raised:
        read_policy(file)
    assert raised.value.field == field
    assert cause in raised.value.cause


def test_a_policy_that_others_may_change_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o755)
    file = folder / "policy.toml"
    file.write_text("version = 1\n")
    file.chmod(0o664)
    with pytest.raises(InputError, match="users other than root"):
        read_policy(file)
    file.chmod(0o644)
    assert read_policy(file) == Policy(version=1, path=file)
    folder.chmod(0o777)
    with pytest.raises(InputError, match="users other than root"):
        read_policy(file)
    folder.chmod(0o1777)
    assert read_policy(file).allow == []


@pytest.mark.parametrize("name", ["none.toml", "."])
def test_a_policy_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_policy(tmp_path / name)


def test_the_patterns_by_example() -> None:
    for pattern, text, expected in (
        ("*.py", "a.py", True), ("*.py", "d/a.py", False), ("**.py", "d/a.py", True), ("**", "", True),
        ("a?c", "abc", True), ("a?c", "a/c", False), ("[a-c]", "b", True), ("[!a-c]", "b", False),
        ("[!a-c]", "/", False), ("[]]", "]", True), ("[a", "[a", True), ("a.c", "abc", False),
        ("x", "x\n", False), ("*", "a\nb", True), ("***x", "a/x", True), ("", "", True), ("[-a]", "-", True),
    ):  # fmt: skip
        assert matches(pattern, text) is expected, (pattern, text)


@given(st.text(alphabet="ab*?[]!-/.", max_size=12), st.text(alphabet="ab/.]", max_size=12))
def test_a_star_stands_for_no_slash_and_every_text_for_itself(pattern: str, text: str) -> None:
    assert matches(text, text)
    if "**" not in pattern and "[" not in pattern and matches(pattern, text):
        assert text.count("/") == pattern.count("/")


def test_a_hostile_text_takes_no_more_than_its_length() -> None:
    assert not matches("**a**a**a**a**a**a**a**b", "a" * 20_000)


def test_a_folder_with_the_characters_of_a_glob_is_itself(tmp_path: Path) -> None:
    odd = tmp_path / "link"
    odd.symlink_to(tmp_path / "a[b]*")
    resolved = os.path.realpath(tmp_path)
    assert matches_path(f"{odd}/*", f"{resolved}/a[b]*/x")
    assert not matches_path(f"{odd}/*", f"{resolved}/ab/x")
