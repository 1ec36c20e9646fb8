// Tables with sortable columns; roles are explicit because CSS draws rows as blocks on narrow screens, which removes the implicit ones.

import { attr, h, replace, text } from "./dom.js";
import { byName, whole } from "./units.js";

/** Initial number of rows, and of rows that the button adds. */
const PAGE = 100;

/**
 * A table with the accessible name `label`. `columns`: `{key, title, cell(row) -> element or text, value?(row) -> number or text to sort by,
 * number?: true, wide?: true}`; `rowKey(row)` identifies a row; `sort` is the key of the initial order, with `-` before it for descending.
 */
export class Table {
  constructor({ label, columns, rowKey, sort = null, empty = "None." }) {
    this.columns = columns;
    this.rowKey = rowKey;
    this.most = PAGE;
    this.drawn = new Map();
    this.all = [];
    this.order = sort === null ? null : { key: sort.replace(/^-/, ""), down: sort.startsWith("-") };
    this.heads = columns.map((column) => {
      const sortable = Boolean(column.value);
      const inner = sortable
        ? h("button", { type: "button", class: "sort", data: { key: `sort ${column.key}` }, on: { click: () => this.sortBy(column) } }, column.title)
        : column.title;
      return h("th", { role: "columnheader", scope: "col", class: `${column.number ? "number" : ""}` }, inner);
    });
    this.body = h("tbody", { role: "rowgroup" });
    this.none = h("p", { class: "table-none", hidden: true }, empty);
    this.more = h("button", { type: "button", class: "more", hidden: true, on: { click: () => { this.most += PAGE; this.draw(); } } }, "Show more");
    this.table = h("table", { role: "table", "aria-label": label, class: columns.length > 5 ? "table" : "table few" },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, this.heads)), this.body);
    this.element = h("div", { class: "table-box" }, this.table, this.none, this.more);
    this.mark();
  }

  /** Sets the rows; a row with the same key and contents keeps its element and its focus. */
  rows(rows) {
    this.all = rows;
    this.draw();
  }

  sortBy(column) {
    const down = this.order?.key === column.key ? !this.order.down : Boolean(column.number);
    this.order = { key: column.key, down };
    this.mark();
    this.draw();
  }

  mark() {
    this.columns.forEach((column, index) => attr(this.heads[index], "aria-sort",
      this.order?.key === column.key ? (this.order.down ? "descending" : "ascending") : null));
  }

  draw() {
    let rows = this.all;
    const column = this.order && this.columns.find(({ key }) => key === this.order.key);
    if (column) {
      const sign = this.order.down ? -1 : 1;
      rows = rows.map((row) => [column.value(row), row]).sort(([a], [b]) => compare(a, b, sign)).map(([, row]) => row);
    }
    const next = new Map();
    for (const row of rows.slice(0, this.most)) {
      const key = this.rowKey(row);
      const shown = JSON.stringify(row);
      const before = this.drawn.get(key);
      next.set(key, before?.shown === shown ? before : { shown, element: this.row(row) });
    }
    this.drawn = next;
    const wanted = [...next.values()].map(({ element }) => element);
    if (wanted.length !== this.body.children.length || wanted.some((element, index) => this.body.children[index] !== element)) replace(this.body, wanted);
    this.table.hidden = rows.length === 0;
    this.none.hidden = rows.length > 0;
    const left = rows.length - wanted.length;
    this.more.hidden = left <= 0;
    text(this.more, `Show ${Math.min(PAGE, left)} more of ${whole(left)}`);
  }

  row(row) {
    return h("tr", { role: "row" }, this.columns.map((column) => h("td", { role: "cell", class: `${column.number ? "number" : ""}${column.wide ? " wide" : ""}`,
      data: { title: column.title } }, column.cell(row))));
  }
}

// Absent values are last in both orders.
function compare(a, b, sign) {
  const none = (value) => value === null || value === undefined || value === "";
  if (none(a) || none(b)) return none(a) - none(b);
  return sign * (typeof a === "number" && typeof b === "number" ? a - b : byName(String(a), String(b)));
}

/** Returns a meter of a share between 0 and 1 with its text; `kind` is a CSS class for the colour. */
export function meter(share, label, kind = "") {
  const fill = h("span", { class: "meter-fill" });
  fill.style.setProperty("--use", `${Math.round(Math.min(1, Math.max(0, share)) * 1000) / 10}%`);
  return h("span", { class: `metered ${kind}` }, h("span", { class: "meter", "aria-hidden": "true" }, fill), h("span", { class: "meter-text" }, label));
}
