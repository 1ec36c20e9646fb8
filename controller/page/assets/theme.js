// Applies the selected theme before the first paint; this is a classic script because modules run after the body is parsed. `data-theme` of
// the root element is "light" or "dark", or absent for the preference of the system.
"use strict";
(() => {
  const KEY = "drivebay-theme";
  const ORDER = ["system", "light", "dark"];
  const root = document.documentElement;
  const read = () => {
    try { return localStorage.getItem(KEY); } catch { return null; }
  };
  const apply = (choice) => {
    if (choice === "light" || choice === "dark") root.dataset.theme = choice;
    else delete root.dataset.theme;
  };
  apply(read());
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const text = document.getElementById("theme-text");
    const show = () => {
      const now = root.dataset.theme ?? "system";
      text.textContent = { system: "System", light: "Light", dark: "Dark" }[now];
      const next = ORDER[(ORDER.indexOf(now) + 1) % ORDER.length];
      button.setAttribute("aria-label", `Theme: ${now}. Change to ${next}`);
      button.title = `Theme: ${now}. Change to ${next}`;
    };
    button.addEventListener("click", () => {
      const now = root.dataset.theme ?? "system";
      const next = ORDER[(ORDER.indexOf(now) + 1) % ORDER.length];
      apply(next);
      try { localStorage.setItem(KEY, next); } catch { /* storage is not permitted: the choice lasts until the page is closed */ }
      show();
    });
    show();
  });
})();
