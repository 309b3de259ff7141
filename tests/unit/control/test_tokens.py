import stat
from pathlib import Path

import pytest

from services.control.answering.tokens import Tokens, TokensUnreadable, allows


# spec: O3
def test_the_first_start_makes_a_token_that_only_its_owner_can_read(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.toml")
    shown = (tmp_path / "admin.token").read_text().strip()
    holder = tokens.holder(shown)
    assert holder is not None
    assert (holder.name, holder.role) == ("admin", "admin")
    for file in ("tokens.toml", "admin.token"):
        assert stat.S_IMODE((tmp_path / file).stat().st_mode) == 0o600
    assert shown not in (tmp_path / "tokens.toml").read_text()


# spec: O3
def test_a_token_lasts_over_restarts(tmp_path: Path) -> None:
    Tokens(tmp_path / "tokens.toml")
    shown = (tmp_path / "admin.token").read_text().strip()
    assert Tokens(tmp_path / "tokens.toml").holder(shown) is not None


def test_any_other_token_is_nobodys(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.toml")
    for shown in ("", "x", "\udcff"):
        assert tokens.holder(shown) is None


def test_a_changed_file_counts_at_once_and_a_broken_one_does_not(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    tokens = Tokens(file)
    shown = (tmp_path / "admin.token").read_text().strip()
    file.write_text("not = [toml")
    assert tokens.holder(shown) is not None
    file.write_text("")
    assert tokens.holder(shown) is None
    file.write_text("[[token]]\nname = 1\n")
    with pytest.raises(TokensUnreadable):
        Tokens(file)


# spec: O3 L7
def test_a_file_that_a_setting_names_is_not_made(tmp_path: Path) -> None:
    """Or a second control service would know a token that the first does not, and nobody would see why."""
    with pytest.raises(TokensUnreadable, match=r"is not there; a second control service is given"):
        Tokens(tmp_path / "tokens.toml", named=True)
    assert list(tmp_path.iterdir()) == []
    Tokens(tmp_path / "tokens.toml")
    shown = (tmp_path / "admin.token").read_text().strip()
    assert Tokens(tmp_path / "tokens.toml", named=True).holder(shown) is not None


# spec: O3
def test_a_file_that_is_bad_or_gone_is_told_until_it_is_good_again(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    tokens = Tokens(file)
    good = file.read_text()
    shown = (tmp_path / "admin.token").read_text().strip()
    assert tokens.trouble == ""
    file.write_text("not = [toml")
    assert tokens.holder(shown) is not None
    assert str(file) in tokens.trouble
    file.unlink()
    assert tokens.holder(shown) is not None
    assert "No such file" in tokens.trouble
    file.write_text(good)
    assert tokens.holder(shown) is not None
    assert tokens.trouble == ""


# spec: O3
def test_each_role_may_do_what_those_before_it_may() -> None:
    assert allows("admin", "operator")
    assert allows("operator", "operator")
    assert not allows("viewer", "operator")
