"""Files of a tar archive (gzip, xz) or of a folder, one after the other; nothing is ever unpacked to disk."""

import contextlib
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from shapeline.errors import ShapelineError


@contextlib.contextmanager
def opened(path: Path, wanted: Callable[[str], bool]) -> Iterator[Iterator[tuple[str, BinaryIO]]]:
    """Iterates over (name, stream) of the wanted files: of an archive in its own order, of a folder by name.

    A stream lasts until the next one. A member that is a link, a device or climbs out of the archive is refused,
    wanted or not, and so is an archive that ends early or fails its checksum: ShapelineError, here or at the end.
    """
    try:
        if path.is_dir():
            yield _of_folder(path, wanted)
        else:
            with _unzipped(path) as unzipped:
                yield _of_archive(path, unzipped, wanted)
                # To the end: a cut between two members shows only there, and so does the checksum.
                while unzipped.read(1 << 20):
                    pass
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise ShapelineError(f"{path}: the archive is truncated or damaged ({error}); get it again.") from error
    except OSError as error:
        raise ShapelineError(f"{error.filename or path}: cannot be read ({error.strerror or error}).") from error


def _unzipped(path: Path) -> BinaryIO:
    with open(path, "rb") as stream:
        start = stream.read(6)
    if start[:2] == b"PK":
        raise ShapelineError(f"{path}: a zip archive; unpack it and name the folder that it unpacks to.")
    return lzma.open(path) if start == b"\xfd7zXZ\x00" else gzip.open(path)


def _of_folder(folder: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, BinaryIO]]:
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if wanted(name) and file.is_file():
            with open(file, "rb") as stream:
                yield name, stream


def _of_archive(path: Path, unzipped: BinaryIO, wanted: Callable[[str], bool]) -> Iterator[tuple[str, BinaryIO]]:
    # Members are visited in their order, so that the file is only ever read forwards.
    with tarfile.open(fileobj=unzipped, mode="r:") as archive:
        while (member := archive.next()) is not None:
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts:
                raise ShapelineError(f"{path}: the member '{member.name}' climbs out of the archive; get it again.")
            if not (member.isfile() or member.isdir()):
                raise ShapelineError(f"{path}: the member '{member.name}' is a link or a device; get it again.")
            if member.isfile() and wanted(member.name):
                yield member.name, archive.extractfile(member)
            archive.members.clear()  # it remembers every member, and there may be 100,000
