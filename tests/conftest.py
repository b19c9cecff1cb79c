"""Fixtures: the golden files, the corpus and real files next to the project, models made by the installed Keras."""

import importlib.util
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import pytest
from environment import PROJECT, SHARED, SUPPORT, TESTS, require

pytest_plugins = ["process_marker"]
# The files that take longest. They are begun first, so that at the end no processor waits for one of them.
LONGEST = ("test_hostile", "test_corpus", "test_docs", "test_quantized", "test_benchmarks", "test_tensorflow_files")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longest files first."""
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """The test processes share the processors: PyTorch's threads would wait for one another longer than they compute."""
    import torch  # here, as the process that only hands out tests imports this module too

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """What a test draws of PyTorch's random numbers is the same in every run."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def written_cases(tmp_path_factory, keras_installed, starts_processes):
    """A function: a folder with what makers of ../shared/cases write (``NN`` of each), by genuine Keras."""

    def write(*names: str) -> Path:
        for name in names:
            require((SHARED / "cases" / f"{name}.py").is_file(), "../shared/cases")
        folder = tmp_path_factory.mktemp("cases")
        program = [sys.executable, SUPPORT / "case_models.py", folder, SHARED / "cases", *names]
        subprocess.run(program, check=True, capture_output=True, timeout=300)
        return folder

    return write


@pytest.fixture(scope="session")
def samples() -> Path:
    """The shipped sample files."""
    return PROJECT / "samples"


@pytest.fixture(scope="session")
def golden() -> Path:
    """A small part of the corpus, in the project."""
    return TESTS / "golden"


@pytest.fixture(scope="session")
def real() -> Path:
    """Public model files."""
    require((SHARED / "real").is_dir(), "../shared/real")
    return SHARED / "real"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Files written by many Keras versions."""
    require((SHARED / "corpus" / "files").is_dir(), "../shared/corpus")
    return SHARED / "corpus" / "files"


@pytest.fixture(scope="session")
def keras_installed() -> None:
    """Genuine Keras in this Python; it only ever runs in a subprocess."""
    require(importlib.util.find_spec("keras") is not None, "Keras")


@pytest.fixture(scope="session")
def fresh_models(keras_installed: None, tmp_path_factory: pytest.TempPathFactory, starts_processes: None) -> Path:
    """Models that the installed Keras saves now, with its outputs in ``outputs.npz``."""
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, SUPPORT / "keras_models.py", folder], check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture
def memory():
    """fsspec's store in memory, emptied afterwards."""
    store = fsspec.filesystem("memory")
    yield store
    store.rm("/", recursive=True)


@pytest.fixture(scope="module")
def s3(tmp_path_factory, starts_processes):
    """An S3-compatible server with one bucket, and the environment that leads to it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (tmp_path_factory.mktemp("s3") / "log").open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=log, stderr=log)
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    code = "import boto3; boto3.client('s3').create_bucket(Bucket='models')"
    subprocess.run([sys.executable, "-c", code], env=os.environ | environment, check=True, timeout=60)
    yield environment
    server.terminate()
    server.wait(timeout=20)
