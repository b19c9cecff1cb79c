"""Whole models written wrongly on purpose, as a wrong rule of ours would write them: the proof must say so."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from whole_models import written

from mha_convert.errors import VerificationError
from mha_convert.models import SOURCE_FILE, WEIGHTS
from mha_convert.records.model import ModelClass, ModelPlan
from mha_convert.targets import open_target
from mha_convert.verification.whole import prove_calls


def rewritten(plan: ModelPlan, old: str, new: str) -> ModelPlan:
    """The plan whose source, and every statement of it, says something else."""
    assert old in plan.source, f"{old!r} is not in the source:\n{plan.source}"

    def changed(model: ModelClass) -> ModelClass:
        calls = tuple(
            replace(call, statements=tuple(text.replace(old, new) for text in call.statements)) for call in model.calls
        )
        members = tuple(
            member if member.model is None else replace(member, model=changed(member.model)) for member in model.members
        )
        return replace(model, calls=calls, members=members, returned=model.returned.replace(old, new))

    return replace(plan, model=changed(plan.model), source=plan.source.replace(old, new))


def prove(plan: ModelPlan, folder: Path) -> None:
    """Compare what is stored, each call alone, and every value of the graph."""
    (folder / SOURCE_FILE).write_text(plan.source, encoding="utf-8")
    prove_calls(plan, folder / SOURCE_FILE, open_target(folder / WEIGHTS), lambda name: None)


def refused(source: Path, folder: Path, old: str, new: str, **options: Any) -> str:
    """What the proof says where the source has ``new`` in place of ``old``; the plain source must be proven."""
    plan = written(source, folder, **options)
    prove(plan, folder)
    with pytest.raises(VerificationError) as error:
        prove(rewritten(plan, old, new), folder)
    return str(error.value)
