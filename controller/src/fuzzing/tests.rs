//! Replays every target. `hwtests/fuzz` looks further.

use drivebay_common::fuzzing::replay;

use super::{Target, agents, files, requests, targets};

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
fn changed_http2_keeps_its_properties() {
    all(drivebay_common::authority::fuzzing::targets());
}

#[test]
fn changed_words_of_agents_keep_their_properties() {
    all(agents::targets());
}

#[test]
fn changed_requests_keep_their_properties() {
    all(requests::targets());
}

#[test]
fn changed_files_keep_their_properties() {
    all(files::targets());
}
