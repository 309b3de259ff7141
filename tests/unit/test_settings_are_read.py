"""A setting that nothing reads is a promise to an operator that nobody keeps."""

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from services.agent.config import Config as AgentConfig
from services.control.config import Config as ControlConfig
from services.fleet.settings_table import PROGRAMS, SETTINGS, SHARED, Setting, settings_of
from services.router.config import Config as RouterConfig

ROOT = Path(__file__).parents[2]
READERS = {
    "control": (ROOT / "services/control").glob("*.py"),
    "router": (ROOT / "services/router").glob("*.py"),
    "agent": (ROOT / "services/agent").glob("*.py"),
    "journal": (ROOT / "services/journal").glob("*.py"),
    "up": (ROOT / "ctl").glob("up_settings.py"),
    "operator": (ROOT / "ctl").glob("operator.py"),
}
DOOR = ROOT / "services/log/door.py"
"""Reads the settings of NATS for whoever calls it."""


def texts_of(files: Iterable[Path]) -> dict[Path, str]:
    found = {file: file.read_text() for file in files}
    calls_door = any(re.search(r"\bdoor\(", text) for text in found.values())
    return found | ({DOOR: DOOR.read_text()} if calls_door else {})


TEXTS = {name: texts_of(files) for name, files in READERS.items()}


def readers(setting: Setting) -> set[tuple[str, str]]:
    """Program and file of everything that names the setting."""
    return {
        (program, file.name)
        for program, texts in TEXTS.items()
        for file, text in texts.items()
        if f'"{setting.name}"' in text
    }


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda row: row.name)
def test_every_setting_is_read_by_its_program_and_by_no_other(setting: Setting) -> None:
    # spec: O8
    found = readers(setting)
    if setting.section in SHARED:
        wanted = {program for program in PROGRAMS if setting in settings_of(program)}
        assert {program for program, _ in found} == wanted
    else:
        assert {program for program, _ in found} == {setting.section}
        assert len(found) == 1, found


@pytest.mark.parametrize(
    ("program", "config"),
    [("control", ControlConfig), ("router", RouterConfig), ("agent", AgentConfig)],
)
def test_what_a_program_is_configured_with_is_used_outside_of_its_config(
    program: str, config: type[msgspec.Struct]
) -> None:
    code = "".join(text for file, text in TEXTS[program].items() if file.name != "config.py")
    unused = [
        field for field in config.__struct_fields__ if not re.search(rf"config\.{field}\b", code)
    ]
    assert unused == []
