"""Download one official file: mirrors, resume, checksum, and nothing half-written under the final name."""

import http.client
import logging
import os
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from shapeline.datasets.registry import RemoteFile, file_digest, remote_files
from shapeline.datasets.sources import expand, is_address
from shapeline.errors import ShapelineError, nearest

log = logging.getLogger(__name__)

ATTEMPTS = 4  # per URL; each goes on where the one before stopped
BACK_OFF = 1.0  # seconds before the second attempt, then twice as long each time
BUSY = (408, 425, 429, 500, 502, 503, 504)  # answers that a later request may not get
TIMEOUT = 30.0  # seconds without a byte
CHUNK = 1 << 18
REPORT_EVERY = 5.0  # seconds between two lines of progress
NETWORK_ERRORS = (OSError, http.client.HTTPException)


def fetch(
    source_name: str, file_name: str, destination: str | os.PathLike, mirror: str | None = None, offline: bool = False
) -> Path:
    """Put an official file at `destination`, verified by checksum: the one there, the mirror's, or a download's.

    A stopped download stays as `.part` and goes on. offline: no network. Raises ShapelineError: file, expected and
    found checksum, places tried, and where to place it by hand.
    """
    files = remote_files(source_name)
    names = [file.name for file in files]
    if file_name not in names:
        hint = f".{nearest(file_name, names)}" if names else "; it needs none"
        raise ShapelineError(f"source '{source_name}': has no file '{file_name}'{hint}")
    file = files[names.index(file_name)]
    destination = Path(destination)
    try:
        return _fetch(source_name, file, destination, mirror, offline)
    except OSError as error:  # network errors never get here: what is left is the disk
        raise ShapelineError(
            f"{error.filename or destination}: {error.strerror or error}; make the folder writable."
        ) from error


def _fetch(source: str, file: RemoteFile, destination: Path, mirror: str | None, offline: bool) -> Path:
    label = f"{source}/{file.name}"
    if destination.exists():
        problem = (file.problem(destination) or _pin(file, destination)) if destination.is_file() else "is not a file"
        if problem:
            raise ShapelineError(f"{destination}: {problem}; delete it, or put the official file there.")
        log.info("%s: already at %s, %s", label, destination, _verify(file, destination))
        return destination
    destination.parent.mkdir(parents=True, exist_ok=True)
    part = destination.with_name(destination.name + ".part")
    folder, urls = None, [] if offline else list(file.urls)
    if mirror and is_address(mirror):
        if not offline:
            urls.insert(0, f"{mirror.rstrip('/')}/{urllib.parse.quote(source)}/{urllib.parse.quote(file.name)}")
    elif mirror:
        folder = expand(mirror) / source / file.name
    tried = []
    if folder is not None:
        problem = _copy(folder, part, file)
        if not problem:
            return _finish(label, file, folder, part, destination)
        missing = "" if folder.parents[1].is_dir() else f", as there is no folder {folder.parents[1]} (data.mirror)"
        log.warning("%s: %s: %s%s", label, folder, problem, missing)
        tried.append(f"{folder}: {problem}{missing}")
    for url in urls:
        problem = _download(label, url, part, file)
        if not problem:
            return _finish(label, file, url, part, destination)
        log.warning("%s: %s: %s", label, url, problem)
        tried.append(f"{url}: {problem}")
    if not file.urls:
        beside = f" Tried: {'; '.join(tried)}." if tried else ""
        raise ShapelineError(
            f"{label}: its host requires a log-in, so it cannot be fetched; get it at {file.page} and place it at "
            f"{destination}, or name a copy by the dataset's key 'path'.{beside}"
        )
    size = f", {file.size:,} bytes" if file.size is not None else ""
    expected = f"{file.algorithm} {file.checksum}" if file.checksum else "any content: no checksum is published"
    network = f"offline is set, so nothing was downloaded from {' or '.join(file.urls)}" if offline else ""
    reasons = "; ".join(filter(None, [*tried, network]))
    hint = f" (it goes on from the {part.stat().st_size:,} bytes in {part})" if part.exists() and file.checksum else ""
    raise ShapelineError(
        f"{label}: could not be fetched (expected {expected}{size}; tried: {reasons}); "
        f"run again{hint}, or place the file by hand at {destination}."
    )


def _finish(label: str, file: RemoteFile, origin: Path | str, part: Path, destination: Path) -> Path:
    if problem := _pin(file, part, destination):
        raise ShapelineError(f"{label}: from {origin}: {problem}; get it again.")
    os.replace(part, destination)
    log.info("%s: from %s, %s", label, origin, _verify(file, destination))
    return destination


def _pin(file: RemoteFile, found: Path, destination: Path | None = None) -> str:
    """Return what is wrong with a file without a published checksum: it is not the first one here (<file>.sha256)."""
    if file.checksum:
        return ""
    place = destination or found
    pin = place.with_name(place.name + ".sha256")
    digest = file_digest(found, "sha256")
    if not pin.exists():
        pin.write_text(digest + "\n", encoding="utf-8")
        return ""
    first = pin.read_text(encoding="utf-8").strip()
    if digest == first:
        return ""
    return f"has sha256 {digest}, and the file first used here had {first} (to take the new one, delete {pin})"


def _verify(file: RemoteFile, path: Path) -> str:
    return (
        "checksum verified"
        if file.checksum
        else f"no checksum is published; pinned at first use, sha256 {file_digest(path, 'sha256')}"
    )


def _copy(origin: Path, part: Path, file: RemoteFile) -> str:
    """Copy the mirror's file to `part` after verifying it; return what is wrong with it, "" for nothing."""
    if not origin.is_file():
        return "not there"
    problem = file.problem(origin)
    if not problem:
        shutil.copyfile(origin, part)
        problem = file.problem(part)
        if problem:
            part.unlink()
    return problem


def _download(label: str, url: str, part: Path, file: RemoteFile) -> str:
    """Download one URL to `part`, going on from what is there; returns what is wrong, "" when nothing is."""
    problem = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            wait = BACK_OFF * 2 ** (attempt - 1)
            log.info("%s: %s; once more in %.3g s", label, problem, wait)
            time.sleep(wait)
        if not file.checksum:
            part.unlink(missing_ok=True)  # nothing would tell that two pieces do not belong together
        resumed = part.exists()
        problem, again = _transfer(label, url, part, file)
        if not problem:
            problem = file.problem(part)
            if not problem:
                return ""
            part.unlink()
            # The start may be of another file, left by an earlier call: once more, from the beginning.
            again = resumed
        if not again:
            break
    return problem


def _transfer(label: str, url: str, part: Path, file: RemoteFile) -> tuple[str, bool]:
    """One request; returns what went wrong ("" when all bytes came) and whether to ask again: not where the server
    says plainly that it will not give the file."""
    offset = part.stat().st_size if part.exists() else 0
    if file.size is not None and offset >= file.size:
        return "", False  # complete but not verified when the last call was stopped; too long fails the checksum
    headers = {"User-Agent": "shapeline", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        # 416: there is nothing after what we have, so the checksum decides.
        if offset and error.code == 416:
            return "", False
        return f"HTTP {error.code} {error.reason}", error.code in BUSY
    except (*NETWORK_ERRORS, ValueError) as error:
        return f"no connection ({getattr(error, 'reason', None) or error})", not isinstance(error, ValueError)
    with response:
        continues = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")
        if offset and not continues:
            offset = 0  # the server sends the whole file
        length = response.headers.get("Content-Length", "")
        expected = offset + int(length) if length.isdigit() else file.size
        reason = ""
        with open(part, "ab" if offset else "wb") as stream:
            started = reported = time.monotonic()
            received = offset
            while True:
                try:
                    chunk = response.read1(CHUNK)
                except NETWORK_ERRORS as error:
                    reason = f" ({error})"
                    break
                if not chunk:
                    break
                stream.write(chunk)
                received += len(chunk)
                if file.size is not None and received > file.size:
                    break  # an endless or wrong answer; the checksum refuses it
                now = time.monotonic()
                if now - reported >= REPORT_EVERY:
                    reported = now
                    rate = (received - offset) / (now - started) / 1e6
                    share = f" ({received / expected:.0%})" if expected else ""
                    log.info("%s: %.1f MB%s at %.2f MB/s", label, received / 1e6, share, rate)
    if reason or (expected is not None and received < expected):
        total = f" of {expected:,}" if expected is not None else ""
        digest = f"{file.algorithm} {file_digest(part, file.algorithm)}"
        return f"stopped after {received:,}{total} bytes{reason}, found {digest}", True
    return "", False
