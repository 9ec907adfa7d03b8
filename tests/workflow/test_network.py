"""Only fetch uses the network: the default experiments run where no socket leads out of the machine."""

import os
import shutil
import subprocess

import pytest
import yaml

from tests.workflow.conftest import BIN

pytestmark = pytest.mark.real
# Python reads a sitecustomize when it starts, in Snakemake and in every job.
NO_WAY_OUT = """
import ipaddress, os, socket, traceback

def refuse(what):
    with open(os.environ["ASKED"], "a") as file:
        file.write(f"{what}\\n{''.join(traceback.format_stack(limit=8))}\\n")
    raise OSError(f"no network here: {what}")

def is_local(host):
    try:
        return host in (None, "", "localhost") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

class Socket(socket.socket):
    def connect(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_local(address[0]):
            refuse(address)
        return super().connect(address)

    def connect_ex(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_local(address[0]):
            refuse(address)
        return super().connect_ex(address)

found = socket.getaddrinfo

def getaddrinfo(host, *rest, **more):
    host_name = host.decode() if isinstance(host, bytes) else host
    return found(host, *rest, **more) if is_local(host_name) or host_name == socket.gethostname() else refuse(host)

socket.socket, socket.getaddrinfo = Socket, getaddrinfo
"""
# A network of its own that has loopback alone, against what opens sockets below Python; only root may ask for it.
ALONE = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def alone() -> list[str]:
    """The command before a command that leaves it no network but loopback, [] where that is not allowed."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        return []
    return ALONE if subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0 else []


@pytest.fixture
def offline(fresh, tmp_path_factory):
    """`offline(*command)` runs in the checkout without network access, and returns the requests."""
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(NO_WAY_OUT)
    asked = site / "asked"

    def run(*command: str) -> tuple[subprocess.CompletedProcess, str]:
        environment = {
            **os.environ,
            "ASKED": str(asked),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{site}{os.pathsep}{fresh.path / 'workflow'}",
        }
        done = subprocess.run([*alone(), *command], cwd=fresh.path, env=environment, capture_output=True, text=True)
        return done, asked.read_text() if asked.exists() else ""

    return run


def test_what_is_blocked_is_noticed(offline):
    """The guard itself: an address out of the machine is refused and noted, loopback is not."""
    done, asked = offline("python", "-c", "import urllib.request as u; u.urlopen('http://192.0.2.1/')")
    assert done.returncode and "no network here" in done.stderr and "192.0.2.1" in asked
    local = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())"
    assert offline("python", "-c", local)[0].returncode == 0


def test_the_default_experiments_use_no_network(offline, fresh, default):
    configuration = {**default, "scale": "smoke"}
    if chosen := os.environ.get("OFFLINE_RUN"):
        configuration["run"] = chosen.split(",")
    (fresh.path / "config.yaml").write_text(yaml.safe_dump(configuration, sort_keys=False))
    done, asked = offline("snakemake", "--cores", "2")
    assert done.returncode == 0, done.stderr[-3000:]
    assert not asked, asked[:3000]
    for name in configuration["run"]:
        assert (fresh.path / f"results/smoke/reports/{name}.html").exists()
    planned = fresh.snakemake("-n", "--forceall").stdout
    assert "fetch_source" not in planned  # the one rule that may; none of these needs it
