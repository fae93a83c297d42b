// In a frame of a page of the same site, such as Airflow's, the colours are light or dark as that page chose, not as the
// reader's system is. Charts ask for a colour by `colourOf`, and draw again on the event `scheme`.
"use strict";
(function () {
  const page = document.documentElement;

  window.colourOf = function (name) {
    const probe = page.appendChild(document.createElement("i"));
    probe.style.color = `var(${name})`;
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };

  const changed = () => dispatchEvent(new Event("scheme"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  if (parent === self) return;
  try {
    const outer = parent.document.documentElement;
    const follow = () => {
      page.style.colorScheme = getComputedStyle(outer).colorScheme === "dark" ? "dark" : "light";
      changed();
    };
    new MutationObserver(follow).observe(outer, { attributes: true, attributeFilter: ["class", "style"] });
    follow();
  } catch (error) {
    if (error.name !== "SecurityError") throw error; // a page of another site: it cannot be looked at
  }
})();
