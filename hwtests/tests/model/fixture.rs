//! The agent's configuration: two classes, and scripts in place of mkfs that a step can make slow or failing.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use drivebay_hwtests::{Settings, tools};

/// Sets the classes and the directory of the mkfs scripts.
pub(crate) fn tune(settings: &mut Settings) {
    let shelf = settings.dir.join("shelf").display().to_string();
    settings.select = format!("path = [\"{shelf}/small-*.img\"]");
    settings.more = format!(
        "[[class]]\nname = \"large\"\nlayout = \"partition\"\nfs = \"ext4\"\n[class.select]\npath = [\"{shelf}/large-*.img\"]\n"
    );
    settings.log = "info".to_owned();
    settings.tools = Some(tools_dir(&settings.dir));
}

/// Writes a mkfs script for each filesystem, which behaves as the file `mode` requests.
fn tools_dir(dir: &Path) -> PathBuf {
    let tools_dir = dir.join("tools");
    fs::create_dir(&tools_dir).unwrap();
    for tool in ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"] {
        let real = tools::find(tool).unwrap();
        let script = format!(
            "#!/bin/sh\nreal={}\ncase \"$(cat {}/mode 2>/dev/null)\" in\nslow) sleep 0.3;;\nat-once) echo 'made to fail' >&2; exit 1;;\nafterwards) $real \"$@\" || exit; echo 'made to fail' >&2; exit 1;;\nesac\nexec $real \"$@\"\n",
            real.display(),
            tools_dir.display()
        );
        let program = tools_dir.join(tool);
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    tools_dir
}
