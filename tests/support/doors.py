"""Users of a test's nats-server: their passwords in files, the server's side, and doors for clients."""

from pathlib import Path

from services.log import server
from services.log.door import Door
from services.log.permissions import User, user


class Doors:
    """`admit` may be called again; then the server is given `text` anew."""

    def __init__(self, folder: Path, *names: str) -> None:
        self._folder = folder
        self._passwords: dict[User, str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.admit(*names)

    def admit(self, *names: str) -> None:
        """Users by what NATS knows them by: `control`, `agent.node-1`, …"""
        for name in names:
            found = user(name)
            assert found is not None, name
            self._passwords[found] = f"password-of-{name}"
            self.password_file(name).write_text(self._passwords[found] + "\n")

    def revoke(self, name: str) -> None:
        found = user(name)
        assert found is not None, name
        del self._passwords[found]

    @property
    def names(self) -> list[str]:
        return [each.text for each in self._passwords]

    def password_file(self, name: str) -> Path:
        return self._folder / name

    @property
    def text(self) -> str:
        """As the server's configuration includes it."""
        quoted = {each: server.secret(found) for each, found in self._passwords.items()}
        return server.users(quoted, server.secret("password-of-sys"))

    def door(self, url: str, name: str, ca: Path | None = None) -> Door:
        return Door(url=url, user=name, password_file=self.password_file(name), ca=ca)

    def settings(self, name: str) -> dict[str, str]:
        """What a program is told in its environment, beside the url."""
        return {
            "FLOTILLA_NATS_USER": name,
            "FLOTILLA_NATS_PASSWORD_FILE": str(self.password_file(name)),
        }
