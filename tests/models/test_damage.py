"""The proof must fail: a setting, a mask, an order of arguments, or any tensor is wrong."""

import numpy as np
import pytest
import torch
from damages import DAMAGES
from environment import TESTS
from model_damages import prove, refused, rewritten
from safetensors.torch import load_file, save_file
from whole_models import written

from mha_convert.errors import VerificationError
from mha_convert.models import SOURCE_FILE, WEIGHTS
from mha_convert.targets import open_target
from mha_convert.verification.whole import driver, prove_calls

GOLDEN = TESTS / "golden" / "models"
WRONG = [
    ("mlp", "torch.relu(", "torch.tanh("),
    ("mlp", "F.gelu(self.bottleneck(x))", 'F.gelu(self.bottleneck(x), approximate="tanh")'),
    ("mlp", "softmax(-1)", "softmax(0)"),
    ("mlp", "softmax(-1)", "sigmoid()"),
    ("text_transformer", "eps=1e-6", "eps=1e-5"),
    ("text_transformer", "eps=1e-6", "eps=1e-3"),
    ("text_transformer", "nn.MultiheadAttention(16, 2,", "nn.MultiheadAttention(16, 4,"),
    ("text_transformer", "embedded + x", "embedded - x"),
    ("text_transformer", "token_embedding + x", "x"),
    ("text_transformer", "x.mean(1)", "x.amax(1)"),
    ("text_transformer", "self.position_embedding(positions)", "self.position_embedding(positions).flip(1)"),
    ("translator", "eps=0.001", "eps=1e-5"),
    ("translator", " & causal(target_embedding, target_embedding)", ""),
    ("translator", "source != 0", "source >= 0"),
    ("translator", "source != 0", "source == 0"),
    ("translator", "target != 0", "target != 1"),
]


@pytest.mark.parametrize(("name", "old", "new"), WRONG)
def test_a_wrong_line_is_caught(name, old, new, tmp_path):
    message = refused(GOLDEN / f"{name}.keras", tmp_path, old, new)
    assert message.startswith("Layer '") and message.endswith("report it with the output of inspect --graph --json.")


def test_swapped_arguments_are_caught(tmp_path):
    plan = written(GOLDEN / "translator.keras", tmp_path)
    lines = [line.strip() for line in plan.source.splitlines() if "self.cross_attention(" in line]
    assert lines
    query, memory = lines[0].partition("self.cross_attention(")[2].split(", ")[:2]
    old = f"self.cross_attention({query}, {memory}, {memory}"
    with pytest.raises(VerificationError, match="cross_attention"):
        prove(rewritten(plan, old, f"self.cross_attention({memory}, {query}, {query}"), tmp_path)


def test_a_line_that_was_changed_after_it_was_planned_is_caught(tmp_path):
    plan = written(GOLDEN / "mlp.keras", tmp_path)
    for old, new in (("torch.relu(", "torch.tanh("), ("        return x", "        x = x + 1\n        return x")):
        (tmp_path / SOURCE_FILE).write_text(plan.source.replace(old, new))
        with pytest.raises(VerificationError, match=r"Class Mlp.*Convert again"):
            prove_calls(plan, tmp_path / SOURCE_FILE, open_target(tmp_path / WEIGHTS), lambda name: None)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_every_stored_tensor_counts(damage, tmp_path):
    plan = written(GOLDEN / "text_transformer.keras", tmp_path)
    tensors = load_file(tmp_path / WEIGHTS)
    assert len(tensors) == 18
    for key, tensor in tensors.items():
        save_file({**tensors, key: damage(tensor, 2).contiguous()}, tmp_path / WEIGHTS)
        with pytest.raises(VerificationError):
            prove_calls(plan, tmp_path / SOURCE_FILE, open_target(tmp_path / WEIGHTS), lambda name: None)


@pytest.mark.parametrize("name", ["mlp", "text_transformer", "translator"])
def test_each_call_alone_sees_every_tensor_that_a_rule_lays_out_wrongly(name, tmp_path, monkeypatch):
    """As a wrong row of a layout would: the numbers are there, in another order. The outputs alone overlook many."""
    plan = written(GOLDEN / f"{name}.keras", tmp_path)
    exact, wrong = driver.exact, None

    def reversed_once(item, rule):
        found = exact(item, rule)
        return np.ascontiguousarray(found[::-1]) if item.key(rule.target) == wrong else found

    monkeypatch.setattr(driver, "exact", reversed_once)
    keys = [item.key(rule.target) for item in plan.weights.layers for rule in item.rules]
    overlooked = []
    for wrong in keys:
        try:
            prove(plan, tmp_path)
            overlooked.append(wrong)
        except VerificationError as error:
            assert "with inputs of its own" in str(error)
    wrong = None
    prove(plan, tmp_path)
    # The bias of the keys adds the same to all scores of a query: no output has it, and its bits alone show it.
    assert overlooked == [key for key in keys if key.endswith("k_proj.bias")] and len(keys) > 5


def test_every_row_of_an_embedding_is_looked_up(tmp_path, monkeypatch):
    plan = written(GOLDEN / "text_transformer.keras", tmp_path)
    exact, wrong = driver.exact, None

    def one_row(item, rule):
        found = exact(item, rule).copy()
        if item.key(rule.target) == "token_embedding.weight":
            found[wrong] += 1e-6
        return found

    monkeypatch.setattr(driver, "exact", one_row)
    for wrong in (0, 1, 25, 48, 49):  # noqa: B007 - the patched function reads it
        with pytest.raises(VerificationError, match="Layer 'token_embedding': with inputs of its own"):
            prove(plan, tmp_path)


def test_numbers_that_are_not_finite_never_pass(tmp_path, monkeypatch):
    plan = written(GOLDEN / "mlp.keras", tmp_path)
    monkeypatch.setattr(torch, "relu", lambda tensor: tensor * torch.nan)
    with pytest.raises(VerificationError, match="Layer 'hidden'"):
        prove(plan, tmp_path)
