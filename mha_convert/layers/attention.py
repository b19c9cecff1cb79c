"""``keras.layers.Attention`` and ``AdditiveAttention``: no projections, at most a scale and a weight of the score.

They are recognised by configuration only: in a file of weights alone, a scale may be anything.

https://keras.io/api/layers/attention_layers/attention/
"""

import re
from collections.abc import Iterator, Mapping

from ..classes import OF_NAME
from ..records.layer import NotConverted, Score, UnprojectedAttention
from ..records.source import Group, LayerConfig, Variable
from .calls import call_options
from .settings import DROPOUT, compute_dtype, faults, switch, values

KINDS = {"Attention": r"attention(_\d+)?", "AdditiveAttention": r"additive_attention(_\d+)?"}
NAMES = tuple(weight.name for weight in OF_NAME["Attention"].variables)
NUMBERS = tuple(map(str, range(len(NAMES))))  # in the v3 layout
FLOATS = ("float16", "bfloat16", "float32", "float64")
SCORES: Mapping[tuple[str, str], Score] = {
    ("Attention", "dot"): "dot",
    ("Attention", "concat"): "concat",
    ("AdditiveAttention", "dot"): "additive",
}
SETTINGS = (switch("use_scale"), switch("causal"), DROPOUT)
USUAL_SCORE: Mapping[str, Score] = {"Attention": "dot", "AdditiveAttention": "additive"}
IN_PYTORCH = {
    "dot": "In PyTorch it is scaled_dot_product_attention(query, key, value, scale=1.0)",
    "additive": "In PyTorch it is mha_convert.modules.AdditiveAttention(features=None)",
}


def match(group: Group, ancestors: tuple[Group, ...]) -> UnprojectedAttention | NotConverted | None:
    """The layer in ``group``; a ``NotConverted`` where it has no weights or lost them, or without a configuration."""
    kind = kind_of(group)
    if kind is None or not all(map(is_seed, group.children.values())):
        return None
    if not all(is_weight(name, variable) for name, variable in group.variables.items()):
        return None
    config = group.config
    if config is None and not group.variables:
        fact = "is what its name looks like, and it has no variables here, so there is nothing to convert"
        return named(group, kind, fact, f"If it is, nothing is needed from the file. {IN_PYTORCH[USUAL_SCORE[kind]]}")
    if config is None:
        fact = "is what its name and a scale look like, and no configuration shows what it computes"
        return named(group, kind, fact, "Pass the model's configuration with --config, if you have it")
    score = score_of(kind, config)
    if score is None:
        fact = f"has score_mode={config.settings.get('score_mode')!r}, expected 'dot' or 'concat'"
        return named(group, kind, fact, "Port this layer by hand", blocking=True)
    expected = expected_weights(score, config)
    if not expected and not group.variables:
        fact = "has no variables here (use_scale=False), so there is nothing to convert"
        return named(group, kind, fact, IN_PYTORCH[score])
    arrays = by_name(expected, group.variables)
    facts = [
        f"has {fault.name}={fault.shown}, expected {fault.expected}" for fault in faults(SETTINGS, config.settings)
    ]
    facts += weight_faults(expected, arrays, group.variables, score)
    if arrays is None or facts:
        return named(group, kind, "; ".join(facts), "Save the model again", blocking=True)
    given = values(SETTINGS, config.settings)
    causal = ("causal=True",) if given["causal"] else ()
    return UnprojectedAttention(
        name=group.name,
        kind=kind,
        path=group.path,
        score=score,
        arrays=arrays,
        class_name=config.title,
        dropout=float(given["dropout"]),
        compute_dtype=compute_dtype(config.settings.get("dtype")),
        call_options=call_options(config) + causal,
        cautions=(group.doubt,) if group.doubt else (),
        doubt=group.doubt,
    )


def named(group: Group, kind: str, fact: str, next_step: str, *, blocking: bool = False) -> NotConverted:
    """A ``NotConverted`` for the layer in ``group``."""
    return NotConverted(
        name=group.name,
        kind=kind,
        reason=f"keras.layers.{kind} {fact}",
        next_step=next_step,
        blocking=blocking,
        variables=tuple(group.variables.values()),
    )


def kind_of(group: Group) -> str | None:
    """Name of the class; None for everything else."""
    if group.config:
        config = group.config
        # A user's own class of the same name, in a file that does not say whose it is, does not say use_scale.
        is_ours = config.class_name in KINDS and not config.is_own and "use_scale" in config.settings
        return config.class_name if is_ours else None
    last = group.name.rpartition("/")[2]
    return next((kind for kind, name in KINDS.items() if re.fullmatch(name, last)), None)


def is_seed(part: Group) -> bool:
    """Whether it is the random state of the dropout, which the v3 layout stores."""
    return part.path.rpartition("/")[2] == "seed_generator" and not part.children


def is_weight(name: str, variable: Variable) -> bool:
    """Whether the variable can be one of the two that these classes have."""
    return name in NAMES + NUMBERS and len(variable.shape) <= 1 and variable.dtype in FLOATS


def score_of(kind: str, config: LayerConfig) -> Score | None:
    """Before Keras 2.11 there was no ``score_mode``, and the score a dot product."""
    return SCORES.get((kind, str(config.settings.get("score_mode", "dot"))))


def expected_weights(score: Score, config: LayerConfig) -> tuple[str, ...]:
    """Names of the weights that the configuration asks for."""
    asked = {"scale": bool(config.settings["use_scale"]), "concat_score_weight": score == "concat"}
    return tuple(name for name in NAMES if asked[name])


def by_name(expected: tuple[str, ...], variables: Mapping[str, Variable]) -> dict[str, Variable] | None:
    """The weights by Keras' names; None where they are not the expected ones."""
    for stored in (expected, NUMBERS[: len(expected)]):
        if set(stored) == set(variables):
            return {name: variables[place] for name, place in zip(expected, stored, strict=True)}
    return None


def weight_faults(
    expected: tuple[str, ...], arrays: Mapping[str, Variable] | None, variables: Mapping[str, Variable], score: Score
) -> Iterator[str]:
    """Weights that are missing, surplus or of a shape that they cannot have."""
    if arrays is None:
        yield (
            f"has {' and '.join(expected) or 'no weights'} by its configuration, and the file holds "
            f"{', '.join(variables) or 'none'}"
        )
        return
    for name, variable in arrays.items():
        rank = int(score == "additive")
        if len(variable.shape) != rank or 0 in variable.shape:
            yield f"has a {name} of shape {variable.shape}, expected {'(features,)' if rank else '()'}"
