// Keeps a page of the newest time as new as the results: it counts the time since the newest window, asks now and then
// whether another window has ended, and loads the page again if so, but not while somebody writes in a form.
"use strict";
(function () {
  const EVERY_MS = 10000;
  const opened = performance.now();
  const known = document.body.dataset.done;

  function ago(seconds) { // as `markup.ago` writes it
    for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
      const value = seconds / length;
      if (value >= 2) return (unit === "min" || value >= 10 ? Math.round(value) : value.toFixed(1)) + " " + unit;
    }
    return Math.round(seconds) + " s";
  }

  function writing() {
    return document.activeElement !== null && ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement.tagName);
  }

  setInterval(() => {
    const passed = (performance.now() - opened) / 1000;
    for (const told of document.querySelectorAll(".ago[data-s]")) told.textContent = ago(Number(told.dataset.s) + passed);
  }, 1000);

  setInterval(async () => {
    if (document.hidden || writing()) return;
    try {
      const answer = await fetch("newest");
      if (answer.ok && (await answer.json()).done !== known) location.reload();
    } catch {
      // The server is away for a moment; the time since the newest window goes on.
    }
  }, EVERY_MS);
})();
