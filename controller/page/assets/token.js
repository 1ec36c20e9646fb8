// The form for a token, shown if the backend needs one and has refused or not yet seen it.

import { setToken } from "./api.js";
import { copyButton, h } from "./dom.js";

const COMMAND = "kubectl -n drivebay create token page-reader --audience drivebay --duration 8h";

/** Returns the form; `done()` is called when a token was entered. `reason`: why the last one was refused, or null. */
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
      error.textContent = "That is not a token.";
      field.focus();
      return;
    }
    setToken(token, keep.checked);
    done();
  } } }, heading,
  h("p", {}, "This page shows drives to whom the cluster permits it. It needs a token of a ServiceAccount with ClusterRole drivebay-page-reader."), error,
  h("label", { for: "token" }, "Token"), field,
  h("div", { id: "token-help" }, h("p", {}, "Make one with kubectl; the account and the namespace may have other names with you:"),
    h("div", { class: "command" }, h("code", {}, COMMAND), copyButton(COMMAND))),
  h("label", { class: "check" }, keep, " Keep it until this tab is closed"),
  h("p", { class: "quiet-text" }, "Otherwise it is kept in this page's memory only and is gone with a reload. It is never part of an address."),
  h("button", { type: "submit", class: "primary" }, "Sign in"));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  return { element: h("div", { class: "view narrow" }, form), focus: () => field.focus(), title: "Sign in" };
}
