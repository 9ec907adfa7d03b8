"""Files of a tar archive (plain, gzip, xz), a zip or a folder, one after the other; nothing is unpacked to disk."""

import contextlib
import gzip
import io
import lzma
import math
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from shapeline.datasets.limits import MEGA, USUAL, Limits
from shapeline.errors import ShapelineError, shorten_name

ZIP = b"PK\x03\x04", b"PK\x05\x06"  # a tar may begin with PK, the name of its first member
GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
END = 1024  # zero bytes, with which a tar ends
CHUNK = 1 << 20
HEADERS = 1 << 20  # bytes that the headers of one member of a tar may take
DAMAGES = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError),
    NotImplementedError,  # a way of compression that zipfile does not know
)


@contextlib.contextmanager
def open_files(
    path: Path, wanted: Callable[[str], bool], limits: Limits = USUAL
) -> Iterator[Iterator[tuple[str, BinaryIO]]]:
    """Yield (name, stream) of the wanted files of an archive or folder; a stream lasts until the next.

    Refused are members that are links or devices or climb out, archives that end early or fail their checksum, and
    what is larger than the limits: ShapelineError, here or at the end.
    """
    try:
        if path.is_dir():
            yield _open_folder_files(path, wanted, limits)
            return
        start, end = _ends(path)
        if start[:4] in ZIP:
            with zipfile.ZipFile(path) as archive:
                yield _open_zip_files(path, archive, wanted, limits)
        else:
            with _unzipped(path, start, end) as unzipped:
                tape = Tape(path, unzipped, limits)
                yield _open_archive_files(path, tape, wanted, limits)
                # To the end: a cut between two members shows only there, and so does the checksum.
                tape.left = math.inf
                while tape.read(CHUNK):
                    pass
    except DAMAGES as error:
        raise ShapelineError(
            f"{path}: the archive is truncated or damaged ({shorten_name(error)}); get it again."
        ) from error
    except OSError as error:
        raise ShapelineError(
            f"{error.filename or path}: cannot be read ({error.strerror or error}); get it again, or make it readable."
        ) from error


def read_file(path: Path, limits: Limits = USUAL) -> bytes:
    """Return the content of one file, unpacked where it is compressed by gzip or xz; raise ShapelineError."""
    try:
        start, _ = _ends(path)
        opener = lzma.open if start == XZ else gzip.open if start[:2] == GZIP else open
        with opener(path, "rb") as stream:
            content = stream.read(int(limits.member * MEGA) + 1)
    except DAMAGES as error:
        raise ShapelineError(f"{path}: truncated or damaged ({shorten_name(error)}); get it again.") from error
    except OSError as error:
        raise ShapelineError(
            f"{path}: cannot be read ({error.strerror or error}); get it again, or make it readable."
        ) from error
    limits.refuse_member(str(path), len(content))
    return content


def _ends(path: Path) -> tuple[bytes, bytes]:
    with open(path, "rb") as stream:
        start = stream.read(6)
        stream.seek(max(0, stream.seek(0, 2) - END))
        return start, stream.read()


def _unzipped(path: Path, start: bytes, end: bytes) -> BinaryIO:
    if start == XZ:
        return lzma.open(path)
    if start[:2] == GZIP:
        return gzip.open(path)
    if end != bytes(END):  # a plain tar has no checksum, and tarfile takes one that is cut between members for whole
        raise tarfile.ReadError("neither a zip nor a tar with its end")
    return open(path, "rb")


def _open_folder_files(folder: Path, wanted: Callable[[str], bool], limits: Limits) -> Iterator[tuple[str, BinaryIO]]:
    read = 0
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if wanted(f"{name}/" if file.is_dir() else name) and file.is_file():
            size = file.stat().st_size
            limits.refuse_member(f"{folder}: {name}", size)
            read += size
            if limits.total:
                limits.refuse_total(folder, read)
            with open(file, "rb") as stream:
                yield name, stream


def _open_archive_files(
    path: Path, tape: "Tape", wanted: Callable[[str], bool], limits: Limits
) -> Iterator[tuple[str, BinaryIO]]:
    # Members are visited in their order, so that the file is only ever read forwards.
    with tarfile.open(fileobj=tape, mode="r:") as archive:
        while (member := archive.next()) is not None:
            _refuse(path, member.name, not (member.isfile() or member.isdir()))
            if wanted(f"{member.name}/" if member.isdir() else member.name) and member.isfile():
                limits.refuse_member(f"{path}: the member '{member.name}'", member.size)
                tape.left = math.inf
                yield member.name, archive.extractfile(member)
            archive.members.clear()  # it remembers every member, and there may be 100,000
            tape.left = HEADERS


def _open_zip_files(
    path: Path, archive: zipfile.ZipFile, wanted: Callable[[str], bool], limits: Limits
) -> Iterator[tuple[str, BinaryIO]]:
    chosen = []
    for member in archive.infolist():
        _refuse(path, member.filename, stat.S_ISLNK(member.external_attr >> 16))
        if wanted(member.filename) and not member.is_dir():
            if member.flag_bits & 1:
                raise ShapelineError(f"{path}: the member '{member.filename}' has a password; unpack it first.")
            limits.refuse_member(f"{path}: the member '{member.filename}'", member.file_size)
            chosen.append(member)
    limits.refuse_total(path, sum(member.file_size for member in chosen))
    for member in chosen:
        with archive.open(member) as stream:
            yield member.filename, io.BufferedReader(Pieces(stream))


def _refuse(path: Path, name: str, odd: bool) -> None:
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts:
        raise ShapelineError(f"{path}: the member '{name}' climbs out of the archive; get it again.")
    if odd:
        raise ShapelineError(f"{path}: the member '{name}' is a link or a device; get it again.")


class Tape:
    """A tar that is read forwards within limits; left: bytes that headers may fill before it is set again."""

    def __init__(self, path: Path, stream: BinaryIO, limits: Limits):
        self._path, self._stream, self._limits = path, stream, limits
        self.left = float(HEADERS)

    def tell(self) -> int:
        return self._stream.tell()

    def seekable(self) -> bool:
        return True

    def seek(self, place: int) -> int:
        self._limits.refuse_total(self._path, place)
        return self._stream.seek(place)

    def read(self, size: int) -> bytes:
        if size > self.left:
            raise ShapelineError(f"{self._path}: the headers of a member take more than a megabyte; get it again.")
        content = self._stream.read(size)
        self.left -= len(content)
        self._limits.refuse_total(self._path, self._stream.tell())
        return content


class Pieces(io.RawIOBase):
    """A member of a zip, unpacked in pieces: zipfile by itself unpacks all of it and cuts it to its size then."""

    def __init__(self, stream: BinaryIO):
        super().__init__()
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        content = self._stream.read(min(len(buffer), CHUNK))
        buffer[: len(content)] = content
        return len(content)
