"""Write `[tool.uv] constraint-dependencies` in pyproject.toml: a pin for every package that our own
dependencies bring along, as a fresh resolution finds them today. Run it by `make pins`.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
LIST = re.compile(r"^constraint-dependencies = \[.*?\]$", re.MULTILINE | re.DOTALL)
NEVER = "sys_platform == 'never'"  # What override-dependencies keeps out.
EXPORT = ["uv", "export", "--quiet", "--all-groups", "--no-emit-project", "--no-hashes"]


def main() -> None:
    """Resolve a copy without the old pins, then write the new ones."""
    text = PROJECT.read_text()
    found = LIST.search(text)
    if found is None:
        sys.exit("pyproject.toml has no constraint-dependencies")
    lines = resolve(LIST.sub("constraint-dependencies = []", text))
    own = {name(line) for line in direct(tomllib.loads(text))}
    pins = [line for line in lines if NEVER not in line and name(line) not in own]
    body = "".join(f'    "{pin}",\n' for pin in pins)
    PROJECT.write_text(
        text[: found.start()] + f"constraint-dependencies = [\n{body}]" + text[found.end() :]
    )
    sys.stdout.write(f"{len(pins)} pins\n")  # noqa: TID251 - no program of ours.


def resolve(project: str) -> list[str]:
    """Requirement lines of everything that the project needs, on every platform."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pyproject.toml").write_text(project)
        (Path(folder) / "README.md").touch()
        command = [*EXPORT, "--no-annotate", "--no-header", "--project", folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return done.stdout.splitlines()


def direct(project: dict) -> list[str]:
    """Requirements that pyproject.toml pins itself."""
    groups = project["dependency-groups"].values()
    return project["project"]["dependencies"] + [line for group in groups for line in group]


def name(requirement: str) -> str:
    """The package's normalised name."""
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")


if __name__ == "__main__":
    main()
