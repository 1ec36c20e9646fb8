//! A clone of a volume whose drive fails: unreadable blocks, and a drive that fails all reads for a while.

use std::{
    collections::HashMap,
    fs,
    time::{Duration, Instant},
};

use drivebay_hwtests::{csi, need, tools};
use drivebay_proto::csi::{CreateVolumeRequest, Volume};
use tonic::{Code, Status};

use super::{SLOWLY, copy_is, goes_on};
use crate::drives::failing::{BLOCK, CLASS, Failing, SECTOR, SIZE, text};

/// Time limit of a clone, made or failed.
const LIMIT: Duration = Duration::from_secs(150);
/// Number of the unreadable block of the file.
const BAD: usize = 33;

/// Returns a volume with a file, not in use, and the place of the file's bad block on its drive.
async fn with_a_file(more: &str) -> (Failing, u64) {
    let it = Failing::new("first", more).await;
    let target = &it.volume.target;
    fs::write(target.join("file"), text("file")).unwrap();
    tools::must("sync", &["-f", target.to_str().unwrap()]);
    let at = it.place_of("file", BAD);
    it.rig.leave_volume(&it.volume).await;
    (it, at)
}

impl Failing {
    /// Clones a volume, repeating the call while it returns ABORTED. `unreadable`: the parameter copyUnreadable.
    async fn make_of(
        &self,
        of: &str,
        name: &str,
        unreadable: Option<&str>,
    ) -> Result<Volume, Status> {
        let mut parameters = HashMap::from([("class".to_owned(), CLASS.to_owned())]);
        parameters.extend(unreadable.map(|how| ("copyUnreadable".to_owned(), how.to_owned())));
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(csi::bytes(self.volume.bytes)),
            volume_capabilities: vec![self.volume.capability.clone()],
            parameters,
            volume_content_source: Some(csi::from_volume(of)),
            ..Default::default()
        };
        let began = Instant::now();
        loop {
            match self.rig.csi.create_with(request.clone()).await {
                Err(status) if status.code() == Code::Aborted && began.elapsed() < LIMIT => {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                answer => return answer,
            }
        }
    }

    /// Clones the volume with the file, repeating the call while it returns ABORTED.
    async fn make(&self, name: &str, unreadable: Option<&str>) -> Result<Volume, Status> {
        self.make_of(&self.volume.id, name, unreadable).await
    }

    /// Returns the message of the volume's condition CopiedWithLoss; empty without one.
    async fn lacks(&self, id: &str) -> String {
        let conditions = self.rig.volume_of(id).await.unwrap().conditions;
        let of_loss = conditions
            .into_iter()
            .find(|one| one.reason == "CopiedWithLoss");
        of_loss.map_or_else(String::new, |one| {
            assert!(!one.abnormal && one.status.is_empty(), "{one:?}");
            one.message
        })
    }

    async fn file(&self, made: &Volume, name: &str) -> Vec<u8> {
        let volume = self.rig.place(made, name, &self.volume.capability);
        self.rig.use_volume(&volume).await;
        let file = fs::read(volume.target.join("file")).unwrap();
        self.rig.leave_volume(&volume).await;
        file
    }
}

#[tokio::test]
async fn unreadable_blocks_fail_a_clone_unless_its_class_turns_them_into_zeros() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", fs "ext4");
    let (mut it, at) = with_a_file("").await;
    it.from.spoil(at..at + SECTOR);
    let refused = it.make("second", None).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    for words in ["4 KiB in 1 range", "unreadable", "copyUnreadable: zeros"] {
        assert!(refused.message().contains(words), "{refused}");
    }
    let refused = it.make("second", Some("maybe")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");

    let third = it.make("third", Some("zeros")).await.unwrap();
    let lacks = it.lacks(&third.volume_id).await;
    assert!(lacks.contains("4 KiB"), "{lacks}");
    // Only a request with the same parameters returns the existing volume.
    let again = it.make("third", Some("zeros")).await.unwrap();
    assert_eq!(again.volume_id, third.volume_id);
    for other in [None, Some("fail")] {
        let refused = it.make("third", other).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
    }
    let mut expected = text("file");
    expected[BAD * BLOCK..(BAD + 1) * BLOCK].fill(0);
    assert!(it.file(&third, "third").await == expected);

    // The loss is recorded on the drive, not only in the agent's memory.
    it.rig.agent.kill9();
    it.rig.start_again().await;
    assert_eq!(it.lacks(&third.volume_id).await, lacks);
    // The copy reads everywhere, and a copy of it has the same loss.
    let fourth = it.make_of(&third.volume_id, "fourth", None).await.unwrap();
    assert_eq!(it.lacks(&fourth.volume_id).await, lacks);
    it.from.spoil(0..0);
    let fifth = it.make("fifth", Some("zeros")).await.unwrap();
    assert_eq!(it.lacks(&fifth.volume_id).await, "");
    assert!(it.file(&fifth, "fifth").await == text("file"));
}

#[tokio::test]
async fn a_source_that_reads_nothing_for_a_while_is_waited_for_and_no_block_of_it_becomes_zeros() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", fs "ext4");
    let (it, _) = with_a_file(SLOWLY).await;
    let trouble = async {
        copy_is(&it.rig, "it is copied", goes_on).await;
        it.from.spoil(0..SIZE);
        copy_is(&it.rig, "it waits", |copy| !copy.waits_for.is_empty()).await;
        it.from.spoil(0..0);
        it.rig.rescan().await;
    };
    let (made, ()) = tokio::join!(it.make("second", Some("zeros")), trouble);
    let made = made.unwrap();
    assert_eq!(it.lacks(&made.volume_id).await, "");
    assert!(it.file(&made, "second").await == text("file"));
}
