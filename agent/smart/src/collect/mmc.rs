//! Polls an eMMC by what the kernel shows of it in sysfs.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::facts::{Detail, Facts, Mmc};

/// Reads the attributes in `device`, the card's directory in sysfs. None if it is no eMMC (an SD card reports no wear).
pub(super) fn read_facts(device: &Path) -> io::Result<Option<Facts>> {
    let text = |name: &str| -> io::Result<String> {
        let read = fs::read_to_string(device.join(name));
        match read {
            Ok(text) => Ok(text.trim().to_owned()),
            // An older kernel, or an eMMC from before version 5.0.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        }
    };
    if text("type")? != "MMC" {
        return Ok(None);
    }
    Ok(Some(Facts {
        device_type: "mmc".to_owned(),
        model: text("name")?,
        serial: text("cid")?,
        firmware: text("fwrev")?,
        rotational: Some(false),
        detail: Detail::Mmc(Mmc::parse(&text("life_time")?, &text("pre_eol_info")?)),
        ..Facts::default()
    }))
}

/// Returns the card's directory in sysfs.
pub(super) fn directory(sys: &Path, kernel_name: &str) -> PathBuf {
    sys.join("class/block").join(kernel_name).join("device")
}
