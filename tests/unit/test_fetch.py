"""fetch(): checksums, mirrors, resumption, and no partial files. The only address used is 127.0.0.1."""

import hashlib
import logging
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from shapeline.datasets import fetch as fetch_module
from shapeline.datasets import registry
from shapeline.datasets.fetch import fetch
from shapeline.datasets.registry import RemoteFile
from tests.fixtures import builders, failures

CONTENT = bytes(range(256)) * 40
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def server(monkeypatch):
    # A proxy of the environment must not see the test's requests.
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with builders.file_server() as state:
        state.content["/a/data.gz"] = CONTENT
        state.content["/b/data.gz"] = CONTENT
        yield state


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """Seconds waited between attempts; none really pass."""
    waited = []
    monkeypatch.setattr(fetch_module.time, "sleep", waited.append)
    return waited


@pytest.fixture
def tiny(server, monkeypatch):
    """Registers the source "tiny" with one file at two URLs; returns a function that changes that file's entry."""

    def register(**changes):
        urls = (server.url("/a/data.gz"), server.url("/b/data.gz"))
        file = replace(RemoteFile("data.gz", urls, md5=MD5, size=len(CONTENT)), **changes)
        monkeypatch.setitem(registry.SOURCES, "tiny", replace(registry.SOURCES["mnist"], name="tiny", files=(file,)))
        return file

    register()
    return register


failure = partial(failures.failure, fetch)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_downloads_and_verifies(server, tiny, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    place = tmp_path / "raw" / "tiny" / "data.gz"
    assert fetch("tiny", "data.gz", place) == place
    assert place.read_bytes() == CONTENT
    assert left(place.parent) == ["data.gz"]
    assert server.requests == [("/a/data.gz", None)]
    assert "checksum verified" in caplog.text


def test_a_file_without_a_checksum_is_pinned_at_first_use(server, tiny, tmp_path):
    tiny(md5=None, size=None)
    place, pin = tmp_path / "data.gz", tmp_path / "data.gz.sha256"
    fetch("tiny", "data.gz", place)
    assert pin.read_text().strip() == hashlib.sha256(CONTENT).hexdigest()
    fetch("tiny", "data.gz", place)  # the same again
    place.write_bytes(b"another")
    assert "the file first used here had" in failure("tiny", "data.gz", place)
    place.unlink()
    server.content["/a/data.gz"] = b"changed by its host"
    assert f"to take the new one, delete {pin}" in failure("tiny", "data.gz", place) and not place.exists()
    pin.unlink()
    fetch("tiny", "data.gz", place)
    assert place.read_bytes() == b"changed by its host"


def test_sha256_is_preferred_to_md5(server, tiny, tmp_path):
    tiny(sha256=hashlib.sha256(CONTENT).hexdigest(), md5="0" * 32)
    assert fetch("tiny", "data.gz", tmp_path / "data.gz").read_bytes() == CONTENT
    tiny(sha256="0" * 64, md5=MD5)
    assert "sha256" in failure("tiny", "data.gz", tmp_path / "second.gz")


def test_the_second_url_serves_when_the_first_fails(server, tiny, tmp_path):
    del server.content["/a/data.gz"]
    assert fetch("tiny", "data.gz", tmp_path / "data.gz").read_bytes() == CONTENT
    assert [path for path, _ in server.requests] == ["/a/data.gz", "/b/data.gz"]


def test_the_second_url_serves_when_the_first_is_altered(server, tiny, tmp_path):
    server.content["/a/data.gz"] = b"x" + CONTENT[1:]
    assert fetch("tiny", "data.gz", tmp_path / "data.gz").read_bytes() == CONTENT
    assert left(tmp_path) == ["data.gz"]


def test_not_found_names_everything_needed(server, tiny, tmp_path):
    server.content.clear()
    place = tmp_path / "data.gz"
    message = failure("tiny", "data.gz", place)
    for part in ("tiny/data.gz", MD5, server.url("/a/data.gz"), server.url("/b/data.gz"), "HTTP 404", str(place)):
        assert part in message
    assert left(tmp_path) == []


def test_altered_file_leaves_nothing(server, tiny, tmp_path):
    altered = b"x" + CONTENT[1:]
    server.content.update({"/a/data.gz": altered, "/b/data.gz": altered})
    message = failure("tiny", "data.gz", tmp_path / "data.gz")
    assert MD5 in message and hashlib.md5(altered).hexdigest() in message
    assert left(tmp_path) == []
    assert len(server.requests) == 2


def test_a_file_truncated_at_the_server_is_refused(server, tiny, tmp_path):
    short = CONTENT[:3000]
    server.content.update({"/a/data.gz": short, "/b/data.gz": short})
    message = failure("tiny", "data.gz", tmp_path / "data.gz")
    assert MD5 in message and hashlib.md5(short).hexdigest() in message and "3,000" in message
    assert left(tmp_path) == []


def test_too_long_a_file_is_refused(server, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch_module, "CHUNK", 1000)
    endless = CONTENT + bytes(50_000)
    server.content.update({"/a/data.gz": endless, "/b/data.gz": endless})
    message = failure("tiny", "data.gz", tmp_path / "data.gz")
    found = int(message.split("(", 2)[2].split(" of ")[0].replace(",", ""))
    assert len(CONTENT) < found <= len(CONTENT) + 1000
    assert left(tmp_path) == []


def test_a_dropped_connection_resumes(server, tiny, tmp_path):
    server.cut["/a/data.gz"] = [1000, 2000]
    assert fetch("tiny", "data.gz", tmp_path / "data.gz").read_bytes() == CONTENT
    assert [wanted for _, wanted in server.requests] == [None, "bytes=1000-", "bytes=3000-"]


def test_a_later_call_resumes_an_earlier_one(server, tiny, tmp_path):
    tiny(urls=(server.url("/a/data.gz"),))
    server.cut["/a/data.gz"] = [750, 750, 750, 750]
    message = failure("tiny", "data.gz", tmp_path / "data.gz")
    assert "stopped after 3,000 of 10,240 bytes" in message
    assert hashlib.md5(CONTENT[:3000]).hexdigest() in message and MD5 in message
    assert left(tmp_path) == ["data.gz.part"]
    assert fetch("tiny", "data.gz", tmp_path / "data.gz").read_bytes() == CONTENT
    assert server.requests[-1] == ("/a/data.gz", "bytes=3000-")
    assert left(tmp_path) == ["data.gz"]


def test_a_busy_server_is_retried_with_increasing_waits(server, tiny, tmp_path, waits, caplog):
    caplog.set_level(logging.INFO)
    server.busy["/a/data.gz"] = [503, 429]
    server.cut["/a/data.gz"] = [4000]
    assert fetch("tiny", "data.gz", tmp_path / "data.gz").read_bytes() == CONTENT
    assert [wanted for _, wanted in server.requests] == [None, None, None, "bytes=4000-"]
    assert waits == [1, 2, 4]
    assert "HTTP 503 Service Unavailable; once more in 1 s" in caplog.text


def test_a_busy_server_is_followed_by_the_next(server, tiny, tmp_path, waits):
    server.busy["/a/data.gz"] = [503] * 9
    assert fetch("tiny", "data.gz", tmp_path / "data.gz").read_bytes() == CONTENT
    assert [path for path, _ in server.requests] == ["/a/data.gz"] * 4 + ["/b/data.gz"]
    assert waits == [1, 2, 4]


def test_a_refusal_is_not_retried(server, tiny, tmp_path, waits):
    server.busy["/a/data.gz"] = [403]
    assert fetch("tiny", "data.gz", tmp_path / "data.gz").read_bytes() == CONTENT
    assert len(server.requests) == 2 and waits == []


def test_a_host_with_a_log_in_is_an_error_with_address_file_and_place(tiny, tmp_path):
    tiny(urls=(), page="https://example.org/records")
    message = failure("tiny", "data.gz", tmp_path / "raw" / "data.gz")
    for part in ("tiny/data.gz", "log-in", "https://example.org/records", str(tmp_path / "raw" / "data.gz")):
        assert part in message


def test_a_server_without_ranges_starts_again(server, tiny, tmp_path):
    server.ranges = False
    (tmp_path / "data.gz.part").write_bytes(CONTENT[:500])
    assert fetch("tiny", "data.gz", tmp_path / "data.gz").read_bytes() == CONTENT
    assert server.requests == [("/a/data.gz", "bytes=500-")]


def test_a_wrong_start_is_dropped_and_fetched_again(server, tiny, tmp_path):
    (tmp_path / "data.gz.part").write_bytes(b"?" * 500)
    assert fetch("tiny", "data.gz", tmp_path / "data.gz").read_bytes() == CONTENT
    assert server.requests == [("/a/data.gz", "bytes=500-"), ("/a/data.gz", None)]


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_a_complete_part_needs_no_second_download(server, tiny, tmp_path, size):
    tiny(size=size)
    (tmp_path / "data.gz.part").write_bytes(CONTENT)
    assert fetch("tiny", "data.gz", tmp_path / "data.gz").read_bytes() == CONTENT
    # Without a known size the server has to say that nothing is left (416).
    assert len(server.requests) == (0 if size else 1)


def test_no_server_is_one_clear_line(tiny, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{free.getsockname()[1]}/data.gz"
    tiny(urls=(closed,))
    assert "no connection" in failure("tiny", "data.gz", tmp_path / "data.gz")
    assert left(tmp_path) == []


def test_mirror_folder_comes_first(server, tiny, tmp_path, monkeypatch):
    (tmp_path / "mirror" / "tiny").mkdir(parents=True)
    (tmp_path / "mirror" / "tiny" / "data.gz").write_bytes(CONTENT)
    monkeypatch.setenv("MIRROR_FOR_TEST", str(tmp_path / "mirror"))
    place = fetch("tiny", "data.gz", tmp_path / "raw" / "data.gz", mirror="${MIRROR_FOR_TEST}", offline=True)
    assert place.read_bytes() == CONTENT and left(place.parent) == ["data.gz"]
    assert server.requests == []


def test_mirror_folder_without_the_file_or_altered(server, tiny, tmp_path, caplog):
    mirror = tmp_path / "mirror"
    assert fetch("tiny", "data.gz", tmp_path / "one", mirror=str(mirror)).read_bytes() == CONTENT
    assert f"there is no folder {mirror} (data.mirror)" in caplog.text
    (mirror / "tiny").mkdir(parents=True)
    (mirror / "tiny" / "data.gz").write_bytes(b"altered")
    assert fetch("tiny", "data.gz", tmp_path / "two", mirror=str(mirror)).read_bytes() == CONTENT
    # A bad mirror does not cost what an earlier call has downloaded.
    (tmp_path / "two").unlink()
    (tmp_path / "two.part").write_bytes(CONTENT[:500])
    fetch("tiny", "data.gz", tmp_path / "two", mirror=str(mirror))
    assert server.requests[-1] == ("/a/data.gz", "bytes=500-")
    message = failure("tiny", "data.gz", tmp_path / "three", mirror=str(mirror), offline=True)
    assert str(mirror / "tiny" / "data.gz") in message and hashlib.md5(b"altered").hexdigest() in message
    assert left(tmp_path) == ["mirror", "one", "two"]


def test_mirror_url_comes_first(server, tiny, tmp_path):
    server.content["/mirror/tiny/data.gz"] = CONTENT
    fetch("tiny", "data.gz", tmp_path / "data.gz", mirror=server.url("/mirror/"))
    assert server.requests == [("/mirror/tiny/data.gz", None)]


def test_offline_uses_no_network(server, tiny, tmp_path):
    place = tmp_path / "data.gz"
    message = failure("tiny", "data.gz", place, mirror=server.url("/mirror"), offline=True)
    for part in ("offline", MD5, server.url("/a/data.gz"), f"place the file by hand at {place}"):
        assert part in message
    assert server.requests == []


def test_a_file_placed_by_hand(server, tiny, tmp_path):
    place = tmp_path / "data.gz"
    place.write_bytes(CONTENT)
    assert fetch("tiny", "data.gz", place, offline=True) == place
    place.write_bytes(b"another file")
    message = failure("tiny", "data.gz", place)
    assert str(place) in message and MD5 in message and hashlib.md5(b"another file").hexdigest() in message
    assert place.read_bytes() == b"another file"
    assert server.requests == []


def test_a_place_that_cannot_be_written(tiny, tmp_path):
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in failure("tiny", "data.gz", tmp_path / "file" / "data.gz")


def test_unknown_names(tmp_path):
    assert "Did you mean 'mnist'?" in failure("mnits", "data.gz", tmp_path / "x")
    assert "Did you mean 'train-labels-idx1-ubyte.gz'?" in failure("mnist", "train-labels-idx1-ubyt.gz", tmp_path / "x")
    assert "needs none" in failure("digits", "digits.csv", tmp_path / "x")


def test_progress_is_logged(server, tiny, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(fetch_module, "REPORT_EVERY", 0.0)
    caplog.set_level(logging.INFO)
    fetch("tiny", "data.gz", tmp_path / "data.gz")
    assert "tiny/data.gz" in caplog.text and "MB/s" in caplog.text
