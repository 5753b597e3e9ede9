"""Files that a person sends, from their folder to the report: measured like any workload, and confined.

The attacking program looks for what it must not have. It says what it found on its standard output, which
comes back in the attempt's log.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy
import pyarrow
import pyarrow.parquet as pq
import pytest

from assay_agent.execution.confinement.means import find_means
from assay_client.api import Client
from tests.support.integration.harness import Lab, lab, wait_until
from tests.support.integration.made_trace import trace
from tests.support.integration.made_workload import one_kernel

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

UNPACKED = Path(os.environ.get("ASSAY_SERVICES", "/nowhere")) / "bin" / "bwrap"  # by make services
BUBBLEWRAP = str(UNPACKED) if UNPACKED.is_file() else shutil.which("bwrap") or "/usr/bin/bwrap"
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


def policy(root: Path, way: str) -> Path:
    path = root / "guests.toml"
    path.write_text(f"version = 1\nallow_root = true\n[bundles]\n{way}\nreadable = {json.dumps(PACKAGES)}\n")
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
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes()
        except OSError:
            continue
        if f"outlives {root}".encode() in words:
            found.append(str(place))
    return found


@pytest.fixture
def laboratory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("ASSAY_SECRET_WORD", "1")
    with lab("tcp", lease_ms=60_000, heartbeat_ms=1000) as made:
        made.start_server()
        yield made


@pytest.mark.parametrize(
    ("user", "bubblewrap"), [("nobody", ""), ("", BUBBLEWRAP)], ids=["user", "bubblewrap"]
)
def test_files_that_were_sent_are_measured_and_reach_nothing(
    laboratory: Lab, user: str, bubblewrap: str
) -> None:
    means = find_means(user, bubblewrap=bubblewrap)
    if isinstance(means, str):
        pytest.skip(means)
    way = f'run_as = "{user}"' if user else f'bubblewrap = "{bubblewrap}"'
    folder = sent_folder(laboratory)
    options = ("--recorded-slots=0", "--virtual=V100", "--policy", str(policy(laboratory.root, way)))
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
    done = json.loads(laboratory.assay("fetch", honest, "-o", str(back), "--json").stdout)
    assert done["reports"] == ["report.json", "report.html"]
    assert [pq.read_metadata(back / each["file"]).num_rows for each in done["records"]] == [20, 60]
    again = json.loads(laboratory.assay("fetch", honest, "-o", str(back), "--json").stdout)
    assert again["fetched_bytes"] == 0
