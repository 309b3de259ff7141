import pytest

from ctl.typed import typed

SAID = ("status", "--data", "/my fleet", "-o", "json")


@pytest.mark.parametrize(
    ("command", "said", "environ", "pasted"),
    [
        ("flotilla nodes", (), {}, "flotilla nodes"),
        ("flotilla nodes", (), {"UV": "/bin/uv"}, "uv run flotilla nodes"),
        ("flotilla nodes", SAID, {}, "flotilla nodes --data '/my fleet'"),
        ("flotilla nodes", ("status", "--data=/d"), {}, "flotilla nodes --data /d"),
        ("flotilla nodes --data /other", SAID, {}, "flotilla nodes --data /other"),
        (
            "flotilla up",
            ("status", "--server", "http://h:1", "--data", "/d"),
            {},
            "flotilla up --data /d",
        ),
        (
            "flotilla nodes",
            ("status", "--server", "http://h:1"),
            {},
            "flotilla nodes --server http://h:1",
        ),
        ("flotilla status --help", SAID, {}, "flotilla status --help"),
        ("flotilla version", SAID, {}, "flotilla version"),
        ("less /a/log", SAID, {"UV": "/bin/uv"}, "less /a/log"),
    ],
)
def test_the_next_command_goes_to_the_same_fleet(
    command: str, said: tuple[str, ...], environ: dict[str, str], pasted: str
) -> None:
    assert typed(command, environ, said) == pasted
