"""What an attempt rests on: loaded libraries, what tells their builds apart, and the facts of whole runs."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_agent.conditions import mps_control
from assay_agent.conditions.mps_control import program_version
from assay_agent.execution.environment import MeasuredGPU, scrubbed, without_secrets
from assay_agent.execution.pinned import pin_program
from assay_agent.execution.tool_version import ToolBox
from assay_agent.guards.run_guards import run_processes
from assay_agent.provenance import program as programs
from assay_agent.provenance.facts import Collected, environment_hash, live_facts
from assay_agent.provenance.file_identity import file_identity
from assay_agent.provenance.libraries import LoadedLibraries, described
from assay_agent.provenance.program import HashedPrograms
from assay_agent.provenance.python_package import python_package
from assay_agent.spool.records import Seal
from assay_core.processes import tool_run
from assay_core.records.attempt import AttemptLog
from assay_core.records.validity_flag import ValidityFlag
from assay_sampling.counters.definitions import registry
from assay_sampling.launches.table import (
    BASELINE,
    Condition,
    Device,
    TableMetadata,
    launch_schema,
    make_batch,
)
from assay_sampling.running.attempt_facts import (
    AttemptFacts,
    LibraryFacts,
    ProgramFact,
    ToolFact,
    parse_facts,
)
from assay_virtual.gpu_models import MODELS
from tests.support.agent import mps_stand_in
from tests.support.agent.conditions_bench import LIGHT, Bench, Plain

BUILD_ID = bytes(range(20))


def elf(build_id: bytes = BUILD_ID) -> bytes:
    """A 64-bit ELF file of headers and two notes; the second is the linker's build-id."""
    notes = struct.pack("<III", 4, 4, 1) + b"GNU\0" + b"\1\0\0\0"
    notes += struct.pack("<III", 4, len(build_id), 3) + b"GNU\0" + build_id
    head = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    )
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, 999, 999, 8)
    note = struct.pack("<IIQQQQQQ", 4, 4, 176, 0, 0, len(notes), len(notes), 4)
    return head + load + note + notes


def identity(data: bytes) -> str:
    return file_identity(io.BytesIO(data), len(data))


def test_a_build_id_tells_a_library() -> None:
    assert identity(elf()) == f"build-id:{BUILD_ID.hex()}"
    assert identity(elf(b"\xff" * 8)) == f"build-id:{'ff' * 8}"


def test_without_a_build_id_both_ends_and_the_size_do() -> None:
    first = b"a" * (64 << 10) + b"m" * 1000 + b"z" * (64 << 10)
    assert identity(first).startswith("edges:")
    assert identity(first) == identity(first)
    others = [b"b" + first[1:], first[:-1] + b"y", first + b"z"]
    assert len({identity(each) for each in [first, *others]}) == 4
    # The middle is not looked at: a library has hundreds of megabytes.
    assert identity(first.replace(b"m", b"n")) == identity(first)
    digest = hashlib.blake2b(b"2", digest_size=16)
    digest.update(b"hi")
    digest.update(b"hi")
    assert identity(b"hi") == f"edges:{digest.hexdigest()}"


@given(st.binary(max_size=400), st.integers(0, 300))
def test_no_damaged_file_is_too_much(junk: bytes, cut: int) -> None:
    for data in (junk, elf()[:cut], elf()[:cut] + junk, b"\x7fELF\x02\x01" + junk):
        assert identity(data).startswith(("edges:", "build-id:"))


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("nvidia/cublas/lib/libcublasLt.so.12", "nvidia-cublas-cu12 12.4.5.8"),
        ("nvidia/cudnn/lib/libcudnn_ops.so.9", "nvidia-cudnn-cu12 9.1.0.70"),
        ("nvidia/cu13/lib/libcublas.so.13", "nvidia-cublas 13.1.0.3"),
        ("torch/lib/libtorch_cuda.so", "torch 2.4.0+cu121"),
        ("tensorrt_libs/libnvinfer.so.10", "tensorrt-libs 10.3.0"),
        ("unheard_of/libcudart.so.12", ""),
        ("libcudart.so.12", ""),
    ],
)
def test_the_package_of_a_library(tmp_path: Path, inner: str, expected: str) -> None:
    packages = tmp_path / "v" / "site-packages"
    for record in (
        "nvidia_cublas_cu12-12.4.5.8", "nvidia_cudnn_cu12-9.1.0.70", "torch-2.4.0+cu121", "torchvision-0.1",
        "tensorrt_libs-10.3.0", "nvidia_cuda_runtime_cu12-12.4.127",
    ):  # fmt: skip
        (packages / f"{record}.dist-info").mkdir(parents=True)
    if "cu13" in inner:
        (packages / "nvidia_cublas-13.1.0.3.dist-info").mkdir()
    assert python_package(Path("/v/site-packages") / inner, tmp_path) == expected


def test_no_folder_of_packages_is_no_package(tmp_path: Path) -> None:
    assert python_package(Path("/usr/lib/libcudart.so.12"), tmp_path) == ""
    assert python_package(Path("/gone/site-packages/torch/lib/libtorch.so"), tmp_path) == ""
    assert python_package(Path("/v/site-packages"), tmp_path) == ""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


MAPS = """\
55d0-55d1 r--p 00000000 fe:01 11 /usr/bin/python3.11
7f00-7f01 r--p 00000000 fe:01 21                         /cuda/libcublas.so.12.4.5.8
7f01-7f02 r-xp 00001000 fe:01 21                         /cuda/libcublas.so.12.4.5.8
7f02-7f03 r--p 00000000 fe:01 22                         /opt/nvidia/nsight-systems/2023.4.4/libcuda.so.1
7f03-7f04 r--p 00000000 fe:01 23                         /cuda/libcudnn_ops.so.9 (deleted)
7f04-7f05 r--p 00000000 fe:01 24                         /lib/libcrypto.so.3
7f05-7f06 rw-p 00000000 00:00 0                          [heap]
7f06-7f07 rw-s 00000000 fe:01 25                         /data/libcublas weights.bin
7f07-7f08 r--p 00000000 fe:01 26                         /cuda/libcupti.so.12
"""


class Box:
    """Processes that are made up: their maps, and files below their root folders."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.processes = folder, Clock(), list[int]()
        self.loaded = LoadedLibraries(
            folder, proc=folder, processes=lambda temporary: self.processes, clock=self.clock
        )

    def process(self, number: int, maps: str = MAPS) -> Path:
        root = self.folder / str(number) / "root"
        (root / "cuda").mkdir(parents=True)
        (self.folder / str(number) / "maps").write_text(maps)
        (root / "cuda" / "libcublas.so.12.4.5.8").write_bytes(elf())
        self.processes.append(number)
        return root

    def after(self, seconds: float) -> LibraryFacts:
        self.clock.now += seconds
        self.loaded.tick()
        return self.loaded.facts()


@pytest.fixture
def box(tmp_path: Path) -> Box:
    made = Box(tmp_path)
    made.loaded.begin()
    return made


def test_the_mapped_libraries_of_cuda_are_found_and_no_others(box: Box) -> None:
    box.process(7)
    found = box.after(0.1)
    assert (found.status, found.left_out) == ("found", 0)
    assert [(x.name, x.version, x.path, x.of_tool) for x in found.found] == [
        ("libcublas", "12.4.5.8", "/cuda/libcublas.so.12.4.5.8", False),
        ("libcuda", "1", "/opt/nvidia/nsight-systems/2023.4.4/libcuda.so.1", True),
        ("libcudnn_ops", "9", "/cuda/libcudnn_ops.so.9", False),
        ("libcupti", "12", "/cuda/libcupti.so.12", True),
    ]
    assert (found.found[0].identity, found.found[0].size_bytes) == (f"build-id:{BUILD_ID.hex()}", len(elf()))
    # What cannot be opened is named all the same.
    assert (found.found[2].identity, found.found[2].size_bytes) == ("", 0)
    assert found.note == "libcuda without libcudart: the CUDA runtime is linked statically, or not used"


def test_libraries_that_come_later_and_in_other_processes_are_added(box: Box) -> None:
    box.process(7, MAPS.splitlines()[0] + "\n")
    assert box.after(0.1).status == "none found"
    box.process(8)
    box.process(9, "7f00-7f01 r--p 00000000 fe:01 31 /cuda/libcudart.so.12.4.127\n")
    names = [library.name for library in box.after(1.0).found]
    assert names == ["libcublas", "libcuda", "libcudart", "libcudnn_ops", "libcupti"]


def test_nothing_found_says_so(box: Box) -> None:
    assert box.loaded.facts().note.startswith("no library of CUDA was seen in 0 looks: linked statically")
    box.after(0.1)
    found = box.after(1.0)
    assert (found.status, found.found) == ("none found", ())
    assert found.note.startswith("no library of CUDA was seen in 2 looks")


def test_processes_that_end_or_may_not_be_looked_at_are_passed_over(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.processes = [5]  # it has ended
    box.process(7)
    box.process(8)
    opened = Path.open

    def refuse(path: Path, *arguments: Any, **named: Any) -> Any:
        if path == box.folder / "8" / "maps":
            raise PermissionError(13, "not permitted")
        return opened(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", refuse)
    found = box.after(0.1)
    assert len(found.found) == 4
    assert found.note.endswith("; the agent's user may not inspect some processes")


def test_a_fault_of_the_looking_never_leaves_it(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    def broken(temporary: Path) -> list[int]:
        raise ZeroDivisionError

    box.loaded._processes = broken
    assert box.after(0.1).status == "none found"
    assert "failed unexpectedly" in caplog.text


def test_looks_become_seldom_and_the_last_is_late_in_the_run(box: Box) -> None:
    looks: list[float] = []
    box.loaded._look = lambda: looks.append(box.clock.now)  # type: ignore[method-assign]
    for _ in range(20 * 600):
        box.clock.now += 0.05
        box.loaded.tick()
        if box.clock.now > 1.0:
            assert looks[-1] >= max(0.7 * box.clock.now, box.clock.now - 10.1)
    assert looks[0] == pytest.approx(0.1, abs=0.051)
    assert len(looks) < 90


def test_too_many_libraries_are_counted(box: Box) -> None:
    lines = [f"7f-80 r--p 0 fe:01 {n} /cuda/libcudnn_{n}.so.9\n" for n in range(70)]
    box.process(7, "".join(lines))
    found = box.after(0.1)
    assert (len(found.found), found.left_out) == (64, 6)
    assert box.after(1.0).left_out == 6


MAPPER = """
import mmap, sys, time
with open(sys.argv[1], "rb") as file:
    held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
print("mapped", flush=True)
time.sleep(60)
"""


def test_a_pipe_in_the_place_of_a_library_holds_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "libcuda.so.1")
    seen: list[Any] = []
    look = threading.Thread(
        target=lambda: seen.append(described(tmp_path / "libcuda.so.1", Path("/"))), daemon=True
    )
    look.start()
    look.join(30)
    assert [(library.name, library.identity) for library in seen] == [("libcuda", "")]


@pytest.mark.processes
def test_a_real_process_is_looked_at_through_its_maps(tmp_path: Path) -> None:
    library = tmp_path / "libcudnn_graph.so.9.1.0"
    library.write_bytes(elf())
    link = tmp_path / "libcudnn_graph.so.9"
    link.symlink_to(library)
    environment = {"TMPDIR": str(tmp_path)}
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", MAPPER, str(link)], stdout=subprocess.PIPE, env=environment
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        loaded = LoadedLibraries(tmp_path)
        loaded.begin()
        time.sleep(0.11)
        loaded.tick()
    finally:
        child.kill()
        child.communicate()
    [found] = loaded.facts().found
    assert found == described(library, Path("/"))
    assert (found.name, found.version, found.identity) == (
        "libcudnn_graph", "9.1.0", f"build-id:{BUILD_ID.hex()}",
    )  # fmt: skip


def made_program(folder: Path, content: bytes = b"#!/bin/sh\n") -> Path:
    made = folder.resolve() / "train"
    made.write_bytes(content)
    made.chmod(0o755)
    return made


def fact_of(program: Path, content: bytes) -> ProgramFact:
    return ProgramFact(str(program), len(content), hashlib.sha256(content).hexdigest())


def test_a_program_is_told_by_where_its_path_leads_its_size_and_its_hash(tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    made = made_program(tmp_path, content)
    (tmp_path / "link").symlink_to("train")
    known, search = HashedPrograms(), {"PATH": f"/nowhere:{tmp_path}"}
    for word in (str(made), "./link", f"../{tmp_path.name}/train", "train"):
        started = known.started(word, tmp_path, search)
        assert started.fact == started.after_run().fact == fact_of(made, content)
    # A name is looked for in PATH alone, as it is when it is started.
    assert known.started("train", tmp_path, {"PATH": "/nowhere"}).fact.note == "it was not found"


def test_a_file_is_read_once_and_again_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = list[int]()
    hashed = programs._sha256
    monkeypatch.setattr(programs, "_sha256", lambda *given: reads.append(1) or hashed(*given))
    made, known = made_program(tmp_path), HashedPrograms()
    first = [known.started(str(made), tmp_path, {}).fact for _ in range(3)]
    assert (first, len(reads)) == ([fact_of(made, b"#!/bin/sh\n")] * 3, 1)
    state = made.stat()
    made.write_bytes(b"#!/bin/ab\n")
    # Whoever sets the time of the last change back cannot set the kernel's.
    os.utime(made, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert known.started(str(made), tmp_path, {}).fact == fact_of(made, b"#!/bin/ab\n")
    assert len(reads) == 2


def test_a_program_that_changes_has_no_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, known = made_program(tmp_path), HashedPrograms()
    pin = pin_program(str(made), str(made))
    assert pin is not None
    started = known.started(str(made), tmp_path, {}, pins=[pin])
    assert started.fact.sha256
    other = made_program(tmp_path, b"other")
    assert started.after_run().fact == replace(started.fact, sha256="", note="it changed while it ran")
    # What a policy judged was another file: nothing is told of this one, and the run is refused.
    changed = ProgramFact(str(other), 5, "", "it changed while it was read")
    assert known.started(str(made), tmp_path, {}, pins=[pin]).fact == changed
    assert "was replaced" in pin.fault()
    made.unlink()
    assert started.after_run().fact.sha256 == ""
    # Written to between the first and the last byte.
    made_program(tmp_path, b"third")
    hashed = programs._sha256

    def while_written(*given: Any) -> str:
        with made.open("ab") as file:
            file.write(b"more")
        return hashed(*given)

    monkeypatch.setattr(programs, "_sha256", while_written)
    assert known.started(str(made), tmp_path, {}).fact == changed


def test_what_cannot_be_read_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = HashedPrograms()

    def told(word: str, **more: Any) -> tuple[int, str, str]:
        fact = known.started(word, tmp_path, {}, **more).fact
        return fact.size_bytes, fact.sha256, fact.note

    made = made_program(tmp_path, b"12345")
    os.mkfifo(tmp_path / "pipe")
    assert told("./absent") == (0, "", "it cannot be read (No such file or directory)")
    assert told("./pipe") == told("./") == (0, "", "it is not a plain file")
    assert told("a\0b")[1:] == ("", "it was not found")
    assert told("/a\0b")[1] == ""
    assert told("./train", stopped=lambda: True) == (5, "", "the run was stopped while it was read")
    monkeypatch.setattr(programs, "MOST_BYTES", 4)
    assert told("./train") == (5, "", "it has more than 4 bytes, which are not read")
    monkeypatch.setattr(programs, "MOST_BYTES", 5)
    assert told("./train")[1] == hashlib.sha256(made.read_bytes()).hexdigest()


def test_only_what_a_confined_program_can_read_is_read_for_it(tmp_path: Path) -> None:
    files, secret = tmp_path / "files", tmp_path / "key"
    files.mkdir()
    secret.write_text("of the agent")
    made = made_program(files)
    (files / "link").symlink_to(secret)
    known = HashedPrograms()
    told = [known.started(word, files, {}, inside=files).fact for word in ("./train", "./link", "../key")]
    outside = "it lies outside of the submitter's files"
    assert told == [
        replace(fact_of(made, b"#!/bin/sh\n"), path="train"),
        ProgramFact("link", note="it cannot be read (Too many levels of symbolic links)"),
        ProgramFact("../key", note=outside),
    ]
    system = known.started("sh", files, {"PATH": "/usr/bin:/bin"}, inside=files).fact
    assert system.sha256 == hashlib.sha256(Path("/bin/sh").read_bytes()).hexdigest()


def test_on_a_virtual_gpu_the_workload_file_is_the_program() -> None:
    model = MODELS.gpu("V100", 0).model
    assert model.program(["env", "A=1", "train.toml"]) == "./train.toml"
    assert model.program(["/w/train.toml", "x.toml"]) == "/w/train.toml"
    assert model.program(["train", "--fast"]) == "train"


GPU = MeasuredGPU(Device(0, "H100", "GPU-1", "9.0", 132), path="/bin", driver_version="550.1")


def facts_of(gpu: MeasuredGPU = GPU, **changes: Any) -> AttemptFacts:
    given: dict[str, Any] = {
        "tools": [], "libraries": None, "environment": {}, "in_force": {}, "flags": (), **changes,
    }  # fmt: skip
    work = replace(LIGHT, **given.pop("work", {}))
    return live_facts(work, gpu, **given)


def test_the_facts_say_what_was_asked_and_what_was_in_force() -> None:
    half = facts_of(
        work={"condition": Condition("none", "base", 50.0)},
        in_force={
            "sm_percent_in_force": 50.0, "effective_sms": 66, "all_sms": 132, "cuda_version": "12.4",
            "mps_program": "/usr/bin/mps", "mps_version": "550.163.01",
        },
    )  # fmt: skip
    condition = half.condition
    assert (half.gpu, half.driver, half.cuda, half.synthetic) == ("H100", "550.1", "12.4", False)
    assert (condition.sm_percent, condition.sm_percent_in_force) == (50.0, 50.0)
    assert (condition.effective_sms, condition.all_sms) == (66, 132)
    assert (condition.mps_daemon, condition.mps_version) == ("private", "550.163.01")
    assert (condition.clock, condition.clock_state, condition.clock_locked_by) == ("base", "locked", "NVML")
    free = facts_of(work={"condition": BASELINE}).condition
    assert (free.mps_daemon, free.clock_state, free.flush_method, free.all_sms) == ("none", "free", "", 132)


def test_a_refused_clock_says_why_and_a_flush_says_how() -> None:
    refused = facts_of(
        work={"condition": Condition("all", "base", 100.0), "level": "detailed"},
        flags=(ValidityFlag("clock_unlocked", "not permitted"),),
    ).condition
    assert (refused.clock_state, refused.clock_locked_by, refused.clock_refused) == (
        "refused", "", "not permitted",
    )  # fmt: skip
    assert refused.flush_method == "ncu --cache-control all, before every pass"
    by_kernel = facts_of(
        work={"condition": Condition("all", "none", 100.0)}, in_force={"flush_method": "a kernel of ours"}
    )
    assert by_kernel.condition.flush_method == "a kernel of ours"


def test_virtual_gpus_are_told_as_such() -> None:
    virtual = facts_of(
        replace(GPU, model=MODELS.gpu("V100", 0).model, driver_version=""),
        work={"condition": Condition(clock="base")},
    )
    assert virtual.synthetic
    assert virtual.condition.clock_state == "virtual"
    assert virtual.libraries == LibraryFacts(note="a virtual GPU runs no CUDA")


def test_the_hash_of_the_environment_knows_no_secrets_and_no_private_folders() -> None:
    one = {"PATH": "/bin", "OMP_NUM_THREADS": "1", "TMPDIR": "/tmp/a", "HF_TOKEN": "one"}
    assert environment_hash(one) == environment_hash({**one, "TMPDIR": "/tmp/b", "HF_TOKEN": "two"})
    assert environment_hash(one) == environment_hash(dict(reversed(one.items())))
    assert environment_hash(one) != environment_hash({**one, "OMP_NUM_THREADS": "2"})
    assert environment_hash(one) != environment_hash({k: v for k, v in one.items() if k != "HF_TOKEN"})


def test_secrets_are_known_by_name_and_in_addresses_and_hidden_where_a_program_says_them() -> None:
    given = {
        "DB_PASS": "hunter2", "MYSQL_PWD": "swordfish", "SENTRY_DSN": "https://0123456789@sentry.lab/1",
        "https_proxy": "http://ada:lovelace@proxy.lab:3128", "BATCH": "64", "API_KEY": "on",
        "HOMEPAGE": "http://lab:8080/a@b",
    }  # fmt: skip
    assert scrubbed(given) == {
        **dict.fromkeys(("API_KEY", "DB_PASS", "MYSQL_PWD", "SENTRY_DSN"), "(hidden)"),
        "BATCH": "64", "https_proxy": "http://ada:(hidden)@proxy.lab:3128",
        "HOMEPAGE": "http://lab:8080/a@b",
    }  # fmt: skip
    said = "login ada hunter2 via http://ada:lovelace@proxy.lab:3128, one on one"
    assert without_secrets(said, given) == (
        "login ada (hidden) via http://ada:(hidden)@proxy.lab:3128, one on one"
    )


def batch(passes: list[float | None] | None = None, **metadata: Any) -> pa.RecordBatch:
    names = ["instructions", *(["replay_passes"] if passes is not None else [])]
    columns = [registry()[name].column(registry()[name].metrics[0].name) for name in names]
    schema = launch_schema(TableMetadata("detailed", **metadata), columns)
    count = len(passes) if passes is not None else 1
    shapes = {f"{what}_{axis}": [1] * count for what in ("grid", "block") for axis in "xyz"}
    values = {"process": [0] * count, "launch": list(range(count)), "kernel_id": [1] * count, **shapes}
    counters = {"instructions": [1.0] * count, **({"replay_passes": passes} if passes is not None else {})}
    return make_batch(schema, {**values, **counters}, num_rows=count)


def test_the_launches_tell_which_counters_came_and_how_often_they_were_replayed() -> None:
    collected = Collected(("instructions", "dram_bytes"))
    collected.add(batch([3.0, 5.0]))
    collected.add(batch([2.0, None]))
    told = collected.log_with_facts(
        AttemptLog(facts_json=AttemptFacts(tools=(ToolFact("ncu", "2024.1"),)).to_json())
    ).facts
    assert told is not None
    assert told.tools == (ToolFact("ncu", "2024.1"),)
    counters = told.counters
    assert (counters.asked, counters.missing) == (("instructions", "dram_bytes"), ("dram_bytes",))
    assert counters.collected["instructions"] == "smsp__inst_executed.sum"
    assert (counters.least_passes, counters.most_passes) == (2, 5)


def test_a_recording_has_the_facts_of_its_table() -> None:
    collected = Collected(())
    collected.add(
        batch(
            condition=Condition("none", None, 100.0), devices=(Device(0, "A100"),), format="nsys-sqlite",
            tool="Nsight Systems", tool_version="2023.4", driver_version="535.1", origin="synthetic",
        )
    )  # fmt: skip
    found = collected.log_with_facts(AttemptLog(text="played back")).facts
    assert found is not None
    assert (found.gpu, found.driver, found.recording, found.synthetic) == (
        "A100",
        "535.1",
        "nsys-sqlite",
        True,
    )
    assert found.tools == (ToolFact("Nsight Systems", "2023.4"),)
    assert (found.condition.cache, found.condition.clock, found.condition.sm_percent) == ("none", "", 100.0)
    assert found.libraries.note == "a recording does not list them"
    assert found.counters.least_passes is None
    assert Collected(()).log_with_facts(AttemptLog()).facts is None


def test_the_facts_outlive_the_agent_in_the_seal_and_travel() -> None:
    facts = facts_of(tools=[ToolFact("nsys", "2023.4.4", "/usr/bin/nsys")])
    log = AttemptLog(("nsys",), {}, "said", facts_json=facts.to_json())
    seal = Seal(1, 2, (), (), log)
    assert Seal.from_json(seal.to_json()) == seal
    assert parse_facts(log.to_proto().facts_json) == facts
    assert AttemptLog().to_proto().facts_json == ""
    # A seal of an earlier release has none.
    document = json.loads(seal.to_json())
    del document["log"]["facts"]
    assert Seal.from_json(json.dumps(document).encode()).log == replace(log, facts_json="")


def test_the_version_of_an_mps_daemon_stands_in_its_program(tmp_path: Path) -> None:
    program = tmp_path / "control"
    program.write_bytes(b"\x7fELF\0some text\x00550.163.01\0more\0")
    assert program_version(str(program)) == "550.163.01"
    for other in (b"no version", b"\x00550.163.01\0\x00535.261.03\0"):
        program.write_bytes(other)
        assert program_version(str(program)) == ""
    assert program_version(str(tmp_path / "absent")) == ""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mps_stand_in.driver_library(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def bench(library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        made = Bench(Path(folder))
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setitem(sys.modules, "pynvml", made.nvml)  # type: ignore[arg-type]
        monkeypatch.setattr(mps_control, "_ENDING", tool_run.EndingSteps(0.2, 0.2))
        for name in ("bin", "lib"):
            (made.folder / name).mkdir()
        (made.folder / "lib" / library.name).symlink_to(library)
        program = mps_stand_in.control_program(made.folder / "bin")
        # NVIDIA's is no script, and its version is one of the texts in it.
        script = program.rename(made.folder / "control.py")
        program.write_bytes(b'#!/bin/sh\nexec %s "$@"\n\x00550.163.01\0' % bytes(script))
        program.chmod(0o755)
        yield made
        assert made.left() == []


@pytest.mark.processes
def test_a_run_at_a_share_tells_its_daemon_its_libraries_and_no_secret(bench: Bench, library: Path) -> None:
    work = bench.work(seconds=0.6, condition=replace(BASELINE, sm_percent=50.0))
    assert work.command is not None
    work = replace(work, command=replace(work.command, environment={"API_TOKEN": "hunter2"}))
    log = bench.measure(work).log
    facts = log.facts
    assert facts is not None
    assert facts.condition.mps_daemon == "private"
    assert facts.condition.mps_program == str(bench.folder / "bin" / "nvidia-cuda-mps-control")
    assert facts.condition.mps_version == "550.163.01"
    assert (facts.condition.sm_percent, facts.condition.sm_percent_in_force) == (50.0, 50.0)
    assert (facts.condition.effective_sms, facts.condition.all_sms) == (40, 80)
    assert facts.cuda == "12.4"
    assert facts.libraries.found == (described(library.resolve(), Path("/")),)
    assert facts.libraries.found[0].identity
    assert "linked statically" in facts.libraries.note
    assert facts.program.path == str(Path(sys.executable).resolve())
    assert facts.program.sha256 == hashlib.sha256(Path(sys.executable).read_bytes()).hexdigest()
    assert "hunter2" not in log.to_proto().facts_json
    assert parse_facts(facts.to_json()) == facts


@pytest.mark.processes
def test_a_virtual_run_tells_its_workload_file_and_a_file_that_it_writes_to_has_no_hash(bench: Bench) -> None:
    gpu = replace(bench.gpu, model=MODELS.gpu("V100", 0).model, scope=str(bench.state))
    file = bench.folder / "w.toml"

    def told(statement: str) -> ProgramFact:
        file.write_text("version = 1\n")
        work = bench.work()
        assert work.command is not None
        argv = (sys.executable, "-IS", "-c", statement, "w.toml")
        work = replace(work, command=replace(work.command, argv=argv))
        with Plain(work, gpu, ToolBox(), bench.state, threading.Event()) as measurement:
            assert list(measurement.batches()) == []
        facts = measurement.log.facts
        assert facts is not None
        return facts.program

    whole = told("pass")
    assert whole == fact_of(file.resolve(), b"version = 1\n")
    changed = told("open('w.toml', 'a').write('#')")
    assert changed == replace(whole, sha256="", note="it changed while it ran")


@pytest.mark.processes
def test_a_run_that_is_cancelled_has_facts_as_well(bench: Bench) -> None:
    cancelled = threading.Event()
    cancelled.set()
    measurement = bench.measurement(bench.work(), cancelled)
    with measurement:
        assert list(measurement.batches()) == []
    facts = measurement.log.facts
    assert facts is not None
    assert facts.gpu == "Stand-in V100"
    assert run_processes(bench.base / "tmp") == []
