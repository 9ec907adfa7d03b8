"""SECURITY.md agrees with the code."""

import re

from shapeline.config import mistakes as config_limits
from shapeline.datasets import archive


def test_the_limits_of_the_page_are_those_of_the_code(root):
    page = " ".join((root / "SECURITY.md").read_text(encoding="utf-8").split())
    for told in (
        f"unpack to {archive.DEFAULT_LIMITS.member:g} MB, an archive to {archive.MIN_TOTAL:g} MB "
        f"or {archive.MAX_RATIO} times its size",
        f"an image may have {archive.DEFAULT_LIMITS.pixels:g} million pixels",
        f"whole numbers from 2^{config_limits.MAX_INTEGER.bit_length()} on",
        f"names of more than {config_limits.MAX_NAME_LENGTH} characters",
        f"designs of more than {config_limits.MAX_DESIGN_BYTES / 1e9:g} GB",
    ):
        assert told in page, told


def test_the_tests_that_the_page_names_exist(root):
    page = (root / "SECURITY.md").read_text(encoding="utf-8")
    for name in re.findall(r"test_\w+\.py", page):
        assert (root / "tests/unit" / name).is_file(), name
