"""Faults that llmprism once had, or that any such system has, each with the test that fails without its remedy."""

from __future__ import annotations

PLACES = ("cli", "reports/doctor", "execution", "warehouse")
CLI, DOCTOR, EXECUTION, WAREHOUSE = (f"llmprism_tasks/{place}" for place in PLACES)
LANDING, STORAGE, UPKEEP = (f"{WAREHOUSE}/{place}" for place in ("landing", "storage", "upkeep"))
FILES = f"{LANDING}/test_file_register.py"
HOSTS = "distributed/test_hosts.py"

FAULTS: tuple[tuple[str, str], ...] = (
    (
        "the last seconds of a minute come in the next minute's file, and are lost",
        f"{FILES}::test_the_last_seconds_of_a_minute_come_in_the_next_file",
    ),
    ("the name of a folder changes flows", f"{LANDING}/test_folder_names.py::test_a_folder_s_name_gives_no_column"),
    (
        "drafts of flows that were landed anew are written as results",
        f"{EXECUTION}/test_window.py::test_flows_are_handed_over_while_nothing_that_stages_depend_on_changes",
    ),
    (
        "a late file's window, and those that look back at it, are not run again",
        f"{EXECUTION}/test_catch_up.py::test_a_late_half_makes_its_window_due_and_then_the_one_that_looks_back_at_it",
    ),
    (
        "minutes that no run landed stay out in silence",
        "dags/test_catch_up.py::test_minutes_that_got_no_run_are_taken_up_and_end_as_analyze_ends",
    ),
    (
        "half a text file counts as arrived",
        f"{LANDING}/test_unfinished_files.py::test_a_window_that_was_landed_from_half_a_file_says_so",
    ),
    (
        "half a Parquet file fails its window for ever",
        f"{LANDING}/test_unfinished_files.py::test_a_young_file_that_cannot_be_read_is_tried_again",
    ),
    (
        "a window that is run again loses the records of a file that was deleted",
        f"{LANDING}/test_gone_files.py::test_a_window_that_is_run_again_keeps_what_came_in_a_file_that_is_gone",
    ),
    ("a resent file is quarantined whole", f"{FILES}::test_a_file_that_is_sent_again_costs_a_line"),
    (
        "a full disk is a traceback, or taken for a conflict",
        f"{CLI}/test_system_errors.py::test_a_full_disk_under_the_warehouse_is_told_at_once_and_a_rerun_mends_it",
    ),
    (
        "in Airflow a full disk fails without another try",
        "dags/test_shape.py::test_system_errors_are_tried_again_and_our_own_faults_are_not",
    ),
    (
        "a warehouse that was removed is made anew, empty",
        f"{WAREHOUSE}/test_connect.py::test_a_warehouse_that_was_removed_is_not_made_anew",
    ),
    (
        "a path where nothing can be written is a traceback",
        f"{CLI}/test_system_errors.py::test_a_place_where_no_warehouse_can_be",
    ),
    (
        "an output that cannot be written is a traceback",
        f"{CLI}/test_system_errors.py::test_output_that_cannot_be_written",
    ),
    (
        "an unknown table is looked for in the program",
        f"{WAREHOUSE}/test_connect.py::test_an_unknown_table_is_not_looked_for_in_the_program",
    ),
    (
        "a DuckLake with its catalog in PostgreSQL does not open, or two writers lose rows",
        "distributed/test_catalog.py::test_writers_at_the_same_time_lose_nothing",
    ),
    ("a password is shown", f"{CLI}/test_secrets_stay_hidden.py::test_no_secret_in_any_output_or_file_name"),
    (
        "a password is in a log, a file's name or the list of processes",
        f"{HOSTS}::test_the_password_is_in_no_log_no_file_name_and_no_list_of_processes",
    ),
    (
        "a reader of a DuckLake keeps writers waiting",
        f"{UPKEEP}/test_read_copy.py::test_who_reads_a_lake_in_a_transaction_hinders_no_writer",
    ),
    (
        "a killed reader of a DuckLake leaves a copy of its catalog behind",
        f"{UPKEEP}/test_read_copy.py::test_a_killed_reader_of_a_lake_leaves_no_file",
    ),
    (
        "a killed landing leaves a folder in TMPDIR for ever",
        f"{STORAGE}/test_temporary_folder.py::test_landing_deletes_what_a_killed_one_left",
    ),
    (
        "`llmprism sql` reads or writes other files",
        f"{STORAGE}/test_allowed_queries.py::test_all_else_is_refused_and_leaves_no_trace",
    ),
    (
        "`llmprism sql` fills the memory",
        f"{STORAGE}/test_written_rows.py::test_a_query_with_more_rows_than_fit_is_refused_before_they_are_there",
    ),
    (
        "names steer the terminal or a picture",
        f"{LANDING}/test_names.py::test_names_reach_the_warehouse_without_control_characters",
    ),
    ("nothing expires", f"{UPKEEP}/test_expiry.py::test_rows_go_by_table_and_windows_say_so"),
    (
        "a file never gives its space back",
        f"{UPKEEP}/test_space.py::test_a_file_of_which_more_than_a_third_is_free_is_made_smaller",
    ),
    (
        "a DuckLake keeps each replaced file",
        f"{UPKEEP}/test_space.py::test_a_lake_keeps_replaced_files_only_for_those_who_may_still_read_them",
    ),
    (
        "a backfill of old windows is refused half-way",
        f"{UPKEEP}/test_expiry.py::test_a_backfill_of_old_windows_keeps_what_its_next_windows_look_back_on",
    ),
    (
        "an IPv4 address that is written as an IPv6 one is another NIC",
        f"{LANDING}/test_units_and_columns.py::test_an_ipv4_address_has_one_spelling",
    ),
    (
        "a late file makes a window due whose flows have expired",
        "llmprism_tasks/reports/test_expired_minutes.py::test_a_marked_window_is_due_unless_its_flows_or_past_have_expired",
    ),
    (
        "what comes late of a window that expired replaces all of its results",
        "llmprism_tasks/execution/test_upkeep.py::test_a_late_part_of_a_window_that_expired_does_not_replace_it",
    ),
    (
        "a window is run again although its flows have expired",
        f"{UPKEEP}/test_expiry.py::test_a_window_whose_flows_or_past_expired_is_refused",
    ),
    (
        "a small file makes a million windows",
        f"{LANDING}/test_floods_and_gaps.py::test_a_small_file_makes_no_million_of_windows",
    ),
    (
        "a flood of addresses fills the memory, now and later",
        f"{LANDING}/test_floods_and_gaps.py::test_a_flood_costs_later_windows_nothing",
    ),
    (
        "a flood takes memory that grows with it",
        f"{LANDING}/test_floods_and_gaps.py::test_a_flood_takes_no_memory_that_grows_with_it",
    ),
    (
        "the name of a column that is no text is a traceback",
        "tools/reliability/test_fuzz.py::test_a_name_of_a_column_that_is_no_text_is_refused_in_a_sentence",
    ),
    (
        "a link leads out of the folder of flows",
        f"{LANDING}/test_unfinished_files.py::test_links_out_of_the_folder_are_refused_and_counted",
    ),
    (
        "times in another unit are taken for nanoseconds",
        f"{LANDING}/test_units_and_columns.py::test_times_in_another_unit_are_refused_with_the_factor",
    ),
    (
        "a path with another separator is one switch",
        f"{LANDING}/test_units_and_columns.py::test_a_path_with_another_separator_is_no_switch",
    ),
    (
        "half a topology accuses innocents",
        "golden/test_half_a_topology.py::test_nobody_is_paged_and_each_diagnosis_names_what_is_missing",
    ),
    (
        "a task is killed, and its window is left half written",
        f"{EXECUTION}/test_window.py::test_killed_anywhere_a_rerun_ends_like_an_undisturbed_run",
    ),
    (
        "a worker computes on for a process that was killed",
        f"{CLI}/test_cli.py::test_asked_to_end_it_leaves_neither_a_process_nor_files",
    ),
    (
        "two runs of a window at once mix their rows",
        f"{EXECUTION}/test_window.py::test_two_runs_of_a_window_at_once_leave_the_rows_of_one",
    ),
    (
        "the task of another run clears what later stages wrote, and the window is done without it",
        f"{EXECUTION}/test_window.py::test_what_the_task_of_another_run_cleared_is_made_again",
    ),
    (
        "a run checks or ends a window whose rows another run is replacing: jobs are set aside, and the window is done "
        "without them",
        f"{EXECUTION}/test_window.py::test_what_another_run_does_before_the_check_or_the_end_is_noticed",
    ),
    (
        "two runs of a window take each other's results of checks away",
        f"{WAREHOUSE}/test_store.py::test_results_of_some_tables_leave_those_of_others_and_of_other_windows",
    ),
    (
        "a dead worker is noticed after five minutes",
        f"{HOSTS}::test_a_killed_worker_is_noticed_and_its_tasks_are_done_by_others",
    ),
    (
        "each worker that dies at the end of a task keeps a slot for a day, until no task runs any more",
        "tools/demo/test_compose.py::test_a_slot_that_a_dead_worker_kept_is_free_again_within_an_hour",
    ),
    ("two backfills over one hour", f"{HOSTS}::test_two_backfills_over_one_hour_end_like_one"),
    (
        "ports and containers are open to others",
        "tools/demo/test_compose.py::test_every_container_has_least_privileges_and_a_limit",
    ),
    ("a port that others can reach", f"{DOCTOR}/test_checks.py::test_a_port_that_others_can_reach_is_named"),
    (
        "clocks of hosts disagree",
        f"{DOCTOR}/test_checks.py::test_records_are_not_from_the_future",
    ),
    (
        "a missed deadline ends Airflow's triggerer, and waiting windows wait for ever",
        "dags/test_catch_up.py::test_a_missed_deadline_is_told_and_the_triggerer_lives_on",
    ),
    ("metrics are promised and none is sent", "dags/test_metrics.py::test_metrics_reach_statsd"),
    (
        "who may trigger a run of the demo's feed has the worker open any file",
        "dags/test_shape.py::test_a_scenario_of_the_demo_feed_is_no_path",
    ),
    (
        "one record of a wrong year makes all flows so old that they expire",
        f"{UPKEEP}/test_expiry.py::test_a_window_that_the_clock_has_not_reached_makes_nothing_older",
    ),
    (
        "a gap of more than a day is left out in silence",
        f"{LANDING}/test_floods_and_gaps.py::test_a_gap_of_more_than_a_day_is_left_out_and_told",
    ),
    (
        "SIGTERM while a library is imported is a traceback",
        f"{CLI}/test_cli.py::test_asked_to_end_where_the_exception_is_dropped_it_ends_and_says_so",
    ),
    (
        "a FIFO keeps a window waiting for ever",
        f"{LANDING}/test_unfinished_files.py::test_a_fifo_that_is_named_is_refused",
    ),
    (
        "a file's name that is not UTF-8 is a traceback",
        f"{LANDING}/test_unfinished_files.py::test_a_name_that_is_no_text_is_left_out_and_told",
    ),
    (
        "the location of a database that is no DuckLake is repeated with its password",
        "llmprism_tasks/settings/test_secrets.py::test_a_database_that_is_no_ducklake_is_refused_and_not_repeated",
    ),
    (
        "a file's name with hour 24 or minute 60 is read as another window's",
        "llmprism_tasks/sources/test_pattern.py::test_a_name_that_is_no_time_or_has_something_else_is_no_match",
    ),
)
"""What went wrong, and the test in `tests`, as pytest names it."""
