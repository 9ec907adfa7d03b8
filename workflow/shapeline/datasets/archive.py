"""Files of an archive or a folder, one after the other within limits, and rows of CSV in them; nothing is unpacked."""

import contextlib
import csv
import gzip
import io
import lzma
import math
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from pydantic import Field

from shapeline.datasets.entries import Strict
from shapeline.errors import ShapelineError, nearest, shorten_name

MB = 1e6
MIN_TOTAL, MAX_RATIO = 500.0, 50  # megabytes in all, or so many times the archive where that is more
MAX_PIXELS = 178.0  # that Pillow decodes
ZIP = b"PK\x03\x04", b"PK\x05\x06"  # a tar may begin with PK, the name of its first member
GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
TAR_END = 1024  # zero bytes, with which a tar ends
CHUNK_BYTES = 1 << 20
MAX_HEADER_BYTES = 1 << 20  # bytes that the headers of one member of a tar may take
DAMAGE_ERRORS = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError),
    NotImplementedError,  # a way of compression that zipfile does not know
)


class Limits(Strict):  # of an archive or a folder, and of the images in it; choose_limits fills in the defaults
    member: float | None = Field(
        None, gt=0, description="Largest size in megabytes of an unpacked file of an archive or folder; 128 by default."
    )
    total: float | None = Field(
        None,
        gt=0,
        description="Largest size in megabytes of an unpacked archive; by default 500, or 50 times its packed "
        "size if that is more.",
    )
    pixels: float | None = Field(
        None, gt=0, le=MAX_PIXELS, description="Largest number of pixels of a stored image, in millions; 50 by default."
    )

    def refuse(self, where: object, key: str, size: float, limit: float | None = None) -> None:
        """Raise ShapelineError for a size, in bytes or pixels, above the limit of a key, or above another limit."""
        limit = getattr(self, key) if limit is None else limit
        if size > limit * MB:
            unit, enough = ("million pixels", MAX_PIXELS) if key == "pixels" else ("MB unpacked", math.inf)
            enough = min(math.ceil(size / MB), enough)
            raise ShapelineError(
                f"{where}: has {size / MB:,.6g} {unit} and the limit is {limit:,.6g}; set limits: "
                f"{{{key}: {enough:g}}} if you know where it is from, or remove it."
            )

    def refuse_total(self, path: Path, size: float) -> None:
        """Raise ShapelineError for an archive with a larger content than allowed."""
        self.refuse(path, "total", size, self.total or max(MIN_TOTAL, MAX_RATIO * path.stat().st_size / MB))


DEFAULT_LIMITS = Limits(member=128.0, pixels=50.0)


def choose_limits(limits: Limits | None, **usual: float) -> Limits:
    """Return the limits of a dataset's key, by default those of its source (usual)."""
    return DEFAULT_LIMITS.model_copy(update=usual | (limits.model_dump(exclude_none=True) if limits else {}))


@contextlib.contextmanager
def open_files(
    path: Path, wanted: Callable[[str], bool], limits: Limits = DEFAULT_LIMITS
) -> Iterator[Iterator[tuple[str, BinaryIO]]]:
    """Yield (name, stream) of the wanted files of an archive or folder; a stream lasts until the next.

    Refused are members that are links or devices or climb out, archives that end early or fail their checksum, and
    what is larger than the limits: ShapelineError, here or at the end.
    """
    with explain_damage(path):
        if path.is_dir():
            yield _open_folder_files(path, wanted, limits)
            return
        start, end = _read_ends(path)
        if start[:4] in ZIP:
            with zipfile.ZipFile(path) as archive:
                yield _open_zip_files(path, archive, wanted, limits)
        else:
            with _unzip(path, start, end) as unzipped:
                tape = Tape(path, unzipped, limits)
                yield _open_archive_files(path, tape, wanted, limits)
                # To the end: a cut between two members shows only there, and so does the checksum.
                tape.left = math.inf
                while tape.read(CHUNK_BYTES):
                    pass


@contextlib.contextmanager
def explain_damage(path: Path) -> Iterator[None]:
    """Raise a ShapelineError where a file that the block reads is damaged or cannot be read."""
    try:
        yield
    except DAMAGE_ERRORS as error:
        raise ShapelineError(f"{path}: truncated or damaged ({shorten_name(error)}); get it again.") from error
    except OSError as error:
        raise ShapelineError(
            f"{error.filename or path}: cannot be read ({error.strerror or error}); get it again, or make it readable."
        ) from error


def read_members(path: Path, names: Iterable[str], limits: Limits, hint: str = "get it again") -> dict[str, bytes]:
    """Return the contents of the files of these names, in whichever folder of an archive they are; refuse a gap."""
    with open_files(path, lambda name: name.split("/")[-1] in names, limits) as files:
        contents = {name.split("/")[-1]: stream.read() for name, stream in files}
    for name in names:
        if name not in contents:
            raise ShapelineError(f"{path}: holds no {name}; {hint}.")
    return contents


def read_file(path: Path, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Return the content of one file, unpacked where it is compressed by gzip or xz; raise ShapelineError."""
    with explain_damage(path):
        start, _ = _read_ends(path)
        opener = lzma.open if start == XZ else gzip.open if start[:2] == GZIP else open
        with opener(path, "rb") as stream:
            content = stream.read(int(limits.member * MB) + 1)
    limits.refuse(path, "member", len(content))
    return content


def _read_ends(path: Path) -> tuple[bytes, bytes]:
    with open(path, "rb") as stream:
        start = stream.read(6)
        stream.seek(max(0, stream.seek(0, 2) - TAR_END))
        return start, stream.read()


def _unzip(path: Path, start: bytes, end: bytes) -> BinaryIO:
    if start == XZ:
        return lzma.open(path)
    if start[:2] == GZIP:
        return gzip.open(path)
    # A plain tar has no checksum, and tarfile takes one that is cut between members for whole.
    if end != bytes(TAR_END):
        raise tarfile.ReadError("neither a zip nor a tar with its end")
    return open(path, "rb")


def _open_folder_files(folder: Path, wanted: Callable[[str], bool], limits: Limits) -> Iterator[tuple[str, BinaryIO]]:
    read = 0
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if wanted(f"{name}/" if file.is_dir() else name) and file.is_file():
            size = file.stat().st_size
            limits.refuse(f"{folder}: {name}", "member", size)
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
                limits.refuse(f"{path}: the member '{member.name}'", "member", member.size)
                tape.left = math.inf
                yield member.name, archive.extractfile(member)
            archive.members.clear()  # it remembers every member, and there may be 100,000
            tape.left = MAX_HEADER_BYTES


def _open_zip_files(
    path: Path, archive: zipfile.ZipFile, wanted: Callable[[str], bool], limits: Limits
) -> Iterator[tuple[str, BinaryIO]]:
    chosen = []
    for member in archive.infolist():
        _refuse(path, member.filename, stat.S_ISLNK(member.external_attr >> 16))
        if wanted(member.filename) and not member.is_dir():
            if member.flag_bits & 1:
                raise ShapelineError(f"{path}: the member '{member.filename}' has a password; unpack it first.")
            limits.refuse(f"{path}: the member '{member.filename}'", "member", member.file_size)
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
        self.left = float(MAX_HEADER_BYTES)

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
        content = self._stream.read(min(len(buffer), CHUNK_BYTES))
        buffer[: len(content)] = content
        return len(content)


@contextlib.contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    with explain_damage(path), open(path, "rb") as stream:
        yield stream


def csv_lines(where: str, stream: BinaryIO, errors: str, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of each row of a UTF-8 CSV file, also of empty ones. Raises ShapelineError for other text."""
    lines = csv.reader(io.TextIOWrapper(stream, "utf-8-sig", errors, newline=""), strict=True, delimiter=delimiter)
    while True:
        line = lines.line_num + 1
        try:
            row = next(lines, None)
        except csv.Error as error:
            raise ShapelineError(f"{where}, line {line}: not readable as CSV ({error}); get the file again.") from error
        if row is None:
            return
        yield line, row


def read_named_rows(
    where: str, stream: BinaryIO, names: tuple[str, ...], delimiter: str = ","
) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells of the named columns, stripped) of each row; ShapelineError for missing columns and no CSV.

    Names are in lower case with an underscore for other characters; of equal names the first counts.
    """
    lines = csv_lines(where, stream, "replace", delimiter)
    _, header = next(lines, (1, []))
    known = [re.sub(r"[^a-z0-9]+", "_", name.strip().lower()) for name in header]
    for name in names:
        if name not in known:
            hint = f".{nearest(name, known)}" if known else "; the file is empty, so get it again"
            raise ShapelineError(f"{where}: its header has no column {name}{hint}")
    places = [known.index(name) for name in names]
    for line, row in lines:
        if row and len(row) != len(header):
            raise ShapelineError(
                f"{where}, line {line}: {len(row)} column(s), but its header has {len(header)}; correct the line."
            )
        if row:
            yield line, [row[place].strip() for place in places]
