"""The one table of layer geometries that every stage is tested on, and layers made from it."""

from dataclasses import dataclass

import numpy as np

from mha_convert.datatypes import AttentionLayer, Projection, Variable


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
    case("drop-in by 4: exact scale", 2, 1),
    case("value smaller", 2, 4, 3),
    case("value smaller, no bias", 2, 4, 3, use_bias=False),
    case("value larger", 2, 3, 7),
    case("value larger, fits drop-in", 2, 2, 3, features=12),
    case("width not divisible by heads", 4, 3, features=21),
    case("cross, three widths", 2, 4, kv=(6, 10)),
    case("cross, packed by chance", 2, 4, features=6, kv=(8, 8)),
    case("output wider", 2, 4, output=(10,)),
    case("output narrower, value smaller", 2, 4, 2, output=(3,)),
    case("output a tuple", 2, 4, output=(3, 5)),
    case("output a tuple of embed_dim numbers", 2, 4, output=(2, 4)),
    case("everything differs", 3, 5, 2, features=7, kv=(4, 9), output=(2, 3), use_bias=True),
)


def make_variable(path: str, array: np.ndarray) -> Variable:
    """An array as a variable of a file."""
    return Variable(path=path, shape=array.shape, dtype=array.dtype.name, read=lambda: array)


def make_layer(case: LayerCase, dtype="float32", seed=0, name="layer", **facts) -> AttentionLayer:
    """A layer with random kernels and biases."""
    random = np.random.default_rng(seed)
    heads = case.num_heads
    shapes = {
        "query": ((case.query_features, heads, case.key_dim), (heads, case.key_dim)),
        "key": ((case.key_features, heads, case.key_dim), (heads, case.key_dim)),
        "value": ((case.value_features, heads, case.value_dim), (heads, case.value_dim)),
        "output": ((heads, case.value_dim, *case.output_shape), case.output_shape),
    }
    projections = {}
    for role, (kernel, bias) in shapes.items():
        arrays = [random.standard_normal(shape).astype(dtype) * np.asarray(0.5, dtype) for shape in (kernel, bias)]
        variables = [make_variable(f"{name}/{role}/{i}", array) for i, array in enumerate(arrays)]
        projections[role] = Projection(variables[0], variables[1] if case.use_bias else None)
    return AttentionLayer(name=name, kind="MultiHeadAttention", path=name, **projections, **facts)


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
