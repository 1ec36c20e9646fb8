//! Steps of the demo. A step errs if its result is not as expected.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use drivebay_hwtests::{Agent, Csi, GIB, MIB, Shelf, Trouble, csi, digest, tree};
use drivebay_proto::csi::{Volume, VolumeCapability, volume_usage::Unit};

use crate::print;

/// Longest time to erase a few GiB of a sparse file.
const ERASE_LIMIT: Duration = Duration::from_secs(120);

/// A volume of the demo.
struct Shown {
    id: String,
    capability: VolumeCapability,
    staging: PathBuf,
    target: PathBuf,
}

/// Runs all steps; with `keep`, ends before anything is deleted.
pub(crate) async fn run(agent: &Agent, shelf: &Shelf, keep: bool) -> Result<(), Trouble> {
    let csi = agent.csi().await?;
    show_drives(agent, shelf).await?;
    let untouched = others(shelf)?;

    print::chapter("Create, stage, publish");
    let raw = place(&csi, shelf, "demo-raw", GIB, csi::block()).await?;
    let data = place(&csi, shelf, "demo-data", 2 * GIB, csi::mount("xfs")).await?;

    print::chapter("Write, read back");
    filesystem(&csi, &data).await?;
    block(&csi, &raw).await?;

    print::chapter("Expand online, while mounted");
    expand(&csi, &data).await?;

    print::chapter("The tables");
    table(agent, &["drives"])?;
    println!();
    table(agent, &["volumes"])?;
    if keep {
        return Ok(());
    }

    print::chapter("Delete");
    for volume in [&data, &raw] {
        csi.unpublish(&volume.id, &volume.target).await?;
        csi.unstage(&volume.id, &volume.staging).await?;
        csi.delete(&volume.id).await?;
        print::line("deleted", &volume.id);
    }
    erased(agent).await?;
    let still = others(shelf)?;
    check(still == untouched, "the refused drives changed")?;
    print::line("refused drives", "unchanged, byte for byte");
    let mounted = tree::mounts_of(shelf.dir()).len();
    check(mounted == 0, &format!("{mounted} mounts are left"))
}

fn check(so: bool, otherwise: &str) -> Result<(), Trouble> {
    if so {
        Ok(())
    } else {
        Err(Trouble::new(otherwise))
    }
}

/// Shows the drives that the agent found, and its reasons to reject two of them.
async fn show_drives(agent: &Agent, shelf: &Shelf) -> Result<(), Trouble> {
    print::chapter("Found");
    let inventory = csi::inventory(&agent.settings().agent_socket()).await?;
    let expected = [None, None, Some("Filesystem"), Some("NotBlank")];
    for (drive, expected) in shelf.drives().iter().zip(expected) {
        let entry = inventory
            .drives
            .iter()
            .find(|entry| entry.kernel_name == drive.kernel_name)
            .ok_or_else(|| Trouble::new(format!("{} was not found", drive.kernel_name)))?;
        print::line(
            &drive.kernel_name,
            &format!(
                "{} {}",
                print::drive(&drive.name, entry.size_bytes),
                entry.state
            ),
        );
        for reject in &entry.rejects {
            print::line(
                "",
                &format!("  refused: {} - {}", reject.code, reject.detail),
            );
        }
        match expected {
            None => check(
                entry.state == "available",
                &format!("{} should be available and is {}", drive.name, entry.state),
            )?,
            Some(code) => check(
                entry.rejects.iter().any(|reject| reject.code == code),
                &format!("{} should be refused with {code}", drive.name),
            )?,
        }
    }
    Ok(())
}

/// Returns fingerprints of the two drives that must not change.
fn others(shelf: &Shelf) -> Result<Vec<(PathBuf, u64)>, Trouble> {
    let files: Vec<PathBuf> = shelf.files().into_iter().skip(2).collect();
    Ok(digest::of_all(&files)?)
}

/// Creates, stages and publishes one volume.
async fn place(
    csi: &Csi,
    shelf: &Shelf,
    name: &str,
    bytes: u64,
    capability: VolumeCapability,
) -> Result<Shown, Trouble> {
    let start = Instant::now();
    let Volume {
        volume_id: id,
        capacity_bytes,
        ..
    } = csi.create(name, bytes, &capability).await?;
    let created = start.elapsed();
    let kubelet = shelf.dir().join("kubelet");
    let staging = kubelet.join("staging").join(name);
    let target = kubelet.join("pods").join(name);
    csi.stage(&id, &staging, &capability).await?;
    let staged = start.elapsed();
    csi.publish(&id, &staging, &target, &capability, false)
        .await?;
    let published = start.elapsed();
    let size = print::size(u64::try_from(capacity_bytes).unwrap_or(0));
    print::line(name, &format!("{size}, {id}"));
    print::line(
        "",
        &format!(
            "created in {} ms, staged in {} ms, published in {} ms",
            created.as_millis(),
            (staged - created).as_millis(),
            (published - staged).as_millis()
        ),
    );
    print::line("", &format!("at {}", target.display()));
    Ok(Shown {
        id,
        capability,
        staging,
        target,
    })
}

/// Returns 64 MiB of pseudo-random bytes.
fn sample(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let words = 64 * MIB / 8;
    let mut bytes = Vec::new();
    for _ in 0..words {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// Writes and verifies a file in the filesystem volume.
async fn filesystem(csi: &Csi, volume: &Shown) -> Result<(), Trouble> {
    let file = volume.target.join("letters.bin");
    let written = sample(7);
    let mut out = File::create(&file)?;
    out.write_all(&written)?;
    out.sync_all()?;
    drop(out);
    check(
        fs::read(&file)? == written,
        "the file does not read back as written",
    )?;
    print::line(
        "demo-data",
        &format!(
            "64 MiB in a file read back, fingerprint {:016x}",
            digest::of(&file)?
        ),
    );
    for usage in csi.stats(&volume.id, &volume.target).await?.usage {
        let text = match usage.unit() {
            Unit::Inodes => format!("inodes: {} of {} used", usage.used, usage.total),
            _ => format!(
                "bytes: {} of {} used",
                print::size(u64::try_from(usage.used).unwrap_or(0)),
                print::size(u64::try_from(usage.total).unwrap_or(0))
            ),
        };
        print::line("", &text);
    }
    Ok(())
}

/// Writes and verifies bytes on the raw volume.
async fn block(csi: &Csi, volume: &Shown) -> Result<(), Trouble> {
    let written = sample(11);
    let device = File::options()
        .read(true)
        .write(true)
        .open(&volume.target)?;
    device.write_all_at(&written, 512 * MIB)?;
    device.sync_all()?;
    let mut read = vec![0; written.len()];
    device.read_exact_at(&mut read, 512 * MIB)?;
    check(
        read == written,
        "the raw volume does not read back as written",
    )?;
    print::line("demo-raw", "64 MiB at 512 MiB read back");
    for usage in csi.stats(&volume.id, &volume.target).await?.usage {
        let total = print::size(u64::try_from(usage.total).unwrap_or(0));
        print::line("", &format!("bytes: {total} in all"));
    }
    Ok(())
}

/// Expands a volume from 2 GiB to 3 GiB while its filesystem is mounted.
async fn expand(csi: &Csi, volume: &Shown) -> Result<(), Trouble> {
    let before = total(csi, volume).await?;
    let file = volume.target.join("letters.bin");
    let print = digest::of(&file)?;
    let (bytes, on_node) = csi.expand(&volume.id, 3 * GIB, &volume.capability).await?;
    check(
        u64::try_from(bytes) == Ok(3 * GIB),
        "the volume did not get the size that was asked for",
    )?;
    if on_node {
        csi.node_expand(&volume.id, &volume.target, 3 * GIB).await?;
    }
    let after = total(csi, volume).await?;
    check(after > before, "the filesystem did not grow")?;
    check(digest::of(&file)? == print, "the file changed")?;
    print::line(
        "demo-data",
        &format!(
            "filesystem {} -> {}, file unchanged",
            print::size(before),
            print::size(after)
        ),
    );
    Ok(())
}

async fn total(csi: &Csi, volume: &Shown) -> Result<u64, Trouble> {
    let stats = csi.stats(&volume.id, &volume.target).await?;
    let bytes = stats.usage.iter().find(|usage| usage.unit() == Unit::Bytes);
    Ok(bytes.map_or(0, |usage| u64::try_from(usage.total).unwrap_or(0)))
}

/// Prints a table of the command line.
fn table(agent: &Agent, args: &[&str]) -> Result<(), Trouble> {
    let output = agent.run_command(args)?;
    let text = String::from_utf8_lossy(&output.stdout);
    check(
        output.status.success(),
        &format!(
            "drivebay-agent {} failed: {text}{}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr)
        ),
    )?;
    let program = Path::new(agent.program());
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    println!("   $ {name} {}", args.join(" "));
    print::table(&text);
    Ok(())
}

/// Waits until deleted space is erased and available again.
async fn erased(agent: &Agent) -> Result<(), Trouble> {
    let start = Instant::now();
    loop {
        let inventory = csi::inventory(&agent.settings().agent_socket()).await?;
        if inventory.volumes.is_empty() {
            print::line("erased", &format!("in {} ms", start.elapsed().as_millis()));
            for class in &inventory.classes {
                print::line(
                    "free again",
                    &format!("{} in class {}", print::size(class.free_bytes), class.name),
                );
            }
            return Ok(());
        }
        check(
            start.elapsed() < ERASE_LIMIT,
            "deleted volumes were not erased in time",
        )?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
