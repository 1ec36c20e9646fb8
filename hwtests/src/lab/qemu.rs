//! What the emulated computer is made of: the arguments of qemu. The same for every machine
//! but for its files and drives, so that a snapshot of one starts another.

use std::path::Path;

use super::{drives, image::Image};

/// Memory; only what is touched is really taken.
const MEMORY_MIB: u32 = 2048;

/// What differs between two machines.
#[derive(Debug)]
pub struct Parts<'a> {
    /// The image.
    pub image: &'a Image,
    /// The overlay over the image's root.
    pub overlay: &'a Path,
    /// What the guest sees as /host, read-only.
    pub share: &'a Path,
    /// Where the console goes.
    pub console: &'a Path,
    /// Where the journal goes.
    pub journal: &'a Path,
    /// The control socket.
    pub qmp: &'a Path,
    /// The loopback port that is the guest's ssh.
    pub port: u16,
}

/// qemu's arguments, without drives.
pub fn args(parts: &Parts<'_>) -> Vec<String> {
    let Parts {
        image,
        overlay,
        share,
        console,
        journal,
        qmp,
        port,
    } = parts;
    let mut args: Vec<String> = [
        "-machine q35 -accel tcg,thread=multi -cpu max -smp 2",
        "-display none -nodefaults -no-user-config -rtc base=utc",
        "-device virtio-rng-pci -device virtio-serial-pci",
    ]
    .iter()
    .flat_map(|words| words.split(' '))
    .map(str::to_owned)
    .collect();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|word| (*word).to_owned()));
    add(&["-m", &MEMORY_MIB.to_string()]);
    add(&["-kernel", &text(&image.kernel())]);
    add(&["-initrd", &text(&image.initrd())]);
    // powernow_k8 is tried for many seconds on this CPU, in vain.
    add(&[
        "-append",
        "root=LABEL=labroot rw console=ttyS0 quiet mitigations=off module_blacklist=powernow_k8",
    ]);
    // The host's disk need not be waited for: what the guest flushed survives qemu, which is all that is cut.
    add(&[
        "-drive",
        &format!(
            "file={},if=none,id=root,format=qcow2,cache=unsafe,discard=unmap",
            text(overlay)
        ),
        "-device",
        "virtio-blk-pci,drive=root,serial=labroot",
    ]);
    add(&[
        "-netdev",
        &format!("user,id=net0,hostfwd=tcp:127.0.0.1:{port}-:22"),
        "-device",
        "virtio-net-pci,netdev=net0,romfile=",
    ]);
    add(&[
        "-chardev",
        &format!("file,id=console,path={},append=on", text(console)),
        "-serial",
        "chardev:console",
    ]);
    add(&[
        "-chardev",
        &format!("file,id=journal,path={},append=on", text(journal)),
        "-device",
        "virtserialport,chardev=journal,name=journal",
    ]);
    add(&[
        "-fsdev",
        &format!(
            "local,id=host,path={},security_model=none,readonly=on",
            text(share)
        ),
        "-device",
        "virtio-9p-pci,fsdev=host,mount_tag=host",
    ]);
    add(&["-qmp", &format!("unix:{},server=on,wait=off", text(qmp))]);
    args.extend(drives::bus_args());
    args
}

/// A path in an option; a comma would end it.
fn text(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}
