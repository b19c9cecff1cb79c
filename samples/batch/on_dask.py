"""Convert every model below a folder on a Dask cluster. Here the cluster has two workers on this machine.

python on_dask.py FOLDER OUT

For a real cluster, pass its address: Client("tcp://scheduler:8786"). FOLDER and OUT must be on a disk that all workers
see, or URLs (s3://bucket/models); only paths go through the scheduler. mha-convert must be installed on the workers.
"""

import sys

from distributed import Client, LocalCluster

import mha_convert


def main() -> None:
    """Any executor of concurrent.futures will do; a Dask client has one."""
    folder, out = sys.argv[1:]
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        executor = client.get_executor(pure=False, retries=3)  # retries: of a source whose worker was lost
        for report in mha_convert.convert_many(folder, out, executor=executor, resume=True):
            print(report.outcome, report.source)


if __name__ == "__main__":  # the workers import this file
    main()
