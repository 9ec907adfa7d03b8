"""Jobs as forks of the server give the results of separate processes."""

import contextlib
import json
import os
import runpy
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from shapeline.config.types import Model
from shapeline.fork_server import client
from shapeline.fork_server import server as fork_server
from shapeline.workflow import job_code, job_environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server needs Linux")


@pytest.fixture(scope="module")
def server():
    folder = tempfile.mkdtemp(prefix="shapeline-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        process = fork_server.launch(folder, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    yield folder, process
    process.stdin.close()
    assert process.wait(10) == 0 and not os.path.exists(folder)


@pytest.fixture
def program(server, tmp_path):
    """Return a function that runs lines of Python as a job, by the server unless the environment disables it."""
    file = tmp_path / "program.py"

    def run(code: str, *words: str, wait: bool = True, python: str = sys.executable, **environment: str):
        file.write_text(code)
        command = [*fork_server.build_command(), python, str(file), *words]
        told = {**os.environ, "OMP_NUM_THREADS": "1", fork_server.SOCKETS: server[0], **environment}
        options = {"cwd": tmp_path, "env": told, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.run(command, input="said", **options) if wait else subprocess.Popen(command, **options)

    return run


PARENT = "import os; print(os.getppid())"


@pytest.fixture(scope="module")
def own_server():
    """As a run starts one."""
    folder = tempfile.mkdtemp(prefix="shapeline-")
    process = fork_server.launch(folder, with_package=True, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    yield folder
    process.stdin.close()
    assert process.wait(10) == 0


@pytest.mark.parametrize("kind", ["", "report"])
def test_a_run_has_a_server_with_the_package_and_no_other_library_with_it(program, own_server, kind):
    """A score file names the packages that were imported: with one more it would name what its job never used."""
    root, modules = (str(Path(fork_server.__file__).parents[2]), fork_server.PACKAGE_MODULES[kind or fork_server.BASE])
    code = f"""
import json, sys
if sys.argv[1]:
    sys.path.insert(0, {root!r})
    from shapeline.fork_server import server as fork_server
    fork_server.send(sys.argv[1])
own = [sys.modules[name].__file__ for name in {modules!r} if name in sys.modules]
from shapeline.versions import list_imported
print(json.dumps([own, [*list_imported()]]))
"""
    without, served = (program(code, kind, PYTHONPATH=root, **more) for more in ({}, {fork_server.SOCKETS: own_server}))
    own, libraries = json.loads(served.stdout)
    assert len(own) == len(modules) and all(file.startswith(f"{root}/") for file in own)
    assert json.loads(without.stdout) == [[], libraries]


def test_a_fork_has_the_arguments_folder_environment_and_files_of_its_client(program, server, tmp_path):
    code = "import os, sys; print(sys.argv[1:], os.getcwd(), os.environ['SAID'], sys.stdin.read(), __name__)"
    done = program(f"{PARENT}; {code}", "a b", "c'", SAID="1")
    parent, told = done.stdout.splitlines()
    assert int(parent) == server[1].pid and told == f"['a b', \"c'\"] {tmp_path} 1 said __main__"
    assert (done.returncode, done.stderr) == (0, "")
    assert "program" in program("from sys import path; print(__file__)").stdout
    (tmp_path / "beside.py").write_text("NUMBER = 7")
    assert program("import beside; print(beside.NUMBER)").stdout == "7\n"
    (tmp_path / "other").mkdir()
    (tmp_path / "other/elsewhere.py").write_text("NUMBER = 8")
    asked = program("import elsewhere; print(elsewhere.NUMBER)", PYTHONPATH=str(tmp_path / "other"))
    assert asked.stdout == "8\n"


def test_code_compiled_by_a_fork_is_reused_by_the_next(program, server, tmp_path):
    """Also in a read-only source folder, where every job would compile the package."""
    (tmp_path / "large.py").write_text("NUMBER = 9")
    told = "import large; print(large.__cached__)"
    [cached] = program(told).stdout.split()
    assert cached.startswith(f"{server[0]}/") and os.path.exists(cached) and not (tmp_path / "__pycache__").exists()
    before = os.stat(cached).st_mtime_ns
    assert program(told).stdout == f"{cached}\n" and os.stat(cached).st_mtime_ns == before


@pytest.mark.parametrize(
    "code, status, told",
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('no')", 1, "no\n"),
        ("raise ValueError('wrong')", 1, "ValueError: wrong\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137, ""),
        ("import atexit, sys; atexit.register(print, 'last', file=sys.stderr)", 0, "last\n"),
    ],
)
def test_the_client_exits_with_the_status_of_the_fork(program, code, status, told):
    done = program(code)
    assert done.returncode == status and done.stderr.endswith(told)


def test_a_fork_whose_client_is_killed_ends(program):
    asked = program("import os, time; print(os.getpid(), flush=True); time.sleep(60)", wait=False)
    fork = psutil.Process(int(asked.stdout.readline()))
    asked.send_signal(signal.SIGKILL)
    fork.wait(10)
    asked.wait()


def test_an_interrupt_is_handled_by_the_fork(program):
    """Both get it at a terminal; the one that waits has to tell how the fork ended."""
    code = """
import os, signal, sys, time
def late(*_): time.sleep(0.3); sys.exit(5)
signal.signal(signal.SIGINT, late)
print(os.getpid(), flush=True)
time.sleep(60)
"""
    asked = program(code, wait=False)
    fork = int(asked.stdout.readline())
    asked.send_signal(signal.SIGINT)
    os.kill(fork, signal.SIGINT)
    assert asked.wait(10) == 5


@pytest.mark.parametrize(
    "environment", [{fork_server.SOCKETS: ""}, {fork_server.SOCKETS: "/nowhere"}, {"OMP_NUM_THREADS": "2"}]
)
def test_without_a_server_the_program_runs_in_its_own_process(program, server, environment):
    done = program(PARENT, **environment)
    assert done.returncode == 0 and int(done.stdout) == os.getpid()


def test_another_interpreter_is_not_served(program, server, tmp_path):
    (tmp_path / "python").symlink_to(sys.executable)
    assert int(program(PARENT, python=str(tmp_path / "python")).stdout) == os.getpid()


def test_the_client_imports_nothing_large():
    """It runs once per job."""
    folder = os.path.dirname(client.__file__)
    code = f"import sys; before = {{*sys.modules}}; sys.path.insert(0, {folder!r}); import client"
    show = "print(*sorted({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", f"{code}; {show}"], capture_output=True, text=True)
    modules = {*done.stdout.split()}
    assert {"client", "os", "socket"} <= modules and not modules & {"json", "subprocess", "typing", "shapeline"}
    assert (client.SOCKETS, client.MAX_REQUEST_BYTES) == (fork_server.SOCKETS, fork_server.MAX_REQUEST_BYTES)


def test_a_job_is_sent_to_the_server_with_its_libraries(program, server):
    code = f"""
import sys
sys.path.insert(0, {str(Path(fork_server.__file__).parents[2])!r})
from shapeline.fork_server import server as fork_server
before = "torch" in sys.modules
fork_server.send(sys.argv[1])
print(before, "torch" in sys.modules, "tensorflow" in sys.modules)
sys.exit(4)
"""
    for _ in range(2):
        done = program(code, "torch")
        assert (done.stdout, done.returncode) == ("True True False\n", 4)
    done = program(code, "")
    assert (done.stdout, done.returncode) == ("False False False\n", 4)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"architecture": "digits_cnn"}, "torch"),
        ({"architecture": "bilstm"}, "tensorflow"),
        ({"source": "own.skops"}, "skops"),
        ({"source": "file.py:build", "framework": "function"}, "base"),
    ],
)
def test_a_training_is_sent_to_the_server_with_its_libraries(monkeypatch, root, entry, expected):
    """Importing any of these takes longer than most trainings; the card lists the packages of a function."""
    asked = []

    def start(job, libraries: str = "") -> str:
        asked.append(libraries)
        raise StopIteration  # the rest of the script trains

    monkeypatch.setattr(job_environment, "start", start)
    config = SimpleNamespace(models={"one": Model(dataset="own", **entry)})
    resources = SimpleNamespace(framework=job_code.list_libraries(config, "one"))
    job = SimpleNamespace(params=SimpleNamespace(settings=entry), resources=resources)
    with pytest.raises(StopIteration):
        runpy.run_path(str(root / "workflow/scripts/train_model.py"), {"snakemake": job})
    assert asked == [expected]


def test_no_server_is_started_for_a_few_jobs(monkeypatch):
    monkeypatch.delenv(fork_server.SOCKETS, raising=False)
    assert fork_server.start(fork_server.MIN_JOBS - 1) == "" and fork_server.SOCKETS not in os.environ
    monkeypatch.setenv(fork_server.SOCKETS, "")
    assert fork_server.start(1000) == ""


def test_the_server_ends_with_its_parent(tmp_path):
    code = f"""
import os, sys, time
sys.path.insert(0, {str(Path(fork_server.__file__).parents[2])!r})
from shapeline.fork_server import server as fork_server
print(fork_server.start(100), flush=True)
print(os.environ[fork_server.SOCKETS], fork_server.start.server.pid, flush=True)
time.sleep(60)
"""
    environment = {name: value for name, value in os.environ.items() if name != fork_server.SOCKETS}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == f"trap '' INT; {shlex.join(fork_server.build_command())}"
    folder, server = process.stdout.readline().split()
    while not os.listdir(folder):
        time.sleep(0.05)
    process.kill()
    process.wait()
    with pytest.raises(psutil.NoSuchProcess):
        psutil.Process(int(server)).wait(10)
        psutil.Process(int(server))
    assert not os.path.exists(folder)


def test_an_idle_server_ends_and_a_later_request_starts_another(program):
    """TensorFlow's holds 600 MB, all through a run of which a minute needs it."""
    folder, root = tempfile.mkdtemp(prefix="shapeline-"), str(Path(fork_server.__file__).parents[2])
    short = f"import sys; sys.path.insert(0, {root!r}); from shapeline.fork_server import server as fork_server"
    short += "; fork_server.MAX_IDLE_SECONDS = 0.5"
    words = [sys.executable, "-c", f"{short}; fork_server.run(**fork_server.serve({folder!r}, {root!r}))"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    code = f"""
import os, sys
sys.path.insert(0, {root!r})
from shapeline.fork_server import server as fork_server
fork_server.send("onnx")
print(os.getppid(), "onnxruntime" in sys.modules)
"""
    pids = []
    for _ in range(2):
        told = program(code, **{fork_server.SOCKETS: folder}).stdout.split()
        assert told[1] == "True"
        pids.append(int(told[0]))
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pids[-1]).wait(10)
    assert pids[0] != pids[1]
    process.stdin.close()
    assert process.wait(10) == 0 and not os.path.exists(folder)


def test_a_folder_of_transformers_has_its_libraries_and_no_network(server):
    config = SimpleNamespace(
        models={
            "folder": Model(dataset="texts", source="path/to/folder"),
            "function": Model(dataset="texts", source="file.py:build"),
            "keras": Model(dataset="texts", source="own.keras"),
            "pipeline": Model(dataset="texts", source="own.skops"),
            "graph": Model(dataset="texts", source="own.onnx"),
        }
    )
    kinds = [job_code.list_libraries(config, name) for name in (*config.models, None)]
    assert kinds == ["transformers", "torch", "tensorflow", "skops", "base", "torch"]
    assert {*kinds} <= {*fork_server.LIBRARIES}
    # What is imported there was told so before: huggingface_hub reads it once.
    assert psutil.Process(server[1].pid).environ()["HF_HUB_OFFLINE"] == "1"
