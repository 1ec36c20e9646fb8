// Checks units and the fields that overrides name, and writes the dashboard as TypeScript for a check of its types.
// Arguments: the dashboard, and a directory with Grafana's packages in node_modules, which gets check.ts.
const fs = require("node:fs");
const path = require("node:path");

// The packages expect a browser.
globalThis.navigator = { language: "en-US", languages: ["en-US"] };
const grafana = require("@grafana/data");
globalThis.window = {};

const [file, directory] = process.argv.slice(2).map((one) => path.resolve(one));
const dashboard = JSON.parse(fs.readFileSync(file, "utf8"));
const withInner = (panels) => panels.flatMap((panel) => [panel, ...withInner(panel.panels ?? [])]);
const panels = withInner(dashboard.panels).filter((panel) => panel.type !== "row");
const errors = [];

const units = new Set(grafana.getValueFormats().flatMap((group) => group.submenu.map((unit) => unit.value)));
for (const panel of panels) {
  const properties = panel.fieldConfig.overrides.flatMap((override) => override.properties);
  const overridden = properties.filter((property) => property.id === "unit").map((property) => property.value);
  for (const unit of [panel.fieldConfig.defaults.unit, ...overridden]) {
    if (unit !== undefined && !units.has(unit)) errors.push(`${panel.title}: unknown unit ${unit}`);
  }
}

const transformers = new Map(Object.values(grafana.standardTransformers).map((one) => [one.id, one]));
grafana.standardTransformersRegistry.setInit(() =>
  [...transformers.values()].map((one) => ({ ...one, transformation: async () => one, editor: () => null })));

/** Returns the names of the fields that a table shows. Its queries have every label that the dashboard names. */
function shownFields(panel) {
  const organized = panel.transformations.find((one) => one.id === "organize").options;
  const labels = Object.keys({ ...organized.indexByName, ...organized.excludeByName, ...organized.renameByName })
    .filter((name) => name !== "Time" && !name.startsWith("Value"));
  const frames = panel.targets.map((target) => grafana.toDataFrame({
    refId: target.refId,
    fields: [
      { name: "Time", type: "time", values: [1] },
      ...labels.map((name) => ({ name, type: "string", values: [name] })),
      { name: panel.targets.length > 1 ? `Value #${target.refId}` : "Value", type: "number", values: [1] },
    ],
  }));
  return new Promise((resolve, reject) => {
    grafana.transformDataFrame(panel.transformations, frames).subscribe({
      next: (out) => resolve(out[0].fields.map((field) => grafana.getFieldDisplayName(field, out[0], out))),
      error: reject,
    });
  });
}

async function checkTables() {
  for (const panel of panels.filter((one) => one.type === "table")) {
    const fields = await shownFields(panel);
    const links = JSON.stringify(panel.fieldConfig.overrides);
    const named = [
      ...panel.fieldConfig.overrides.map((override) => override.matcher.options),
      ...[...links.matchAll(/__data\.fields\.(\w+)/g)].map((match) => match[1]),
    ];
    for (const name of named.filter((one) => !fields.includes(one))) {
      errors.push(`${panel.title}: an override or link names the field "${name}"; there are ${fields.join(", ")}`);
    }
  }
}

/** Returns the dashboard as TypeScript. Its types are Grafana's, with the values of enumerations as strings. */
function typed() {
  const types = `${directory}/node_modules/@grafana/schema/dist/types/raw`;
  const kinds = [...new Set(panels.map((panel) => panel.type))];
  const module = (kind) => kind.replaceAll("-", "_");
  const lines = [
    `import type * as raw from ${JSON.stringify(`${types}/dashboard/x/types.gen`)};`,
    ...kinds.map((kind) => `import type * as ${module(kind)} from ${JSON.stringify(`${types}/composable/${kind.replaceAll("-", "")}/panelcfg/x/types.gen`)};`),
    "type Wire<T> = unknown extends T ? T : T extends string ? `${T}` : T extends (infer U)[] ? Wire<U>[] : T extends object ? { [K in keyof T]: Wire<T[K]> } : T;",
    "// Prometheus' part of an annotation.",
    "type Annotation = raw.AnnotationQuery & { expr: string; step: string; titleFormat: string; textFormat: string; tagKeys: string };",
    "type Dashboard = Omit<raw.Dashboard, \"annotations\"> & { annotations: { list: Annotation[] } };",
    `export const dashboard: Wire<Dashboard> = ${JSON.stringify(dashboard)};`,
  ];
  for (const panel of panels) {
    lines.push(`export const options${panel.id}: Wire<Partial<${module(panel.type)}.Options>> = ${JSON.stringify(panel.options ?? {})};`);
    const custom = panel.fieldConfig.defaults.custom;
    if (custom) lines.push(`export const custom${panel.id}: Wire<Partial<${module(panel.type)}.FieldConfig>> = ${JSON.stringify(custom)};`);
  }
  return `${lines.join("\n")}\n`;
}

checkTables().then(() => {
  for (const error of errors) console.error(error);
  if (errors.length > 0) process.exit(1);
  fs.writeFileSync(path.join(directory, "check.ts"), typed());
});
