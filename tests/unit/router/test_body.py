import json

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.ids import ModelName
from services.router.body import Asked, Unusable, read, with_model


def test_reads_the_model_and_whether_a_stream_is_wanted() -> None:
    """# spec: T1"""
    assert read(b'{"model":"a","stream":true}') == Asked("a", stream=True)
    assert read(b'{"messages":[{"model":"x"}],"model":"a"}') == Asked("a", stream=False)
    assert read(b'{"model":"a","stream":"yes"}') == Asked("a", stream=False)


def test_names_what_is_wrong() -> None:
    """# spec: T1, case RQ-01"""
    wrong = {
        b"": "valid JSON",
        b"{": "valid JSON",
        b'{"model":"a"} x': "trailing",
        b"[]": "object",
        b"{}": "model",
        b'{"model":5}': "model",
        b'{"model":"a","x":"\\ud83d"}': "surrogate escape at byte 18",
        b'{"model":"a","x":"\\ud83d and more"}': "surrogate escape at byte 18",
        b'{"model":"a","x":"\\udc00"}': "surrogate escape at byte 18",
        b'{"model":"a","x":"\\\\ud83d \\ude00"}': "surrogate escape at byte 26",
        b'{"model":"a","x":"\xff"}': "UTF-8 (byte 18)",
        b'{"model":"a","x":' + b"[" * 9999 + b"]" * 9999 + b"}": "deeply",
    }
    for body, said in wrong.items():
        found = read(body)
        assert isinstance(found, Unusable), body
        assert said in found.message, body


def test_pairs_and_escaped_backslashes_are_fine() -> None:
    assert read(b'{"model":"a","x":"\\ud83d\\ude00 \\\\ud83d"}') == Asked("a", stream=False)


@settings(deadline=None)  # Machines may be slow.
@given(st.binary(max_size=60))
def test_anything_at_all_is_read_or_refused(body: bytes) -> None:
    assert isinstance(read(body), Asked | Unusable)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("model"), inner),
    max_leaves=8,
)


@settings(deadline=None)  # Machines may be slow.
@given(
    st.dictionaries(st.text(), json_values, max_size=4),
    json_values,
    st.text(),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_only_the_top_level_model_is_replaced(
    before: dict[str, object], after: object, name: str, ascii_only: bool, indent: int | None
) -> None:
    """# spec: C10"""
    before = {key: value for key, value in before.items() if key not in ("model", "after")}
    asked = before | {"model": name, "after": after}
    body = json.dumps(asked, ensure_ascii=ascii_only, indent=indent).encode(errors="replace")
    if not isinstance(read(body), Asked):
        return  # A lone surrogate.
    changed = with_model(body, ModelName("real"))
    assert json.loads(changed) == json.loads(body) | {"model": "real"}
    spot = body.rfind(b'"model"', 0, body.rfind(b'"after"'))
    assert changed[:spot] == body[:spot]


def test_nothing_else_moves() -> None:
    """# spec: C10"""
    body = b' {"a" : {"model":"small"} ,\n "model"\t: "small" , "b":["model", "x"],"mod\\u0065l":"y"}\n'
    assert with_model(body, ModelName("real/1")) == (
        b' {"a" : {"model":"small"} ,\n "model"\t: "real/1" , "b":["model", "x"],"mod\\u0065l":"real/1"}\n'
    )
