//! Arguments of qemu for the emulated computer. The same for every machine except its files and drives, so that the snapshot of one can
//! start another.

use std::path::Path;

use super::{
    drives,
    image::{Image, Processor},
};

/// Memory, MiB; the host allocates only what is used.
const MEMORY_MIB: u32 = 2048;

/// Image, files, control socket and port of one machine. The other arguments, except those for drives, are the same for every machine.
#[derive(Debug)]
pub struct Parts<'a> {
    /// Image of the guest.
    pub image: &'a Image,
    /// Overlay over the image's root.
    pub overlay: &'a Path,
    /// Directory that the guest sees as /host, read-only.
    pub share: &'a Path,
    /// File for the console's output.
    pub console: &'a Path,
    /// File for the journal.
    pub journal: &'a Path,
    /// Path of the control socket.
    pub qmp: &'a Path,
    /// Loopback port that is forwarded to the guest's ssh.
    pub port: u16,
}

impl Processor {
    /// Returns the name of qemu's program.
    pub fn emulator(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }

    /// Returns qemu's arguments for the computer, and the name of its console in Linux.
    fn machine(self) -> (&'static str, &'static str) {
        match self {
            Self::Amd64 => ("-machine q35 -accel tcg,thread=multi -cpu max", "ttyS0"),
            // The architecture's own algorithm of pointer authentication takes half the time when it is emulated.
            Self::Arm64 => (
                "-machine virt -accel tcg,thread=multi -cpu max,pauth-impdef=on",
                "ttyAMA0",
            ),
        }
    }
}

/// Returns qemu's arguments, without drives.
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
    let (machine, tty) = image.processor.machine();
    let mut args: Vec<String> = [
        machine,
        "-smp 2 -display none -nodefaults -no-user-config -rtc base=utc",
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
    // powernow_k8 is probed for many seconds on this CPU without success.
    add(&[
        "-append",
        &format!(
            "root=LABEL=labroot rw console={tty} quiet mitigations=off module_blacklist=powernow_k8"
        ),
    ]);
    // Without flushing the host's disk: data that the guest flushed survives qemu, and only that is killed.
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

/// Returns a path for an option, with commas escaped.
fn text(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}
