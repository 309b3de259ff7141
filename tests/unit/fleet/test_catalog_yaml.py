"""YAML as text: what cannot be read, and that nothing at all makes the reader fail."""

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.frames import Fault
from services.fleet.catalog import Catalog, CatalogFaults, from_json, from_yaml, show
from services.fleet.catalog_yaml import MOST_COPIED
from tests.support.examples import examples

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdef", "bcdefg", strict=True)
)


def faults(text: str | bytes) -> tuple[Fault, ...]:
    made = from_yaml(text)
    assert isinstance(made, CatalogFaults)
    return made.faults


UNREADABLE = [
    # (text, line, column, words of the message, words of the hint)
    ("", 1, 1, "this is empty", "`models: {}`"),
    ("# nothing\n", 1, 1, "this is empty", "`models: {}`"),
    ("models:\n\tm: {}\n", 2, 1, "a tab cannot indent", "spaces"),
    ("models: @x\n", 1, 9, "cannot begin with `@`", "quotes"),
    ("models:\n  a: 1\n b: 2\n", 3, 2, "did not find expected key", "line up the keys"),
    ("models: [a\n", 2, 1, "that begins in line 1", "close it"),
    ("models: {a: 'b\n", 2, 1, "that begins in line 1", "close the quote"),
    ("models: {}\n---\nmodels: {}\n", 2, 1, "a second document", "remove the `---`"),
    ("models: !!python/name:os.system {}\n", 1, 9, "means nothing here", "remove it"),
    ("models: !a%1bb {}\n", 1, 9, "the tag `!a\ufffdb` means nothing here", "remove it"),
    ("models: {<<: {}}\n", 1, 10, "`<<` does not merge", "anchor"),
    ("models: {[a]: 1}\n", 1, 10, "a key must be one word", ""),
    ("models: *x\n", 1, 9, "`*x` names no anchor above it", ""),
    ("models: &x {a: *x}\n", 1, 16, "`*x` stands inside itself", ""),
    ("models: {}\nx: a \\\n", 2, 6, "`\\` at the end of a line", "remove"),
    ("models: {}\nx: 'a \\\n  b'\n", 2, 7, "`\\` at the end of a line", "remove"),
    ("models: \x07\n", 1, 9, "the character U+0007", "UTF-8"),
    (b"models: {}\nx: \xff\n", 2, 4, "not UTF-8", "UTF-8"),
    ("models: \ud800\n", 1, 9, "the character U+D800", "UTF-8"),
    ("x" * 1_100_000, 1, 1, "1100000 bytes are more", "1 MiB"),
    ("[" * 50 + "]" * 50, 1, 18, "more than 16 levels deep", ""),
]


@pytest.mark.parametrize(("text", "line", "column", "message", "hint"), UNREADABLE)
def test_says_where_and_why_it_cannot_be_read(
    text: str | bytes, line: int, column: int, message: str, hint: str
) -> None:
    found = [f for f in faults(text) if message in f.message]
    assert found, faults(text)
    assert (found[0].line, found[0].column) == (line, column)
    assert hint in found[0].hint


def test_a_backslash_in_double_quotes_is_yamls_own() -> None:
    made = from_yaml('models: {m: {engine: llamacpp, source: "/a\\\n  b"}}\n')
    assert isinstance(made, Catalog)


def test_repeated_anchors_are_bounded() -> None:
    """Nine to the seventh values in 250 bytes."""
    assert [f.message for f in faults(BOMB)] == [f"anchors repeat more than {MOST_COPIED} values"]


def test_a_file_may_begin_with_a_byte_order_mark() -> None:
    assert isinstance(from_yaml(b"\xef\xbb\xbfmodels: {}\n"), Catalog)


def test_faults_before_a_syntax_error_are_told_with_it() -> None:
    assert [f.line for f in faults("models: {}\nmodels: {}\nx: @\n")] == [2, 3]


@settings(deadline=None)
@given(st.one_of(st.text(max_size=200), st.binary(max_size=200)))
def test_no_text_makes_the_reader_fail(text: str | bytes) -> None:
    from_yaml(text)
    from_json(text if isinstance(text, bytes) else text.encode(errors="replace"))


PIECES = (
    *("models", "engines", "m", "engine", "vllm", "llamacpp", "source", "gpu", "aliases", "args"),
    *("env", "replicas", "kind", "metrics", "off", "1", "~", "<<", "---", "...", "&a", "*a"),
    *(": ", ":\n", "\n", "\n  ", "\n    ", "- ", ", ", "{", "}", "[", "]", "|", ">", "? "),
    *('"', "'", "\\", "\\\n", "#", "!x ", "%", "\t", " ", "\r\n", "\u2028", "\x85", "é", "🙂"),
)
YAMLISH = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)


@settings(max_examples=examples(500), deadline=None)
@given(YAMLISH)
def test_no_near_yaml_makes_the_reader_fail(text: str) -> None:
    made = from_yaml(text)
    if isinstance(made, CatalogFaults):
        assert made.faults
        assert all(fault.line for fault in made.faults)


WORD = st.text(string.ascii_lowercase + string.digits + "-./:é_", min_size=1, max_size=12).filter(
    lambda text: not text.startswith("-")
)
VISIBLE = st.text(
    st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp", "Cn", "Co")),
    max_size=20,
).filter(lambda text: not text.startswith("-"))
FLAG = st.from_regex(r"x[a-z0-9-]{0,8}", fullmatch=True)
DURATIONS = ("0", "off", "1s", "90s", "1.5s", "3h", "250ms", "2d")
SIZES = ("0", "1B", "3GB", "70GiB", "1.5MiB")
Keys = dict[str, object]


@st.composite
def some_of(draw: st.DrawFn, keys: Keys) -> Keys:
    kept = draw(st.sets(st.sampled_from(sorted(keys))))
    return {name: value for name, value in keys.items() if name in kept}


@st.composite
def a_need(draw: st.DrawFn) -> Keys:
    memory = draw(st.sampled_from(SIZES))
    if draw(st.booleans()):
        cores = draw(st.sampled_from([0.001, 0.5, 1, 16]))
        return {"engine": "llamacpp"} | draw(
            some_of({"cpu": draw(some_of({"cores": cores, "memory": memory}))})
        )
    gpu = {"class": "l4"} | draw(some_of({"count": draw(st.integers(1, 8)), "memory": memory}))
    engine = draw(st.sampled_from(["vllm", "sglang", "fast"]))
    return {"engine": engine, "gpu": gpu} | draw(some_of({"nodes": draw(st.integers(1, 400))}))


@st.composite
def a_model(draw: st.DrawFn) -> Keys:
    variable = st.from_regex(r"X[0-9]{0,3}", fullmatch=True)
    maybe: Keys = {
        "replicas": draw(st.integers(5, 9)),
        "min_ready": draw(st.integers(0, 1)),
        "args": draw(st.dictionaries(FLAG, VISIBLE, max_size=3)),
        "env": draw(st.dictionaries(variable, VISIBLE, max_size=2)) | {"Y": {"secret": "a.b"}},
        "hidden": draw(st.booleans()),
        "task": draw(st.sampled_from(["generate", "embed"])),
        "patience": draw(st.sampled_from(DURATIONS)),
        "drain_grace": draw(st.sampled_from(DURATIONS)),
        "load_stall": draw(st.sampled_from(DURATIONS[1:])),
    }
    source = draw(VISIBLE.filter(lambda text: text.strip() != ""))
    need = draw(a_need())
    if need["engine"] == "llamacpp":  # Its flags are a list of known ones.
        maybe["args"] = draw(some_of({"ctx-size": "512", "warmup": "off", "pooling": "mean"}))
    return need | {"source": source} | draw(some_of(maybe))


@st.composite
def a_catalog(draw: st.DrawFn) -> Keys:
    names = draw(st.lists(WORD, max_size=4, unique_by=str.casefold))
    aliases = {name: [f"{name}+a", f"{name}+b"] for name in names}
    engine: Keys = {"kind": "vllm", "version": "0.32", "metrics": {}}
    models = {name: draw(a_model()) | {"aliases": aliases[name]} for name in names}
    return {"engines": {"fast": engine}, "models": models}


def in_json(value: object) -> str:
    """JSON is YAML: a way to write anything that no writer of ours had a hand in."""
    return json.dumps(value, ensure_ascii=False)


@settings(max_examples=examples(100), deadline=None)
@given(a_catalog())
def test_what_is_shown_makes_the_same_catalog_again(value: Keys) -> None:
    # spec: C9
    made = from_yaml(in_json(value))
    assert isinstance(made, Catalog), made
    shown, stored = from_yaml(show(made)), from_json(made.source())
    assert isinstance(shown, Catalog), (show(made), shown)
    assert isinstance(stored, Catalog)
    assert made.hash == shown.hash == stored.hash
    assert dict(made.models) == dict(shown.models) == dict(stored.models)
    assert dict(made.engines) == dict(shown.engines) == dict(stored.engines)
