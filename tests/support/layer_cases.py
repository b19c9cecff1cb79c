"""The one table of layer geometries that every stage is tested on, and layers made from it."""

from dataclasses import dataclass

import numpy as np

from mha_convert.records.layer import AttentionLayer, Projection
from mha_convert.records.source import Variable


@dataclass(frozen=True, kw_only=True)
class LayerCase:
    """Sizes of one Keras MultiHeadAttention."""

    id: str
    num_heads: int
    key_dim: int
    value_dim: int
    query_features: int
    key_features: int
    value_features: int
    output_shape: tuple[int, ...]
    use_bias: bool = True
    num_key_value_heads: int | None = None
    gate: bool = False
    sliding_window: int | None = None
    attention_axes: tuple[int, ...] | None = None
    input_rank: int | None = None


def case(id, heads, key_dim, value_dim=None, features=8, kv=None, output=None, **options):
    """A row; what is left out is as Keras has it."""
    key, value = kv or (features, features)
    return LayerCase(
        id=id,
        num_heads=heads,
        key_dim=key_dim,
        value_dim=value_dim or key_dim,
        query_features=features,
        key_features=key,
        value_features=value,
        output_shape=output or (features,),
        **options,
    )


CASES = (
    case("square", 4, 2),
    case("square without bias", 4, 2, use_bias=False),
    case("one head", 1, 8),
    case("narrow: heads * key_dim < width", 2, 3),
    case("wide: heads * key_dim > width", 6, 4, features=4),
    case("wide without bias", 6, 4, features=4, use_bias=False),
    case("textbook", 1, 4, features=4, use_bias=False),
    case("padded by 4: exact scale", 2, 1),
    case("value smaller", 2, 4, 3),
    case("value smaller, no bias", 2, 4, 3, use_bias=False),
    case("value larger", 2, 3, 7),
    case("value larger, fits padded", 2, 2, 3, features=12),
    case("width not divisible by heads", 4, 3, features=21),
    case("cross, three widths", 2, 4, kv=(6, 10)),
    case("cross, packed by chance", 2, 4, features=6, kv=(8, 8)),
    case("output wider", 2, 4, output=(10,)),
    case("output narrower, value smaller", 2, 4, 2, output=(3,)),
    case("output a tuple", 2, 4, output=(3, 5)),
    case("output a tuple of embed_dim numbers", 2, 4, output=(2, 4)),
    case("everything differs", 3, 5, 2, features=7, kv=(4, 9), output=(2, 3), use_bias=True),
)


# The rest of the family, by what nn.MultiheadAttention computes and what only our own module does.
GROUPED_OR_AXES = (
    case("grouped", 4, 2, num_key_value_heads=2),
    case("grouped, one key head, no bias", 4, 2, num_key_value_heads=1, use_bias=False),
    case("grouped, wide, cross", 6, 4, features=4, kv=(6, 10), num_key_value_heads=3),
    case("grouped, value smaller, output wider", 4, 3, 2, output=(10,), num_key_value_heads=2),
    case("axis 1 of rank 4", 2, 4, attention_axes=(1,), input_rank=4),
    case("axis 2 of rank 4", 2, 4, attention_axes=(2,), input_rank=4),
    case("axes 1 and 2 of rank 4", 2, 3, attention_axes=(1, 2), input_rank=4),
    case("all axes of rank 4, by default", 2, 4, input_rank=4),
    case("axis -3 of rank 4: the second", 2, 4, attention_axes=(-3,), input_rank=4),
    case("axes 1 and 3 of rank 5", 2, 4, 3, kv=(6, 10), attention_axes=(1, 3), input_rank=5),
    case("axis 2 of rank 5, output a tuple", 2, 4, output=(3, 5), attention_axes=(2,), input_rank=5),
)
ONLY_LINEAR = (
    case("gate", 2, 4, gate=True),
    case("gate, no bias, value smaller", 2, 4, 3, gate=True, use_bias=False),
    case("window of 1", 2, 4, sliding_window=1),
    case("window of 2", 4, 2, sliding_window=2),
    case("window of 3 and gate", 2, 4, sliding_window=3, gate=True),
    case("grouped, gate, window", 4, 4, num_key_value_heads=2, gate=True, sliding_window=2),
    case("gate over axis 2 of rank 4", 2, 4, gate=True, attention_axes=(2,), input_rank=4),
)


def make_variable(path: str, array: np.ndarray) -> Variable:
    """An array as a variable of a file."""
    return Variable(path=path, shape=array.shape, dtype=array.dtype.name, read=lambda: array)


def make_layer(case: LayerCase, dtype="float32", seed=0, name="layer", **facts) -> AttentionLayer:
    """A layer with random kernels and biases."""
    random = np.random.default_rng(seed)
    heads, shared = case.num_heads, case.num_key_value_heads or case.num_heads
    shapes = {
        "query": ((case.query_features, heads, case.key_dim), (heads, case.key_dim)),
        "key": ((case.key_features, shared, case.key_dim), (shared, case.key_dim)),
        "value": ((case.value_features, shared, case.value_dim), (shared, case.value_dim)),
        "output": ((heads, case.value_dim, *case.output_shape), case.output_shape),
    }
    if case.gate:
        shapes["gate"] = ((case.query_features, heads, case.value_dim), (heads, case.value_dim))
    projections = {}
    for role, (kernel, bias) in shapes.items():
        arrays = [random.standard_normal(shape).astype(dtype) * np.asarray(0.5, dtype) for shape in (kernel, bias)]
        variables = [make_variable(f"{name}/{role}/{i}", array) for i, array in enumerate(arrays)]
        projections[role] = Projection(variables[0], variables[1] if case.use_bias else None)
    settings = ("sliding_window", "attention_axes", "input_rank")
    facts = {setting: getattr(case, setting) for setting in settings} | facts
    kind = "MultiHeadAttention" if shared == heads else "GroupQueryAttention"
    return AttentionLayer(name=name, kind=kind, path=name, **projections, **facts)


def arrays_of(layer: AttentionLayer) -> dict[str, np.ndarray]:
    """Keras' arrays by the names that rules use."""
    return {
        f"{role}.{kind}": variable.read()
        for role, projection in layer.projections.items()
        for kind, variable in (("kernel", projection.kernel), ("bias", projection.bias))
        if variable is not None
    }


def ids(case: LayerCase) -> str:
    """For parametrize."""
    return case.id
