// The card beside the tile that is pointed at or focused. Screen readers get the same from the tile's own label.

import { h, replace } from "./dom.js";
import { badge } from "./attention.js";
import { percent, size } from "./units.js";
import { shortDrive, spoken } from "./words.js";

/** Shows a card for tiles (elements with `drive`) within `area`. */
export class Tip {
  constructor(area) {
    this.element = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.tile = null;
    // Outside of the view: while what is shown is stale, a filter on it would make fixed positions relative to it.
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

  /** Draws the card again if it is of this drive. */
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
      raw.findings?.length ? h("p", { class: "tip-why" }, raw.findings.map(spoken).join(", ")) : null,
      h("dl", {},
        line("Model", raw.model), line("Serial", raw.serial), line("Media", [raw.media, raw.class && `class ${raw.class}`].filter(Boolean).join(", ")),
        line("Used", drive.used === null ? raw.state : `${percent(drive.used, 1)} of ${size(drive.bytes)}, ${size(drive.free)} free`),
        line("Claims", claims.length > 0 ? claims.slice(0, 4).join(", ") + (claims.length > 4 ? `, ${claims.length - 4} more` : "")
          : raw.volumes > 0 ? `${raw.volumes} volumes` : null)));
    this.element.hidden = false;
    // Below the rack, so that no other tile of it is covered.
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
