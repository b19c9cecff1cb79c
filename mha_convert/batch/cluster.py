"""A Dask cluster as an executor like any other."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from ..errors import ReadError

RETRIES = 3  # of a source whose worker was lost
PATIENCE = "10s"  # for an answer, and for a lost scheduler to come back


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
            f"{address}: --dask needs a package that is not installed: distributed. "
            'Run `pip install "mha-convert[dask]"`.'
        ) from error

    class Connection(Client):
        """One that could not be made is dropped without a word; Dask's takes long to close, and fails."""

        def __del__(self) -> None:
            pass

    connect: Callable[..., Client] = Connection
    with quiet():
        try:
            client = connect(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise ReadError(
                f"{address}: no Dask scheduler answers there: {error}. Pass tcp://HOST:PORT of one."
            ) from error
        with client:
            yield client.get_executor(retries=RETRIES, pure=False)


@contextmanager
def quiet() -> Iterator[None]:
    """What goes wrong is told once, by us: Dask logs tracebacks of connections that end."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
