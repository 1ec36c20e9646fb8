//! Replays every target. `hwtests/fuzz` looks further.

use drivebay_common::fuzzing::replay;

use super::{Target, claim, files, lvm, partitions, requests, targets, texts, tools};

#[test]
fn each_target_has_a_name_of_its_own() {
    let mut names: Vec<_> = targets().iter().map(|target| target.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

fn all(targets: Vec<Target>) {
    for target in &targets {
        replay(target);
    }
}

#[test]
fn changed_tables_and_labels_keep_their_properties() {
    all(partitions::targets());
}

#[test]
fn changed_lvm_metadata_keeps_its_properties() {
    all(lvm::targets());
}

#[test]
fn no_changed_drive_with_a_mark_of_ours_may_be_claimed() {
    all(claim::targets());
}

#[test]
fn changed_words_of_the_kernel_keep_their_properties() {
    all(texts::targets());
}

#[test]
fn changed_outputs_of_programs_keep_their_properties() {
    all(tools::targets());
}

#[test]
fn changed_requests_keep_their_properties() {
    all(requests::targets());
}

#[test]
fn changed_files_keep_their_properties() {
    all(files::targets());
}
