"""Where a site's file is, by what a user gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from secea.engines.site import site_at
from secea.errors import ParamsError


def test_a_site_is_its_file_its_folder_or_the_folder_of_its_host(tmp_path: Path) -> None:
    for folder in (tmp_path / "north", tmp_path / "fed" / "server"):
        folder.mkdir(parents=True)
        (folder / "site.toml").write_text("")
    assert site_at(tmp_path / "north" / "site.toml") == site_at(tmp_path / "north") == tmp_path / "north" / "site.toml"
    assert site_at(tmp_path / "fed") == tmp_path / "fed" / "server" / "site.toml"


def test_a_folder_without_a_site_is_an_error_that_says_what_to_give(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.toml"):
        with pytest.raises(ParamsError, match="give a site's file, or the folder that it is in"):
            site_at(path)
