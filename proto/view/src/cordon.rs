//! Messages of `drive cordon` and `drive uncordon`, for both command lines. Pure.

use drivebay_proto::agent::{Cordon, CordonDriveResponse, Drive};

use super::{
    table::{human_size, printable},
    volumes::count,
};

/// Returns the message about a completed request.
pub fn outcome(answer: &CordonDriveResponse) -> String {
    let mut text = match answer.changed {
        true => String::new(),
        false => "nothing was changed\n".to_owned(),
    };
    let id = printable(&answer.drive);
    text.push_str(&match &answer.cordon {
        Some(cordon) => format!("drive {id} is {}\n", printable(&cordon.describe())),
        None => format!("drive {id} is not cordoned; it takes new volumes if its health lets it\n"),
    });
    text
}

/// Returns the plan for a drive with this number of volumes; `uncordon` selects the command.
pub fn plan(volumes: u64, drive: &Drive, uncordon: bool) -> String {
    let id = printable(&drive.id);
    let free = human_size(drive.free_bytes);
    let class = printable(&drive.class);
    match (&drive.cordon, uncordon) {
        (Some(cordon), false) => already(&id, cordon),
        (None, true) => format!("drive {id} is not cordoned; nothing would be changed\n"),
        (None, false) => format!(
            "drive {id} would be cordoned: {free} free of class {class} would not be offered to new volumes; {} on it would stay and be \
                 served as before\n",
            count(volumes)
        ),
        (Some(cordon), true) => format!(
            "drive {id} would be uncordoned: {free} free of class {class} would be offered to new volumes again; it is {}\n",
            printable(&cordon.describe())
        ),
    }
}

fn already(id: &str, cordon: &Cordon) -> String {
    format!(
        "drive {id} is {} already; nothing would be changed\n",
        printable(&cordon.describe())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_common::terminal::Terminal;

    #[test]
    fn a_plan_lists_what_would_change_and_what_would_not() {
        let cordon = Cordon {
            at: 1,
            by: "ann".into(),
            reason: "returned to the vendor".into(),
        };
        let mut drive = Drive {
            id: "wwn-1".into(),
            class: "fast".into(),
            free_bytes: 3 << 30,
            ..Drive::default()
        };
        let text = plan(1, &drive, false);
        assert!(
            text.contains("3 GiB free of class fast") && text.contains("1 volume on it would stay"),
            "{text}"
        );
        assert!(plan(1, &drive, true).contains("nothing would be changed"));
        drive.cordon = Some(cordon);
        let text = plan(1, &drive, false);
        assert!(
            text.contains("nothing would be changed") && text.contains("cordoned by ann: returned"),
            "{text}"
        );
        assert!(plan(1, &drive, true).contains("offered to new volumes again"));
        let shown = crate::show::drive(None, &drive, &[], false, 2, Terminal::NONE);
        assert!(shown.contains("cordoned by ann: returned"), "{shown}");
    }
}
