// The card of the hovered or focused tile; screen readers get the same facts from the accessible name of the tile.

import { h, replace } from "./dom.js";
import { badge } from "./attention.js";
import { count, percent, size } from "./units.js";
import { kindText, sentence, shortDrive, spoken } from "./words.js";

/** Shows a card for the tiles in `area`. */
export class Tip {
  constructor(area) {
    this.element = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.tile = null;
    // Outside of the view, since the CSS filter of a stale view would make fixed positions relative to it.
    document.body.append(this.element);
    const over = (event) => {
      const tile = event.target.closest?.(".tile");
      if (tile) this.show(tile);
      else if (event.type === "pointerover") this.hide();
    };
    area.addEventListener("pointerover", over);
    area.addEventListener("focusin", over);
    area.addEventListener("pointerleave", () => this.hide());
    area.addEventListener("focusout", () => this.hide());
    document.addEventListener("scroll", () => this.hide(), { passive: true });
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") this.hide(); });
  }

  hide() {
    this.tile = null;
    this.element.hidden = true;
  }

  /** Redraws the card if it is that of this drive. */
  update(drive) {
    if (this.tile?.drive === drive) this.show(this.tile);
  }

  show(tile) {
    const { drive } = tile;
    if (!drive) return;
    this.tile = tile;
    const { raw } = drive;
    const claims = raw.claims ?? [];
    const line = (name, value) => (value ? [h("dt", {}, name), h("dd", {}, value)] : null);
    replace(this.element,
      h("p", { class: "tip-head" }, badge(drive.kind), raw.acknowledged ? h("span", { class: "badge plain" }, "acknowledged") : null,
        raw.cordoned ? h("span", { class: "badge plain" }, "cordoned") : null,
        h("strong", {}, drive.node.name, ` ${shortDrive(drive)}`)),
      drive.kind === "warning" ? h("p", { class: "tip-why" }, sentence(kindText(drive.kind, raw))) : null,
      raw.findings?.length ? h("p", { class: "tip-why" }, raw.findings.map(spoken).join(", ")) : null,
      h("dl", {},
        line("Model", raw.model), line("Serial", raw.serial), line("Media", [raw.media, raw.class && `class ${raw.class}`].filter(Boolean).join(", ")),
        line("Used", drive.used === null ? raw.state : `${percent(drive.used, 1)} of ${size(drive.bytes)}, ${size(drive.free)} free`),
        line("Claims", claims.length > 0 ? claims.slice(0, 4).join(", ") + (claims.length > 4 ? `, ${claims.length - 4} more` : "")
          : raw.volumes > 0 ? count(raw.volumes, "volume") : null)));
    this.element.hidden = false;
    // Below the rack, so that the card covers no tile of it.
    const tileAt = tile.getBoundingClientRect();
    const rackAt = tile.parentElement.getBoundingClientRect();
    const at = { left: tileAt.left, width: tileAt.width, top: rackAt.top, bottom: rackAt.bottom };
    const own = this.element.getBoundingClientRect();
    const left = Math.min(Math.max(8, at.left + at.width / 2 - own.width / 2), document.documentElement.clientWidth - own.width - 8);
    const below = at.bottom + 8 + own.height < innerHeight;
    this.element.style.setProperty("left", `${left}px`);
    this.element.style.setProperty("top", `${below ? at.bottom + 8 : Math.max(8, at.top - own.height - 8)}px`);
  }
}
