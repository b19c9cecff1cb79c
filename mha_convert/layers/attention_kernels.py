"""From the variables of four projections to the kernels that Keras computes with: quantization and LoRA adapters.

How a projection is stored is told by names, dtypes and shapes; what these leave open, by its neighbours and by the
configuration. What remains open is refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..errors import LayerError
from ..records.layer import Projection
from ..records.source import Array, Group, LayerConfig, Variable
from .calls import input_widths
from .encodings import ENCODINGS, FLOATS, PEAKS, Axes, Encoding, Shape, Variables, in_sequence, merged

ADAPTERS = ("lora_kernel_a", "lora_kernel_b")
OUTPUT = "output"
UNQUANTIZED = "Save the model before model.quantize()"
GIVE_CONFIG = "Pass the model's architecture with --config, or save the model before model.quantize()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The variables of one projection by Keras' names, and the ways in which they may be stored."""

    variables: Variables
    storages: tuple[Encoding, ...]
    adapters: Variables
    alpha: float | None = None

    @property
    def kernel(self) -> Variable:
        """As it is stored."""
        return self.variables["kernel"]

    @property
    def bias(self) -> Variable | None:
        """Biases are never quantized."""
        return self.variables.get("bias")

    @property
    def is_matrix(self) -> bool:
        """Whether its axes were flattened to two."""
        return any(storage.is_matrix for storage in self.storages)

    @property
    def adapted_shape(self) -> Shape | None:
        """Shape of the kernel that the LoRA adapters change."""
        if not self.adapters:
            return None
        return self.adapters[ADAPTERS[0]].shape[:-1] + self.adapters[ADAPTERS[1]].shape[-1:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """The projections with the kernels that Keras computes with; or the reason why not, and the way on."""

    projections: Mapping[str, Projection] = field(default_factory=dict)
    cautions: tuple[str, ...] = ()
    doubt: str | None = None
    problem: tuple[str, str] | None = None


def restore(parts: Mapping[str, Group], config: LayerConfig | None) -> Restoration:
    """Find out how each projection is stored, and describe its kernel; read no array but where nothing else shows.

    Args:
        parts: the projections' groups by role, each with a kernel.
        config: the attention layer's.
    """
    found: dict[str, Stored] = {}
    for role, part in parts.items():
        stored = recognise(part)
        if stored is None:
            return Restoration(problem=unknown(role, part))
        found[role] = stored
    outputs = {role: output_axes(role, stored, config) for role, stored in found.items()}
    chosen: dict[str, Choice] = {}
    doubtful: dict[str, list[Choice]] = {}
    for role, stored in found.items():
        choices = choices_of(role, stored, outputs, config)
        if not choices:
            return Restoration(problem=misfit(role, stored, outputs[role]))
        if len(choices) == 1:
            chosen[role] = choices[0]
        else:
            doubtful[role] = choices
    # Keras quantizes all projections of a layer alike: what shapes leave open, the other projections decide.
    titles = {storage.title for storage, _ in chosen.values() if storage.is_matrix is False} or by_peaks(
        doubtful, found
    )
    for role, choices in doubtful.items():
        alike = [choice for choice in choices if titles == {choice[0].title}]
        choices = last_of_pair(found[role], alike) if len(alike) > 1 else alike
        if len(choices) != 1:
            return Restoration(problem=open_question(role, found[role], titles))
        chosen[role] = choices[0]
    if len(titles) > 1:
        return Restoration(problem=("some of its kernels have shapes of int8 and some of int4", UNQUANTIZED))
    projections = {role: Projection(restored(found[role], *chosen[role]), found[role].bias) for role in found}
    assumed = next(unknown_alpha(found), None)
    return Restoration(projections=projections, cautions=tuple(cautions(found, chosen, projections)), doubt=assumed)


def recognise(part: Group) -> Stored | None:
    """The variables by Keras' names; None where no row of ``ENCODINGS`` has them."""
    adapters = {name: part.variables[name] for name in ADAPTERS if name in part.variables}
    own = {name: variable for name, variable in part.variables.items() if name not in adapters}
    fitting = [(storage, storage.names(own)) for storage in ENCODINGS]
    named = next((names for _, names in fitting if names), None)
    if named is None or not are_adapters(adapters):
        return None
    alpha = part.config.settings.get("lora_alpha") if part.config else None
    # By name, or without a bias, the order of Keras 3.1 is no way of its own.
    storages = {storage.restore: storage for storage, names in fitting if names == named}
    return Stored(
        variables=named,
        storages=tuple(storages.values()),
        adapters=adapters,
        alpha=float(alpha) if isinstance(alpha, (int, float)) else None,
    )


def are_adapters(adapters: Variables) -> bool:
    """Whether there are no adapters, or the two matrices of LoRA."""
    if not adapters:
        return True
    if set(adapters) != set(ADAPTERS):
        return False
    down, up = (adapters[name] for name in ADAPTERS)
    return {down.dtype, up.dtype} <= set(FLOATS) and len(up.shape) == 2 and down.shape[-1:] == up.shape[:1] != (0,)


def named_arrays(variables: Variables) -> str:
    """Names, dtypes and shapes, for a message."""
    return ", ".join(f"{name} {variable.dtype} {variable.shape}" for name, variable in variables.items())


def unknown(role: str, part: Group) -> tuple[str, str]:
    """Reason and next step for variables that no row has."""
    dtypes = {variable.dtype for variable in part.variables.values()}
    names = named_arrays(part.variables)
    if any(map(str.isdecimal, part.variables)) and not in_sequence(part.variables):
        return f"its {role} is stored as {names}: numbers other than 0, 1, …, so an array is missing", "Save it again"
    if "uint8" in dtypes:
        return f"its {role} is quantized with GPTQ or AWQ ({names}), which is not converted yet", UNQUANTIZED
    if any("int" in dtype for dtype in dtypes):
        return f"its {role} is quantized in an unknown form ({names})", UNQUANTIZED
    return f"its {role} is stored as {names}, not as kernel and bias", "Save the model with float weights"


def inputs_of(role: str) -> int:
    """Number of input axes: the features, or heads and their numbers."""
    return 2 if role == OUTPUT else 1


def output_axes(role: str, stored: Stored, config: LayerConfig | None) -> Shape | None:
    """As far as the kernel, the adapters, the bias or the configuration tell them."""
    shape = stored.adapted_shape if stored.is_matrix else stored.kernel.shape
    if shape is not None:
        return shape[inputs_of(role) :]
    if stored.bias is not None:
        return stored.bias.shape
    return configured(role, config.settings, stored.variables["kernel_scale"].shape[-1:]) if config else None


def configured(role: str, settings: Mapping[str, Any], columns: Shape) -> Shape | None:
    """The configuration's output axes, for both of Keras' classes; ``columns`` where the output has one axis."""
    heads = settings.get("num_heads", settings.get("num_query_heads"))
    key_heads = settings.get("num_key_value_heads", heads)
    key_dim = settings.get("key_dim", settings.get("head_dim"))
    value_dim = settings.get("value_dim") or key_dim
    output = settings.get("output_shape")
    output = [output] if isinstance(output, int) else output.get("items") if isinstance(output, dict) else output
    axes: Shape = {
        "query": (heads, key_dim),
        "key": (key_heads, key_dim),
        "value": (key_heads, value_dim),
        "gate": (heads, value_dim),
        OUTPUT: tuple(output) if isinstance(output, (list, tuple)) and output else columns,
    }[role]
    return axes if all(isinstance(size, int) and size > 0 for size in axes) else None


Choice = tuple[Encoding, Axes]


def choices_of(
    role: str, stored: Stored, outputs: Mapping[str, Shape | None], config: LayerConfig | None
) -> list[Choice]:
    """Every way in which the variables make a kernel."""
    own, known = outputs[role], input_axes(role, stored, outputs, config)
    stored_inputs = stored.kernel.shape[: inputs_of(role)]
    if own is None or len(stored_inputs) < inputs_of(role):
        return []
    if stored.is_matrix:
        lengths = [known or stored_inputs] if role == OUTPUT else [stored.kernel.shape[:1]]
    elif stored.kernel.dtype in FLOATS:
        lengths = [stored_inputs]
    else:  # in pairs along the first axis, or not
        length, *others = stored_inputs
        lengths = [(size, *others) for size in dict.fromkeys((length, 2 * length, 2 * length - 1))]
    fitting = [
        (storage, Axes(inputs, own))
        for storage in stored.storages
        for inputs in lengths
        if storage.fits(Axes(inputs, own), stored.variables) and stored.adapted_shape in (None, inputs + own)
    ]
    if known is None or len(fitting) < 2:
        return fitting
    return [choice for choice in fitting if choice[1].inputs == known]


def input_axes(
    role: str, stored: Stored, outputs: Mapping[str, Shape | None], config: LayerConfig | None
) -> Shape | None:
    """As far as something else than the kernel tells them: the heads, the adapters or the configuration."""
    query, value = outputs["query"], outputs["value"]
    if role == OUTPUT:
        return (query[0], value[-1]) if query and value else None
    if stored.adapted_shape:
        return stored.adapted_shape[:1]
    width = input_widths(config).get("query" if role == "gate" else role) if config else None
    return None if width is None else (width,)


def by_peaks(doubtful: Mapping[str, list[Choice]], found: Mapping[str, Stored]) -> set[str]:
    """Titles under which each output's largest number is the one that Keras' quantizer always makes; none or both tell
    nothing. The kernels are read: this is for one head, whose shapes say nothing either.
    """
    return {
        title
        for title, (numbers, peak) in PEAKS.items()
        if doubtful
        and all(peaks(numbers(found[role].kernel.read()), inputs_of(role)) <= {0, peak} for role in doubtful)
    }


def peaks(numbers: Array, inputs: int) -> set[int]:
    """Largest size of the numbers of each output."""
    return set(np.abs(numbers.astype(np.int16)).max(tuple(range(inputs)), initial=0).flat)


def last_of_pair(stored: Stored, choices: list[Choice]) -> list[Choice]:
    """An even number of input features where the last byte holds two numbers; open where its second half is 0."""
    high_halves = np.asarray(stored.kernel.read()[-1:]) >> 4
    return [choice for choice in choices if choice[1].shape[0] % 2 == 0] if high_halves.any() else choices


def misfit(role: str, stored: Stored, outputs: Shape | None) -> tuple[str, str]:
    """Reason and next step for shapes that do not belong together, or not enough of them."""
    names = named_arrays({**stored.variables, **stored.adapters})
    if outputs is None:
        return (
            f"its {role} kernel is stored as a matrix ({names}), and no bias and no configuration shows its heads",
            GIVE_CONFIG,
        )
    return f"its {role} is stored in arrays that do not fit each other: {names}", "Save the model again"


def open_question(role: str, stored: Stored, titles: set[str]) -> tuple[str, str]:
    """Reason and next step where shapes allow two kernels."""
    shape = stored.kernel.shape
    if titles == {"int4"}:
        features = f"{2 * shape[0] - 1} or {2 * shape[0]}"
        reason = f"its {role} kernel {shape} holds int4 numbers in pairs, the last of which may be padding"
        return f"{reason}: its input is {features} wide, and nothing shows which", GIVE_CONFIG
    return f"its {role} kernel {shape} may hold int8 numbers or pairs of int4, and nothing shows which", GIVE_CONFIG


def restored(stored: Stored, storage: Encoding, axes: Axes) -> Variable:
    """The kernel as Keras computes with it; itself where it is stored as it is."""
    kernel, adapters = stored.kernel, stored.adapters
    consumed = tuple(variable for name, variable in stored.variables.items() if name != "bias")
    if len(consumed) == 1 and not adapters:
        return kernel
    dtype = kernel.dtype
    if dtype not in FLOATS:
        scale = stored.variables["kernel_scale"].dtype
        dtype = "float32" if adapters and scale != "float64" else scale
    return Variable(
        path=kernel.path,
        shape=axes.shape,
        dtype=dtype,
        role=kernel.role,
        made_of=(*consumed, *adapters.values()),
        storage=(kernel.dtype if storage.title == "float" else storage.title) + (" + LoRA" if adapters else ""),
        read=partial(read, stored, storage, axes),
    )


def read(stored: Stored, storage: Encoding, axes: Axes) -> Array:
    """Make the kernel.

    Raises:
        LayerError: a row names a group that is not there.
    """
    arrays = {name: variable.read() for name, variable in stored.variables.items() if "history" not in name}
    try:
        kernel = storage.restore(arrays, axes)
    except LayerError as error:
        raise LayerError(f"{stored.kernel.path} {error}") from error
    if not stored.adapters:
        return kernel
    down, up = (stored.adapters[name].read() for name in ADAPTERS)
    whole = merged(kernel, down, up, factor(stored))
    if stored.kernel.dtype not in FLOATS:
        return whole
    with np.errstate(over="ignore"):
        return whole.astype(kernel.dtype)


def factor(stored: Stored) -> float:
    """``alpha / rank``; Keras' default for ``lora_alpha`` is the rank."""
    return 1.0 if stored.alpha is None else stored.alpha / rank(stored)


def rank(stored: Stored) -> int:
    """The rank of the LoRA adapters."""
    return stored.adapters[ADAPTERS[1]].shape[0]


def cautions(
    found: Mapping[str, Stored], chosen: Mapping[str, Choice], projections: Mapping[str, Projection]
) -> Iterator[str]:
    """What to say of the layer: once for all kernels that are stored in the same way."""
    said: dict[str, list[str]] = {}
    for role, (storage, _) in chosen.items():
        if storage.caution:
            facts = {"title": storage.title, "dtype": projections[role].kernel.dtype, "kernels": "{kernels}"}
            said.setdefault(storage.caution.format(**facts), []).append(role)
    for text, roles in said.items():
        yield text.format(kernels=kernels(roles, found))
    for (size, alpha), roles in adapted(found).items():
        if alpha is not None:
            yield f"{merged_how(size, roles, found)}, with alpha = {alpha:g}"
    yield from unknown_alpha(found)


def adapted(found: Mapping[str, Stored]) -> dict[tuple[int, float | None], list[str]]:
    """The projections with LoRA adapters, by rank and alpha."""
    roles: dict[tuple[int, float | None], list[str]] = {}
    for role, stored in found.items():
        if stored.adapters:
            roles.setdefault((rank(stored), stored.alpha), []).append(role)
    return roles


def merged_how(size: int, roles: list[str], found: Mapping[str, Stored]) -> str:
    """Keras' formula, for a message."""
    return f"{kernels(roles, found)} merged with LoRA adapters of rank {size}, kernel + alpha / {size} × A · B"


def unknown_alpha(found: Mapping[str, Stored]) -> Iterator[str]:
    """What is assumed where the file does not say it: another alpha would make other kernels."""
    for (size, alpha), roles in adapted(found).items():
        if alpha is None:
            yield (
                f"{merged_how(size, roles, found)}; the file does not hold alpha, and Keras' default is used, alpha = "
                f"{size}. Where lora_alpha was another, save the model as .keras, which merges with it"
            )


def kernels(roles: list[str], found: Mapping[str, Stored]) -> str:
    """Some kernels, or all of a layer, as a subject."""
    if len(roles) == len(found):
        return "its kernels are"
    names = " and ".join(filter(None, (", ".join(roles[:-1]), roles[-1])))
    return f"its {names} kernel{'s are' if len(roles) > 1 else ' is'}"
