// Keyboard navigation of the racks: one tab stop for all tiles, arrow keys between them.

/** Tiles that are shown: in a rack with a filter, those that match. */
const SHOWN = ".rack:not(.filtered, [hidden]) .tile, .rack.filtered:not([hidden]) .tile.hit";

/** Moves the focus among the shown tiles of `list`: left and right in the order of drives, also between nodes; up and down by position. */
export class Keys {
  constructor(list, search) {
    this.list = list;
    this.search = search;
    this.stop = null;
    list.addEventListener("focusin", (event) => {
      const tile = event.target.closest?.(".tile");
      if (tile) this.take(tile);
    });
    list.addEventListener("keydown", (event) => this.key(event));
  }

  /** Returns the tile that is the tab stop, or null. */
  current() {
    return this.stop?.isConnected && this.shown(this.stop) ? this.stop : null;
  }

  /** Makes a shown tile the tab stop if the current one is not shown. */
  settle() {
    if (this.current()) return;
    const first = this.list.querySelector(SHOWN);
    if (first) this.take(first);
  }

  /** Focuses the first shown tile; returns false if there is none. */
  first() {
    const first = this.list.querySelector(SHOWN);
    if (first) this.go(first);
    return Boolean(first);
  }

  take(tile) {
    if (this.stop === tile) return;
    if (this.stop) this.stop.tabIndex = -1;
    this.stop = tile;
    tile.tabIndex = 0;
  }

  shown(tile) {
    const rack = tile.closest(".rack");
    return rack !== null && !rack.hidden && (!rack.classList.contains("filtered") || tile.classList.contains("hit"));
  }

  tiles(within = this.list) {
    return [...within.querySelectorAll(SHOWN)];
  }

  key(event) {
    const tile = event.target.closest?.(".tile");
    if (!tile || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = this.next(tile, event.key);
    if (next === undefined) return;
    event.preventDefault();
    if (next) this.go(next);
  }

  // Returns undefined for a key that is not handled, and null if there is no tile in that direction.
  next(tile, key) {
    const rack = tile.closest(".rack");
    switch (key) {
      case "ArrowRight":
      case "ArrowLeft": {
        const all = this.tiles();
        return all[all.indexOf(tile) + (key === "ArrowRight" ? 1 : -1)] ?? null;
      }
      case "Home": return this.tiles(rack)[0] ?? null;
      case "End": return this.tiles(rack).at(-1) ?? null;
      case "PageDown": return this.neighbour(rack, "nextElementSibling");
      case "PageUp": return this.neighbour(rack, "previousElementSibling");
      case "ArrowDown": return this.beside(tile, rack, 1);
      case "ArrowUp": return this.beside(tile, rack, -1);
      case "Escape": this.search.focus(); return null;
      default: return undefined;
    }
  }

  neighbour(rack, side) {
    let other = rack[side];
    while (other && this.tiles(other).length === 0) other = other[side];
    return other ? this.tiles(other)[0] : null;
  }

  // Returns the nearest tile above or below: in this rack, else in the next row of racks.
  beside(tile, rack, sign) {
    const from = tile.getBoundingClientRect();
    const middle = from.left + from.width / 2;
    const nearest = (tiles) => {
      let best = null;
      let least = Infinity;
      for (const other of tiles) {
        const box = other.getBoundingClientRect();
        const down = (box.top - from.top) * sign;
        if (down < from.height / 2) continue;
        const far = down * 3 + Math.abs(box.left + box.width / 2 - middle);
        if (far < least) [best, least] = [other, far];
      }
      return best;
    };
    const own = nearest(this.tiles(rack));
    if (own) return own;
    const side = sign > 0 ? "nextElementSibling" : "previousElementSibling";
    const edge = rack.getBoundingClientRect();
    let row = null;
    let found = null;
    let least = Infinity;
    for (let other = rack[side]; other; other = other[side]) {
      if (other.hidden) continue;
      const box = other.getBoundingClientRect();
      if ((box.top - edge.top) * sign < edge.height / 2) continue;
      row ??= box.top;
      if (Math.abs(box.top - row) > edge.height / 2) break;
      const far = middle < box.left ? box.left - middle : middle > box.right ? middle - box.right : 0;
      if (far < least) [found, least] = [other, far];
    }
    return found ? nearest(this.tiles(found)) ?? this.tiles(found)[0] : null;
  }

  go(tile) {
    this.take(tile);
    tile.focus({ preventScroll: true });
    tile.scrollIntoView({ block: "nearest", behavior: "instant" });
  }
}
