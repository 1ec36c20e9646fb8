//! A script that replaces smartctl, whose answers a test sets.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

/// Writes the script into a directory, which is created, with this number of pending sectors. Returns the part of the configuration that
/// makes the agent poll loop drives with it.
///
/// # Panics
/// The directory cannot be written.
#[allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]
pub fn smartctl(dir: &Path, pending: u64) -> String {
    fs::create_dir_all(dir).unwrap();
    let program = dir.join("smartctl");
    let text = format!(
        "#!/bin/sh\nwhile [ -e {dir}/held ]; do /bin/sleep 0.1; done\nfor node; do :; done\nof=\"{dir}/answer-${{node##*/}}.json\"\n[ -e \"$of\" ] || of={dir}/answer.json\nexec /bin/cat \"$of\"\n",
        dir = dir.display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    pending_sectors(dir, pending);
    format!(
        "\n[smart]\nsmartctl = \"{}\"\n[[smart.device]]\nmatch = \"loop*\"\ntype = \"sat\"\n",
        program.display()
    )
}

/// Makes the script in this directory block until `release`.
///
/// # Panics
/// The directory cannot be written.
#[allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]
pub fn hold(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("held"), "").unwrap();
}

/// Makes the script in this directory answer again.
///
/// # Panics
/// It was not held.
#[allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]
pub fn release(dir: &Path) {
    fs::remove_file(dir.join("held")).unwrap();
}

/// Makes the script in this directory report this many pending sectors.
///
/// # Panics
/// The directory cannot be written.
pub fn pending_sectors(dir: &Path, pending: u64) {
    answer(dir, "answer", pending);
}

/// The same for the drive with this kernel name only.
///
/// # Panics
/// The directory cannot be written.
pub fn pending_sectors_of(dir: &Path, kernel_name: &str, pending: u64) {
    answer(dir, &format!("answer-{kernel_name}"), pending);
}

#[allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]
fn answer(dir: &Path, name: &str, pending: u64) {
    let answer = format!(
        r#"{{"json_format_version":[1,0],"smartctl":{{"version":[7,4],"exit_status":0}},
"device":{{"name":"/dev/x","type":"sat","protocol":"ATA"}},"model_name":"REPLAYED","serial_number":"R1",
"smart_support":{{"available":true,"enabled":true}},"smart_status":{{"passed":true}},"rotation_rate":7200,
"temperature":{{"current":31}},"power_on_time":{{"hours":1234}},
"ata_smart_attributes":{{"revision":1,"table":[{{"id":197,"name":"Current_Pending_Sector","value":100,"worst":100,
"thresh":0,"when_failed":"","flags":{{"value":18,"prefailure":false}},"raw":{{"value":{pending},"string":"{pending}"}}}}]}}}}"#
    );
    let new = dir.join("answer.new");
    fs::write(&new, answer).unwrap();
    fs::rename(new, dir.join(format!("{name}.json"))).unwrap();
}
