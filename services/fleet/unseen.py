"""Characters that nobody sees: what makes one text look like another, or steers a terminal. Pure."""

import json
import re

UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\uffff]"
)
"""What no value may hold: control characters, line ends, invisible and direction marks, halves of
surrogate pairs. Written out, so that every version refuses the same catalogs."""
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
"""Printable to Python, and yet drawn as nothing: fillers, joiners, variation selectors."""


def unseen(text: str) -> str:
    """The first character that a value may not hold, as a fault tells it; empty: there is none."""
    found = UNSEEN.search(text)
    return f"holds the character U+{ord(found[0]):04X}, which nobody sees" if found else ""


def escaped(text: str) -> str:
    """All that nobody sees made visible, what is unassigned or private too: `\\x1b`, `\\u202e`."""
    if text.isprintable() and _BLANK.search(text) is None:
        return text
    return "".join(map(_shown, text))


def escaped_json(text: str) -> str:
    """The same for a JSON text, which means the same then; its own line ends stay."""
    return "\n".join(map(_json_line, text.split("\n")))


def _json_line(line: str) -> str:
    if escaped(line) == line:
        return line
    return "".join(each if escaped(each) == each else json.dumps(each)[1:-1] for each in line)


def _shown(character: str) -> str:
    if character.isprintable() and _BLANK.match(character) is None:
        return character
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
