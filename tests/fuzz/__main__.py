"""``python -m tests.fuzz --mutants 10000`` converts mutants of genuine files; what is not refused must be right.

``--only corpus/keras-3.15.1/gate.keras#17`` creates a single mutant again.
"""

import argparse
import json
import sys
from pathlib import Path

from .mutations import mutate
from .runner import Finding, Summary, keep, run
from .seeds import Seed, all_seeds, project_seeds
from .trial import attempt


def main() -> int:
    """Run; the exit code is 1 where anything is to be mended."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--mutants", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="another number makes other mutants")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--save", type=Path, help="folder for the files of failures")
    parser.add_argument("--golden", action="store_true", help="only files that are part of the project")
    parser.add_argument("--format", help="only seeds of this format")
    parser.add_argument("--only", metavar="SEED#NUMBER", help="make one mutant again, and say what becomes of it")
    parser.add_argument("--json", action="store_true", help="failures and counts as JSON")
    options = parser.parse_args()
    seeds = project_seeds() if options.golden else all_seeds()
    if options.only:
        return again(seeds, options.only, options.save)
    chosen = [seed for seed in seeds if options.format in (None, seed.format)]
    summary = Summary()
    arguments = {"mutants": options.mutants, "first": options.seed, "jobs": options.jobs, "minutes": options.minutes}
    for finding, seconds in run(chosen, save=options.save, **arguments):
        summary.findings.append(finding)
        summary.seconds = seconds
        if finding.failed and not options.json:
            print(described(finding), flush=True)
    print(as_json(summary) if options.json else summary.table())
    return bool(summary.failures)


def again(seeds: list[Seed], name: str, save: Path | None) -> int:
    """One mutant."""
    seed, _, number = name.rpartition("#")
    mutant = mutate(next(item for item in seeds if item.name == seed), int(number), seeds)
    if save:
        keep(save, mutant)
    outcome = attempt(mutant)
    print(f"{mutant.what}\n{outcome.kind}: {outcome.detail}")
    return 0


def described(finding: Finding) -> str:
    """A failure, and how to make it again."""
    return (
        f"{finding.outcome.kind} --only '{finding.seed}#{finding.number}'\n    "
        + finding.outcome.detail.strip().replace("\n", "\n    ")
    )


def as_json(summary: Summary) -> str:
    """For a program."""
    failures = [
        (finding.seed, finding.number, finding.outcome.kind, finding.outcome.detail) for finding in summary.failures
    ]
    return json.dumps({"counts": summary.counts, "failures": failures, "mutants": len(summary.findings)})


if __name__ == "__main__":
    sys.exit(main())
