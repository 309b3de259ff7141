"""The table of rules in docs/architecture.md names what is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(?P<file>(?:ctl|services|tests)/[\w/]+\.py)`|`(?P<name>\w+)`")


def test_the_table_of_rules_names_what_is_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    _, _, below = page.partition("| rule | kept by | proved by |")
    table, _, _ = below.partition("\n\n")
    missing: list[str] = []
    named, content = "", ""
    for found in NAMED.finditer(re.sub(r"\([^)]*\)", "", table)):
        if found["file"] is not None:
            named = found["file"]
            content = (ROOT / named).read_text() if (ROOT / named).is_file() else ""
        elif not re.search(rf"\b(?:def|class) {found['name']}\b", content):
            missing.append(f"{found['name']} in {named}")
    assert missing == []
    assert content != ""
