// Making and changing elements. Text from outside enters the document here and only as text: no markup is ever parsed.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Makes an element. `attrs`: `class`, `on` (listeners by event), `data` (dataset), properties of boolean kind, and attributes; null and
 * false leave one out. `children`: elements, texts, numbers, arrays of them; null and false are left out.
 */
export function h(tag, attrs = {}, ...children) {
  return fill(document.createElement(tag), attrs, children);
}

/** Makes an SVG element, like [h]. */
export function svg(tag, attrs = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attrs, children);
}

function fill(element, attrs, children) {
  for (const [name, value] of Object.entries(attrs ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : name === "aria-label" || name === "title" ? clean(value) : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : clean(child));
  }
}

// Control characters, and those that change the direction of what follows. ASCII only, so that no editor hides them.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Returns a text in which characters that would hide or reorder others are replaced by a visible one. */
export function clean(value) {
  return String(value).replace(UNSEEN, "\ufffd");
}

/** Sets the text of an element only if it differs, so that nothing is laid out or announced again. */
export function text(element, words) {
  const value = clean(words);
  if (element.textContent !== value) element.textContent = value;
}

/** Sets or removes an attribute only if it differs. */
export function attr(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
    return;
  }
  const wanted = name === "aria-label" || name === "title" ? clean(value) : String(value);
  if (element.getAttribute(name) !== wanted) element.setAttribute(name, wanted);
}

/**
 * Replaces the children of an element and keeps the focus: if it was on a descendant with `data-key`, it goes to the new one with the same
 * key.
 */
export function replace(element, ...children) {
  const active = document.activeElement;
  const key = element.contains(active) ? active.dataset?.key : undefined;
  element.replaceChildren();
  append(element, children);
  if (key === undefined) return;
  for (const candidate of element.querySelectorAll("[data-key]")) {
    if (candidate.dataset.key === key) {
      candidate.focus({ preventScroll: true });
      return;
    }
  }
}

/** Moves `element` before `next` (null: to the end) without losing focus or scroll position inside it. */
export function place(parent, element, next) {
  if (element.parentNode === parent && element.nextSibling === next) return;
  if (element.parentNode === parent && typeof parent.moveBefore === "function") {
    parent.moveBefore(element, next);
    return;
  }
  const active = element.contains(document.activeElement) ? document.activeElement : null;
  parent.insertBefore(element, next);
  active?.focus({ preventScroll: true });
}

/** Returns a function that runs `act` once in the next frame, however often it is called before. */
export function batched(act) {
  let pending = false;
  return () => {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => {
      pending = false;
      act();
    });
  };
}

/** Returns a button that copies a text, and says so; null for a text with control characters. */
export function copyButton(value, label = "Copy") {
  // A terminal would take a line break as Enter, and what is shown must be what is copied.
  if (/\n/.test(value) || clean(value) !== value) return null;
  const button = h("button", { type: "button", class: "copy", data: { key: `copy ${value}` }, "aria-label": `${label}: ${value}` }, label);
  button.addEventListener("click", async () => {
    const done = await copied(value);
    button.textContent = done ? "Copied" : "Select it";
    announce(done ? "Copied" : "Copying is not permitted here: select the text");
    setTimeout(() => { button.textContent = label; }, 1600);
  });
  return button;
}

// The clipboard interface exists in secure contexts only; a page behind plain HTTP on another host than loopback has only the older way.
async function copied(value) {
  try {
    await navigator.clipboard.writeText(value);
    return true;
  } catch {
    const field = h("textarea", { class: "unseen", "aria-hidden": "true", tabindex: "-1" });
    field.value = value;
    const active = document.activeElement;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    active?.focus?.({ preventScroll: true });
    return done;
  }
}

let queue = [];
let speaking = false;
/** Tells readers of the screen; messages of three seconds are told together, and at most four of them. */
export function announce(message) {
  queue.push(message);
  if (speaking) return;
  speaking = true;
  setTimeout(() => {
    const said = queue.slice(0, 4);
    if (queue.length > said.length) said.push(`and ${queue.length - said.length} more changes`);
    queue = [];
    speaking = false;
    text(document.getElementById("announce"), said.join(". "));
  }, 400);
}
