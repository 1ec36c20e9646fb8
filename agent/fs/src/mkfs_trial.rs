//! Tests whether mkfs accepts options, before the volume is made: on a file of its size in memory.
//!
//! The tools of ext4 and XFS have a dry run; that of btrfs has none, and writes some 5 MiB. A file has no sectors larger
//! than 512 bytes: the dry runs are given the drive's sector size.

use std::time::Duration;

use tokio::{sync::Semaphore, time::timeout};
use uuid::Uuid;

use super::{
    kind::MkfsPlan,
    kind::{self, Trial},
    tools,
};
use drivebay_model::{FsType, cause::chain};
use drivebay_sys::{
    cmd::{self, Output, Tool},
    offload::offload,
    scratch::Scratch,
};

/// Limit of a trial, which takes 20 ms, and longer on a busy host.
const ANSWER: Duration = Duration::from_secs(10);
/// Limit of concurrent trials: each of btrfs takes memory.
static TRIALS: Semaphore = Semaphore::const_new(2);

/// Returns the reason why the tool refuses these options, for a volume of `bytes` on a drive with logical sectors of
/// `sector` bytes. None: it accepts them, or they could not be tested.
pub async fn refusal(
    fs_type: FsType,
    options: &[String],
    bytes: u64,
    sector: u32,
) -> Option<String> {
    if let Some(why) = kind::of(fs_type).refuse_sector(options, sector) {
        return Some(why);
    }
    let log_untried = |why: String| {
        tracing::debug!(
            reason = why,
            "mkfs options not tried before the volume is made"
        )
    };
    let Ok(Ok(turn)) = timeout(ANSWER, TRIALS.acquire()).await else {
        log_untried("other trials take too long".to_owned());
        return None;
    };
    let options = options.to_vec();
    let tried = offload("mkfs-trial", 2 * ANSWER, move || {
        let _turn = turn;
        run(fs_type, &options, bytes, sector)
    });
    match tried.await.and_then(|tried| tried) {
        Ok(Output { code: Some(0), .. }) => None,
        Ok(output @ Output { code: Some(_), .. }) => Some(tools::excerpt(&output)),
        Ok(output) => {
            log_untried(tools::excerpt(&output));
            None
        }
        Err(error) => {
            log_untried(chain(&error));
            None
        }
    }
}

fn run(fs_type: FsType, options: &[String], bytes: u64, sector: u32) -> std::io::Result<Output> {
    let scratch = Scratch::new(bytes)?;
    let plan = MkfsPlan {
        volume: Uuid::nil(),
        fs_type,
        fs_uuid: Uuid::new_v4(),
        options,
        over_own: false,
    };
    let kind = kind::of(fs_type);
    let Trial { args, env } = kind.try_mkfs(&plan, sector, &scratch.path());
    let tool = Tool {
        program: kind.facts().mkfs.name,
        args,
        env,
        only: None,
        deadline: ANSWER,
    };
    cmd::run(&tool).map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check_mkfs_options;

    const GIB: u64 = 1 << 30;

    async fn refusal_of(fs_type: FsType, options: &[&str], bytes: u64) -> Option<String> {
        let options: Vec<String> = options.iter().map(|&one| one.to_owned()).collect();
        check_mkfs_options(fs_type, &options).unwrap();
        refusal(fs_type, &options, bytes, 512).await
    }

    #[tokio::test]
    async fn options_that_need_smaller_sectors_than_the_drive_has_are_refused() {
        let refusal_on = async |fs_type, options: &[&str], sector| {
            let options: Vec<String> = options.iter().map(|&one| one.to_owned()).collect();
            check_mkfs_options(fs_type, &options).unwrap();
            refusal(fs_type, &options, GIB, sector).await
        };
        for (fs_type, options, reason) in [
            (FsType::Ext4, &["-b", "1024"][..], "too small for device"),
            (FsType::Xfs, &["-b", "size=1024"], "sector size 4096"),
            (
                FsType::Xfs,
                &["-s", "size=512"],
                "less than the drive's 4096",
            ),
            (FsType::Xfs, &["-ssize=512"], "less than the drive's 4096"),
        ] {
            assert_eq!(refusal_on(fs_type, options, 512).await, None, "{options:?}");
            let Some(message) = refusal_on(fs_type, options, 4096).await else {
                // The tool is not installed.
                assert!(
                    refusal(fs_type, &["-?".to_owned()], GIB, 512)
                        .await
                        .is_none()
                );
                continue;
            };
            assert!(message.contains(reason), "{options:?}: {message}");
        }
        for (fs_type, options) in [
            (FsType::Ext4, &["-b", "4096"][..]),
            (FsType::Xfs, &["-b", "size=4096"]),
            (FsType::Xfs, &["-s", "size=4096"]),
            (FsType::Xfs, &["-s", "size=4k"]),
            (FsType::Btrfs, &["-s", "4096"]),
        ] {
            assert_eq!(
                refusal_on(fs_type, options, 4096).await,
                None,
                "{options:?}"
            );
        }
    }

    #[tokio::test]
    async fn options_that_pass_the_list_and_that_the_tool_refuses_are_found_with_its_reason() {
        for (fs_type, options, reason) in [
            (FsType::Ext4, &["-b", "99"][..], "invalid block size - 99"),
            (FsType::Ext4, &["-I", "99999"], "invalid inode size"),
            (FsType::Ext4, &["-O", "no_such_feature"], "no_such_feature"),
            (FsType::Ext4, &["-J", "size=100000"], "journal size"),
            (FsType::Xfs, &["-d", "agcount=1"], "at least 2"),
            (FsType::Xfs, &["-l", "size=1"], "too small"),
            (FsType::Xfs, &["-b", "size=7"], "7"),
            (FsType::Btrfs, &["-n", "999"], "illegal nodesize"),
        ] {
            let message = refusal_of(fs_type, options, GIB).await;
            // Without the tool nothing can be tested.
            let installed = refusal_of(fs_type, &["-L", "name-that-is-far-too-long-for-any-of-these-filesystems-and-would-not-even-fit-into-the-longest-label-that-btrfs-allows-which-has-two-hundred-and-fifty-five-bytes-and-this-text-goes-on-for-so-long-only-to-be-sure-that-it-is-really-longer-than-that-limit-of-them-all"], GIB).await.is_some()
                || fs_type == FsType::Ext4;
            match message {
                Some(message) => assert!(message.contains(reason), "{options:?}: {message}"),
                None => assert!(!installed, "{fs_type} {options:?} is not refused"),
            }
        }
    }

    #[tokio::test]
    async fn good_options_are_taken_at_every_size() {
        for (fs_type, options) in [
            (FsType::Ext4, &["-i", "65536"][..]),
            (FsType::Xfs, &["-i", "size=1024"]),
            (FsType::Btrfs, &["-d", "single"]),
        ] {
            for bytes in [GIB, 20 << 40] {
                assert_eq!(
                    refusal_of(fs_type, options, bytes).await,
                    None,
                    "{fs_type} {bytes}"
                );
            }
        }
    }
}
