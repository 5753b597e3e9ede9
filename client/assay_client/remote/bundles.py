"""The files of workloads: packed on this machine, and sent unless the server has them from this person.

The server reads the campaign file and tells which folders it names. Nothing here reads YAML; an answer is
believed only if the line that it gives names that folder, so that no server gets files that its user's text
does not name (docs/security.md).
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from assay_client.ending import raise_if_asked
from assay_client.remote.connection import Connection
from assay_core.bundles.packing import pack_bundle
from assay_core.files.durable import storage_errors
from assay_core.records.campaign import BundleFolder, Submitted
from assay_core.records.upload import Bundle, BundleChunk, BundlePart
from assay_sampling.errors import CampaignError, InputError, ServerUnreachableError

_CHUNK_BYTES = 1 << 20
# Times in a row that nothing new arrived before a broken connection is an error, after about half a minute;
# the pauses double up to the longest.
_MOST_USELESS, _PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 9, 0.2, 5.0
# The line breaks of YAML 1.1, section 5.4, by which servers count lines.
_LINE_BREAKS = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_COMMENT = re.compile(r"(?:^|\s)#")
_KEY = r"""(?:^|[\s{,\[])(["']?)bundle\1\s*:\s*"""


def submit_with_files(connection: Connection, text: str, path: Path, key: str = "") -> Submitted:
    """Submit the text of the campaign file ``path``, and send the files of its bundles before.

    ``key``: the server makes one campaign of all submissions with it; "": a new key. Raises CampaignError
    naming file and line, also for a folder that cannot be a bundle.
    """
    base, key = path.resolve().parent, key or secrets.token_hex(16)
    answer = connection.submit(text, str(path), str(base), asks_for_folders=True, key=key)
    if not answer.folders:
        return answer
    folders = {each.folder: each for each in answer.folders}  # each once, whatever the server says
    lines = _LINE_BREAKS.split(text)
    for folder in folders.values():
        _require_named(lines, folder, path)
    sent = _sent(connection, list(folders.values()), path)
    return connection.submit(text, str(path), str(base), sent, key=key)


def names_folder(line: str, folder: str) -> bool:
    """Whether a line of a campaign file has the key "bundle" with this value, outside of comments.

    Plainly or in quotes, on one line, as one writes a path: more of YAML would need a reader of YAML.
    """
    quoted = "|".join(
        re.escape(each)
        for each in ("'" + folder.replace("'", "''") + "'", json.dumps(folder, ensure_ascii=False))
    )
    plain = re.escape(folder) + r"(?=\s*$|\s+#|\s*[,}\]])"
    match = re.search(f"{_KEY}(?:{quoted}|{plain})", line)
    return match is not None and _COMMENT.search(line[: match.start() + 1]) is None


def _require_named(lines: Sequence[str], named: BundleFolder, path: Path) -> None:
    line = lines[named.line - 1] if 0 < named.line <= len(lines) else ""
    if not names_folder(line, named.folder):
        raise CampaignError(
            f"{path}:{named.line}",
            f"the server asks for the folder {named.folder!r}, and that line does not name it as a bundle",
            "write 'bundle: FOLDER' on one line, without escapes; if it is so, do not trust that server",
        )


def _sent(connection: Connection, folders: Sequence[BundleFolder], path: Path) -> dict[str, Bundle]:
    """By folder its bundle, which is on the server then."""
    with tempfile.TemporaryDirectory(prefix="assay-bundles-") as work:
        packed = {each.folder: Path(work) / str(number) for number, each in enumerate(folders)}
        bundles = {each.folder: _packed(each, path, packed[each.folder]) for each in folders}
        paths = {bundle.sha256: packed[folder] for folder, bundle in bundles.items()}
        for bundle in dict.fromkeys(bundles.values()):
            _send(connection, bundle, paths[bundle.sha256])
    return bundles


def _send(connection: Connection, bundle: Bundle, path: Path) -> None:
    """Send a bundle that the server lacks; if the connection breaks, go on behind what has arrived.

    Raises ServerUnreachableError if nothing arrives any more.
    """
    # By hand: tenacity repeats a call from its beginning, and this continues where a stream broke.
    arrived, useless, start, anew = 0, 0, 0, False
    while True:
        try:
            answer = connection.missing_bundles((bundle,))
            if not answer.missing:
                return
            parts = () if anew else answer.parts
            start = max((part.bytes for part in parts if _is_of(part, bundle, path)), default=0)
            useless = 0 if start > arrived else useless
            arrived = max(arrived, start)
            connection.send_bundle(_chunks(bundle, path, start))
            return
        except InputError:
            if anew or not start:
                raise
            anew = True  # the server that had the part was replaced, or it has been removed since
            continue
        except ServerUnreachableError:
            if useless >= _MOST_USELESS:
                raise
        raise_if_asked()
        time.sleep(min(_PAUSE_SECONDS * 2**useless, _LONGEST_PAUSE_SECONDS))
        useless += 1


def _is_of(part: BundlePart, bundle: Bundle, path: Path) -> bool:
    """Whether the server's part is the beginning of this file, and not of one that was packed otherwise."""
    if part.sha256 != bundle.sha256 or not 0 < part.bytes < path.stat().st_size:
        return False
    hashing, rest = hashlib.sha256(), part.bytes
    with storage_errors(path), path.open("rb") as file:
        while data := file.read(min(rest, _CHUNK_BYTES)):
            hashing.update(data)
            rest -= len(data)
    return hashing.hexdigest() == part.part_sha256


def _packed(named: BundleFolder, path: Path, target: Path) -> Bundle:
    try:
        return pack_bundle(path.resolve().parent / named.folder, target)
    except InputError as error:
        cause = f"the files of workload {named.workload!r} cannot be sent: {error.subject}: {error.cause}"
        raise CampaignError(f"{path}:{named.line}", cause, error.remedy) from error


def _chunks(bundle: Bundle, path: Path, start: int) -> Iterator[BundleChunk]:
    with storage_errors(path), path.open("rb") as file:
        file.seek(start)
        yield BundleChunk(file.read(_CHUNK_BYTES), bundle, start)
        while data := file.read(_CHUNK_BYTES):
            yield BundleChunk(data)
