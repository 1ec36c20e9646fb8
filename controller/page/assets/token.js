// The form for a token, shown if the server needs one and has accepted none.

import { setToken } from "./api.js";
import { copyButton, h } from "./dom.js";

const COMMAND = "kubectl -n drivebay create token page-reader --audience drivebay --duration 8h";

/** Returns the form; it calls `done()` when a token was entered, and shows `reason`, a refusal of the last token, unless it is null. */
export function tokenForm(done, reason) {
  const field = h("textarea", { id: "token", class: "token", rows: "4", required: true, autocomplete: "off", autocapitalize: "off", spellcheck: "false",
    "aria-describedby": "token-help token-error" });
  const keep = h("input", { type: "checkbox", id: "token-keep" });
  const error = h("p", { id: "token-error", class: "trouble", role: "alert", hidden: !reason }, reason ?? "");
  const heading = h("h1", { tabindex: "-1" }, "Sign in");
  const form = h("form", { class: "sign-in", autocomplete: "off", on: { submit: (event) => {
    event.preventDefault();
    const token = field.value.replace(/^bearer\s+/i, "").replace(/\s+/g, "");
    field.value = "";
    if (!/^[\x21-\x7e]+$/.test(token)) {
      error.hidden = false;
      error.textContent = "This is not a token.";
      field.focus();
      return;
    }
    setToken(token, keep.checked);
    done();
  } } }, heading,
  h("p", {}, "This page needs a token of a ServiceAccount with ClusterRole drivebay-page-reader."), error,
  h("label", { for: "token" }, "Token"), field,
  h("div", { id: "token-help" }, h("p", {}, "Create one with kubectl; the names of account and namespace may differ in this cluster:"),
    h("div", { class: "command" }, h("code", {}, COMMAND), copyButton(COMMAND))),
  h("label", { class: "check" }, keep, " Keep it until this tab is closed"),
  h("p", { class: "quiet-text" }, "Otherwise it is kept in memory only and lost with a reload. It is never part of a URL."),
  h("button", { type: "submit", class: "primary" }, "Sign in"));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  return { element: h("div", { class: "view narrow" }, form), focus: () => field.focus(), title: "Sign in" };
}
