//! The man page drivebay.toml(5), from the reference that `deploy/docs/reference/configuration.md` is made from.

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use drivebay_config::{
    DEFAULT_PATH,
    reference::{Described, VALUES, sections},
};

use crate::man::{Further, MANUAL};

/// Returns drivebay.toml(5) as roff: a subsection for each section of the configuration reference, with the meaning and the default or an
/// example of each key.
pub(crate) fn page() -> String {
    let source = concat!("drivebay-agent ", env!("CARGO_PKG_VERSION"));
    let mut head = Roff::new();
    head.control("TH", ["drivebay.toml", "5", "", source, MANUAL]);
    let mut page = Further::default();
    page.title("NAME");
    page.text_line("drivebay.toml - the configuration of drivebay-agent");
    page.title("SYNOPSIS");
    page.text_line(DEFAULT_PATH);
    page.title("DESCRIPTION");
    page.text_line(
        "The configuration is a TOML file. It says which drives Drivebay may claim: those that a class selects and that are provably \
         blank. Without a class none is claimed, and every other key has a default. drivebay-agent init writes a first one from the \
         drives of a host, and drivebay-agent claim-plan shows what a configuration would claim.",
    );
    page.paragraph(marked(&VALUES.replace('\n', " ")));
    page.paragraph([roman(
        "Documents that are named below are in /usr/share/doc/drivebay-agent.",
    )]);
    page.title("SECTIONS AND KEYS");
    for section in sections() {
        page.subtitle(section.name);
        if !section.remark.is_empty() {
            page.paragraph(marked(&section.remark));
        }
        for key in &section.keys {
            describe(&mut page, key);
        }
    }
    page.title("FILES");
    for (file, text) in [
        (DEFAULT_PATH, "The file that the agent reads."),
        (
            "/usr/share/doc/drivebay-agent/agent/drivebay.example.toml",
            "An example with every key.",
        ),
    ] {
        page.row(bold(file), vec![roman(text)]);
    }
    page.title("SEE ALSO");
    page.text_line(
        "drivebay-agent(8), drivebay-agent-init(8), drivebay-agent-check-config(8), drivebay-agent-claim-plan(8)",
    );
    head.render() + &page.text()
}

fn describe(page: &mut Further, key: &Described) {
    let mut text = marked(&key.meaning);
    let mut sentence = |words: &str, value: Inline| {
        text.extend([roman(words), value, roman(".")]);
    };
    if !key.values.is_empty() {
        sentence(" Values: ", roman(&*key.values));
    }
    match key.is_default {
        true => sentence(" Default: ", italic(key.value)),
        false => sentence(" For example: ", italic(key.value)),
    }
    page.row(bold(key.name), text);
}

/// Markdown's code, of which the remarks have nothing else, in bold.
fn marked(text: &str) -> Vec<Inline> {
    let pieces = text.trim().split('`').enumerate();
    let pieces = pieces.filter(|(_, piece)| !piece.is_empty());
    let inline = |(at, piece): (usize, &str)| match at % 2 {
        0 => roman(piece),
        _ => bold(piece),
    };
    pieces.map(inline).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_and_key_of_the_reference_is_on_the_page() {
        let page = page();
        let mut count = 0;
        for section in sections() {
            let title = format!(".SS {}\n", section.name);
            assert_eq!(page.matches(&title).count(), 1, "{title}");
            let (_, behind) = page.split_once(&title).unwrap();
            let its = behind.split("\n.S").next().unwrap();
            for key in &section.keys {
                let name = format!("\n\\fB{}\\fR\n", key.name.replace('-', "\\-"));
                assert!(its.contains(&name), "{} {}", section.name, key.name);
                count += 1;
            }
        }
        assert!(count > 80, "{count}");
        assert!(
            page.contains("Default: \\fI\"/run/drivebay/agent.sock\"\\fR."),
            "{page}"
        );
    }

    #[test]
    fn code_is_bold() {
        let text = marked("see `evacuate = \"bad\"`, or not");
        assert_eq!(
            text,
            [roman("see "), bold("evacuate = \"bad\""), roman(", or not")]
        );
    }
}
