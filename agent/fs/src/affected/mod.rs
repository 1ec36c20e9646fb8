//! Finds affected data: reads ranges that may be unreadable until the unreadable sectors are known (`read`, `bisect`), and
//! has the common code of filesystems that look up what is stored there (`work`; the lookup of each is in its file in
//! `kind`, the job is `locate`). Both are jobs of the drive's worker; they are bounded in time and write nothing.
//!
//! | filesystem | looked up with | while | not found |
//! |---|---|---|---|
//! | ext4 | `FS_IOC_GETFSMAP` if mounted, `debugfs` (`icheck`, `ncheck`, `testb`) | mounted or not | a file whose inode is not found in the time given; a path that is not found in it: the inode's number is shown |
//! | XFS | `FS_IOC_GETFSMAP`, through a read-only mount of its own if it is not mounted | mounted, or its log is empty | any file, where it was made without reverse mapping (`rmapbt`): then only free space is recognised |
//! | btrfs | the device and chunk trees, `BTRFS_IOC_LOGICAL_INO_V2`, `BTRFS_IOC_INO_LOOKUP`, through a read-only mount of its own if it is not mounted | mounted, or it has no log tree | anything on several devices |

mod bisect;
pub(crate) mod fsmap;
pub mod name;
pub mod read;
pub(crate) mod work;
