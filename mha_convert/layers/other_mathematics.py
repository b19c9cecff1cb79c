"""Classes that keep four projections like ``MultiHeadAttention`` and compute something more with them.

Told by structure first: a plain layer has no groups and no variables of its own besides its projections, softmax and
dropout. Some classes show nothing of that; for these, and for files that hold no empty groups, the class names of
KerasHub and Keras-CV families are a table.
"""

from collections.abc import Iterator

from ..records.source import Group

ROTARY, RELATIVE, ALIBI = "rotary position embeddings", "relative position scores", "ALiBi biases"
# Beginning of the class or group name of a KerasHub layer or model, and what its attention adds.
FAMILIES = {
    "llama": ROTARY,
    "mistral": ROTARY,
    "mixtral": ROTARY,
    "qwen": ROTARY,
    "gemma": ROTARY,
    "phi3": ROTARY,
    "gpt_neo_x": ROTARY,
    "gptneox": ROTARY,
    "gpt_oss": ROTARY,
    "gptoss": ROTARY,
    "moonshine": ROTARY,
    "roformer": ROTARY,
    "t5_gemma": ROTARY,
    "t5gemma": ROTARY,
    "smollm": ROTARY,
    "falcon": ALIBI,
    "bloom": ALIBI,
    "xlnet": RELATIVE,
    "xl_net": RELATIVE,
    "two_stream_relative": RELATIVE,
    "deberta": RELATIVE,
    "disentangled": RELATIVE,
    "t5_": RELATIVE,
}
PARTS = ("attention", "decoder", "encoder", "backbone", "block", "layer")
NEXT_STEP = "Port this layer by hand: kernel.reshape(features, -1).T is the weight of an nn.Linear"
PROJECTIONS_ONLY = (
    "its projections are converted, and proven by the formula of MultiHeadAttention; what its class computes besides "
    "them is not"
)


def computes_more(group: Group, ancestors: tuple[Group, ...], plain_children: set[str]) -> str | None:
    """What the layer is besides its projections, with every variable of that; None where nothing says so."""
    extra = [
        f"{name}/{own} {variable.shape}" if name else f"{own} {variable.shape}"
        for name, part in (("", group), *group.children.items())
        if name not in plain_children
        for inner in ([part] if not name else part.walk())
        for own, variable in inner.variables.items()
    ]
    empty = [name for name, part in group.children.items() if name not in plain_children]
    held = ", ".join(extra or empty)
    family = next(families((*ancestors, group)), None)
    if family:
        name, adds = family
        variables = f"; besides its projections it holds {held}" if held else ""
        return f"it belongs to {name}, whose attention adds {adds}{variables}: {PROJECTIONS_ONLY}"
    if held:
        return f"besides its projections it holds {held}, which MultiHeadAttention does not have: {PROJECTIONS_ONLY}"
    return None


def families(groups: tuple[Group, ...]) -> Iterator[tuple[str, str]]:
    """Every group of a known family, with what the family adds."""
    for group in groups:
        class_name = group.config.class_name if group.config else ""
        for name in (class_name, group.path.rpartition("/")[2], group.name.rpartition("/")[2]):
            lowered = name.lower().lstrip("_")
            adds = next((adds for stem, adds in FAMILIES.items() if lowered.startswith(stem)), None)
            if adds and any(part in lowered for part in PARTS):
                yield name, adds
