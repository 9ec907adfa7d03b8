"""Limits of the bytes that an archive or an image may use: by its headers, and by counting where these are wrong."""

import functools
import gzip
import inspect
import lzma
import re
import struct
import tarfile
import time
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest
from PIL import Image

from shapeline.config import validation
from shapeline.datasets import archive, checks, images, mnist, preparation, registry
from shapeline.errors import ShapelineError

MB = 1_000_000
FAST_GZIP = functools.partial(gzip.open, compresslevel=1)


def refused(call, seconds: float = 2.0, megabytes: float = 200) -> str:
    """The line of a refusal, which took little time and memory."""
    began = time.process_time()
    with pytest.raises(ShapelineError) as failure:
        call()
    spent = time.process_time() - began
    tracemalloc.start()  # slows all down, so the time is that of the call before
    try:
        with pytest.raises(ShapelineError):
            call()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    line = str(failure.value)
    assert "\n" not in line and spent < seconds and most < megabytes * MB, (line, spent, most)
    return line


def whole(path: Path, allowed: archive.Limits = archive.DEFAULT_LIMITS, wanted=lambda name: True):
    """A call that reads all that is wanted of an archive."""

    def call() -> list:
        with archive.open_files(path, wanted, allowed) as members:
            return [(name, len(stream.read())) for name, stream in members]

    return call


def zipped(path: Path, size: int, name: str = "a/x.png") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as stored, stored.open(name, "w") as stream:
        for _ in range(size // MB):
            stream.write(bytes(MB))
    return path


def tarred(path: Path, sizes: dict[str, int], opened=FAST_GZIP) -> Path:
    with opened(path, "wb") as unzipped, tarfile.open(fileobj=unzipped, mode="w|") as stored:
        for name, size in sizes.items():
            member = tarfile.TarInfo(name)
            member.size = size
            stored.addfile(member, Zeros(size))
    return path


class Zeros:
    """So many zero bytes to be read, of which none is held."""

    def __init__(self, size: int):
        self.left = size

    def read(self, size: int) -> bytes:
        size = min(size, self.left)
        self.left -= size
        return bytes(size)


def test_a_member_of_a_zip_is_refused_by_its_header(tmp_path):
    path = zipped(tmp_path / "a.zip", 150 * MB)
    assert path.stat().st_size < MB
    line = refused(whole(path), seconds=0.1, megabytes=10)
    assert line == (
        f"{path}: the member 'a/x.png': has 150 MB unpacked and the limit is 128; set limits: {{member: 150}} if "
        "you know where it is from, or remove it."
    )
    assert whole(path, archive.choose_limits(None, member=150))() == [("a/x.png", 150 * MB)]


def test_a_member_of_a_zip_that_is_larger_than_its_header_says(tmp_path):
    """Python's own reader unpacks all of it before it looks."""
    path = zipped(tmp_path / "a.zip", 150 * MB)
    content = path.read_bytes().replace(struct.pack("<L", 150 * MB), struct.pack("<L", 10))
    path.write_bytes(content)
    assert "truncated or damaged (Bad CRC-32" in refused(whole(path), seconds=0.5, megabytes=20)


def test_a_zip_is_bounded_in_all(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as stored:
        for number in range(6):
            stored.writestr(f"a/{number}.png", bytes(100 * MB))
    line = refused(whole(path), seconds=0.1, megabytes=10)
    assert "a.zip: has 600 MB unpacked and the limit is 500; set limits: {total: 600}" in line
    assert len(whole(path, archive.choose_limits(None, total=600), lambda name: name == "a/1.png")()) == 1


@pytest.mark.parametrize("opened", [FAST_GZIP, functools.partial(lzma.open, preset=0)], ids=["gzip", "xz"])
def test_a_member_of_a_tar_is_refused_by_its_header(tmp_path, opened):
    path = tarred(tmp_path / "a.tar", {"a/x.png": 130 * MB}, opened)
    assert "the member 'a/x.png': has 130 MB unpacked and the limit is 128" in refused(whole(path), 0.1, 10)


def test_unused_members_of_a_tar_count_towards_the_limit(tmp_path):
    path = tarred(tmp_path / "a.tar.gz", {"noise": 120 * MB, "a/x.png": 10})
    hundred = archive.choose_limits(None, total=100)
    line = refused(whole(path, hundred, lambda name: name != "noise"), seconds=0.8, megabytes=10)
    assert "MB unpacked and the limit is 100;" in line and "set limits: {total: 121}" in line
    assert "MB unpacked and the limit is 3;" in refused(
        whole(path, archive.choose_limits(None, total=3), lambda name: name != "noise"), 0.5, 10
    )


def test_zeros_after_the_end_of_a_tar_count_in_all(tmp_path):
    path = tarred(tmp_path / "a.tar.gz", {"a/x.png": 10})
    path.write_bytes(path.read_bytes() + gzip.compress(bytes(120 * MB), 1))
    line = refused(whole(path, archive.choose_limits(None, total=100)), seconds=1.2, megabytes=20)
    assert "MB unpacked and the limit is 100;" in line


def test_headers_of_a_tar_are_bounded(tmp_path):
    """A pax header may have any size, and tarfile reads it completely."""
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as stored:
        member = tarfile.TarInfo("x")
        member.pax_headers = {"comment": "y" * 40 * MB}
        stored.addfile(member)
    assert "the headers of a member take more than a megabyte" in refused(whole(path), seconds=0.5, megabytes=10)


def test_a_sparse_member_that_claims_terabytes(tmp_path):
    """Ten kilobytes of tar; only its header claims the size."""
    member = tarfile.TarInfo("a/x.png")
    member.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"77777777777\0"  # realsize: 8.6 GB
    header[386:410] = b"00000000000\0" + b"00000000000\0"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path = tmp_path / "a.tar"
    path.write_bytes(bytes(header) + bytes(10240))
    assert "8,589.93 MB unpacked and the limit is 128" in refused(whole(path), 0.1, 10)


def test_a_file_in_a_folder_is_bounded(tmp_path):
    (tmp_path / "a").mkdir()
    with open(tmp_path / "a" / "x.png", "wb") as stream:
        stream.truncate(3000 * MB)
    assert "x.png: has 3,000 MB unpacked and the limit is 128" in refused(whole(tmp_path), 0.1, 10)
    allowed = archive.choose_limits(None, member=4000, total=1)
    assert "MB unpacked and the limit is 1;" in refused(whole(tmp_path, allowed), 0.1, 10)


def test_a_file_of_mnist_is_bounded(tmp_path):
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(bytes(400 * MB), 1))
    assert "has 128 MB unpacked and the limit is 128" in refused(lambda: mnist.read_idx(path, mnist.IMAGES), 2, 450)


def large(side: int) -> bytes:
    """A PNG of side x side black pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">L", len(content)) + kind + content + struct.pack(">L", zlib.crc32(kind + content))

    header = struct.pack(">LLBBBBB", side, side, 8, 2, 0, 0, 0)
    packed = zlib.compress(bytes((3 * side + 1) * min(side, 100)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("side", "said"), [(12_000, "limit is 50;"), (20_000, "decompression bomb")])
def test_an_image_is_refused_by_its_header(side, said):
    content = large(side)
    line = refused(lambda: images.decode("p.png", content), seconds=0.1, megabytes=10)
    assert said in line


def test_a_large_image_is_refused_for_every_treatment_of_corrupt_ones(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (30, 20)).save(tmp_path / name / "p.png")
    settings = {
        "source": "image_folder",
        "path": str(tmp_path),
        "limits": {"pixels": 0.0005},
        "on_decode_error": "skip",
    }
    line = refused(lambda: preparation.prepare("image_folder", settings, [], tmp_path / "made"))
    assert "p.png: has 0.0006 million pixels and the limit is 0.0005; set limits: {pixels: 1}" in line


def test_the_keys_of_limits_are_checked(default):
    entry = {"source": "image_folder", "path": "docs/images", "limits": {"membr": 3}}
    for given, said in (
        ({"membr": 3}, "datasets.x.limits.membr: unknown key. Did you mean 'member'?"),
        ({"member": 0}, "datasets.x.limits.member: 0 is not valid; input should be greater than 0"),
        ({"pixels": 400}, "datasets.x.limits.pixels: 400 is not valid; input should be less than or equal to 178"),
        ("small", "datasets.x.limits: 'small' is not a mapping of keys"),
    ):
        default["datasets"]["x"] = {**entry, "limits": given}
        with pytest.raises(ShapelineError) as failure:
            validation.load(default)
        assert said in str(failure.value)
    with pytest.raises(ShapelineError, match="'limits': source 'digits' does not take it"):
        checks.read_entry("digits", {"source": "digits", "limits": {"member": 1}})


def test_every_source_of_an_archive_takes_the_limits():
    opens = re.compile(r"archive\.open_files|archive\.read_file|archive\.read_members|_decode_images\(")
    takes = {name for name, one in registry.SOURCES.items() if opens.search(inspect.getsource(one.read))}
    assert takes == {"agnews", "cifar10", "fer", "image_folder", "imdb", "lisa", "malaria", "polarity", "yahoo"}
    for name in takes | {"mnist"}:
        settings = {"source": name, "path": "x", "limits": {"member": 5}}
        checks.read_entry(name, settings)


def test_official_archives_are_far_from_the_limits():
    """Unpacked: cifar 184 MB of 170, reviews 220 of 84, answers 1.6 GB of 319, slides 4.4 of 4.4."""
    assert archive.MAX_RATIO * 84 > 220 and archive.MAX_RATIO * 319 > 1600
