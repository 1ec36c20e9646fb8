//! Replays every target. `hwtests/fuzz` searches further.

use drivebay_common::fuzzing::{names_differ, replay_all};

use super::{agents, files, requests, targets};

#[test]
fn each_target_has_a_name_of_its_own() {
    assert!(names_differ(&targets()));
}

#[test]
fn changed_words_of_agents_keep_their_properties() {
    replay_all(&agents::targets());
}

#[test]
fn changed_requests_keep_their_properties() {
    replay_all(&requests::targets());
}

#[test]
fn changed_files_keep_their_properties() {
    replay_all(&files::targets());
}
