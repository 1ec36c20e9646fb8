// Creates and changes elements; data enters the document here only, as text that is never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Creates an element. `attrs` has attributes, `on` (listeners by event) and `data` (dataset); `children` are elements, texts, numbers and
 * arrays of them; null and false are left out of both.
 */
export function h(tag, attrs = {}, ...children) {
  return fill(document.createElement(tag), attrs, children);
}

/** Creates an SVG element, with the parameters of [h]. */
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

// Control characters, and those that change the direction of the following text, as escapes so that an editor shows them.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Returns the text with characters that hide or reorder others replaced by a visible one. */
export function clean(value) {
  return String(value).replace(UNSEEN, "\ufffd");
}

/** Sets the text of an element only if it differs, to avoid layout and a repeated announcement. */
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

/** Replaces the children of an element; the focus moves to the new descendant with the `data-key` of the focused one. */
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

/** Moves `element` before `next`, or to the end with null, and keeps the focus inside it. */
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

/** Returns a function whose calls before the next frame run `act` once, in that frame. */
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

/** Returns a button that copies a text, or null for a text with control characters. */
export function copyButton(value, label = "Copy") {
  // A terminal takes a line break as Enter, and the copied text must equal the text that is shown.
  if (/\n/.test(value) || clean(value) !== value) return null;
  const button = h("button", { type: "button", class: "copy", data: { key: `copy ${value}` }, "aria-label": `${label}: ${value}` }, label);
  button.addEventListener("click", async () => {
    const done = await copied(value);
    button.textContent = done ? "Copied" : "Select manually";
    announce(done ? "Copied" : "Copying is not permitted here: select the text");
    setTimeout(() => { button.textContent = label; }, 1600);
  });
  return button;
}

// The Clipboard API exists in secure contexts only; plain HTTP on a host other than loopback has execCommand only.
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
/** Announces a message to screen readers; messages within 400 ms are joined, up to four. */
export function announce(message) {
  queue.push(message);
  if (speaking) return;
  speaking = true;
  setTimeout(() => {
    const messages = queue.slice(0, 4);
    if (queue.length > messages.length) messages.push(`and ${queue.length - messages.length} more changes`);
    queue = [];
    speaking = false;
    text(document.getElementById("announce"), messages.join(". "));
  }, 400);
}
