"""A store of Azure's kind under faults, deaths and other writers: the promises of S3's tests."""

from __future__ import annotations

import pytest

from tests.buckets import test_backup_streams, test_bad_answers, test_object_store

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(autouse=True)
def some_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before which a run dies; S3's tests take each."""
    monkeypatch.setattr(test_object_store, "REQUESTS", (*range(1, 18, 4), *range(18, 44)))


store, once = test_backup_streams.store, test_bad_answers.once

# It has the name of another one.
test_a_stream_has_everything_from_a_store_that_answers_badly = (
    test_backup_streams.test_a_store_that_answers_badly_costs_time_and_nothing_else
)
SHARED = (
    test_object_store.test_a_bucket_has_what_a_folder_would_have,
    test_bad_answers.test_a_lease_ends_by_the_clock_of_the_store,
    test_object_store.test_a_second_writer_is_refused_while_the_first_one_writes,
    test_object_store.test_of_runs_that_begin_at_once_each_message_is_there_once,
    test_object_store.test_a_writer_that_was_held_up_adds_nothing_and_harms_nothing,
    test_object_store.test_a_lease_is_renewed_while_its_holder_lives,
    test_object_store.test_a_run_that_dies_before_any_request_leaves_nothing_twice,
    test_object_store.test_what_is_changed_in_the_bucket_is_found,
    test_object_store.test_a_flipped_byte_of_head_and_manifest_is_found,
    test_bad_answers.test_a_store_that_answers_badly_costs_time_and_nothing_else,
    test_bad_answers.test_a_store_that_stays_away_is_told_and_the_next_run_has_everything,
    test_bad_answers.test_a_renewal_that_was_given_up_and_done_all_the_same_takes_nothing_from_its_writer,
    test_bad_answers.test_a_commit_whose_answer_is_lost_for_good_is_told_and_done_once,
    test_backup_streams.test_a_bucket_and_a_folder_have_the_same_pieces,
    test_backup_streams.test_the_place_is_said_once_also_by_to,
    test_backup_streams.test_a_stream_that_dies_before_any_change_of_the_bucket_goes_on,
    test_backup_streams.test_two_streams_of_one_log_do_each_other_no_harm,
    test_backup_streams.test_a_store_that_stays_away_is_told_and_the_next_turn_has_everything,
    test_backup_streams.test_a_piece_that_is_missing_is_told,
    test_backup_streams.test_what_is_older_than_is_kept_goes_by_whole_files,
    test_backup_streams.test_a_prefix_of_something_else_is_not_searched_for_streams,
)
globals().update({one.__name__: one for one in SHARED})
