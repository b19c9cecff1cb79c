"""The marker ``process``, and what keeps it true: a test without it cannot start a process.

A test that starts a process is marked. A fixture of a module or session that starts one requests ``starts_processes``,
which marks whatever uses the fixture. The process in which the package reads HDF5 is part of reading: it is started once,
serves all tests, and needs no mark.
"""

import multiprocessing.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

STARTS = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system", "multiprocessing.spawn"}
READING = "mha_convert.files.hdf5.worker"

unmarked: str | None = None  # what runs now, if it must not start a process
refused: list[str] = []


@pytest.fixture(scope="session")
def starts_processes() -> None:
    """Requested by fixtures that start a process: whatever uses them is marked ``process``."""


@contextmanager
def running(name: str, *, marked: bool) -> Iterator[None]:
    """Within the block, a start of a process is one by ``name``."""
    global unmarked
    outer, unmarked = unmarked, None if marked else name
    try:
        yield
    finally:
        unmarked = outer
        if refused:  # something may have caught the exception
            message = refused[0]
            refused.clear()
            pytest.fail(message)


def refuse(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook: the start of a process fails, by an exception that few catch."""
    if unmarked is None or event not in STARTS or READING in str(arguments[:2]):
        return
    refused.append(
        f"{unmarked} starts a process and is not marked: {event}{arguments[:2]}. "
        "Mark the test with @pytest.mark.process, or let the fixture request starts_processes."
    )
    pytest.fail(refused[-1])


def pytest_configure() -> None:
    """Python raises no event where ``multiprocessing`` spawns a process: we do."""
    spawn = multiprocessing.util.spawnv_passfds

    def audited(path: bytes, arguments: list[str], kept: list[int]) -> int:
        sys.audit("multiprocessing.spawn", path, arguments)
        return spawn(path, arguments, kept)

    multiprocessing.util.spawnv_passfds = audited
    sys.addaudithook(refuse)


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "starts_processes" in getattr(item, "fixturenames", ()):
            item.add_marker("process")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with running(item.nodeid, marked=item.get_closest_marker("process") is not None):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with running(item.nodeid, marked=item.get_closest_marker("process") is not None):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
    """What a fixture of one test starts, the test starts. Another's first user may be marked when the next is not."""
    own = fixturedef.scope == "function" or "starts_processes" in fixturedef.argnames
    with running(f"fixture {fixturedef.argname}", marked=own and (unmarked is None or fixturedef.scope != "function")):
        return (yield)
