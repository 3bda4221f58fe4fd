"""What ./scripts/release refuses, and the licences that it finds in packs."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from scripts._release.__main__ import NotReady, Packed, check_ready, complete, licences, packed

TODAY = "2026-11-29"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of 0.2.0 that is ready."""
    (tmp_path / "tippingpoint").mkdir()
    (tmp_path / "tippingpoint/__init__.py").write_text('__version__ = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        f"# Changelog\n\n## 0.2.0 ({TODAY})\n\n- All.\n\n## 0.1.0 (2026-01-01)\n"
    )
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "All"]):
        git(tmp_path, *command)
    return tmp_path


def git(root: Path, *arguments: str) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", "-C", root, *author, *arguments], check=True)


def test_a_checkout_whose_version_changelog_and_files_agree_is_ready(checkout: Path) -> None:
    check_ready(checkout, "0.2.0", TODAY)


@pytest.mark.parametrize(
    ("version", "today", "said"),
    [
        ("2", TODAY, "VERSION: 2: expected three numbers, such as 0.2.0"),
        ("0.3.0", TODAY, "tippingpoint/__init__.py: 0.2.0: expected 0.3.0"),
        ("0.2.0", "2026-11-30", f"CHANGELOG.md: 0.2.0 ({TODAY}): expected 0.2.0 (2026-11-30)"),
    ],
)
def test_what_does_not_agree_is_one_line(checkout: Path, version: str, today: str, said: str) -> None:
    with pytest.raises(NotReady) as refused:
        check_ready(checkout, version, today)
    assert str(refused.value) == said


def test_changes_that_are_not_committed_are_named(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text(f"## 0.2.0 ({TODAY})\n")
    (checkout / "new").touch()
    with pytest.raises(
        NotReady, match=r"^CHANGELOG\.md and 1 more: not committed: expected a checkout without changes$"
    ):
        check_ready(checkout, "0.2.0", TODAY)


def test_a_version_is_released_once(checkout: Path) -> None:
    git(checkout, "tag", "v0.2.0")
    with pytest.raises(NotReady, match=r"VERSION: 0\.2\.0: expected one that has no tag"):
        check_ready(checkout, "0.2.0", TODAY)


def pack(path: Path, **packages: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, fields in packages.items():
            archive.writestr(
                f"venv/lib/python3.12/site-packages/{name}-1.dist-info/METADATA",
                f"Metadata-Version: 2.4\nName: {name}\nVersion: 1\n{fields}\n\nA description.\n",
            )
    return path


def test_each_package_is_listed_once_with_its_licence(tmp_path: Path) -> None:
    packs = [
        pack(
            tmp_path / f"{charm}_ubuntu@24.04-amd64.charm",
            plain="License-Expression: MIT",
            choice="License-Expression: GPL-3.0-only OR (MIT AND Zlib)",
            old="License: something\nClassifier: License :: OSI Approved :: Apache Software License",
            tippingpoint="License-Expression: Apache-2.0",
        )
        for charm in ("one", "two")
    ]
    rows = licences(packed(packs)).splitlines()[4:]
    assert rows == [
        "| choice | 1 | GPL-3.0-only OR (MIT AND Zlib) | one, two |",
        "| old | 1 | Apache-2.0 | one, two |",
        "| plain | 1 | MIT | one, two |",
    ]


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ("License-Expression: AGPL-3.0-only", "AGPL-3.0-only"),
        ("License-Expression: MIT AND GPL-2.0-only", "MIT AND GPL-2.0-only"),
        ("Summary: none", "none"),
    ],
)
def test_a_licence_that_is_not_known_is_refused(tmp_path: Path, fields: str, licence: str) -> None:
    with pytest.raises(NotReady, match=f"^a_b.charm: odd: licence {licence}: expected "):
        packed([pack(tmp_path / "a_b.charm", odd=fields)])


BILL = {
    "metadata": {"component": {"bom-ref": "own", "name": "tippingpoint"}},
    "components": [
        {"bom-ref": "a@1", "name": "typing-extensions", "version": "1"},
        {"bom-ref": "b@2", "name": "colorama", "version": "2"},
    ],
    "dependencies": [{"ref": "own", "dependsOn": ["a@1", "b@2"]}, {"ref": "b@2"}],
}


def test_the_bill_of_materials_has_what_is_packed_with_licences() -> None:
    bill = complete(BILL, [Packed("typing_extensions", "1", "PSF-2.0", ["a.charm"])])

    assert bill["components"] == [
        {
            "bom-ref": "a@1",
            "name": "typing-extensions",
            "version": "1",
            "licenses": [{"expression": "PSF-2.0"}],
        }
    ]
    assert bill["dependencies"] == [{"ref": "own", "dependsOn": ["a@1"]}]


def test_a_packed_version_that_the_bill_does_not_have_is_refused() -> None:
    with pytest.raises(NotReady, match=r"^a\.charm: colorama 3: expected the version of uv\.lock$"):
        complete(BILL, [Packed("colorama", "3", "MIT", ["a.charm"])])
