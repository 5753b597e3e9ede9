"""Runs pods of the Helm chart in Podman, as the kubelet would: users, rights, volumes, secrets, probes.

It does no scheduling, and there are no Services and NetworkPolicies. All pods share one network namespace,
in which the names of Services are 127.0.0.1.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.images.podman import Podman

Part = dict[str, Any]
NODE = "node-1"
_PROBE_SECONDS = 300.0


class Cluster:
    """One node, with the config maps and Services of some rendered documents.

    Args:
        podman: with the images.
        folder: what volumes keep.
        network: a network namespace, a file below /run/netns.
        secrets: by name, their keys and values.
    """

    def __init__(self, podman: Podman, folder: Path, network: Path, secrets: Mapping[str, Part]) -> None:
        self.podman = podman
        self.folder = folder
        self.secrets = dict(secrets)
        self._network = network
        self._maps: dict[str, Part] = {}
        self._names: set[str] = set()

    def apply(self, documents: Sequence[Part]) -> dict[str, Pod]:
        """Take config maps and Services over; returns the pods of each workload, by its name."""
        pods = {}
        for each in documents:
            name = each["metadata"]["name"]
            if each["kind"] == "ConfigMap":
                self._maps[name] = each["data"]
            elif each["kind"] == "Service":
                self._names.add(f"{name}.lab.svc")
            elif "template" in each.get("spec", {}):
                claims = [claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", [])]
                pods[name] = Pod(self, name, each["spec"]["template"]["spec"], claims)
        return pods

    def options(self) -> list[str]:
        """What all containers get."""
        return [f"--network=ns:{self._network}", *(f"--add-host={name}:127.0.0.1" for name in self._names)]

    def files(self, volume: Part) -> tuple[dict[str, str], int] | None:
        """The files of a config map or a secret, with their mode; None for other volumes."""
        if "configMap" in volume:
            return self._maps[volume["configMap"]["name"]], 0o644
        if "secret" in volume:
            secret = volume["secret"]
            return self.secrets[secret["secretName"]], int(secret.get("defaultMode", 0o644))
        return None


class Pod:
    """One pod: volumes are folders, containers run one after another, the last one in the background."""

    def __init__(self, cluster: Cluster, name: str, spec: Part, claims: Sequence[str]) -> None:
        self.cluster = cluster
        self.name = name
        self.spec = spec
        self._claims = claims
        self.container = ""

    def start(self) -> None:
        """Run the init containers to their ends, and start the container."""
        folders = self._volumes()
        for container in self.spec["initContainers"]:
            self.cluster.podman.run("podman", "run", "--rm", *self._words(container, folders))
        [container] = self.spec["containers"]
        [self.container] = self.cluster.podman.said(
            "run", "--detach", f"--hostname={self.name}-0", *self._words(container, folders)
        )

    def wait_for(self, probe: str) -> None:
        """Ask a probe until it is content; raises :class:`TimeoutError` after five minutes."""
        until = time.monotonic() + _PROBE_SECONDS
        while not self.answers(probe):
            if time.monotonic() > until:
                raise TimeoutError(f"{self.name}: its {probe} fails")
            time.sleep(1)

    def answers(self, probe: str) -> bool:
        """Whether the container is content, as a probe of the chart sees it."""
        command = self.spec["containers"][0][probe]["exec"]["command"]
        done = self.cluster.podman.run("podman", "exec", self.container, *command, check=False, quiet=True)
        return done.returncode == 0

    def exec(self, *words: str) -> str:
        """What a command in the container prints."""
        return self.cluster.podman.run("podman", "exec", self.container, *words).stdout

    def stop(self) -> int:
        """End the container as the kubelet does; returns its exit code."""
        seconds = str(self.spec["terminationGracePeriodSeconds"])
        self.cluster.podman.run("podman", "stop", "--time", seconds, self.container)
        [code] = self.cluster.podman.said("inspect", self.container, "--format", "{{.State.ExitCode}}")
        self.cluster.podman.run("podman", "rm", self.container)
        return int(code)

    def _volumes(self) -> dict[str, Path]:
        """A folder for each volume; claims and folders of the node are found again by the next pod."""
        group = self.spec["securityContext"].get("fsGroup", 0)
        folders = {}
        for name in self._claims:
            folders[name] = _folder(self.cluster.folder / "claims" / self.name / name, 0o2775, group)
        for volume in self.spec["volumes"]:
            name = volume["name"]
            if "hostPath" in volume:
                inner = volume["hostPath"]["path"].lstrip("/")
                folders[name] = _folder(self.cluster.folder / "node" / inner, 0o755, 0)
                continue
            folder = _folder(self.cluster.folder / "pods" / self.name / name, 0o2777, group)
            found = self.cluster.files(volume)
            if found is not None:
                for key, text in found[0].items():
                    path = folder / key
                    path.write_text(text)
                    os.chown(path, 0, group)
                    path.chmod(found[1])
            folders[name] = folder
        return folders

    def _words(self, container: Part, folders: Mapping[str, Path]) -> list[str]:
        pod, own = self.spec["securityContext"], container["securityContext"]
        rights = {**pod, **own}
        words = [*self.cluster.options(), "--read-only-tmpfs=false"]
        user = f"{rights['runAsUser']}:{rights.get('runAsGroup', rights['runAsUser'])}"
        words += [f"--user={user}", f"--group-add={pod['fsGroup']}"]
        words += [f"--cap-drop={each}" for each in own["capabilities"].get("drop", [])]
        words += [f"--cap-add={each}" for each in own["capabilities"].get("add", [])]
        if rights.get("readOnlyRootFilesystem"):
            words.append("--read-only")
        if rights.get("allowPrivilegeEscalation") is False:
            words.append("--security-opt=no-new-privileges")
        for variable in container.get("env", []):
            words.append(f"--env={variable['name']}={self._value(variable)}")
        for mount in container["volumeMounts"]:
            path = folders[mount["name"]] / mount.get("subPath", "")
            words.append(f"--volume={path}:{mount['mountPath']}:{'ro' if mount.get('readOnly') else 'rw'}")
        if "command" in container:
            words.append(f"--entrypoint={json.dumps(container['command'])}")
        return [*words, container["image"], *container.get("args", [])]

    def _value(self, variable: Part) -> str:
        if "value" in variable:
            return str(variable["value"])
        source = variable["valueFrom"]
        if "fieldRef" in source:
            return {"spec.nodeName": NODE}[source["fieldRef"]["fieldPath"]]
        secret = source["secretKeyRef"]
        return str(self.cluster.secrets[secret["name"]][secret["key"]])


def _folder(path: Path, mode: int, group: int) -> Path:
    """Have a folder as the kubelet makes it; one that is there stays as it is."""
    if not path.exists():
        path.mkdir(parents=True)
        os.chown(path, 0, group)
        path.chmod(mode)
    return path
