"""Unpacking NVIDIA's tools: with a mirror that is a folder of tiny packages, nothing leaves this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from real_tools import apt, layout, unpack

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg-deb to make packages with"),
]

LIBRARIES = "usr/lib/x86_64-linux-gnu"
TARGET = f"{LIBRARIES}/nsight-compute/target/linux-desktop-glibc_2_11_3-x64"
HOST = "usr/lib/nsight-systems/host-linux-x64"
# What each package holds; "->" is a link, "*" an executable.
PACKAGES = {
    "nsight-compute": [f"{LIBRARIES}/nsight-compute/sections/a.section", "usr/lib/nsight-compute/host/ui"],
    "nsight-compute-target": [f"*{TARGET}/ncu", "usr/share/doc/nsight-compute-target/copyright"],
    "nsight-systems": [
        f"*{HOST}/QdstrmImporter", f"{HOST}/libAnalysis.so", f"{HOST}/libQt6WebEngineCore.so.6",
        f"{HOST}/Plugins/x/libx.so", f"{HOST}/libssh.so->../../x86_64-linux-gnu/libssh.so.4",
        f"{HOST}/libarrow.so->libAnalysis.so", f"{HOST}/outside->../../elsewhere",
    ],
    "nsight-systems-target": [f"*{LIBRARIES}/nsight-systems/target-linux-x64/nsys"],
    "nvidia-cuda-mps": ["*usr/bin/nvidia-cuda-mps-control", "*usr/sbin/nvidia-cuda-mps-server"],
    "libcuda1": [f"{LIBRARIES}/nvidia/current/libcuda.so.550",
                 f"{LIBRARIES}/nvidia/current/libcuda.so.1->libcuda.so.550"],
    "libnvidia-ml1": [f"{LIBRARIES}/nvidia/current/libnvidia-ml.so.1"],
    "libssh-4": [f"{LIBRARIES}/libssh.so.4.9", f"{LIBRARIES}/libssh.so.4->libssh.so.4.9",
                 f"{LIBRARIES}/libother.so"],
}  # fmt: skip
APT_GET = """\
#!/bin/sh
echo "$@ APT_CONFIG=$APT_CONFIG" >> {folder}/log
case "$*" in
*indextargets*) echo 'https://mirror.example/debian/|{own}|{folder}/machine.sources:1' ;;
*update*) release=$(cut -d' ' -f4 "$(dirname "$APT_CONFIG")/sources.list")
    [ -d {folder}/mirror/$release ] || {{ echo "E: no release file for $release" >&2; exit 100; }} ;;
*download*) release=$(cut -d' ' -f4 "$(dirname "$APT_CONFIG")/sources.list")
    shift 2; for name in "$@"; do cp {folder}/mirror/$release/${{name}}_*.deb . || exit 1; done ;;
esac
"""
APT_CACHE = """\
#!/bin/sh
release=$(cut -d' ' -f4 "$(dirname "$APT_CONFIG")/sources.list")
shift 2; for name in "$@"; do cat {folder}/mirror/$release/$name.txt; echo; done
"""


@dataclass(frozen=True)
class Machine:
    """A Debian bookworm whose apt-get knows a mirror with tiny packages of two releases."""

    folder: Path
    made: Path

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def log(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()

    def publish(self, release: str, installed_kib: int = 1) -> None:
        folder = self.folder / "mirror" / release
        folder.mkdir(parents=True)
        for name in PACKAGES:
            package = folder / f"{name}_1-{release}_amd64.deb"
            shutil.copy(self.made / f"{name}.deb", package)
            size = package.stat().st_size
            (folder / f"{name}.txt").write_text(
                f"Package: {name}\nVersion: 1-{release}\nInstalled-Size: {installed_kib}\nSize: {size}\n"
            )

    def unpack(self, *arguments: str) -> int:
        return unpack.main(["--cache", str(self.cache), *arguments])

    def files(self) -> set[str]:
        return {str(path.relative_to(self.cache)) for path in self.cache.rglob("*") if not path.is_dir()}


def _grow(tree: Path, name: str, paths: list[str]) -> None:
    control = tree / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    control.write_text(
        f"Package: {name}\nVersion: 1\nArchitecture: amd64\nMaintainer: N <n@example.org>\nDescription: d\n"
    )
    for path in paths:
        where, _, link = path.removeprefix("*").partition("->")
        (tree / where).parent.mkdir(parents=True, exist_ok=True)
        if link:
            (tree / where).symlink_to(link)
        else:
            (tree / where).write_text(name)
            (tree / where).chmod(0o755 if path.startswith("*") else 0o644)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    for name, paths in PACKAGES.items():
        tree = folder / name
        _grow(tree, name, paths)
        command = ["dpkg-deb", "-Znone", "--build", tree, folder / f"{name}.deb"]
        subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture
def machine(tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path, packages)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in {"apt-get": APT_GET, "apt-cache": APT_CACHE, "dpkg": "#!/bin/sh\necho amd64\n"}.items():
        (programs / name).write_text(text.format(folder=tmp_path, own="bookworm"))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    (tmp_path / "machine.sources").write_text("Types: deb\nSigned-By: /keys/debian.gpg\n")
    (tmp_path / "os-release").write_text('ID=debian\nPRETTY_NAME="Debian 12"\nVERSION_CODENAME=bookworm\n')
    monkeypatch.setattr(apt, "OS_RELEASE", tmp_path / "os-release")
    made.publish("bookworm")
    return made


def test_what_is_needed_lies_where_the_tools_look_for_it(machine: Machine) -> None:
    machine.publish("trixie")
    assert machine.unpack() == 0
    kept = {
        "stamp.json", "bin/ncu", "bin/nsys", "mps/nvidia-cuda-mps-control", "mps/nvidia-cuda-mps-server",
        "driver/libcuda.so.1", "driver/libcuda.so.550", "driver/libnvidia-ml.so.1",
        "nsight-compute/sections/a.section", "nsight-compute/target/linux-desktop-glibc_2_11_3-x64/ncu",
        "nsight-systems/target-linux-x64/nsys", "nsight-systems/host-linux-x64/QdstrmImporter",
        "nsight-systems/host-linux-x64/libAnalysis.so", "nsight-systems/host-linux-x64/libarrow.so",
        "nsight-systems/host-linux-x64/libssh.so", "nsight-systems/host-linux-x64/libssh.so.4",
        "nsight-systems/host-linux-x64/libssh.so.4.9",
    }  # fmt: skip
    assert machine.files() == {
        ".lock",
        *(f"{release}/{p}" for release in ("bookworm", "trixie") for p in kept),
    }
    trixie = layout.finished(machine.cache, "trixie")
    assert trixie is not None
    assert trixie.packages["nsight-systems"] == "1-trixie"
    # The importer's library must fit the C library of this machine.
    assert trixie.packages["libssh-4"] == "1-bookworm"
    assert (trixie.folder / "bin" / "ncu").resolve() == trixie.ncu
    assert trixie.ncu.stat().st_mode & 0o111
    assert (trixie.folder / "nsight-systems/host-linux-x64/libssh.so").read_text() == "libssh-4"
    assert [found.name for found in layout.generations(machine.cache)] == ["bookworm", "trixie"]


def test_the_machines_own_mirror_and_keys_are_asked_for_non_free(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def download(self: apt.Mirror, names: list[str], folder: Path) -> dict[str, Path]:
        seen.append((folder.parent / "apt" / "sources.list").read_text())
        raise apt.UnavailableError("enough")

    monkeypatch.setattr(apt.Mirror, "download", download)
    machine.unpack("--generation", "bookworm")
    line = "deb [signed-by=/keys/debian.gpg] https://mirror.example/debian/ bookworm main contrib non-free\n"
    assert seen == [line]


def test_what_is_there_is_not_fetched_again(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.unpack("--generation", "bookworm")
    before, asked = machine.files(), len(machine.log)
    assert machine.unpack("--generation", "bookworm") == 0
    assert len(machine.log) == asked
    assert machine.files() == before
    assert "nsight-compute 1-bookworm" in capsys.readouterr().out


def test_a_release_that_the_mirror_lacks_has_its_reason(machine: Machine) -> None:
    assert machine.unpack() == 0
    assert layout.finished(machine.cache, "bookworm") is not None
    assert layout.reasons(machine.cache) == {
        "trixie": "apt-get --quiet update: E: no release file for trixie"
    }
    machine.publish("trixie")
    assert machine.unpack() == 0
    assert layout.reasons(machine.cache) == {}
    assert layout.finished(machine.cache, "trixie") is not None


def test_a_package_that_the_mirror_lacks(machine: Machine) -> None:
    (machine.folder / "mirror" / "bookworm" / "nsight-systems.txt").write_text("")
    machine.unpack("--generation", "bookworm")
    reason = "Debian bookworm on this mirror has no nsight-systems"
    assert layout.reasons(machine.cache) == {"bookworm": reason}
    assert machine.files() == {".lock", "unavailable.json"}


def test_a_broken_package_leaves_nothing_behind(machine: Machine) -> None:
    package = machine.folder / "mirror" / "bookworm" / "libcuda1_1-bookworm_amd64.deb"
    package.write_bytes(package.read_bytes()[:-700])
    assert machine.unpack("--generation", "bookworm") == 0
    assert machine.files() == {".lock", "unavailable.json"}
    assert layout.generations(machine.cache) == []


def test_a_disk_that_is_too_full_is_said_before_the_download(machine: Machine) -> None:
    machine.publish("trixie", installed_kib=1 << 40)
    machine.unpack("--generation", "trixie")
    assert "are needed while unpacking" in layout.reasons(machine.cache)["trixie"]
    assert not any(" download " in line for line in machine.log)


def test_leftovers_and_folders_without_a_stamp_are_replaced(machine: Machine) -> None:
    for name in (".partial-old", "bookworm"):
        (machine.cache / name).mkdir(parents=True)
        (machine.cache / name / "old").touch()
    machine.unpack("--generation", "bookworm")
    assert not any(path.endswith("/old") for path in machine.files())
    assert layout.finished(machine.cache, "bookworm") is not None


@pytest.mark.parametrize("stamp", ["", "[]", '{"layout": 0, "packages": {}, "size_bytes": 1}'])
def test_a_stamp_that_says_nothing_does_not_count(machine: Machine, stamp: str) -> None:
    machine.unpack("--generation", "bookworm")
    (machine.cache / "bookworm" / layout.STAMP).write_text(stamp)
    assert layout.finished(machine.cache, "bookworm") is None
    assert layout.generations(machine.cache) == []


@pytest.mark.parametrize(
    ("os_release", "reason"),
    [
        ('ID=fedora\nPRETTY_NAME="Fedora 43"\n', "the packages are Debian's, and this is Fedora 43"),
        (None, "cannot be read"),
    ],
)
def test_another_system_has_its_reason(machine: Machine, os_release: str | None, reason: str) -> None:
    if os_release is None:
        (machine.folder / "os-release").unlink()
    else:
        (machine.folder / "os-release").write_text(os_release)
    assert machine.unpack() == 0
    found = layout.reasons(machine.cache)
    assert found.keys() == {"bookworm", "trixie"}
    assert all(reason in text for text in found.values())


def test_a_machine_without_apt(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(machine.folder))
    assert machine.unpack() == 0
    assert "there is no apt-get" in layout.reasons(machine.cache)["bookworm"]


def test_a_cache_that_cannot_be_written_is_no_failure(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine.folder / "file").touch()
    assert unpack.main(["--cache", str(machine.folder / "file" / "cache")]) == 0
    assert "cannot be used" in capsys.readouterr().out


def test_the_stamp_is_plain_to_read(machine: Machine) -> None:
    machine.unpack("--generation", "bookworm")
    stamp = json.loads((machine.cache / "bookworm" / layout.STAMP).read_text())
    assert stamp["packages"]["nvidia-cuda-mps"] == "1-bookworm"
    assert stamp["size_bytes"] > 0
