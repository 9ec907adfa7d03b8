"""Limits of members of archives, of archives and of pixels, checked by headers, which can be wrong, and while
reading."""

import math
from dataclasses import dataclass, fields
from pathlib import Path

from shapeline.errors import ShapelineError, nearest

MEGA = 1e6
MEMBER, PIXELS = 128.0, 50.0  # megabytes, megapixels
FLOOR, RATIO = 500.0, 50  # megabytes in all, or so many times the archive where that is more
MOST_PIXELS = 178.0  # that Pillow decodes


@dataclass(frozen=True)
class Limits:
    """Megabytes of a member and of all of an archive (None: by the archive's own size), megapixels of an image."""

    member: float = MEMBER
    total: float | None = None
    pixels: float = PIXELS

    def refuse_member(self, where: str, size: float) -> None:
        """ShapelineError for a member or file that is larger than allowed."""
        if size > self.member * MEGA:
            raise ShapelineError(
                f"{where}: has {size / MEGA:,.1f} MB unpacked and the limit is {self.member:g}; set "
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
        """ShapelineError for an image of more pixels than allowed."""
        if width * height > self.pixels * MEGA:
            raise ShapelineError(
                f"{where}: has {width:,} x {height:,} pixels and the limit is {self.pixels:g} million; make it "
                "smaller, "
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
        raise ShapelineError(f"dataset key 'limits': {given!r} is not a mapping; give member, total and pixels.")
    known = [field.name for field in fields(Limits)]
    for name, limit in (given or {}).items():
        if name not in known:
            raise ShapelineError(f"dataset key 'limits': '{name}' is unknown.{nearest(name, known)}")
        if limit is not None and (type(limit) not in (int, float) or not 0 < limit < math.inf):
            raise ShapelineError(f"dataset key 'limits': {name} is {limit!r}; give a number above 0, in millions.")
    if ((given or {}).get("pixels") or 0) > MOST_PIXELS:
        raise ShapelineError(f"dataset key 'limits': pixels is {given['pixels']:g}; the most is {MOST_PIXELS:g}.")
    return Limits(**usual | {name: limit for name, limit in (given or {}).items() if limit is not None})
