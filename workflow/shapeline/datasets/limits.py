"""How much a file of another's making may make this process read: a member of an archive, all of it, a picture.

An archive of a megabyte unpacks to a gigabyte, and a picture of a kilobyte to a hundred million pixels. The limits are
kept from what the headers say, before anything is read, and while reading, for headers can say less than is there.
"""

import io
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import BinaryIO

from shapeline.errors import ShapelineError, nearest

MEGA = 1e6
MEMBER, PIXELS = 128.0, 50.0  # megabytes, megapixels
FLOOR, RATIO = 500.0, 50  # megabytes in all, or so many times the archive where that is more
MOST_PIXELS = 178.0  # that Pillow decodes
CHUNK = 1 << 20
HEADERS = 1 << 20  # bytes that the headers of one member of a tar may take


@dataclass(frozen=True)
class Limits:
    """Megabytes of a member and of all of an archive (None: by the archive's own size), megapixels of a picture."""

    member: float = MEMBER
    total: float | None = None
    pixels: float = PIXELS

    def refuse_member(self, where: str, size: float) -> None:
        """ShapelineError for a member or file that is larger than allowed."""
        if size > self.member * MEGA:
            raise ShapelineError(
                f"{where} has {size / MEGA:,.1f} MB unpacked and the limit is {self.member:g}; set "
                f"{_key('member', size)}, or remove it."
            )

    def most(self, path: Path) -> float:
        """Bytes that an archive may hold in all."""
        return MEGA * self.total if self.total else max(FLOOR * MEGA, RATIO * path.stat().st_size)

    def refuse_total(self, path: Path, size: float) -> None:
        """ShapelineError for an archive that holds more than allowed."""
        if size > (most := self.most(path)):
            raise ShapelineError(
                f"{path}: holds more than {most / MEGA:,.0f} MB unpacked, which is the limit for an archive of "
                f"{path.stat().st_size / MEGA:,.1f} MB; set {_key('total', size)} if you know where it is from."
            )

    def refuse_pixels(self, where: str, width: int, height: int) -> None:
        """ShapelineError for a picture of more pixels than allowed."""
        if width * height > self.pixels * MEGA:
            raise ShapelineError(
                f"{where} has {width:,} x {height:,} pixels and the limit is {self.pixels:g} million; make it smaller, "
                f"or set {_key('pixels', width * height)}."
            )


USUAL = Limits()


def _key(name: str, needed: float) -> str:
    """The key that mends it; pixels have a highest limit of their own."""
    enough = math.ceil(needed / MEGA)
    return f"limits: {{{name}: {min(enough, MOST_PIXELS) if name == 'pixels' else enough:g}}}"


def of(given: dict | None, **usual: float) -> Limits:
    """The limits that a dataset's key gives, those of its source (usual) where it gives none; raises ShapelineError."""
    if given is not None and not isinstance(given, dict):
        raise ShapelineError(f"dataset key 'limits': {given!r} is not a mapping of member, total and pixels.")
    known = [field.name for field in fields(Limits)]
    for name, limit in (given or {}).items():
        if name not in known:
            raise ShapelineError(f"dataset key 'limits': '{name}' is unknown.{nearest(name, known)}")
        if limit is not None and (type(limit) not in (int, float) or not 0 < limit < math.inf):
            raise ShapelineError(f"dataset key 'limits': {name} is {limit!r}; give a number above 0, in millions.")
    if ((given or {}).get("pixels") or 0) > MOST_PIXELS:
        raise ShapelineError(f"dataset key 'limits': pixels is {given['pixels']:g}; the most is {MOST_PIXELS:g}.")
    return Limits(**usual | {name: limit for name, limit in (given or {}).items() if limit is not None})


class Tape:
    """A tar that is read forwards within limits; what `tarfile` asks of a file.

    `left`: bytes that may be read before it is set again, so that headers cannot fill the memory.
    """

    def __init__(self, path: Path, stream: BinaryIO, limits: Limits):
        self._path, self._stream, self._limits, self._most = path, stream, limits, limits.most(path)
        self.left = float(HEADERS)

    def tell(self) -> int:
        return self._stream.tell()

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = 0) -> int:
        if whence == 0:
            self._limits.refuse_total(self._path, place)
        return self._stream.seek(place, whence)

    def read(self, size: int | None = -1) -> bytes:
        most = int(min(self.left, self._most - self._stream.tell())) + 1
        content = self._stream.read(most if size is None or size < 0 else min(size, most))
        if len(content) == most:
            self._limits.refuse_total(self._path, self._stream.tell())
            raise ShapelineError(f"{self._path}: the headers of a member take more than a megabyte; get it again.")
        self.left -= len(content)
        return content


class Member(io.RawIOBase):
    """What is read of one member of a zip, a piece at a time and no more than its header says."""

    def __init__(self, where: str, stream: BinaryIO, limits: Limits):
        super().__init__()
        self._where, self._stream, self._limits, self._read = where, stream, limits, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        content = self._stream.read(min(len(buffer), CHUNK))
        self._read += len(content)
        self._limits.refuse_member(self._where, self._read)
        buffer[: len(content)] = content
        return len(content)

    def readall(self) -> bytes:
        pieces = []
        while piece := self.read(CHUNK):
            pieces.append(piece)
        return b"".join(pieces)
