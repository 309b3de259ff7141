"""A struct of any type in which every text is the same one: to see what becomes of a text wherever it stands."""

from typing import Any

from msgspec import Raw, inspect


def filled(kind: Any, text: str) -> Any:
    """As it is decoded from: each field is there, each collection has one item."""
    return _of(inspect.type_info(kind), text)


def _of(kind: inspect.Type, text: str) -> Any:
    match kind:
        case inspect.StructType():
            told = {field.encode_name: _of(field.type, text) for field in kind.fields}
            return told if kind.tag is None else {str(kind.tag_field): kind.tag, **told}
        case inspect.UnionType():
            return _of(next(t for t in kind.types if not isinstance(t, inspect.NoneType)), text)
        case inspect.VarTupleType() | inspect.ListType() | inspect.CollectionType():
            return [_of(kind.item_type, text)]
        case inspect.DictType():
            return {_of(kind.key_type, text): _of(kind.value_type, text)}
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return 7
        case inspect.StrType():
            return text
        case inspect.RawType():
            return Raw(b"{}")
        case _:
            raise AssertionError(kind)
