use std::{fs, path::Path};

use super::*;

/// After a change of the types: `DRIVEBAY_WRITE_GOLDEN=1 cargo test -p drivebay-objects definition`.
#[test]
fn the_definition_in_the_chart_matches_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy/chart/drivetasks.drivebay.io.yaml");
    let yaml = drivebay_view::document::yaml(&definition()).unwrap();
    let written = format!(
        "# Generated from controller/objects/src/task.rs by its tests; do not edit.\n{yaml}"
    );
    if std::env::var_os("DRIVEBAY_WRITE_GOLDEN").is_some() {
        fs::write(&path, &written).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, committed, "{} differs", path.display());
}

/// Passes all texts, lists and maps of a schema to `check`, with their path.
fn each(schema: &JSONSchemaProps, path: &str, check: &mut dyn FnMut(&str, &JSONSchemaProps)) {
    check(path, schema);
    for (name, property) in schema.properties.iter().flatten() {
        each(property, &format!("{path}.{name}"), check);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
        each(item, &format!("{path}[]"), check);
    }
}

#[test]
fn everything_that_a_user_writes_is_bounded() {
    let mut definition = definition();
    let version = &mut definition.spec.versions[0];
    assert!(version.subresources.as_ref().unwrap().status.is_some());
    let schema = version.schema.as_mut().unwrap();
    let root = schema.open_api_v3_schema.as_mut().unwrap();
    let spec = property(root, &["spec"]).unwrap();
    assert_eq!(spec.x_kubernetes_validations.as_ref().unwrap().len(), 2);
    let mut texts = 0;
    each(
        spec,
        "spec",
        &mut |path, schema| match schema.type_.as_deref() {
            Some("string") => {
                texts += 1;
                assert!(schema.max_length.is_some(), "{path}");
            }
            Some("array") => assert!(schema.max_items.is_some(), "{path}"),
            Some("object") => assert!(schema.additional_properties.is_none(), "{path}"),
            _ => {}
        },
    );
    assert_eq!(texts, 11);
}
