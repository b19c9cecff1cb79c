"""Convert every model below a folder, with a line of progress and a list of failures at the end.

python convert_all.py FOLDER OUT
"""

import sys

import mha_convert


def main() -> None:
    """Show progress on one line of the terminal, and list the failures at the end."""
    folder, out = sys.argv[1:]
    failures = []
    # resume=True: what an earlier run finished is neither done again nor reported.
    for number, report in enumerate(mha_convert.convert_many(folder, out, resume=True), 1):
        print(f"\r{number} done, {len(failures)} failed", end="", file=sys.stderr)
        if report.outcome in ("refused", "crashed"):
            failures.append(report)
    print(file=sys.stderr)
    for report in failures:
        print(report.error["message"])
    print(f"{len(failures)} failed")


if __name__ == "__main__":  # the worker processes import this file
    main()
