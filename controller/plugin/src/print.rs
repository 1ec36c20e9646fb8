//! Lists as tables, names, JSON and YAML.

use drivebay_common::{
    table::{Align, Table, Yielding},
    terminal::Terminal,
};
use drivebay_view::args::{ListArgs, ListFormat};
use serde::Serialize;
use std::collections::BTreeMap;

use crate::error::PluginError;

/// How a list is printed.
pub(crate) struct Layout<'a> {
    /// Key of the list in JSON and YAML.
    pub(crate) key: &'static str,
    pub(crate) columns: &'a [(&'static str, Align)],
    pub(crate) yielding: Yielding<'a>,
    /// In place of an empty table.
    pub(crate) nothing: &'a str,
    /// Below a table.
    pub(crate) below: String,
}

/// Returns a list as text. `cells`: one for each column.
pub(crate) fn list<T, J: Serialize>(
    items: &[T],
    args: &ListArgs,
    terminal: Terminal,
    layout: Layout<'_>,
    cells: impl Fn(&T) -> Vec<String>,
    name: impl Fn(&T) -> String,
    json: impl Fn(&T) -> J,
) -> Result<String, PluginError> {
    if let Some(document) = args.output.document() {
        let all: Vec<J> = items.iter().map(json).collect();
        return Ok(document.write(&BTreeMap::from([(layout.key, all)]))?);
    }
    if args.output == ListFormat::Name {
        return Ok(items.iter().map(|item| name(item) + "\n").collect());
    }
    let notes = !args.no_headers;
    if items.is_empty() {
        return Ok(if notes {
            layout.nothing.to_owned()
        } else {
            String::new()
        });
    }
    let table = Table::new(layout.columns);
    let table = match args.no_headers {
        true => table.without_header(),
        false => table,
    };
    let mut table = table.on(terminal, layout.yielding);
    for item in items {
        table.row(cells(item), Vec::new());
    }
    let mut text = table.take();
    if notes {
        text += &table.footnote();
        text += &layout.below;
    }
    Ok(text)
}
