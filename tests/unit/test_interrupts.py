"""An interrupt ends the jobs that do not listen yet, and leaves the others to end by themselves."""

import signal
import subprocess
import sys
import time

import pytest

from shapeline.operations import interrupts

# A job in the seconds of its imports, and one that has begun to listen; both say so first.
STARTING = "import time; print('here', flush=True); time.sleep(60)"
LISTENING = f"from shapeline.operations import interrupts; interrupts.listen(); {STARTING}"


@pytest.fixture
def before():
    handler = signal.getsignal(signal.SIGINT)
    interrupts.PRESSED.clear()
    yield
    signal.signal(signal.SIGINT, handler)
    interrupts.PRESSED.clear()


def job(code: str) -> subprocess.Popen:
    command = ["bash", "-c", f'{interrupts.PREFIX}"$0" -c "$1"', sys.executable, code]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert started.stdout.readline() == "here\n"
    return started


def test_a_job_that_starts_is_ended_without_a_word_and_one_that_listens_ends_itself(before):
    starting, listening = job(STARTING), job(LISTENING)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts.catch()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
        time.sleep(5)
    assert interrupts.PRESSED.is_set()
    assert starting.wait(20) and starting.stderr.read() == ""
    assert listening.poll() is None  # the terminal sends it an interrupt as well
    for process in interrupts.psutil.Process(listening.pid).children() or [listening]:
        process.send_signal(signal.SIGINT)
    assert listening.wait(20) and "KeyboardInterrupt" in listening.stderr.read()


def test_what_ignores_interrupts_goes_on_ignoring_them(before):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupts.catch()
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
