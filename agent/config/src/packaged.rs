//! The configuration that packages install: the example with every class commented out, so that no drive is claimed. Pure.

use super::EXAMPLE;

/// Line of the example that precedes its classes.
const CLASSES: &str = "# One [[class]] per kind of drive";
const REMARK: &str = "\
# As installed, each class below is a comment, and so no drive is claimed. `drivebay-agent claim-plan` shows which drives
# a class would select. Remove the \"#\" from the lines of a class to have it, or have `drivebay-agent init` replace this
# file by one that lists the drives of this host, as long as it sets nothing.

";

/// Returns the text of `/etc/drivebay/drivebay.toml` as packages install it. It sets nothing.
pub fn packaged() -> String {
    let mut text = String::new();
    let mut in_class = false;
    for line in EXAMPLE.lines() {
        if line.starts_with(CLASSES) {
            text.push_str(REMARK);
        }
        in_class |= line.starts_with("[[class]]");
        if in_class && !line.is_empty() && !line.starts_with('#') {
            text.push('#');
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// True if a configuration has only sections and comments. False if it is no valid TOML.
pub fn sets_nothing(text: &str) -> bool {
    fn is_bare(table: &toml::Table) -> bool {
        let mut values = table.values();
        values.all(|value| value.as_table().is_some_and(is_bare))
    }
    toml::from_str(text).is_ok_and(|table| is_bare(&table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_package_installs_sets_nothing_and_shows_every_class_of_the_example_as_a_comment() {
        let text = packaged();
        assert!(sets_nothing(&text), "{text}");
        assert!(text.contains("\n\n# As installed, each class"), "{text}");
        assert_eq!(text.matches("\n#[[class]]\n").count(), 2);
        assert!(text.contains("\n#name = \"fast\"\n"), "{text}");
        // Nothing else differs.
        let uncommented = text.replace(REMARK, "").lines().count();
        assert_eq!(uncommented, EXAMPLE.lines().count());
    }

    #[test]
    fn a_configuration_with_any_key_sets_something() {
        for (text, nothing) in [
            ("", true),
            ("# remark\n[node]\n#name = 'a'\n[class.select]\n", true),
            ("[node]\nname = 'a'\n", false),
            ("[[class]]\n", false),
            ("metrics.listen = 'off'\n", false),
            ("nonsense", false),
        ] {
            assert_eq!(sets_nothing(text), nothing, "{text:?}");
        }
    }
}
