//! Natural sort orders: `nvme2n1` before `nvme10n1`, `sdz` before `sdaa`, `pvc-9` before `pvc-10`. Pure.

use std::cmp::Ordering;

use alphanumeric_sort::compare_str;

/// Prefixes of kernel names whose letters are digits of base 26: `aa` follows `z`.
const LETTERED: [&str; 5] = ["sd", "vd", "xvd", "hd", "dasd"];

/// Compares kernel names of devices; an empty one, of a missing drive, comes last.
pub fn by_device(a: &str, b: &str) -> Ordering {
    let lettered = |name: &str| {
        let rest = LETTERED
            .iter()
            .find_map(|prefix| name.strip_prefix(prefix))?;
        let letters = rest.chars().take_while(char::is_ascii_lowercase).count();
        Some((name.len() - rest.len(), letters))
    };
    let order = match (lettered(a), lettered(b)) {
        (Some(a_is), Some(b_is)) if a.get(..a_is.0) == b.get(..b_is.0) => a_is.1.cmp(&b_is.1),
        _ => Ordering::Equal,
    };
    let last = a.is_empty().cmp(&b.is_empty());
    last.then(order).then_with(|| compare_str(a, b))
}

/// Compares names of volumes: digits count as numbers, except between two names that end with a UUID.
pub fn by_name(a: &str, b: &str) -> Ordering {
    match ends_with_uuid(a) && ends_with_uuid(b) {
        true => a.cmp(b),
        false => compare_str(a, b),
    }
}

fn ends_with_uuid(name: &str) -> bool {
    let start = name.len().checked_sub(36);
    let last = start.and_then(|start| name.get(start..));
    let dashes = |text: &str| {
        text.match_indices('-')
            .map(|(at, _)| at)
            .eq([8, 13, 18, 23])
    };
    last.is_some_and(dashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_stand_as_a_person_counts_them() {
        let mut names = [
            "", "sdaa", "nvme10n1", "vdb", "sdz", "nvme2n1", "sda", "sdab", "md127", "sdz1",
        ];
        names.sort_by(|a, b| by_device(a, b));
        assert_eq!(
            names,
            [
                "md127", "nvme2n1", "nvme10n1", "sda", "sdz", "sdz1", "sdaa", "sdab", "vdb", ""
            ]
        );
    }

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names = ["pvc-10", "pvc-9", "db"];
        names.sort_by(|a, b| by_name(a, b));
        assert_eq!(names, ["db", "pvc-9", "pvc-10"]);
        let [less, more] =
            ["pvc-100a", "pvc-9f"].map(|it| format!("{it:0<12}-58f3-4f0e-9d1a-2f6c1f0b3a00"));
        assert!(by_name(&less, &more).is_lt() && compare_str(&less, &more).is_gt());
    }
}
