"""Files that a person sends, from their folder to the report: measured like any workload, and confined.

The attacking program looks for what it must not have. It says what it found on its standard output, which
comes back in the attempt's log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy
import pyarrow
import pyarrow.parquet as pq
import pytest

from assay_client.api import Client
from tests.support.agent.bubblewrap import BUBBLEWRAP, bubblewrap_here
from tests.support.integration.harness import Lab, lab, wait_until
from tests.support.integration.made_trace import trace
from tests.support.integration.made_workload import one_kernel
from tests.support.machine.commands import running_commands

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

WORKLOAD = one_kernel("sent")
# An honest workload, under stand-ins of both tools.
CAMPAIGN = """\
campaign: sent
synthetic: true
gpus: [V100]
detailed: {first: 20, sets: features}
workloads:
  - {name: honest, bundle: honest, command: [sent.toml]}
analysis: {methods: [{random: {launches: 1}}]}
"""
# On a virtual GPU, too, a workload that traces itself is really run.
ATTACKS = """\
campaign: attacks
synthetic: true
gpus: [V100]
detailed: none
workloads:
  - {name: attacker, bundle: attacker, command: [./attack.sh], kineto: out.json}
"""
ATTACK = """\
#!/bin/sh
try() { if "$@" > /dev/null 2>&1; then echo "GOT: $*"; else echo "refused: $*"; fi; }
try sh -c 'cat AGENT/credentials/*'
try cat AGENT/agent.json
try ls AGENT/spool
try ls AGENT/bundles
try ls SERVER
try cat ROOT/guests.toml
try ls ROOT/socket
try cat /etc/shadow
try sh -c 'ls -A /root | grep -v pyenv'
try ls /home
try sh -c 'ls AGENT/jobs | grep -v "$(basename "$(dirname "$PWD")")"'
try sh -c 'cat /proc/[0-9]*/environ | tr "\\0" "\\n" | grep -a ASSAY_SECRET_WORD'
try touch /usr/bin/assay-was-here
try touch AGENT/assay-was-here
try touch /etc/assay-was-here
try kill -0 PARENT
try mknod null c 1 3
try mount -t tmpfs none /tmp
try ls /tmp/left-by-attacker
try sh -c 'echo core > /proc/sys/kernel/core_pattern'
try unshare --user true
try sh -c 'test "$(id -u)" = 0 && test -w /sys/kernel'
touch /tmp/left-by-attacker
ln -s /etc/passwd stolen.json
ln -s AGENT/agent.json ../report.ncu-rep
dig() { d=dddddddddddddddddddddddddddddddddddddddd; mkdir $d && cd $d && chmod 300 .; }
mkdir deep && cd deep && i=0 && while [ $i -lt 150 ]; do dig || break; i=$((i+1)); done
cd "$START"
setsid sh -c 'while :; do sleep 1; done # outlives ROOT' > /dev/null 2>&1 &
echo "uid $(id -u), processes $(ls -d /proc/[0-9]* | wc -l), network $(cat /proc/net/dev | grep -c :)"
cp made.json out.json
"""


# The stand-in tools run this Python; in a checkout its packages may lie elsewhere.
PACKAGES = sorted({str(Path(place).resolve().parent) for place in (*numpy.__path__, *pyarrow.__path__)})


def policy(root: Path, more: str = "") -> Path:
    path = root / "guests.toml"
    path.write_text(
        f'version = 1\nallow_root = true\n[bundles]\nbubblewrap = "{BUBBLEWRAP}"\n'
        f"readable = {json.dumps(PACKAGES)}\n{more}\n"
    )
    path.chmod(0o600)
    return path


def sent_folder(laboratory: Lab) -> Path:
    """A laptop's folder: a campaign and its two bundles."""
    folder = laboratory.root / "laptop"
    for name in ("honest", "attacker"):
        (folder / name).mkdir(parents=True)
    (folder / "honest" / "sent.toml").write_text(WORKLOAD)
    script = ATTACK.replace("AGENT", str(laboratory.root / "agent"))
    script = script.replace("SERVER", str(laboratory.server_state)).replace("ROOT", str(laboratory.root))
    script = script.replace("PARENT", str(os.getpid()))
    script = script.replace("#!/bin/sh\n", "#!/bin/sh\nSTART=$PWD\n")
    (folder / "attacker" / "attack.sh").write_text(script)
    (folder / "attacker" / "attack.sh").chmod(0o755)
    trace(folder / "attacker" / "made.json")
    (folder / "sent.yaml").write_text(CAMPAIGN)
    (folder / "attacks.yaml").write_text(ATTACKS)
    return folder


def outlivers(root: Path) -> list[str]:
    """Processes of the box that the attacker left."""
    return [
        f"/proc/{process}" for process, words in running_commands() if f"outlives {root}".encode() in words
    ]


@pytest.fixture
def laboratory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("ASSAY_SECRET_WORD", "1")
    with lab("tcp", lease_ms=60_000, heartbeat_ms=1000) as made:
        made.start_server()
        yield made


def test_files_that_were_sent_are_measured_and_reach_nothing(laboratory: Lab) -> None:
    bubblewrap_here()
    folder = sent_folder(laboratory)
    options = ("--recorded-slots=0", "--virtual=V100", "--policy", str(policy(laboratory.root)))
    laboratory.start_agent("agent", *options)
    # The honest files are on the box when the attacker comes, in the agent's state.
    honest = laboratory.submit(folder / "sent.yaml")
    assert laboratory.wait_for(honest, 90) == "done", laboratory.logs()
    agent = laboratory.root / "agent"
    assert list((agent / "credentials").iterdir()) and list((agent / "bundles").iterdir())
    attacks = laboratory.submit(folder / "attacks.yaml")
    assert laboratory.wait_for(attacks, 90) == "done", laboratory.logs()
    with Client(laboratory.address) as client:
        runs = [run["run_id"] for each in (honest, attacks) for run in client.status(each)["runs"]]
        attempts = [attempt for run in runs for attempt in client.run(run)["attempts"]]
    log = attempts[-1]["log"]
    assert len(attempts) == 3 and "GOT" not in log, log
    assert log.count("refused: ") == ATTACK.count("\ntry ")
    assert "uid 65534" in log and "network 1" in log
    # What ran is named by the hash of the files, in the facts and in the report.
    hashes = [attempt["facts"]["bundle"] for attempt in attempts]
    assert hashes[0] == hashes[1] != hashes[2] and {len(each) for each in hashes} == {64}
    [entry] = laboratory.report(honest)["provenance"]
    assert entry["bundles"] == [hashes[0]]
    # Nothing of the attacker outlives its run.
    wait_until(lambda: not outlivers(laboratory.root), "the end of what the attacker left", 20)
    wait_until(lambda: not any((agent / "jobs").glob("*")), "the end of the attacker's files", 20)
    assert not (agent / "assay-was-here").exists()
    # Report and records come back, and a second call fetches nothing again.
    back = laboratory.root / "back"
    done = json.loads(laboratory.assay("lab", "fetch", honest, "-o", str(back), "--json").stdout)
    assert done["reports"] == ["report.json", "report.html"]
    assert [pq.read_metadata(back / each["file"]).num_rows for each in done["records"]] == [20, 60]
    again = json.loads(laboratory.assay("lab", "fetch", honest, "-o", str(back), "--json").stdout)
    assert again["fetched_bytes"] == 0


# Each against a policy with 16 MiB of files and 64 MiB of memory, on the lab's only slot.
GREEDY = {
    "disk": ("dd if=/dev/zero of=/var/tmp/x bs=1M count=40 || exit 3", 0, "disk_limit"),
    "silent": ("dd if=/dev/zero of=x bs=1M count=40 2> /dev/null; exit 3", 0, "disk_limit"),
    "asked": ("dd if=/dev/zero of=/dev/shm/x bs=1M count=12; sleep 60", 9_000_000, "memory_limit"),
    "allowed": ("perl -e '$x = \"x\" x 90000000; sleep 60'", 900_000_000_000, "memory_limit"),
    "deep": ("i=0; while [ $i -lt 1500 ]; do mkdir .assay-removed-0; cd .assay*0; i=$((i+1)); done", 0, ""),
}


def test_a_greedy_bundle_fails_alone_and_rests_no_slot(laboratory: Lab) -> None:
    bubblewrap_here()
    folder = sent_folder(laboratory)
    for name, (script, _, _) in GREEDY.items():
        (folder / name).mkdir()
        (folder / name / "run.sh").write_text(
            f"#!/bin/sh\nhere=$PWD\n{script}\ncp $here/made.json $here/out.json\n"
        )
        (folder / name / "run.sh").chmod(0o755)
        trace(folder / name / "made.json")
    workloads = "".join(
        f"  - {{name: {name}, bundle: {name}, command: [./run.sh], kineto: out.json"
        f"{f', memory_limit_bytes: {asked}' if asked else ''}}}\n"
        for name, (_, asked, _) in GREEDY.items()
    )
    head, _, _ = ATTACKS.partition("workloads:")
    (folder / "greedy.yaml").write_text(f"{head}workloads:\n{workloads}".replace("attacks", "greedy"))
    bounds = "disk_bytes = 16777216\nmemory_bytes = 67108864"
    options = ("--recorded-slots=0", "--virtual=V100", "--policy", str(policy(laboratory.root, bounds)))
    laboratory.start_agent("agent", *options)
    greedy = laboratory.submit(folder / "greedy.yaml")
    laboratory.wait_for(greedy, 120)
    with Client(laboratory.address) as client:
        told = {}
        for run in client.status(greedy)["runs"]:
            attempts = client.run(run["run_id"])["attempts"]
            told[run["workload"]] = [(each["failure"] or {}).get("failure_class", "") for each in attempts]
    # One attempt each: no other box would do better.
    assert told == {name: [failed] for name, (_, _, failed) in GREEDY.items()}, laboratory.logs()
    assert "rests" not in laboratory.logs()
    wait_until(lambda: not any((laboratory.root / "agent" / "jobs").glob("*")), "the end of their files", 20)
    # The policy's 64 MiB are too few for a profiler.
    laboratory.stop("agent")
    laboratory.start_agent("agent", *options[:-1], str(policy(laboratory.root)))
    assert laboratory.wait_for(laboratory.submit(folder / "sent.yaml"), 90) == "done", laboratory.logs()
