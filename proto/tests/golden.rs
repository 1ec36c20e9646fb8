//! Every field, value and method of the protocols between Drivebay's programs, compared with `tests/golden/protocols.txt`. From v0.1.0 on
//! no line of a release's listing may change or be removed, since the peer may be of another version.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a failed helper is a failed test"
)]

#[path = "../golden.rs"]
mod golden;

use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto};

fn message(of: &str, message: &DescriptorProto, lines: &mut Vec<String>) {
    let name = format!("{of}.{}", message.name());
    for field in &message.field {
        let (kind, label) = (field.r#type().as_str_name(), field.label().as_str_name());
        lines.push(format!(
            "{name} {} = {} {} {kind} {}",
            field.name(),
            field.number(),
            label.trim_start_matches("LABEL_").to_lowercase(),
            field.type_name()
        ));
    }
    for nested in &message.nested_type {
        self::message(&name, nested, lines);
    }
    for nested in &message.enum_type {
        values(&name, nested, lines);
    }
}

fn values(of: &str, list: &EnumDescriptorProto, lines: &mut Vec<String>) {
    for value in &list.value {
        let (name, number) = (value.name(), value.number());
        lines.push(format!("{of}.{} {name} = {number}", list.name()));
    }
}

fn file(file: &FileDescriptorProto, lines: &mut Vec<String>) {
    let package = file.package();
    for one in &file.message_type {
        message(package, one, lines);
    }
    for one in &file.enum_type {
        values(package, one, lines);
    }
    for service in &file.service {
        for method in &service.method {
            let (input, output) = (method.input_type(), method.output_type());
            let name = format!("{package}.{}/{}", service.name(), method.name());
            lines.push(format!("{name} {input} {output}"));
        }
    }
}

#[test]
fn the_protocols_have_the_golden_fields_and_methods() {
    let ours = [
        "agent/v1/agent.proto",
        "agent/v1/manual_volumes.proto",
        "log/v1/log.proto",
        "controller/v1/controller.proto",
    ];
    let set = protox::compile(ours, [env!("CARGO_MANIFEST_DIR")]).unwrap();
    let mut lines = Vec::new();
    for one in set
        .file
        .iter()
        .filter(|one| one.package().starts_with("drivebay."))
    {
        file(one, &mut lines);
    }
    lines.sort_unstable();
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    assert!(lines.len() > 100, "{lines:#?}");
    golden::compare(
        "protocols.txt",
        format!("{}\n", lines.join("\n")).as_bytes(),
    );
}
