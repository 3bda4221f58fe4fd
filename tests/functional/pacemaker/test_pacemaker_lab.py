"""The lab of Pacemaker: what it says of its nodes and of each fault is so on the real ones, and nothing is left."""

from __future__ import annotations

from lab.pacemaker.cluster import PacemakerLab


def test_all_nodes_are_members_and_one_is_the_dc(pacemaker: PacemakerLab) -> None:
    assert pacemaker.is_whole()
    assert sorted(pacemaker.online()) == pacemaker.names
    assert [member["name"] for member in pacemaker.members() if member["leader"]] == [pacemaker.leader()]


class TestOnALabThatBreaks:
    """A lab that one test leaves broken is replaced for the next."""

    def test_a_killed_node_is_dead(self, pacemaker_to_break: PacemakerLab) -> None:
        pacemaker_to_break.fencing_works = False  # nobody starts it again

        pacemaker_to_break.kill("node3")

        (member,) = [each for each in pacemaker_to_break.members() if each["name"] == "node3"]
        assert (member["pid"], member["running"]) == (None, False)
        assert not pacemaker_to_break.is_whole()

    def test_the_next_test_has_a_whole_one(self, pacemaker_to_break: PacemakerLab) -> None:
        assert pacemaker_to_break.is_whole()
