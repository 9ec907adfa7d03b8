"""Atomic files, JSON documents, sizes as text, and folders of limited size."""

import contextlib
import errno
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from shapeline.errors import ShapelineError, name_type

before_any: list[Callable[[], None]] = []  # called before a file gets its name; a job's checks its inputs


def run_checks() -> None:
    """Call the checks that precede the renaming of a file; they raise if it must not appear."""
    for check in before_any:
        check()


def check_path(where: str, path: object) -> Path:
    """Return the path of a file, ~ filled in. Raises ShapelineError for what is no path or cannot be one."""
    if not isinstance(path, str | os.PathLike):
        raise ShapelineError(f"{where}: {name_type(path)} is no path; give the path of a file")
    if "\0" in str(path):
        raise ShapelineError(f"{where}: the path {str(path)!r} has the character U+0000; remove it")
    return Path(os.path.expanduser(path))


@contextlib.contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path, renamed to `path` on success; remains of ended processes are removed first.

    Raises ShapelineError where it cannot be written.
    """
    path = check_path("path", path)
    if path.is_dir():
        raise ShapelineError(f"{path}: is a folder; name a file")
    partial = path.with_name(f".{path.name}.{threading.get_native_id()}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left_over in path.parent.glob(f".{path.name}.*.tmp"):
            process = left_over.name.split(".")[-2]
            if not (process.isdigit() and psutil.pid_exists(int(process))):
                left_over.unlink(missing_ok=True)
        yield partial
        run_checks()
        os.replace(partial, path)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise ShapelineError(f"{path}: cannot be written; name a file in a folder that you can write") from error
    finally:
        with contextlib.suppress(OSError):  # of a folder without permission, or a name of a file in place of a folder
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Let one thread or process at a time run the block for a folder, where its file system has locks."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as opened:
        with contextlib.suppress(ImportError, OSError):  # outside Unix there is no fcntl
            import fcntl

            opened.callback(os.close, descriptor := os.open(folder, os.O_RDONLY))
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # until it is closed
        yield


def read_document(path: str | Path) -> dict:
    """Return the content of a card or notebook of the workflow. Raises ShapelineError if it is not JSON."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        reason = "" if isinstance(content, dict) else "it holds no keys"
    except ValueError as error:  # of the text or of its coding
        reason = str(error)
    if reason:
        raise ShapelineError(f"{path}: damaged ({reason}); remove it and run again, which re-computes it")
    return content


def format_bytes(number: float) -> str:
    """Return a number of bytes as text: 3 B, 45.6 MB, 1.23 TB."""
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return "more than 1,000 PB"


def trim_folders(folder: str | Path, max_bytes: float) -> int:
    """Remove the least recently used folders */* below one until the others fit; return the bytes removed."""
    tables = sorted((path.stat().st_mtime, path) for path in Path(folder).glob("*/*") if path.is_dir())
    sizes = {path: sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file()) for _, path in tables}
    excess, freed = sum(sizes.values()) - max_bytes, 0
    for path, size in sizes.items():
        if freed >= excess:
            break
        shutil.rmtree(path, ignore_errors=True)
        freed += size
    return freed
