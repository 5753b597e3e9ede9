"""Files of submitters on a box: refused without the policy's word, confined with it, and gone afterwards."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay_agent.execution.confinement.command import BundledCommand
from assay_agent.execution.confinement.leftovers import remove_strange, require_plain
from assay_agent.execution.confinement.means import FOLDERS, find_means
from assay_agent.execution.confinement.place import TMPFS, Place
from assay_agent.execution.confinement.seccomp import seccomp_filter
from assay_agent.execution.confinement.start import wrong_mounts
from assay_agent.execution.confinement.view import View
from assay_agent.execution.errors import ProfilerError
from assay_agent.policy.file import read_policy
from assay_agent.policy.gate import Gate
from assay_core.records.attempt import AttemptKey
from assay_core.records.upload import Bundle
from assay_core.records.work import CommandSource, Work
from assay_sampling.errors import InputError
from assay_sampling.running.failures import FailureClass
from tests.support.agent.bubblewrap import BUBBLEWRAP, bubblewrap_here
from tests.support.integration.harness import wait_until

BUNDLE = Bundle("a" * 64, 4096, 2)


def work_with(**changes: object) -> Work:
    given = {"argv": ("./run.sh",), "bundle": BUNDLE, **changes}
    return Work(
        key=AttemptKey("c-1.0000", 0, 1, 1), campaign_id="c-1", workload="w", device_kind="V100",
        level="light", profiler="bare", command=CommandSource(**given),  # type: ignore[arg-type]
    )  # fmt: skip


def gate_of(tmp_path: Path, table: str) -> Gate:
    path = tmp_path / "policy.toml"
    path.write_text(f"version = 1\nallow_root = true\n{table}")
    path.chmod(0o600)
    return Gate(read_policy(path), server_is_ours=False)


def refusal(gate: Gate, work: Work) -> str:
    with pytest.raises(ProfilerError) as refused:
        gate.admit(work)
    assert refused.value.failure_class is FailureClass.REFUSED_BY_POLICY
    return refused.value.cause


def test_bundles_are_off_unless_the_policy_enables_them(tmp_path: Path) -> None:
    """Also where the server is this user's own, and where a rule allows any program."""
    assert "no policy file" in refusal(Gate(None, server_is_ours=True), work_with())
    every = gate_of(tmp_path, '[[allow]]\nprogram = "/**"\n')
    assert "no table [bundles]" in refusal(every, work_with()) and not every.runs_bundles


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 1", "exit status 1"),
        ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "No permissions"),
        ("echo 'bwrap: Unknown option --block-fd' >&2; exit 1", "Unknown option --block-fd"),
    ],
)
def test_where_bubblewrap_does_not_work_bundles_are_refused_by_name_and_others_run(
    script: str, why: str, tmp_path: Path
) -> None:
    bwrap = program(tmp_path / "bwrap", script)
    gate = gate_of(tmp_path, f'[[allow]]\nprogram = "/usr/bin/*"\n[bundles]\nbubblewrap = "{bwrap}"\n')
    assert not gate.runs_bundles
    cause = refusal(gate, work_with())
    assert "files of submitters cannot be confined here: bubblewrap does not work here" in cause
    # Where the box makes no place for their files, that is said first.
    assert why in cause or "namespaces cannot be made" in cause
    gate.admit(work_with(argv=("/usr/bin/true",), bundle=None))


def test_a_box_without_bubblewrap_refuses_bundles(tmp_path: Path) -> None:
    gate = gate_of(tmp_path, '[bundles]\nbubblewrap = "/nowhere/bwrap"\n')
    assert "/nowhere/bwrap is not installed" in refusal(gate, work_with())


@pytest.mark.parametrize(
    "table",
    ['run_as = "nobody"', "bubblewrap = true", 'readable = ["x"]', "disk_bytes = 0", "memory_bytes = 5"],
)
def test_a_policy_with_other_words_is_refused(table: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        gate_of(tmp_path, f"[bundles]\n{table}\n")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"argv": ("-o",)}, "option of the profiler"),
        ({"argv": ()}, "names no program"),
        ({"argv": ("./a", "\0")}, "null character"),
        ({"working_directory": "/etc"}, "runs there"),
        ({"environment": {"LD_PRELOAD": "./evil.so"}}, "loaders and tools"),
        ({"environment": {"A=B": "x"}}, "not the name"),
        ({"kineto_file": "../../x.json"}, "Kineto file"),
        ({"bundle": Bundle("a" * 64, 4097, 2)}, "allows 4,096"),
    ],
)
def test_what_would_reach_beyond_the_confinement_is_refused(
    changes: dict[str, object], why: str, tmp_path: Path
) -> None:
    bubblewrap_here()
    gate = gate_of(
        tmp_path,
        f'[bundles]\nbubblewrap = "{BUBBLEWRAP}"\nmost_bytes = 4096\nmemory_bytes = 2000000\n',
    )
    assert gate.runs_bundles
    assert why in refusal(gate, work_with(**changes))
    admitted = gate.admit(work_with(environment={"OMP_NUM_THREADS": "2"})).command
    assert isinstance(admitted, BundledCommand)
    # The policy bounds what a campaign asks for.
    assert [admitted.means.memory_limit(asked) for asked in (0, 5, 1 << 40)] == [2_000_000, 5, 2_000_000]


SIZE_BYTES = 8 << 20


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    bubblewrap_here()
    (tmp_path / "base").mkdir()
    place = Place(tmp_path / "base" / "place", SIZE_BYTES)
    place.open((*FOLDERS, "work"))
    yield place
    place.close()


def run(
    place: Place, script: str, *, whole_etc: bool = False, more: tuple[tuple[str, str], ...] = ()
) -> subprocess.CompletedProcess[str]:
    """A script in its folder of the place, which lies in a folder of the agent's."""
    base, work = place.path.parent, place.path / "work"
    view = View(
        readable=("/etc",) if whole_etc else (),
        writable=((str(work), f"{TMPFS}/work"), *more),
        hidden=(str(base.parent),),
    )
    command = bubblewrap_here().command(["/bin/sh", "-c", script], view, work, place, base / "not-started")
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={"PATH": "/usr/bin:/bin"}
    )


def test_a_confined_program_has_no_rights_and_ends_as_it_ends(place: Place) -> None:
    done = run(place, "grep -E '^(Cap|NoNewPrivs|Seccomp:|Groups)' /proc/self/status; id -u; exit 7")
    assert done.returncode == 7
    said = done.stdout.split()
    assert said.count("0" * 16) == 5 and said[-1] == "65534"
    assert said[said.index("NoNewPrivs:") + 1] == "1" and said[said.index("Seccomp:") + 1] == "2"
    assert run(place, "kill -9 $$").returncode == -9
    assert run(place, "cat /etc/shadow /etc/hostname", whole_etc=True).returncode != 0
    assert run(place, "exec ./missing").returncode == 127


def test_root_is_no_user_of_a_confined_program(place: Place) -> None:
    """The kernel lets root write its variables, and so run a program outside, without any capability."""
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    done = run(
        place, f"printf %s '{before.strip()}' > /proc/sys/kernel/core_pattern; stat -c %u work ../work"
    )
    assert "core_pattern" in done.stderr and "65534" in done.stdout
    assert Path("/proc/sys/kernel/core_pattern").read_text() == before


CALLS = {"keyctl": 250, "add_key": 248, "bpf": 321, "mount": 165, "unshare": 272, "setns": 308, "clone3": 435,
         "io_uring_setup": 425, "shmget": 29, "perf_event_open": 298, "fsopen": 430}  # fmt: skip


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of x86_64")
@pytest.mark.skipif(shutil.which("perl", path="/usr/bin") is None, reason="perl calls the kernel by number")
def test_calls_that_no_measured_program_needs_fail(place: Place) -> None:
    script = "; ".join(
        f"print '{name}=', syscall({number}, 0, 0, 0, 0, 0) < 0 ? $!+0 : 'done', ' '"
        for name, number in CALLS.items()
    )
    # Two words of clone's flags: a process in a user namespace of its own, and a plain one.
    script += "; print 'user=', syscall(56, 0x10000011, 0, 0, 0, 0) < 0 ? $!+0 : 'done', ' '"
    script += "; my $p = fork(); exit 0 unless $p; waitpid($p, 0); print 'fork=', $?"
    said = dict(
        word.split("=")
        for word in run(place, f'perl -e "{script.replace("$", chr(92) + "$")}"').stdout.split()
    )
    expected = dict.fromkeys((*CALLS, "user"), str(errno.EPERM)) | {"clone3": str(errno.ENOSYS), "fork": "0"}
    assert said == expected


@pytest.mark.skipif(shutil.which("perl", path="/usr/bin") is None, reason="perl makes processes fast")
def test_a_program_has_at_most_so_many_processes(place: Place) -> None:
    script = "while (defined(my $p = fork)) { $p or sleep(60), exit; last if ++$n > 6000 } print $n"
    made = int(run(place, f"perl -e '{script}'").stdout)
    assert 4_000 < made <= 4_096


def test_the_filter_is_there_for_the_processors_of_gpu_boxes_alone() -> None:
    programs = [seccomp_filter(machine) for machine in ("x86_64", "aarch64")]
    assert all(program and len(program) % 8 == 0 for program in programs)
    assert seccomp_filter("riscv64") is None


def test_nothing_is_shared_with_the_next_program_or_the_box(place: Place, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    assert run(place, "echo x > kept; (setsid sleep 3600 &); ls /dev/shm").stdout == ""
    seen = run(place, f"ls -A {tmp_path}; ls /proc | grep -c '^[0-9]'; cat kept")
    assert "secret" not in seen.stdout
    # It, the shell of the pipe, and process 1; not the sleeper, nor the box's processes.
    assert int(seen.stdout.split()[-2]) <= 5 and seen.stdout.split()[-1] == "x"
    for path in ("/usr/x", "/etc/x", f"{tmp_path}/x", "/x", "/sys/x", "/dev/x", "/var/x"):
        assert run(place, f"touch {path}").returncode != 0
        assert not Path(path).exists()


def test_all_that_a_program_writes_is_in_one_bounded_place_and_gone_with_it(
    place: Place, tmp_path: Path
) -> None:
    files = ("/tmp/x", "/var/tmp/x", "/run/x", "/dev/shm/x", "./x")
    each = SIZE_BYTES // len(files) // 4096 // 2
    done = run(place, "; ".join(f"dd if=/dev/zero of={path} bs=4096 count={each}" for path in files))
    assert done.returncode == 0 and place.used_bytes() >= 5 * each * 4096 and not place.is_full()
    for path in files:
        assert (
            "No space left"
            in run(
                place, f"dd if=/dev/zero of={path} bs=4096 count={SIZE_BYTES // 4096 + 1}; rm {path}"
            ).stderr
        )
    run(place, "dd if=/dev/zero of=x bs=4096 count=10000")
    assert place.is_full() and place.used_bytes() == SIZE_BYTES
    many = run(place, "rm x; mkdir m; cd m; i=0; while true > $i; do i=$((i+1)); done 2> /dev/null; echo $i")
    assert 10_000 < int(many.stdout) < 20_000 and place.is_full()
    # Also folders deeper than any path end with it, at once.
    run(
        place,
        "i=0; while [ $i -lt 300 ]; do mkdir -m 300 .assay-removed-0; cd .assay*0; i=$((i+1)); done",
    )
    place.close()
    assert not place.lives and list((tmp_path / "base").iterdir()) == []


@pytest.mark.skipif(shutil.which("perl", path="/usr/bin") is None, reason="perl connects to sockets")
def test_a_program_reaches_a_socket_that_the_agent_gave_it(place: Place) -> None:
    """As our tracer does; the network has no part in it."""
    path = place.path / "work" / "tracer"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{os.readlink(place.path)}/work/tracer")  # noqa: PTH115 - the names of sockets are short
        path.chmod(0o600)
        place.give(path)
        listener.listen()
        connect = "use IO::Socket::UNIX; print IO::Socket::UNIX->new(Peer => q(tracer)) ? 1 : $!"
        assert run(place, f"perl -e '{connect}'").stdout == "1"


def test_a_place_is_gone_when_its_agent_is_killed(tmp_path: Path) -> None:
    bubblewrap_here()
    script = (
        "import pathlib, sys, os, signal; from assay_agent.execution.confinement.place import Place\n"
        "place = Place(pathlib.Path(sys.argv[1]), 1 << 20); place.open(('a',))\n"
        "print(place.process_id, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = tmp_path / "place"
    ended = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False)
    assert ended.returncode == -9
    wait_until(lambda: not Path("/proc", ended.stdout.strip()).exists(), "the end of the place", 20)
    place = Place(path, 1 << 20)
    place.open(("a",))  # in spite of the link that the other one left
    assert (path / "a").is_dir()
    place.close()


EXPECTED = [("read", "/usr"), ("link", "/bin"), ("proc", "/proc"), ("devices", "/dev"), ("write", "/tmp")]
TABLE = """\
1 0 0:1 /newroot / ro,nosuid,nodev - tmpfs tmpfs rw
2 1 8:1 /usr /usr ro,nosuid,nodev - ext4 /dev/sda rw
3 1 0:2 / /proc rw,nosuid,nodev,noexec - proc proc rw
4 1 0:3 / /dev ro,nosuid,nodev - tmpfs tmpfs rw
5 4 0:4 /null /dev/null rw,nosuid - devtmpfs devtmpfs rw
6 1 0:5 /all /tmp rw,nosuid,nodev - tmpfs assay rw
"""


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (("", ""), ""),
        (("ro,nosuid,nodev - ext4", "rw,relatime - ext4"), "/usr is not nodev, nosuid, ro"),
        (("ro,nosuid,nodev - tmpfs tmpfs rw\n2", "rw,nosuid,nodev - tmpfs tmpfs rw\n2"), "/ is not ro"),
        (("/newroot /", "/newroot /etc"), "/etc is mounted, and nothing should be"),
        (("/dev ro,nosuid", "/dev ro"), "/dev is not nosuid"),
        (("rw,nosuid,nodev - tmpfs assay", "rw,nosuid - tmpfs assay"), "/tmp is not nodev"),
        (("6 1", "7 2 8:2 / /usr/local\\\\040x ro,nosuid,nodev - ext4 /dev/sdb rw\n6 1"), ""),
        (("6 1", "7 2 8:2 / /usr/local rw,nosuid,nodev - ext4 /dev/sdb rw\n6 1"), "/usr/local is not ro"),
        (("6 1", "7 2 8:2 / /tmp/x rw,nosuid,nodev - ext4 /dev/sdb rw\n6 1"), "/tmp/x is mounted"),
        (
            (
                "6 1",
                "7 2 0:7 / /usr/c rw - t t rw\n8 7 0:7 / /usr/c/d rw - t t rw\n"
                "9 7 0:7 / /usr/c ro,nosuid,nodev - t t rw\n6 1",
            ),
            "",
        ),
        (
            ("6 1", "7 2 0:7 / /usr/c ro,nosuid,nodev - t t rw\n8 7 0:7 / /usr/c rw - t t rw\n6 1"),
            "/usr/c is not",
        ),
        (("/tmp rw", "/usr/y rw"), "/usr/y is not ro"),
        (("5 4 0:4 /null /dev/null", "5 4 0:4 /sda /dev/sda"), "/dev/sda is mounted, and nothing should be"),
        (("6 1 0:5 /all /tmp rw,nosuid,nodev - tmpfs assay rw\n", ""), "/tmp is not mounted"),
    ],
)
def test_a_table_of_mounts_that_is_not_as_expected_is_told(change: tuple[str, str], wrong: str) -> None:
    said = wrong_mounts(TABLE.replace(*change, 1).splitlines(), EXPECTED)
    assert (wrong in said) if wrong else not said


def test_a_program_is_not_started_in_a_space_that_is_not_as_expected(place: Place, tmp_path: Path) -> None:
    """A bubblewrap that takes an option for another one."""
    bubblewrap_here()
    wrong = program(
        tmp_path / "bwrap",
        f'for w; do shift; [ "$w" = --ro-bind ] && w=--bind; set -- "$@" "$w"; done\nexec {BUBBLEWRAP} "$@"',
    )
    means = find_means(str(wrong))
    assert isinstance(means, str) and "its mounts are not as expected" in means and "is not ro" in means


def test_links_and_pipes_are_taken_away_before_the_agent_reads(tmp_path: Path) -> None:
    (tmp_path / "report").symlink_to("/etc/passwd")
    (tmp_path / "folder").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "kept").write_text("x")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "trace").symlink_to("/etc/passwd")
    assert not require_plain(tmp_path / "inside" / "trace", tmp_path)
    assert not require_plain(tmp_path / "folder" / "passwd", tmp_path)
    assert require_plain(tmp_path / "kept", tmp_path) and require_plain(tmp_path / "missing", tmp_path)
    remove_strange(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside", "kept"]
