"""What a model hands to its engine: flags and environment, without what the agent itself sets."""

import re

from schemas.documents import SecretRef
from services.fleet.catalog_engines import RESERVED_ENV, Drives, reserved
from services.fleet.catalog_section import Section, as_scalar
from services.fleet.catalog_tree import Entries, Faults, Node, Scalar
from services.fleet.nearest import nearest

_LONGEST_VALUE = 8192
_ARG = re.compile(r"[a-z0-9][a-z0-9-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SECRET_VARIABLE = re.compile(
    r"(^|_)(TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE
)
_NEGATIVE = re.compile(r"-[0-9]+(\.[0-9]+)?")


def read_args(section: Section, drives: Drives | None) -> dict[str, str]:
    """Flags by long name without dashes. An empty value is a flag alone."""
    node, args = section.entries("args"), dict[str, str]()
    for name, (key, value) in node.entries.items() if node else ():
        _check_arg(key, drives, section.faults)
        text = as_scalar(value, f"`{name}`", section.faults)
        if text is not None:
            args[name] = text.text if not text.blank else ""
            _check_value(text, section.faults)
            _check_kind(name, args[name], text, drives, section.faults)
    return args


def _check_arg(key: Scalar, drives: Drives | None, faults: Faults) -> None:
    plain = key.text.lstrip("-").replace("_", "-")
    if drives and plain in drives.long_names:
        faults.add(key, f"`{key.text}` is a short flag", f"write `{drives.long_names[plain]}`")
    elif drives and (why := reserved(plain.lower(), drives.reserved)):
        faults.add(key, f"`{key.text}` may not stand in `args`", why)
    elif not _ARG.fullmatch(key.text):
        hint = f"write `{plain}`" if _ARG.fullmatch(plain) else "write the flag without its dashes"
        faults.add(key, f"`{key.text}` is no flag name", hint)
    elif drives and drives.args is not None and key.text not in drives.args:
        known = tuple(sorted(drives.args))
        near = nearest(key.text, known)
        hint = f"did you mean `{near}`?" if near else f"it takes {', '.join(known)}"
        faults.add(key, f"`{key.text}` is no flag that this engine takes from a catalog", hint)


def _check_value(value: Scalar, faults: Faults) -> None:
    if len(value.text) > _LONGEST_VALUE:
        message = f"a value of {len(value.text)} characters; {_LONGEST_VALUE} at most"
        faults.add(value, message, "put it in a file on the node and name the file")
    elif value.text.startswith("-") and not _NEGATIVE.fullmatch(value.text):
        hint = "one flag a key; only negative numbers begin with `-`"
        faults.add(value, f"`{value.text}` would be read as another flag", hint)


def _check_kind(name: str, text: str, value: Scalar, drives: Drives | None, faults: Faults) -> None:
    if drives is None or drives.check is None or name not in (drives.args or ()):
        return
    wrong = drives.check(name, text)
    if wrong is not None:
        faults.add(value, f"`{name}`: {wrong.message}", wrong.hint)


def read_env(section: Section, drives: Drives | None) -> dict[str, str | SecretRef]:
    """Variables with their text, or the name under which the node knows a secret."""
    node, env = section.entries("env"), dict[str, str | SecretRef]()
    for name, (key, value) in node.entries.items() if node else ():
        _check_variable(key, drives, section.faults)
        if isinstance(value, Entries):
            env[name] = _secret(value, section.faults)
        else:
            env[name] = _text(key, value, section.faults)
    return env


def _check_variable(key: Scalar, drives: Drives | None, faults: Faults) -> None:
    table = dict(RESERVED_ENV) | dict(drives.reserved_env if drives else {})
    if not _VARIABLE.fullmatch(key.text):
        faults.add(key, f"`{key.text}` cannot name a variable", "write letters, digits and `_`")
    elif why := reserved(key.text, table):
        faults.add(key, f"`{key.text}` may not stand in `env`", why)


def _text(key: Scalar, value: Node, faults: Faults) -> str:
    text = as_scalar(value, f"`{key.text}`", faults)
    if text is None:
        return ""
    if text.blank:
        faults.add(key, f"`{key.text}` has no value", 'an empty text is `""`')
    elif text.text and _SECRET_VARIABLE.search(key.text):
        hint = f"write `{key.text}: {{secret: NAME}}`; the node resolves NAME from a file or its own environment"
        faults.add(
            value, f"`{key.text}` looks like a secret, and a catalog is no place for one", hint
        )
    elif len(text.text) > _LONGEST_VALUE:
        faults.add(value, f"a value of {len(text.text)} characters; {_LONGEST_VALUE} at most")
    return text.text


def _secret(node: Entries, faults: Faults) -> SecretRef:
    for name, (key, _) in node.entries.items():
        if name != "secret":
            hint = (
                "did you mean `secret`?" if nearest(name, ("secret",)) else "write `{secret: NAME}`"
            )
            faults.add(key, f"unknown key `{name}` in {node.path}", hint)
    entry = node.entries.get("secret")
    named = as_scalar(entry.value, "`secret`", faults) if entry else None
    if named is not None and not _SECRET.fullmatch(named.text):
        hint = "write letters, digits, `.`, `_` and `-`: it is the name of a file on the node"
        faults.add(named, f"`{named.text}` cannot name a secret", hint)
    elif not node.entries:
        faults.add(node, "neither a text nor a secret", "write `{secret: NAME}`")
    return SecretRef(secret=named.text if named else "")
