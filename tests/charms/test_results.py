"""What actions' results carry: text that `juju run` prints as it is, and reports in parts."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st
from tippingpoint_charm.results import LARGEST_PART, how_to_fetch, parts_of, verbatim

from scripts._reference.charms import CHARMS, ROOT, charmcraft, results


class TestReference:
    """conftest.py checks in every test that what an action tells is in charms/results.yaml."""

    def test_every_action_says_what_it_tells(self) -> None:
        for charm in CHARMS:
            assert set(results()[charm]) == set(charmcraft(charm)["actions"]), charm

    def test_no_key_is_named_that_the_charms_do_not_tell(self) -> None:
        texts = [path.read_text() for path in (ROOT / "charms").glob("*/src/**/*.py")]
        named = {
            key.rpartition(".")[2] for each in results().values() for keys in each.values() for key in keys
        }
        assert sorted(key for key in named if not any(f'"{key}"' in text for text in texts)) == []


class TestVerbatim:
    @given(st.lists(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"])), min_size=1))
    def test_juju_prints_a_block(self, lines: list[str]) -> None:
        # PyYAML's emitter is libyaml's, as that of Juju is (gopkg.in/yaml.v2); both would fold a text of one line.
        text = verbatim("begin", *lines)
        printed = yaml.safe_dump({"key": text}, default_style="|", allow_unicode=True)
        assert printed.startswith('"key": |')
        assert yaml.safe_load(printed) == {"key": text}

    def test_a_long_command_is_one_line(self) -> None:
        command = f"juju scp -m {'m' * 60} unit/0:/{'d' * 200} ."
        assert verbatim(command) == f"{command}\n"

    def test_what_would_keep_it_from_being_a_block_goes(self) -> None:
        assert verbatim("a \t ", "b\tc\r\n\n") == "a\nb       c\n\n"


class TestFetch:
    def test_the_command_comes_first_and_the_key_is_said(self) -> None:
        told = how_to_fetch("m", "u/0", "/a/b", "https://page/report").splitlines()
        assert told[0] == "juju scp -m m u/0:/a/b ."
        assert "juju add-ssh-key -m m " in told[1]
        assert told[2] == "# without a key: https://page/report"


class TestParts:
    @given(st.text(max_size=40), st.integers(1, 20_000))
    def test_joined_they_are_the_text(self, text: str, times: int) -> None:
        whole = text * times
        parts = parts_of(whole)
        assert "".join(parts) == whole
        assert all(len(part.encode()) <= LARGEST_PART for part in parts)
