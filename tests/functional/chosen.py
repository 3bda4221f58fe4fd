"""Which functional tests run when: quick ones with plain `./scripts/test`, those of labs and the nightly ones with
`./scripts/test --nightly`, and all others with `./scripts/test --all` too, which is what CI runs.

A test is named by its folder, file, class or function, as it is below this folder.
"""

from __future__ import annotations

from collections.abc import Collection

QUICK = (
    "docs",
    "etcd/test_etcd_target.py",
    "etcd/test_runs.py",
    "juju/test_client_calls.py",
    "juju/test_juju_contract.py",
    "juju/test_juju_hollow.py",
    "juju/test_juju_runs.py::TestRefusals",
    "juju/test_juju_runs.py::test_a_run_claims_extends_reports_and_leaves_nothing",
    "juju/test_juju_runs.py::test_after_a_crash_clean_removes_exactly_what_was_made",
    "juju/test_juju_spawn.py",
    "lxd/test_lxd_client.py",
    "lxd/test_lxd_runs.py::TestOneServer",
    "maas/test_maas_contract.py",
    "run/test_clean.py",
    "run/test_refusals.py",
    "run/test_run_faults.py::test_a_killed_member_costs_no_lease",
    "units/test_parts.py::test_units_share_each_stage_hold_it_together_and_leave_nothing",
)
"""The clients of etcd and Juju in full, the contract of the simulated MAAS, one server of LXD, whole runs on etcd, Juju
and LXD, the example of a target, and `clean`. Nothing that needs OpenStack, Pacemaker, libvirt, RabbitMQ, Prometheus or
a packed charm is quick, and no test that starts or shares a cluster of LXD."""

LAB = (
    "lab/test_lab.py",
    "lab/test_releases.py",
    "lab/test_service.py",
    "lxd/test_lxd_lab.py",
    "lxd/test_lxd_proxy.py",
    "maas/test_maas_lab.py",
    "maas/test_maas_libvirt_lab.py",
    "openstack/test_openstack_lab.py",
    "pacemaker/test_pacemaker_lab.py",
)
"""What labs themselves do. CI runs these too where lab/ is not as it was when they last passed."""

NIGHTLY = (
    # What the engine does about a target, a worker or a unit that fails, which the simulator draws thousands of times.
    # docs/explanation/simulated-runs.md says of each what is drawn and asked there, and what is not.
    "agent/test_agent.py::test_a_unit_whose_agent_is_restarted_in_a_search_takes_part_again",
    "agent/test_agent.py::test_a_search_of_two_units_ends_on_both_when_a_threshold_aborts_it",
    "agent/test_agent.py::test_two_units_lower_their_load_after_it_was_too_much_until_the_target_is_back",
    "agent/test_agent.py::test_what_a_unit_that_is_removed_has_measured_is_in_the_report",
    "agent/test_agent.py::test_an_agent_that_crashed_closes_its_part_with_what_it_has",
    "agent/test_agent.py::test_a_crash_in_the_middle_of_making_ready_leaves_nothing",
    "agent/test_agent.py::test_two_units_share_a_search_that_the_leaders_agent_judges",
    "agent/test_agent.py::test_what_a_lost_unit_made_is_removed_by_the_leaders_agent",
    "agent/test_agent.py::test_a_run_is_stopped_in_the_middle",
    "etcd/test_runs.py::test_a_smaller_stage_releases_the_surplus",
    "etcd/test_runs.py::test_a_restart_storm_claims_as_many_new_leases_at_once",
    "etcd/test_runs.py::test_an_interrupted_search_keeps_what_it_knows_and_is_gone_on_with",
    "etcd/test_runs.py::test_a_search_whose_target_is_gone_ends_with_what_it_knows",
    "juju/test_juju_runs.py::TestInterrupted",
    "juju/test_juju_runs.py::test_a_restart_storm_connects_and_claims_all_at_once",
    "juju/test_juju_runs.py::test_a_smaller_stage_disconnects_the_surplus",
    "juju/test_juju_runs.py::test_two_runs_at_once_do_not_meet",
    "juju/test_juju_runs.py::test_workers_whose_runner_is_gone_end_and_clean_removes_what_they_made",
    "lxd/test_lxd_runs.py::TestKilledInMidSpawn",
    "lxd/test_lxd_runs.py::test_interrupted_in_mid_fill_it_reports_and_leaves_nothing",
    "pacemaker/test_pacemaker_spawn.py::test_a_crashed_run_is_resumed_with_what_it_made",
    "run/test_early_ends.py::test_a_threshold_with_abort_ends_the_run_when_the_target_hangs",
    "run/test_early_ends.py::test_a_search_takes_a_load_away_that_a_threshold_aborts",
    "run/test_early_ends.py::test_a_second_ctrl_c_cuts_what_is_under_way",
    "run/test_held.py",
    "run/test_own_lateness.py",
    "run/test_run_faults.py::test_a_target_that_stands_still_costs_the_same_in_tables_charts_and_thresholds",
    "run/test_run_faults.py::test_a_worker_killed_in_mid_stage_loses_at_most_one_interval",
    "run/test_run_faults.py::test_ctrl_c_at_any_time_ends_in_order",
    "run/test_run_faults.py::test_a_second_ctrl_c_leaves_the_leases_to_expire",
    "run/test_run_faults.py::test_a_full_disk_everywhere_still_ends_with_what_fitted",
    "run/test_run_faults.py::test_a_clock_step_moves_nothing",
    "run/test_run_faults.py::test_workers_whose_runner_is_gone_release_and_end",
    "units/test_parts.py::test_a_stop_ends_all_parts_in_order",
    "units/test_parts.py::test_a_unit_that_is_away_when_a_turn_begins_begins_it_late_and_says_so",
    "units/test_shared_search.py",
    # What nothing simulated takes the place of: unit tests have the rules, and the night has the real thing.
    "agent/test_agent.py::test_another_run_ends_the_one_that_goes_on",
    "agent/test_shared_figures.py::test_a_figure_binds_a_search_that_two_units_share",
    "charms/test_pack.py::test_packs_are_the_same_bytes_at_another_place_under_another_umask_zone_and_locale",
    "charms/test_pack.py::test_a_pack_for_arm64_is_made_here_and_all_of_it_is_for_arm64",
    "charms/test_pack.py::test_where_charmcraft_packs_it_is_charmcraft_that_packs",
    "charms/test_pack.py::test_packs_for_the_next_base_have_its_python_and_the_bundle_keeps_its_own",
    "charms/test_pack.py::test_packs_for_the_next_base_go_through_a_life_on_its_python",
    "charms/test_pack_maas.py",
    "etcd/test_profiles.py",
    "lab/test_demo.py::test_without_prometheus_the_report_comes_all_the_same_and_says_what_it_lacks",
    "lxd/test_agent_lxd.py",
    "lxd/test_lxd_by_relation.py",
    "lxd/test_lxd_demo.py",
    "lxd/test_packs_lxd.py",
    "lxd/test_profiles_lxd.py",
    "maas/test_maas_virtme_key.py",
    "maas/test_packs_maas.py",
    "monitoring/test_packs_machine.py",
    "monitoring/test_packs_rabbitmq.py",
    "openstack/test_agent_openstack.py",
    "openstack/test_openstack_runs.py::test_a_fill_in_batches_is_asked_for_in_one_call_each",
    "openstack/test_openstack_runs.py::test_tenants_each_have_a_network_and_go_with_all_they_have",
    "pacemaker/test_packs_pacemaker.py",
    "pacemaker/test_pacemaker_runs.py::test_leases_that_are_freed_change_hands_by_the_notification_alone",
    "pacemaker/test_pacemaker_spawn.py::test_what_no_node_can_start_is_named_and_given_up",
    "units/test_parts.py::test_hollow_units_of_each_part_are_in_a_model_of_its_own_and_a_unit_without_a_share_waits",
    "units/test_parts.py::test_units_make_a_model_smaller_together_after_the_last_stage",
    "etcd/test_leaders.py",
    "etcd/test_rates.py",
    "etcd/test_recovery.py",
    "etcd/test_store_lies.py",
    "etcd/test_store_runs.py::test_members_that_are_killed_and_come_back_violate_nothing",
    "etcd/test_store_runs.py::test_what_an_operator_does_to_members_is_felt_and_violates_nothing",
    "juju/test_comes_back.py",
    "juju/test_juju_runs.py::test_a_search_finds_the_limit_that_its_target_has",
    "juju/test_juju_runs.py::test_a_search_for_what_a_ramp_costs_begins_every_load_from_nothing",
    "lxd/test_comes_back_lxd.py",
    "lxd/test_lxd_parts.py",
    "lxd/test_lxd_verdicts.py",
    "monitoring/test_figure_thresholds.py",
    "openstack/test_openstack_verdicts.py",
    "run/test_run_faults.py::test_a_fault_that_takes_the_lab_long_is_over_before_the_next_stage_begins",
    "run/test_run_faults.py::test_a_worker_that_is_stopped_does_not_hang_the_run",
    "units/test_parts.py::test_a_storm_that_is_asked_for_in_a_hold_takes_the_place_of_the_turn_that_was_named",
    # Faults of real targets: each client's contract has its losses and restarts, and stays.
    "juju/test_juju_faults.py",
    "lxd/test_lxd_faults.py",
    "lxd/test_lxd_restricted.py",
    "maas/test_maas_faults.py",
    "maas/test_maas_virtme.py::TestRuns::test_libvirtd_that_dies_under_running_machines_is_a_counted_result",
    "openstack/test_openstack_faults.py",
    "pacemaker/test_cts.py",
    "pacemaker/test_evict_pacemaker.py",
    "pacemaker/test_pacemaker_runs.py::test_a_cluster_that_restarts_loses_its_tickets_and_gets_them_again",
    "pacemaker/test_pacemaker_runs.py::test_a_controller_that_dies_by_itself_is_the_cliff",
    "pacemaker/test_pacemaker_runs.py::test_a_killed_dc_is_a_silence_of_known_length_and_no_cliff",
    "pacemaker/test_pacemaker_runs.py::test_what_a_minority_acknowledges_is_a_failure_or_a_loss",
    "pacemaker/test_pacemaker_spawn.py::test_remote_nodes_join_carry_resources_and_leave_nothing",
    "pacemaker/test_pacemaker_spawn.py::test_resources_of_a_killed_node_are_repaired_elsewhere",
    "run/test_run_faults.py::test_quorum_lost_and_back_is_recorded_and_survived",
    # Other releases of a target, which are fetched for it.
    "compare",
    "releases",
)


def is_among(test: str, chosen: Collection[str]) -> bool:
    """Whether these have a test. `test` is its id, as it is below this folder."""
    return any(test == one or test.startswith((f"{one}/", f"{one}::", f"{one}[")) for one in chosen)
