//! The rules for eMMC: its reserved blocks. Its wear is a condition, as that of every drive.

use super::{Code, Found, MOVE};
use crate::smart::facts::Mmc;

pub(super) fn judge(mmc: &Mmc, found: &mut Found<'_>) {
    match mmc.pre_eol {
        Some(2) => found.add(
            Code::SpareLow,
            "mmc-pre-eol",
            2,
            Some(2),
            "the drive says that four fifths of its reserved blocks are used up; plan its replacement"
                .to_owned(),
        ),
        Some(3) => found.add(
            Code::SpareExhausted,
            "mmc-pre-eol",
            3,
            Some(3),
            format!("the drive says that nine tenths of its reserved blocks are used up; {MOVE}"),
        ),
        _ => {}
    }
}
