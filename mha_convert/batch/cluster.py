"""A Dask cluster as an executor like any other."""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from ..errors import ReadError, printable

RETRIES = 3  # of a source whose worker was lost
PATIENCE = "20s"


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """The executor of a client of the cluster whose scheduler has this address.

    Raises:
        ReadError: ``distributed`` is not installed, or nothing answers there.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ReadError(
            f"{printable(address)}: --dask needs a package that is not installed: distributed. "
            'Run `pip install "mha-convert[dask]"`.'
        ) from error
    try:
        client = Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise ReadError(
            f"{printable(address)}: no Dask scheduler answers there: {printable(error)}. Give tcp://HOST:PORT of one."
        ) from error
    with client:
        yield client.get_executor(retries=RETRIES, pure=False)
