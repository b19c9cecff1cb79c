"""TensorFlow's protobuf messages, as far as they say where variables are and what they are called.

Rows of fields, from the .proto files of TensorFlow (``tensor_bundle``, ``trackable_object_graph``, ``saved_model``,
``saved_metadata`` of Keras 2); what is not named here is skipped. The parser is protobuf's own. Nothing is registered:
TensorFlow in the same process keeps its messages.
"""

from functools import cache
from typing import Any

from ...errors import ReadError

REPEATED = "*"
MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    # A checkpoint's index: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/protobuf/tensor_bundle.proto
    "BundleHeader": {"num_shards": (1, "int32"), "endianness": (2, "int32")},
    "BundleEntry": {
        "dtype": (1, "int32"),
        "shape": (2, "TensorShape"),
        "shard_id": (3, "int32"),
        "offset": (4, "int64"),
        "size": (5, "int64"),
        "crc32c": (6, "fixed32"),
        "slices": (7, "*bytes"),
    },
    "TensorShape": {"dim": (2, "*Dim")},
    "Dim": {"size": (1, "int64")},
    # The object graph in a checkpoint: …/protobuf/trackable_object_graph.proto
    "ObjectGraph": {"nodes": (1, "*Object")},
    "Object": {"children": (1, "*Reference"), "attributes": (2, "*Attribute"), "slot_variables": (3, "*Slot")},
    "Reference": {"node_id": (1, "int32"), "local_name": (2, "string")},
    "Attribute": {"name": (1, "string"), "full_name": (2, "string"), "checkpoint_key": (3, "string")},
    "Slot": {"slot_variable_node_id": (3, "int32")},
    # saved_model.pb: …/protobuf/{saved_model,meta_graph,saved_object_graph}.proto, …/framework/function.proto
    "SavedModel": {"meta_graphs": (2, "*MetaGraph")},
    "MetaGraph": {
        "meta_info_def": (1, "MetaInfo"),
        "graph_def": (2, "Graph"),
        "object_graph_def": (7, "SavedObjectGraph"),
    },
    "MetaInfo": {"tensorflow_version": (5, "string")},
    "Graph": {"library": (2, "Library")},
    "Library": {"function": (1, "*Function")},
    "Function": {"signature": (1, "Signature"), "node_def": (3, "*Operation")},
    "Signature": {"name": (1, "string"), "input_arg": (2, "*Argument")},
    "Argument": {"name": (1, "string")},
    "Operation": {"name": (1, "string"), "op": (2, "string"), "input": (3, "*string")},
    "SavedObjectGraph": {"nodes": (1, "*SavedObject"), "concrete_functions": (2, "*NamedFunction")},
    "SavedObject": {"children": (1, "*Reference"), "user_object": (4, "UserObject")},
    "UserObject": {"identifier": (1, "string"), "metadata": (3, "string")},
    "NamedFunction": {"key": (1, "string"), "value": (2, "ConcreteFunction")},
    "ConcreteFunction": {"bound_inputs": (2, "*int32")},
    # keras_metadata.pb of Keras 2.6 to 2.15: keras/protobuf/saved_metadata.proto
    "KerasMetadata": {"nodes": (1, "*KerasObject")},
    "KerasObject": {"node_path": (3, "string"), "identifier": (4, "string"), "metadata": (5, "string")},
}
SCALARS = ("int32", "int64", "fixed32", "string", "bytes")
PACKAGE = "mha_convert"


@cache
def message_classes() -> dict[str, Any]:
    """The messages as classes of protobuf."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{PACKAGE}.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, (number, written) in fields.items():
            kind = written.removeprefix(REPEATED)
            label = kinds.LABEL_REPEATED if kind != written else kinds.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=number, label=label)
            field.type = getattr(kinds, f"TYPE_{kind.upper()}" if kind in SCALARS else "TYPE_MESSAGE")
            if kind not in SCALARS:
                field.type_name = f".{PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}


def parse(kind: str, content: bytes, place: object, what: str) -> Any:
    """One message out of ``content``.

    Args:
        kind: its row in ``MESSAGES``.
        content: its bytes.
        place: the file, for messages.
        what: what it is in the file, for messages.

    Raises:
        ReadError: the bytes are no such message.
    """
    from google.protobuf.message import DecodeError

    try:
        return message_classes()[kind].FromString(content)
    except (DecodeError, ValueError) as error:
        raise ReadError(
            f"{place}: {what} is not a protobuf message '{kind}'. The file is damaged; copy or download it again."
        ) from error
