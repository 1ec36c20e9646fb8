//! Replays every target. `hwtests/fuzz` explores further inputs.

use drivebay_common::fuzzing::{names_differ, replay_all};

use super::{claim, files, lvm, partitions, requests, targets, texts, tools};

#[test]
fn each_target_has_a_name_of_its_own() {
    assert!(names_differ(&targets()));
}

#[test]
fn changed_tables_and_labels_keep_their_properties() {
    replay_all(&partitions::targets());
}

#[test]
fn changed_lvm_metadata_keeps_its_properties() {
    replay_all(&lvm::targets());
}

#[test]
fn no_changed_drive_with_a_mark_of_ours_may_be_claimed() {
    replay_all(&claim::targets());
}

#[test]
fn changed_words_of_the_kernel_keep_their_properties() {
    replay_all(&texts::targets());
}

#[test]
fn changed_outputs_of_programs_keep_their_properties() {
    replay_all(&tools::targets());
}

#[test]
fn changed_requests_keep_their_properties() {
    replay_all(&requests::targets());
}

#[test]
fn changed_files_keep_their_properties() {
    replay_all(&files::targets());
}
