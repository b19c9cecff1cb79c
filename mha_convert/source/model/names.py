"""Names in the written source: identifiers from a stranger's text, each used once, none with a meaning of its own."""

import builtins
import keyword
import re
import unicodedata
from collections.abc import Iterable

MOST_LETTERS = 60
IMPORTED = ("torch", "nn", "F", "Tensor", "math", "self")
# Attributes of nn.Module: a submodule of such a name would replace them. The test compares them with torch's own.
OF_MODULES = frozenset(
    """
    T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches
    eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict
    modules mtia named_buffers named_children named_modules named_parameters parameters register_backward_hook
    register_buffer register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_full_backward_pre_hook register_load_state_dict_post_hook register_load_state_dict_pre_hook
    register_module register_parameter register_state_dict_post_hook register_state_dict_pre_hook requires_grad_
    set_extra_state set_submodule share_memory state_dict to to_empty train training type xpu zero_grad
    """.split()  # noqa: SIM905 - one line a word would be long
)
DTYPE = "dtype"  # the property that says what numbers a class computes with
RESERVED = frozenset((*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *IMPORTED))


def identifier(text: str, otherwise: str) -> str:
    """A name of ASCII letters, digits and underscores that begins with a letter; ``otherwise`` where nothing is left.

    ``block/1`` is ``block_1``, ``2nd`` is ``layer_2nd``; no underscore is at the ends, so none is private or magic.
    """
    plain = unicodedata.normalize("NFKD", text[: 4 * MOST_LETTERS]).encode("ascii", "ignore").decode()
    name = re.sub(r"\W+", "_", plain)[:MOST_LETTERS].strip("_")
    if not name:
        return otherwise
    return f"{otherwise}_{name}" if name[0].isdigit() else name


def class_identifier(text: str, otherwise: str) -> str:
    """``text_classifier`` as ``TextClassifier``."""
    words = [word for word in re.split(r"_+", identifier(text, otherwise)) if word]
    name = "".join(word[0].upper() + word[1:] for word in words)
    return name if name[:1].isalpha() else otherwise


class Names:
    """Names of one scope, each given once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = {*RESERVED, *taken}

    def fresh(self, name: str) -> str:
        """The name, or the next of ``name_2``, ``name_3``, … that nobody has."""
        number, found = 1, name
        while found in self.taken:
            number += 1
            found = f"{name}_{number}"
        self.taken.add(found)
        return found


def attributes() -> Names:
    """The names of a class's modules."""
    return Names((*OF_MODULES, DTYPE))
