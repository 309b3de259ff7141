from pathlib import Path

import pytest

from schemas.documents import LastError, SecretRef
from services.agent.secrets import Resolved, is_sealed, known, resolve, seal

REF = SecretRef(secret="hf-token")


def put(folder: Path, name: str, text: str, mode: int = 0o600) -> None:
    path = folder / name
    path.write_text(text)
    path.chmod(mode)


def failure(answer: Resolved | LastError) -> LastError:
    assert isinstance(answer, LastError)
    assert answer.permanent
    return answer


def test_a_file_gives_the_value_without_its_line_end(tmp_path: Path) -> None:  # spec: W2
    put(tmp_path, "hf-token", "s3cr3t\n")
    found = resolve({"HF_TOKEN": REF, "A": "plain"}, tmp_path, {})
    assert found == Resolved({"HF_TOKEN": "s3cr3t", "A": "plain"}, ("s3cr3t",))
    assert "s3cr3t" not in repr(found)


def test_a_variable_stands_in_for_a_file(tmp_path: Path) -> None:  # spec: W2
    environ = {"FLOTILLA_SECRET_HF_TOKEN": "from-env"}
    assert resolve({"T": REF}, tmp_path, environ) == Resolved({"T": "from-env"}, ("from-env",))
    put(tmp_path, "hf-token", "from-file")
    assert resolve({"T": REF}, tmp_path, environ) == Resolved({"T": "from-file"}, ("from-file",))


def test_a_missing_one_is_named(tmp_path: Path) -> None:  # spec: W2
    missing = failure(resolve({"T": REF}, tmp_path / "none", {}))
    assert missing.failure == "secret_missing"
    assert "hf-token" in missing.message


def test_one_that_others_can_read_is_refused(tmp_path: Path) -> None:  # spec: W2
    put(tmp_path, "hf-token", "s3cr3t", 0o644)
    exposed = failure(resolve({"T": REF}, tmp_path, {"FLOTILLA_SECRET_HF_TOKEN": "x"}))
    assert exposed.failure == "secret_exposed"
    assert "s3cr3t" not in exposed.message


@pytest.mark.parametrize("name", ["../etc/passwd", "/etc/passwd", "", ".", "a/b"])
def test_a_name_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:  # spec: W2
    found = failure(resolve({"T": SecretRef(secret=name)}, tmp_path, {}))
    assert found.failure == "secret_missing"


def test_one_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hf-token").write_bytes(b"\xff\xfe")
    (tmp_path / "hf-token").chmod(0o600)
    assert failure(resolve({"T": REF}, tmp_path, {})).failure == "secret_missing"


WANTED: dict[str, str | SecretRef] = {"T": REF, "A": "plain"}


def test_a_running_engines_secrets_are_those_it_was_started_with(tmp_path: Path) -> None:
    # spec: A3
    environ = {"T": "old-value", "A": "plain"}
    assert known(WANTED, tmp_path, {}, environ, "") == ("old-value",)
    put(tmp_path, "hf-token", "newer")
    assert known(WANTED, tmp_path, {}, environ, "") == ("old-value", "newer")


def test_a_dead_engines_secrets_are_known_only_if_they_are_still_the_same(tmp_path: Path) -> None:
    # spec: A3 W2
    sealed = seal(["value"])
    assert known(WANTED, tmp_path, {}, {}, sealed) is None
    put(tmp_path, "hf-token", "value")
    assert known(WANTED, tmp_path, {}, {}, sealed) == ("value",)
    assert known(WANTED, tmp_path, {}, {}, "") is None
    put(tmp_path, "hf-token", "another")
    assert known(WANTED, tmp_path, {}, {}, sealed) is None
    assert known({"A": "plain"}, tmp_path, {}, {}, "") == ()


def test_a_seal_tells_nothing_but_equality() -> None:  # spec: W2
    assert is_sealed(["a", "b"], seal(["a", "b"]))
    assert not is_sealed(["a"], seal(["b"]))
    assert not is_sealed(["ab"], seal(["a", "b"]))
    assert seal(["value"]) != seal(["value"])
    assert "value" not in seal(["value"])
