//! Encrypted volumes as an orchestrator sees them: their life with its secret, wrong and missing secrets, damage, and where nothing of
//! secret and contents may be found. Needs dm-crypt: run in the lab's guest by lab_encryption.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

mod encryption {
    pub(crate) mod checks;
    pub(crate) mod copies;
    pub(crate) mod drives;
    pub(crate) mod keys;
}

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, agent, csi, digest, left_out, need, need::Need, node::Placed, tools,
    tree, wait,
};
use drivebay_proto::{
    agent::{MoveVolumesRequest, agent_client::AgentClient},
    csi::{self as wire, VolumeCapability},
};
use tonic::{Code, Status};

use encryption::{copies, keys};

/// Longest time of a creation and of a move.
const LIMIT: Duration = Duration::from_secs(120);
/// Key of the secret, and secrets: nothing else has these words.
const KEY: &str = "passphrase";
const SECRET: &str = "quiet-Swordfish-of-1987";
const WRONG: &str = "loud-Herring-of-1988";
/// Bytes that a volume's user writes.
const WORDS: &[u8] = b"the only copy of a love letter that nobody else may read";
/// Magic of a LUKS2 header and of its second copy.
const MAGIC: [&[u8]; 2] = [b"LUKS\xba\xbe", b"SKUL\xba\xbe"];
const HEADER: u64 = 16 * MIB;

fn request(name: &str, bytes: u64, capability: &VolumeCapability) -> wire::CreateVolumeRequest {
    wire::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(csi::bytes(bytes)),
        volume_capabilities: vec![capability.clone()],
        parameters: HashMap::from([("encryption".to_owned(), "luks2".to_owned())]),
        ..Default::default()
    }
}

/// Creates an encrypted volume of the rig's class; a call that is put off is repeated, as a provisioner does.
async fn encrypted(rig: &Rig, name: &str, bytes: u64, capability: &VolumeCapability) -> Placed {
    encrypted_in(rig, "demo", name, bytes, capability).await
}

async fn encrypted_in(
    rig: &Rig,
    class: &str,
    name: &str,
    bytes: u64,
    capability: &VolumeCapability,
) -> Placed {
    let mut request = request(name, bytes, capability);
    request
        .parameters
        .insert("class".to_owned(), class.to_owned());
    let what = format!("volume {name} is created");
    let volume = wait::until_async(LIMIT, &what, async || {
        match rig.csi.create_with(request.clone()).await {
            Err(status) if status.code() == Code::Aborted => None,
            answer => Some(answer.unwrap()),
        }
    });
    let volume = rig.place(&volume.await, name, capability);
    assert_eq!(volume.bytes, bytes, "the header is not its user's");
    volume
}

async fn stage(rig: &Rig, volume: &Placed, secrets: &[(&str, &str)]) -> Result<(), Status> {
    let (id, staging) = (&volume.id, &volume.staging);
    rig.csi
        .stage_with(id, staging, &volume.capability, secrets)
        .await
}

async fn use_it(rig: &Rig, volume: &Placed) {
    stage(rig, volume, &[(KEY, SECRET)]).await.unwrap();
    rig.publish(volume).await;
}

/// Names of the mapped devices of encrypted volumes.
fn mapped() -> Vec<PathBuf> {
    let all = fs::read_dir("/dev/mapper").unwrap();
    let all = all.map(|entry| entry.unwrap().path());
    all.filter(|path| path.to_string_lossy().contains("drivebay-crypt-"))
        .collect()
}

fn is_block(volume: &Placed) -> bool {
    volume.capability == csi::block()
}

/// Writes the words to a published volume, durably.
fn put(volume: &Placed) {
    match is_block(volume) {
        true => {
            let mut device = File::options().write(true).open(&volume.target).unwrap();
            device
                .write_all(&[WORDS, &[0; 4096]].concat()[..4096])
                .unwrap();
            device.sync_all().unwrap();
        }
        false => {
            let mut file = File::create(volume.target.join("letter")).unwrap();
            file.write_all(&WORDS.repeat(1000)).unwrap();
            file.sync_all().unwrap();
        }
    }
}

fn holds(volume: &Placed) -> bool {
    match is_block(volume) {
        true => {
            let mut start = vec![0; WORDS.len()];
            let device = File::open(&volume.target).unwrap();
            device.read_exact_at(&mut start, 0).unwrap();
            start == WORDS
        }
        false => fs::read(volume.target.join("letter")).unwrap() == WORDS.repeat(1000),
    }
}

fn headers_in(drive: &Path) -> usize {
    MAGIC
        .iter()
        .map(|magic| digest::find(drive, magic).unwrap().len())
        .sum()
}

#[tokio::test]
async fn an_encrypted_volume_lives_with_its_secret_and_its_contents_are_on_the_drive_in_no_clear() {
    need!(root, loop, crypt, tool "cryptsetup", tool "mkfs.xfs", tool "mkfs.btrfs", fs "ext4", fs "xfs", fs "btrfs");
    let rig = Rig::with(vec![DriveSpec::blank("a", 3 * GIB)]).await;
    let drive = rig.shelf.file("a");
    for (name, bytes, capability) in [
        ("ext4", 64 * MIB, csi::mount("ext4")),
        ("xfs", 320 * MIB, csi::mount("xfs")),
        ("btrfs", 256 * MIB, csi::mount("btrfs")),
        ("block", 64 * MIB, csi::block()),
    ] {
        let volume = encrypted(&rig, name, bytes, &capability).await;
        // The same again, and the same unencrypted.
        let again = rig.csi.create_with(request(name, bytes, &capability)).await;
        assert_eq!(again.unwrap().volume_id, volume.id);
        let plain = rig.csi.create(name, bytes, &capability).await;
        assert_eq!(plain.unwrap_err().code(), Code::AlreadyExists);

        use_it(&rig, &volume).await;
        // Repeated.
        use_it(&rig, &volume).await;
        put(&volume);
        let stats = rig.csi.stats(&volume.id, &volume.target).await.unwrap();
        let total = stats.usage[0].total.unsigned_abs();
        assert!(total <= bytes && total > bytes / 2, "{name}: {total}");
        rig.shelf.flush().unwrap();
        assert_eq!(
            digest::find(&drive, WORDS).unwrap(),
            Vec::<u64>::new(),
            "{name}"
        );
        assert_eq!(headers_in(&drive), 2, "{name}");
        rig.leave_volume(&volume).await;
        assert_eq!(mapped(), Vec::<PathBuf>::new(), "{name}");

        let refused = stage(&rig, &volume, &[(KEY, WRONG)]).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
        assert!(
            refused.message().contains("its data is whole"),
            "{refused:?}"
        );
        let refused = stage(&rig, &volume, &[]).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        assert!(
            refused.message().contains("node-stage-secret-name"),
            "{refused:?}"
        );
        assert_eq!(mapped(), Vec::<PathBuf>::new(), "{name}");

        use_it(&rig, &volume).await;
        assert!(holds(&volume), "{name}");
        // In use, without the secret.
        if Need::check(need::SYS_RESOURCE).is_ok() {
            let (size, _) = rig
                .csi
                .expand(&volume.id, 2 * bytes, &capability)
                .await
                .unwrap();
            assert_eq!(size.unsigned_abs(), 2 * bytes);
            let grown = rig
                .csi
                .node_expand(&volume.id, &volume.target, 2 * bytes)
                .await;
            assert_eq!(grown.unwrap().unsigned_abs(), 2 * bytes, "{name}");
            let stats = rig.csi.stats(&volume.id, &volume.target).await.unwrap();
            assert!(stats.usage[0].total.unsigned_abs() > bytes, "{name}");
        }
        assert!(holds(&volume), "{name}");
        rig.leave_volume(&volume).await;

        rig.csi.delete(&volume.id).await.unwrap();
        rig.shelf.flush().unwrap();
        assert_eq!(headers_in(&drive), 0, "{name}");
        rig.erased().await;
    }
}

#[tokio::test]
async fn a_header_that_is_gone_is_damage_and_no_other_one_is_made() {
    need!(root, loop, crypt, tool "cryptsetup", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    for (name, capability) in [("files", csi::mount("ext4")), ("raw", csi::block())] {
        let volume = encrypted(&rig, name, 64 * MIB, &capability).await;
        use_it(&rig, &volume).await;
        put(&volume);
        rig.leave_volume(&volume).await;
        let device = rig.device(&volume).await;
        let node = File::options().write(true).open(&device).unwrap();
        node.write_all_at(&vec![0; HEADER as usize], 0).unwrap();
        node.sync_all().unwrap();
        drop(node);
        let before = digest::of(&device).unwrap();
        for restarted in [false, true] {
            if restarted {
                rig.agent.kill9();
                rig.start_again().await;
            }
            let refused = stage(&rig, &volume, &[(KEY, SECRET)]).await.unwrap_err();
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
            assert!(refused.message().contains("NOT made again"), "{refused:?}");
            assert_eq!(
                digest::of(&device).unwrap(),
                before,
                "{name} was written to"
            );
        }
        // A header with another UUID is not opened either.
        let key = rig.dir().join("key");
        fs::write(&key, SECRET).unwrap();
        let [key, device] = [key, device].map(|path| path.display().to_string());
        let fast = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];
        let words = [
            &["luksFormat", "-q", "--key-file", &key][..],
            &fast,
            &[&device],
        ]
        .concat();
        tools::must("cryptsetup", &words);
        let refused = stage(&rig, &volume, &[(KEY, SECRET)]).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
        assert!(refused.message().contains("crypto_LUKS"), "{refused:?}");
        assert_eq!(mapped(), Vec::<PathBuf>::new());
        rig.csi.delete(&volume.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_volume_opens_with_either_of_its_two_headers_and_key_slots() {
    need!(root, loop, crypt, tool "cryptsetup", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    let capability = csi::mount("ext4");
    let places = ["header 0", "header 1", "slot 0", "slot 1"];
    for (n, place) in places.into_iter().enumerate() {
        let volume = encrypted(&rig, &format!("v{n}"), 64 * MIB, &capability).await;
        use_it(&rig, &volume).await;
        put(&volume);
        rig.leave_volume(&volume).await;
        let device = rig.device(&volume).await;
        let node = device.display().to_string();
        let dump = tools::must("cryptsetup", &["luksDump", "--dump-json-metadata", &node]);
        let dump: serde_json::Value = serde_json::from_str(&dump).unwrap();
        assert_eq!(dump["segments"]["0"]["offset"], HEADER.to_string());
        assert_eq!(dump["keyslots"].as_object().unwrap().len(), 2);
        let (offset, size) = match place.split_once(' ').unwrap() {
            // Each copy of the metadata has 16 KiB.
            ("header", number) => (number.parse::<u64>().unwrap() * 16384, 16384),
            (_, slot) => {
                let area = &dump["keyslots"][slot]["area"];
                let number = |key: &str| area[key].as_str().unwrap().parse::<u64>().unwrap();
                (number("offset"), number("size"))
            }
        };
        let file = File::options().write(true).open(&device).unwrap();
        file.write_all_at(&vec![0x5a; size as usize], offset)
            .unwrap();
        file.sync_all().unwrap();
        drop(file);
        use_it(&rig, &volume).await;
        assert!(holds(&volume), "{place}");
        rig.leave_volume(&volume).await;
    }
}

#[tokio::test]
async fn a_killed_agent_leaves_an_encrypted_volume_in_use_and_the_next_one_knows_it() {
    need!(root, loop, crypt, tool "cryptsetup", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    let files = encrypted(&rig, "files", 64 * MIB, &csi::mount("ext4")).await;
    let raw = encrypted(&rig, "raw", 64 * MIB, &csi::block()).await;
    for volume in [&files, &raw] {
        use_it(&rig, volume).await;
        put(volume);
    }
    rig.agent.kill9();
    assert!(holds(&files) && holds(&raw));
    rig.start_again().await;
    for volume in [&files, &raw] {
        rig.volume_is(&volume.id, "ready").await;
        use_it(&rig, volume).await;
        rig.is_well(volume).await;
        let refused = rig.csi.delete(&volume.id).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
        assert!(holds(volume));
        rig.leave_volume(volume).await;
        assert_eq!(tree::mounted_times(&volume.target), 0);
    }
    assert_eq!(mapped(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn an_encrypted_volume_moves_to_another_drive_as_it_is_and_needs_its_secret_there() {
    need!(root, loop, crypt, tool "cryptsetup", fs "ext4");
    let drives = ["a", "b"].map(|name| DriveSpec::blank(name, GIB));
    let rig = Rig::with(drives.into()).await;
    for (name, capability) in [("files", csi::mount("ext4")), ("raw", csi::block())] {
        let volume = encrypted(&rig, name, 64 * MIB, &capability).await;
        use_it(&rig, &volume).await;
        put(&volume);
        rig.leave_volume(&volume).await;
        let before = rig.volume_of(&volume.id).await.unwrap();
        let others = rig.inventory().await.drives.into_iter();
        let other = others.map(|drive| drive.id).find(|id| *id != before.drive);
        let other = other.unwrap();
        let channel = csi::channel(&rig.agent_socket).await.unwrap();
        let request = MoveVolumesRequest {
            volume_id: volume.id.clone(),
            to: vec![other.clone()],
            by: "ann".into(),
            ..Default::default()
        };
        let moved = AgentClient::new(channel).move_volumes(request).await;
        moved.unwrap();
        wait::until_async(LIMIT, "it is on the other drive", async || {
            let now = rig.volume_of(&volume.id).await?;
            (now.drive == other).then_some(())
        })
        .await;
        let refused = stage(&rig, &volume, &[(KEY, WRONG)]).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
        use_it(&rig, &volume).await;
        assert!(holds(&volume), "{name}");
        rig.leave_volume(&volume).await;
    }
}

#[tokio::test]
async fn a_secret_is_found_nowhere_but_in_the_hands_of_its_caller() {
    need!(root, loop, crypt, tool "cryptsetup", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    let volume = encrypted(&rig, "files", 64 * MIB, &csi::mount("ext4")).await;
    let refused = stage(&rig, &volume, &[]).await;
    assert!(refused.is_err());
    use_it(&rig, &volume).await;
    rig.leave_volume(&volume).await;
    let refused = stage(&rig, &volume, &[(KEY, WRONG)]).await;
    assert!(refused.is_err());
    use_it(&rig, &volume).await;
    let plain = rig.volume("plain", 16 * MIB, &csi::mount("ext4")).await;
    let refused = stage(&rig, &plain, &[(KEY, SECRET)]).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    assert!(
        refused.message().contains("is not encrypted"),
        "{refused:?}"
    );
    rig.shelf.flush().unwrap();
    // The library of gRPC reads each connection into one buffer, which it does not give back: later calls overwrite it.
    for _ in 0..300 {
        rig.csi.stats(&volume.id, &volume.target).await.unwrap();
    }

    let descendants = agent::descendants(rig.agent.pid());
    for secret in [SECRET, WRONG].map(str::as_bytes) {
        assert_eq!(
            digest::find(&rig.shelf.file("a"), secret).unwrap(),
            Vec::<u64>::new()
        );
        for file in files_below(rig.dir()) {
            // A temporary file may have been renamed meanwhile.
            let places = or_gone(digest::find(&file, secret)).unwrap_or_default();
            assert_eq!(places, Vec::<u64>::new(), "{}", file.display());
        }
        assert!(!contains(rig.agent.log().as_bytes(), secret));
        holds_nothing(rig.agent.pid(), secret).unwrap();
        // A program that the agent had started may have ended meanwhile; a worker has not.
        let left = descendants
            .iter()
            .filter(|pid| or_gone(holds_nothing(**pid, secret)).is_some());
        assert!(left.count() >= 1, "no worker was read");
    }
    rig.leave_volume(&volume).await;
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

/// Regular files of the agent, without those of the drives.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && tree::mounted_times(&entry.path()) == 0 {
                dirs.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files
}

/// The value, or `None` if the file or the process that it was read of is gone.
fn or_gone<T>(result: io::Result<T>) -> Option<T> {
    match result {
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(libc::ESRCH) =>
        {
            None
        }
        result => Some(result.unwrap()),
    }
}

/// Asserts that neither the memory of a process nor its arguments, environment or core dump hold these bytes.
///
/// # Errors
/// The process cannot be read: it ended.
fn holds_nothing(pid: u32, bytes: &[u8]) -> io::Result<()> {
    for name in ["cmdline", "environ"] {
        let text = fs::read(format!("/proc/{pid}/{name}"))?;
        assert!(!contains(&text, bytes), "{name} of {pid}");
    }
    let filter = fs::read_to_string(format!("/proc/{pid}/coredump_filter"))?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    if maps.is_empty() {
        // The process ended, and its parent has not waited for it yet.
        return Err(io::ErrorKind::NotFound.into());
    }
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (from, rest) = line.split_once('-').unwrap();
        let to = rest.split_once(' ').unwrap().0;
        let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).unwrap());
        let mut content = vec![0; (to - from) as usize];
        // Some mappings of the kernel's own cannot be read.
        if memory.read_exact_at(&mut content, from).is_ok() {
            assert!(!contains(&content, bytes), "{line} of {pid}");
        }
    }
    assert_eq!(
        filter.trim(),
        "00000000",
        "a core dump of {pid} has its memory"
    );
    Ok(())
}

#[tokio::test]
async fn a_host_that_cannot_encrypt_creates_no_volume_that_is_to_be_encrypted() {
    need!(root, loop);
    left_out!(Need::check(Need::Crypt).is_ok(), "this host can encrypt");
    let rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    let capability = csi::mount("ext4");
    let refused = rig.csi.create_with(request("files", 64 * MIB, &capability));
    let refused = refused.await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    assert!(refused.message().contains("modprobe dm_mod"), "{refused:?}");
    assert!(rig.csi.ids().await.unwrap().is_empty());
    let mut typo = request("files", 64 * MIB, &capability);
    typo.parameters
        .insert("encryption".to_owned(), "luks1".to_owned());
    let refused = rig.csi.create_with(typo).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    assert!(refused.message().contains("luks2"), "{refused:?}");
}
